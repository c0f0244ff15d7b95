//! Tests the observer of a runtime: the events that it sees, their order, and that it harms nothing.

use super::{DAY, Note, PATIENCE, START, World, block_on, eventually, secs};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::policy::{Backoff, Misfire};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{MemoryStore, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Delivery, Durable, Ending, Event, Incident, Spec, Timers, UtcMillis, Verdict};

type Events = Arc<Mutex<Vec<Event>>>;

/// Makes a runtime with an observer. Also returns the list of the events that the observer gets.
fn observed(answer: impl Fn(u64, &Delivery) -> Verdict + Send + Sync + 'static) -> (World, Events) {
    let mut world = World::new(answer);
    world.stop();
    let events = observe(&mut world);
    (world, events)
}

/// Starts the world's runtime with an observer. Returns the list of the events that the observer gets.
fn observe(world: &mut World) -> Events {
    let events = Events::default();
    let noted = Arc::clone(&events);
    world.start(move |builder| builder.observe(move |event| noted.lock().unwrap().push(event.clone())));
    events
}

fn take(events: &Events) -> Vec<Event> {
    std::mem::take(&mut *events.lock().unwrap())
}

fn at(millis: u64) -> UtcMillis {
    UtcMillis::from_millis(START + millis)
}

fn ended(event: &Event) -> (&Ending, Phase, Option<UtcMillis>) {
    match event {
        Event::Ended { ending, phase, due, .. } => (ending, *phase, *due),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_delivery_begins_and_ends() {
    let clock = OnceLock::<ManualClock>::new();
    let shared = Arc::new(clock);
    let inside = Arc::clone(&shared);
    let (world, events) = observed(move |_, _| {
        inside.get().unwrap().advance(secs(3));
        Verdict::Done
    });
    shared.set(world.clock.clone()).unwrap();
    let id = world.schedule(Spec::new(Note(1)).namespace("shop").key("a").trace("00-1").after(secs(10)));
    world.advance(secs(12));
    let events = take(&events);
    let [Event::Began { attempt, at: began, lateness }, Event::Ended { attempt: same, at: end, took, .. }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (attempt.id, &*attempt.namespace, attempt.key.as_deref(), &*attempt.kind),
        (id, "shop", Some("a"), "note")
    );
    assert_eq!((attempt.attempt, attempt.delivery, attempt.trace.as_deref()), (1, 1, Some("00-1")));
    assert_eq!((attempt.scheduled, attempt.due), (at(10_001), at(10_001)));
    assert_eq!((*began, *lateness), (at(12_000), Duration::from_millis(1_999)));
    assert_eq!((same, *end, *took), (attempt, at(15_000), Some(secs(3))));
    assert_eq!(ended(&events[1]), (&Ending::Answered(Verdict::Done), Phase::Done, None));
}

#[test]
fn each_ending_has_its_event() {
    let later = at(1_000_000);
    let (world, events) = observed(move |number, _| match number {
        1 => Verdict::Retry { error: "no".into(), after: Some(secs(70)) },
        2 => Verdict::Dead("never".into()),
        3 => Verdict::Snooze(later),
        4 => Verdict::Park("closed".into()),
        5 => panic!("a panic"),
        _ => Verdict::Done,
    });
    let end_of = |spec: Spec<Note>| {
        let id = world.schedule(spec);
        world.advance(secs(2));
        let events = take(&events);
        let is_ours = |event: &&Event| matches!(event, Event::Ended { attempt, .. } if attempt.id == id);
        let ends: Vec<&Event> = events.iter().filter(is_ours).collect();
        assert_eq!(ends.len(), 1, "{events:?}");
        let (ending, phase, due) = ended(ends[0]);
        (ending.clone(), phase, due)
    };
    let now = || UtcMillis::from_nanos(tourbillon::Clock::true_now(&world.clock).as_nanos());
    let retry = |error: &str, after| Verdict::Retry { error: error.into(), after };
    assert_eq!(
        end_of(Spec::new(Note(1))),
        (Ending::Answered(retry("no", Some(secs(70)))), Phase::Pending, Some(now() + secs(70)))
    );
    assert_eq!(
        end_of(Spec::new(Note(2))),
        (Ending::Answered(Verdict::Dead("never".into())), Phase::Dead, None)
    );
    assert_eq!(
        end_of(Spec::new(Note(3))),
        (Ending::Answered(Verdict::Snooze(later)), Phase::Pending, Some(later))
    );
    assert_eq!(
        end_of(Spec::new(Note(4))),
        (Ending::Answered(Verdict::Park("closed".into())), Phase::Parked, None)
    );
    assert_eq!(
        end_of(Spec::new(Note(4)).at_most_once()),
        (Ending::Answered(Verdict::Park("closed".into())), Phase::Done, None)
    );
    assert_eq!(
        end_of(Spec::new(Note(5)).backoff(Backoff::Fixed(DAY))),
        (Ending::Answered(retry("the handler panicked: a panic", None)), Phase::Pending, Some(now() + DAY))
    );
    assert_eq!(
        end_of(Spec::new(Note(1)).at_most_once()),
        (Ending::Answered(retry("no", Some(secs(70)))), Phase::Done, None)
    );
    let minutely = Spec::new(Note(6)).at(now()).repeat(Plan::Every(60_000), MissedInstants::Skip);
    let next = now() + secs(60);
    assert_eq!(end_of(minutely), (Ending::Answered(Verdict::Done), Phase::Done, Some(next)));
}

#[test]
fn deliveries_that_do_not_begin_end() {
    let (mut world, events) = observed(|_, _| Verdict::Done);
    let late = |number| Spec::new(Note(number)).misfire(Misfire::Within(secs(1)));
    world.schedule(late(1));
    world.schedule(late(2).at_most_once());
    world.stop();
    take(&events);
    world.clock.advance(DAY);
    let events = observe(&mut world);
    world.settle();
    let events = take(&events);
    let ends = events
        .iter()
        .filter(|event| matches!(event, Event::Ended { ending: Ending::Skipped, phase: Phase::Done, .. }));
    assert_eq!(ends.count(), 2, "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Began { .. })));
    let incidents = events.iter().filter(|event| matches!(event, Event::Incident(Incident::Skipped { .. })));
    assert_eq!(incidents.count(), 2);
}

#[test]
fn a_timeout_and_what_comes_after_it() {
    let clock = ManualClock::new();
    let events = Events::default();
    let noted = Arc::clone(&events);
    let calls = Arc::new(Mutex::new(0));
    let called = Arc::clone(&calls);
    let durable = Durable::builder(MemoryStore::new(clock.clone()))
        .clock(clock.clone())
        .observe(move |event| noted.lock().unwrap().push(event.clone()))
        .handler(move |_: Note, _| {
            *called.lock().unwrap() += 1;
            std::future::pending::<()>()
        })
        .start()
        .unwrap();
    let spec = Spec::new(Note(1)).timeout(secs(5)).attempts(1);
    durable.handle().schedule_blocking(spec).unwrap();
    clock.advance(secs(1));
    eventually(|| *calls.lock().unwrap() == 1);
    clock.advance(secs(6));
    assert!(durable.handle().await_idle(PATIENCE));
    let events = take(&events);
    let [Event::Began { .. }, Event::Incident(Incident::Died { .. }), Event::Ended { took, .. }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(*took, Some(secs(6)));
    let retry = Verdict::Retry { error: "the handler did not answer in time".into(), after: None };
    assert_eq!(ended(&events[2]), (&Ending::Answered(retry), Phase::Dead, None));
}

#[test]
fn what_a_stop_gives_back_is_reported_before_it_returns() {
    let clock = ManualClock::new();
    let events = Events::default();
    let noted = Arc::clone(&events);
    let durable = Durable::builder(MemoryStore::new(clock.clone()))
        .clock(clock.clone())
        .observe(move |event| noted.lock().unwrap().push(event.clone()))
        .handler(|_: Note, _| std::future::pending::<()>())
        .start()
        .unwrap();
    for number in 0..5 {
        durable.handle().schedule_blocking(Spec::new(Note(number))).unwrap();
    }
    clock.advance(secs(1));
    let begun = || events.lock().unwrap().iter().filter(|event| matches!(event, Event::Began { .. })).count();
    eventually(|| begun() == 5);
    let _stats = durable.shutdown(Duration::ZERO);
    let given_back = |event: &&Event| {
        matches!(event, Event::Ended { ending: Ending::GivenBack, phase: Phase::Pending, due: Some(_), .. })
    };
    assert_eq!(take(&events).iter().filter(given_back).count(), 5);
}

/// Tests two runtimes on a single store. The lease of the first runtime ends while its handler runs.
#[test]
fn a_lost_lease_is_reported_to_its_holder_and_to_the_one_that_ended_it() {
    let clock = ManualClock::new();
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock.clone()));
    let start = |alarms: ManualClock| {
        let events = Events::default();
        let noted = Arc::clone(&events);
        let durable = Durable::builder_on(Arc::clone(&store))
            .clock(alarms)
            .concurrency(1)
            .observe(move |event| noted.lock().unwrap().push(event.clone()))
            .handler(|_: Note, _| std::future::pending::<()>())
            .start()
            .unwrap();
        (durable, events)
    };
    // The alarms of the first runtime stand still, so it does not renew its lease before the test wants that.
    let alarms = ManualClock::new();
    let (first, of_first) = start(alarms.clone());
    let id = first.handle().schedule_blocking(Spec::new(Note(1))).unwrap().id();
    clock.advance(secs(1));
    first.handle().look();
    let has = |events: &Events, wanted: fn(&Event) -> bool| events.lock().unwrap().iter().any(wanted);
    eventually(|| has(&of_first, |event| matches!(event, Event::Began { .. })));
    clock.advance(secs(60));
    let (second, of_second) = start(clock.clone());
    eventually(|| has(&of_second, |event| matches!(event, Event::Began { .. })));
    alarms.advance(secs(20));
    eventually(|| {
        has(&of_first, |event| matches!(event, Event::LeaseLost { attempt, .. } if attempt.key.is_none()))
    });
    let of_second = take(&of_second);
    assert!(
        matches!(&of_second[..], [Event::Expired { id: expired, phase: Phase::Pending, .. }, Event::Began { attempt, .. }]
            if *expired == id && attempt.id == id && attempt.delivery == 2),
        "{of_second:?}"
    );
    drop((first, second));
}

#[test]
fn an_observer_that_panics_and_one_that_calls_the_runtime_harm_nothing() {
    let timers = Arc::new(OnceLock::<Timers>::new());
    let inside = Arc::clone(&timers);
    let calls = Arc::new(Mutex::new(0));
    let called = Arc::clone(&calls);
    let mut world = World::done();
    world.stop();
    world.start(move |builder| {
        builder.observe(move |_| {
            *called.lock().unwrap() += 1;
            let timers = inside.get().unwrap();
            let _stats = timers.stats();
            timers.look();
            panic!("an observer panics");
        })
    });
    timers.set(world.timers().clone()).unwrap();
    for number in 0..10 {
        world.schedule(Spec::new(Note(number)));
    }
    world.advance(secs(1));
    assert_eq!((world.timers().stats().done, *calls.lock().unwrap()), (10, 20));
}

/// Tests that the function that gets incidents can read the statistics of the runtime.
#[test]
fn incidents_are_reported_outside_of_locks() {
    let timers = Arc::new(OnceLock::<Timers>::new());
    let inside = Arc::clone(&timers);
    let mut world = World::done();
    let id = TimerId::from_u128(1);
    world.schedule(Spec::new(Note(1)).id(id).after(secs(10)).misfire(Misfire::Within(secs(1))));
    world.stop();
    let (sender, skipped) = std::sync::mpsc::channel();
    world.start(|builder| {
        builder.on_incident(move |_| {
            let running = inside.get().map(|timers| timers.stats().running);
            sender.send(running).unwrap();
        })
    });
    timers.set(world.timers().clone()).unwrap();
    world.clock.advance(DAY);
    assert_eq!(skipped.recv_timeout(PATIENCE), Ok(Some(0)));
    world.settle();
    assert_eq!(block_on(world.timers().get(id)).unwrap(), None);
}
