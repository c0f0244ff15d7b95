//! Tests handlers that park their timers, and callers that unpark them.

use super::{DAY, Note, Seen, World, block_on, secs};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::policy::{Backoff, Misfire};
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{PAUSED, StoreErrorKind};
use tourbillon_durable::timer::Timer;
use tourbillon_durable::{Cancelled, Changed, Ending, Event, Spec, Timers, Verdict};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Makes a runtime whose handler parks each timer for a reason. The reason is in the returned value. While the value is
/// `None`, the handler parks no timer.
fn parking() -> (World, Arc<Mutex<Option<String>>>) {
    let reason = Arc::new(Mutex::new(Some("closed".to_owned())));
    let inside = Arc::clone(&reason);
    let world = World::new(move |_, _| match &*inside.lock().unwrap() {
        Some(reason) => Verdict::Park(reason.as_str().into()),
        None => Verdict::Done,
    });
    (world, reason)
}

fn stored(world: &World, key: &str) -> Timer {
    block_on(world.timers().get(key)).unwrap().unwrap()
}

#[test]
fn a_parked_timer_waits_for_its_reason_and_costs_nothing() {
    let (world, reason) = parking();
    world.schedule(Spec::new(Note(1)).key("a").attempts(1));
    for _ in 0..30 {
        world.advance(secs(1));
        assert_eq!(stored(&world, "a").state, State::Parked("closed".into()));
        assert_eq!(world.timers().unpark_blocking("close", 9).unwrap(), 0, "another reason");
        assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 1);
    }
    // A day in the parked state does not count as a failure.
    world.settle();
    world.advance(DAY);
    assert_eq!(world.seen().len(), 31, "more than the 20 deliveries of the policy");
    let timer = stored(&world, "a");
    assert_eq!((timer.failures, timer.deliveries, timer.last_error), (0, 0, None));
    *reason.lock().unwrap() = None;
    assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 1);
    world.settle();
    let stats = world.timers().stats();
    assert_eq!((stats.parked, stats.done, stats.retried, stats.dead, stats.released), (31, 1, 0, 0, 0));
    let seen = world.seen.lock().unwrap();
    assert!(seen.iter().all(|Seen { delivery, .. }| (delivery.attempt, delivery.delivery) == (1, 1)));
}

#[test]
fn the_longest_due_come_back_first_and_no_more_than_asked_for() {
    let (world, reason) = parking();
    for number in (0..2_500).rev() {
        world.schedule(Spec::new(Note(number)).after(MILLISECOND * u32::try_from(number).unwrap()));
    }
    world.advance(secs(3));
    assert_eq!(world.count(Phase::Parked), 2_500);
    *reason.lock().unwrap() = None;
    world.seen.lock().unwrap().clear();
    assert_eq!(world.timers().unpark_blocking("closed", 0).unwrap(), 0);
    assert_eq!(world.timers().unpark_blocking("closed", 3).unwrap(), 3);
    world.settle();
    let seen = world.numbers();
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!(world.timers().unpark_blocking("closed", 2_000).unwrap(), Timers::MOST_UNPARKED);
    assert_eq!(world.timers().unpark_blocking("closed", u32::MAX).unwrap(), 1_000);
    world.settle();
    assert_eq!((world.count(Phase::Parked), world.seen().len()), (497, 2_003));
    assert_eq!(world.timers().unpark_blocking("closed", u32::MAX).unwrap(), 497);
    world.settle();
    assert_eq!((world.count(Phase::Parked), world.seen().len()), (0, 2_500));
}

#[test]
fn the_time_aside_is_lateness() {
    let (mut world, reason) = parking();
    world.stop();
    world.start(|builder| builder.catch_up_rate(None));
    world.schedule(Spec::new(Note(1)).key("grace").misfire(Misfire::Within(secs(60))));
    world.schedule(Spec::new(Note(2)).key("fire"));
    world.advance(secs(1));
    *reason.lock().unwrap() = None;
    world.seen.lock().unwrap().clear();
    world.clock.advance(secs(100));
    assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 2);
    world.settle();
    assert_eq!(world.seen(), [2]);
    assert!(world.seen.lock().unwrap()[0].delivery.lateness >= secs(100));
    assert_eq!(world.timers().stats().skipped, 1);
}

#[test]
fn the_greatest_age_ends_a_timer_that_fails_after_it() {
    let parks = Arc::new(Mutex::new(true));
    let inside = Arc::clone(&parks);
    let world = World::new(move |_, _| match *inside.lock().unwrap() {
        true => Verdict::Park("closed".into()),
        false => Verdict::Retry { error: "no".into(), after: None },
    });
    let policy = tourbillon_durable::policy::Policy { max_age: Some(secs(60)), ..Default::default() };
    world.schedule(Spec::new(Note(1)).key("a").policy(policy));
    world.advance(secs(1));
    world.clock.advance(secs(100));
    *parks.lock().unwrap() = false;
    assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 1);
    world.settle();
    assert_eq!(
        (world.seen().len(), world.count(Phase::Dead)),
        (2, 1),
        "delivered, and dead after its failure"
    );
}

#[test]
fn a_parked_timer_can_be_fired_moved_and_cancelled() {
    let (world, reason) = parking();
    for key in ["fired", "moved", "cancelled"] {
        world.schedule(Spec::new(Note(1)).key(key));
    }
    world.advance(secs(1));
    *reason.lock().unwrap() = None;
    let timers = world.timers();
    assert_eq!(block_on(timers.fire("fired")).unwrap(), Changed::Changed);
    let later = stored(&world, "moved").due + DAY;
    assert_eq!(block_on(timers.move_to("moved", later)).unwrap(), Changed::Changed);
    assert!(matches!(timers.cancel_blocking("cancelled").unwrap(), Cancelled::Cancelled(_)));
    // A parked timer that is moved into the future is pending.
    assert_eq!(block_on(timers.pause("moved")).unwrap(), Changed::Changed);
    assert_eq!(block_on(timers.resume("moved")).unwrap(), Changed::Changed);
    world.settle();
    assert_eq!((world.timers().stats().done, world.count(Phase::Pending)), (1, 1));
    assert_eq!(timers.unpark_blocking("closed", 9).unwrap(), 0);
    world.settle();
    assert_eq!(world.timers().stats().done, 1, "not before its moment");
    world.advance(DAY);
    assert_eq!(world.timers().stats().done, 2);
}

#[test]
fn a_series_stands_while_its_occurrence_is_parked() {
    let (world, reason) = parking();
    let spec = Spec::new(Note(1)).key("minutely").after(secs(60));
    world.schedule(spec.repeat(Plan::Every(60_000), MissedInstants::Skip));
    for _ in 0..5 {
        world.advance(secs(61));
    }
    assert_eq!((world.seen().len(), world.count(Phase::Parked), world.count(Phase::Pending)), (1, 1, 0));
    // The series is paused while its occurrence is parked. The pause lasts longer than the reason to park.
    assert_eq!(block_on(world.timers().pause("minutely")).unwrap(), Changed::Changed);
    *reason.lock().unwrap() = None;
    assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 0);
    world.settle();
    assert_eq!(world.seen().len(), 1);
    assert_eq!(block_on(world.timers().resume("minutely")).unwrap(), Changed::Changed);
    world.settle();
    world.advance(secs(61));
    assert_eq!(world.seen().len(), 3);
}

#[test]
fn occurrences_of_paused_series_do_not_count_for_the_limit() {
    let (world, reason) = parking();
    for nth in 0..5 {
        let spec = Spec::new(Note(nth)).key(format!("series {nth}"));
        world.schedule(spec.repeat(Plan::Every(60_000), MissedInstants::Skip));
    }
    world.advance(secs(1));
    for nth in 0..5 {
        let paused = block_on(world.timers().pause(&*format!("series {nth}"))).unwrap();
        assert_eq!(paused, Changed::Changed);
    }
    for number in 10..15 {
        world.schedule(Spec::new(Note(number)));
    }
    world.advance(secs(1));
    *reason.lock().unwrap() = None;
    // The timers that are due earlier come first.
    assert_eq!(world.timers().unpark_blocking("closed", 4).unwrap(), 4);
    assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 1);
    assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 0);
    world.settle();
    assert_eq!((world.timers().stats().done, world.count(Phase::Parked)), (5, 5));
}

#[test]
fn a_timer_that_is_delivered_at_most_once_is_parked_as_well_until_it_begins() {
    let (mut world, reason) = parking();
    world.stop();
    world.start(|builder| builder.begins_itself("note"));
    world.schedule(Spec::new(Note(1)).key("a").at_most_once());
    world.advance(secs(1));
    let timer = stored(&world, "a");
    assert_eq!((timer.state, timer.deliveries), (State::Parked("closed".into()), 0));
    *reason.lock().unwrap() = None;
    assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 1);
    world.settle();
    world.advance(DAY);
    assert_eq!((world.seen().len(), world.timers().stats().done, world.timers().stats().parked), (2, 1, 1));
}

#[test]
fn a_reason_that_is_not_permitted_is_a_failure() {
    let (world, reason) = parking();
    let park = |text: &str| {
        *reason.lock().unwrap() = Some(text.to_owned());
        let key = format!("key {}", world.seen().len());
        world.schedule(Spec::new(Note(1)).key(&*key).backoff(Backoff::Fixed(DAY)));
        world.advance(secs(1));
        stored(&world, &key)
    };
    let longest = "r".repeat(Verdict::LONGEST_REASON);
    assert_eq!(park(&longest).state, State::Parked(longest.as_str().into()));
    assert_eq!(park("").state, State::Parked("".into()));
    let timer = park(&"r".repeat(256));
    assert_eq!((timer.state.phase(), timer.failures), (Phase::Pending, 1));
    assert_eq!(timer.last_error.as_deref(), Some("the reason to park has 256 bytes, the most are 255"));
    let timer = park("a\0b");
    assert_eq!((timer.state.phase(), timer.failures), (Phase::Pending, 1));
    assert_eq!(timer.last_error.as_deref(), Some("the reason to park has a zero byte"));
    for reserved in [PAUSED, "no handler: mail"] {
        let timer = park(reserved);
        let error = format!("the reason to park is the runtime's: {reserved}");
        assert_eq!((timer.failures, timer.last_error.as_deref()), (1, Some(&*error)));
    }
    assert_eq!(world.timers().stats().parked, 2);
    assert_eq!(world.timers().unpark_blocking(&longest, 9).unwrap(), 1);
    assert_eq!(world.timers().unpark_blocking("", 9).unwrap(), 1);
    for reason in ["r".repeat(256), "a\0b".to_owned()] {
        let error = world.timers().unpark_blocking(&reason, 9).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Limit);
    }
}

/// Tests a gap that the documentation describes. An unpark between the handler's decision and the store's transaction
/// finds no timer. A caller that unparks again when the park is reported loses no timer.
#[test]
fn an_unpark_that_came_too_early_is_repeated_when_the_park_is_reported() {
    for looks_again in [false, true] {
        let (mut world, reason) = parking();
        world.stop();
        let (sender, parked) = std::sync::mpsc::channel();
        let (in_handler, decided) = std::sync::mpsc::channel();
        let (goes_on, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let inside = Arc::clone(&reason);
        world.answer = Arc::new(move |_, _| {
            let verdict = match &*inside.lock().unwrap() {
                Some(reason) => Verdict::Park(reason.as_str().into()),
                None => Verdict::Done,
            };
            in_handler.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            verdict
        });
        world.start(|builder| {
            builder.observe(move |event| {
                if let Event::Ended {
                    phase: Phase::Parked,
                    ending: Ending::Answered(Verdict::Park(reason)),
                    ..
                } = event
                {
                    sender.send(reason.clone()).unwrap();
                }
            })
        });
        world.schedule(Spec::new(Note(1)));
        world.clock.advance(secs(1));
        decided.recv_timeout(super::PATIENCE).unwrap();
        // The condition ends after the handler has looked at it, and before the park is stored.
        *reason.lock().unwrap() = None;
        assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 0);
        goes_on.send(()).unwrap();
        let reported = parked.recv_timeout(super::PATIENCE).unwrap();
        if looks_again && reason.lock().unwrap().is_none() {
            assert_eq!(world.timers().unpark_blocking(&reported, 9).unwrap(), 1);
            decided.recv_timeout(super::PATIENCE).unwrap();
            goes_on.send(()).unwrap();
        }
        world.settle();
        let left = world.count(Phase::Parked);
        assert_eq!((left, world.timers().stats().done), if looks_again { (0, 1) } else { (1, 0) });
    }
}
