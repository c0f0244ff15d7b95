//! The runtime on the store in memory and a manual clock.

mod batch;
mod events;
mod park;
mod series;
mod snooze;
mod times;

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon::ManualClock;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::policy::{Backoff, Misfire};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Filter, IfPresent, MemoryStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{
    Builder, Cancelled, Changed, Delivery, Durable, Health, Incident, Kind, Placed, Rejection, Spec, Timers,
    UtcMillis, Verdict,
};

const PATIENCE: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note(u64);

impl Kind for Note {
    const NAME: &'static str = "note";
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    pollster::block_on(future)
}

/// A delivery as the handler saw it: the payload, the delivery, and the clock's time.
type Seen = (u64, Delivery, UtcMillis);

/// A runtime whose handler keeps its deliveries and answers with the verdicts of the test.
struct World {
    clock: ManualClock,
    seen: Arc<Mutex<Vec<Seen>>>,
    incidents: Arc<Mutex<Vec<String>>>,
    durable: Option<Durable>,
    store: Arc<MemoryStore>,
    answer: Arc<Answer>,
}

/// A handler's answer to a number.
type Answer = dyn Fn(u64, &Delivery) -> Verdict + Send + Sync;

const START: u64 = 1_700_000_000_000;

impl World {
    fn new(answer: impl Fn(u64, &Delivery) -> Verdict + Send + Sync + 'static) -> Self {
        let clock = ManualClock::new();
        clock.set(UtcMillis::from_millis(START).to_timestamp());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let answer = Arc::new(answer);
        let mut world =
            Self { clock, seen: Arc::default(), incidents: Arc::default(), durable: None, store, answer };
        world.start(|builder| builder);
        world
    }

    fn done() -> Self {
        Self::new(|_, _| Verdict::Done)
    }

    fn start(&mut self, settings: impl FnOnce(Builder) -> Builder) {
        let (seen, clock, answer) = (Arc::clone(&self.seen), self.clock.clone(), Arc::clone(&self.answer));
        let incidents = Arc::clone(&self.incidents);
        let store: Arc<dyn tourbillon_durable::store::TimerStore> = Arc::<MemoryStore>::clone(&self.store);
        let builder = Durable::builder_on(store)
            .clock(self.clock.clone())
            .on_incident(move |incident: &Incident| incidents.lock().unwrap().push(format!("{incident:?}")))
            .handler(move |Note(number), delivery: Delivery| {
                let now = UtcMillis::from_timestamp(tourbillon::Clock::true_now(&clock));
                let verdict = answer(number, &delivery);
                seen.lock().unwrap().push((number, delivery, now));
                async move { verdict }
            });
        self.durable = Some(settings(builder).start().unwrap());
    }

    fn timers(&self) -> &Timers {
        self.durable.as_ref().unwrap().handle()
    }

    fn schedule(&self, spec: Spec<Note>) -> TimerId {
        self.timers().schedule_blocking(spec).unwrap().id()
    }

    /// Moves the clock and waits until all that is due was delivered.
    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        assert!(self.timers().await_idle(PATIENCE), "{:?}", self.timers());
    }

    fn settle(&self) {
        assert!(self.timers().await_idle(PATIENCE), "{:?}", self.timers());
    }

    fn seen(&self) -> Vec<u64> {
        self.seen.lock().unwrap().iter().map(|(number, ..)| *number).collect()
    }

    fn count(&self, phase: Phase) -> u64 {
        block_on(self.timers().counts()).unwrap().of(phase)
    }
}

/// No world ends with a fault in its store.
impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(block_on(self.timers().check()).unwrap(), []);
        }
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_timer_is_delivered_when_it_is_due_and_not_before() {
    let world = World::done();
    let id = world.schedule(Spec::new(Note(1)).after(30 * DAY).key("order 1"));
    world.advance(30 * DAY);
    assert_eq!(world.seen(), [0_u64; 0], "the store's time was rounded down when the timer was accepted");
    world.advance(Duration::from_millis(1));
    assert_eq!(world.seen(), [1]);
    let (_, delivery, now) = world.seen.lock().unwrap()[0].clone();
    assert_eq!((delivery.id, delivery.attempt, delivery.delivery), (id, 1, 1));
    assert_eq!(delivery.key.as_deref(), Some("order 1"));
    assert!(now >= delivery.due);
    assert_eq!(block_on(world.timers().get(id)).unwrap(), None, "what has ended is gone");
}

#[test]
fn a_hundred_years_pass() {
    let world = World::done();
    for year in (0..100).rev() {
        world.schedule(Spec::new(Note(year)).after(365 * DAY * u32::try_from(year).unwrap()));
    }
    for _ in 0..101 {
        world.advance(365 * DAY);
    }
    assert_eq!(world.seen(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_failure_is_tried_again_after_the_pause_until_the_attempts_are_used_up() {
    let world = World::new(|_, _| Verdict::Retry { error: "no".into(), after: None });
    let ladder = Backoff::Ladder(vec![secs(10), secs(100)]);
    let id = world.schedule(Spec::new(Note(1)).backoff(ladder).attempts(3));
    world.advance(secs(1));
    assert_eq!(world.seen(), [1]);
    world.advance(secs(9));
    assert_eq!(world.seen().len(), 1);
    world.advance(secs(1));
    assert_eq!(world.seen().len(), 2);
    world.advance(secs(99));
    assert_eq!(world.seen().len(), 2);
    world.advance(secs(1));
    assert_eq!(world.seen().len(), 3);
    world.advance(100 * DAY);
    assert_eq!(world.seen().len(), 3);
    assert_eq!(world.count(Phase::Dead), 1);
    let timer = block_on(world.timers().get(id)).unwrap().unwrap();
    assert_eq!((timer.failures, timer.last_error.as_deref()), (3, Some("no")));
    let attempts: Vec<u32> =
        world.seen.lock().unwrap().iter().map(|(_, delivery, _)| delivery.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(block_on(world.timers().replay(id)).unwrap(), Changed::Changed);
    world.settle();
    assert_eq!(world.seen().len(), 4);
    let stats = world.timers().stats();
    assert_eq!((stats.delivered, stats.retried, stats.dead, stats.done), (4, 3, 1, 0));
}

#[test]
fn handlers_answer_in_four_ways() {
    let world = World::new(|number, delivery| match number {
        0 => Verdict::Done,
        1 => Verdict::Dead("never".into()),
        2 if delivery.delivery == 1 && delivery.attempt == 1 && delivery.lateness < secs(50) => {
            Verdict::Snooze(UtcMillis::from_millis(START + 100_000))
        }
        _ => Verdict::Done,
    });
    for number in 0..3 {
        world.schedule(Spec::new(Note(number)));
    }
    world.advance(secs(1));
    let mut seen = world.seen();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!((world.count(Phase::Dead), world.count(Phase::Pending)), (1, 1));
    world.advance(secs(98));
    assert_eq!(world.seen().len(), 3);
    world.advance(secs(60));
    assert_eq!(world.seen().len(), 4);
}

#[test]
fn after_cancelled_no_delivery_begins() {
    let world = World::done();
    world.schedule(Spec::new(Note(1)).after(secs(10)).key("a"));
    let cancelled = world.timers().cancel_blocking("a").unwrap();
    assert!(matches!(cancelled, Cancelled::Cancelled(timer) if timer.payload.0[..] == *b"1"));
    assert_eq!(world.timers().cancel_blocking("a").unwrap(), Cancelled::NotFound);
    world.advance(DAY);
    assert_eq!(world.seen(), [0_u64; 0]);
}

#[test]
fn keys_have_four_modes() {
    let world = World::done();
    let spec = |number, delay| Spec::new(Note(number)).after(secs(delay)).key("a");
    let first = world.schedule(spec(1, 10));
    let refused = world.timers().schedule_blocking(spec(2, 20)).unwrap_err();
    assert!(matches!(refused.reason, Rejection::KeyExists(holder) if holder == first));
    assert_eq!(refused.payload, Note(2), "handed back");
    let place = |spec| world.timers().schedule_blocking(spec).unwrap();
    assert_eq!(
        place(spec(3, 30).if_present(IfPresent::Keep)),
        Placed::Kept { id: first, was: Phase::Pending }
    );
    let replaced = place(spec(4, 40).if_present(IfPresent::Replace));
    let Placed::Replaced { new, old, was: Phase::Pending } = replaced else { panic!("{replaced:?}") };
    assert_eq!(old, first);
    let Placed::Replaced { old, .. } = place(spec(5, 5).if_present(IfPresent::ReplaceKeepDue)) else {
        panic!()
    };
    assert_eq!(old, new);
    world.advance(secs(40));
    assert_eq!(world.seen(), [0_u64; 0]);
    world.advance(secs(1));
    assert_eq!(world.seen(), [5]);
    world.schedule(spec(6, 1));
}

#[test]
fn a_timer_that_is_kept_says_whether_its_delivery_has_begun() {
    let (sender, begun) = std::sync::mpsc::channel();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Mutex::new(finished);
    let world = World::new(move |number, _| {
        if number == 1 {
            sender.send(()).unwrap();
            let _dropped = finished.lock().unwrap().recv_timeout(PATIENCE);
        }
        Verdict::Done
    });
    let spec = |number| Spec::new(Note(number)).key("refresh");
    let first = world.schedule(spec(1));
    world.clock.advance(secs(1));
    begun.recv_timeout(PATIENCE).unwrap();
    let place = |spec| world.timers().schedule_blocking(spec).unwrap();
    let kept = place(spec(2).if_present(IfPresent::Keep));
    assert_eq!(kept, Placed::Kept { id: first, was: Phase::Leased });
    let again = place(spec(3).if_present(IfPresent::Replace));
    assert!(matches!(again, Placed::Replaced { old, was: Phase::Leased, .. } if old == first), "{again:?}");
    finish.send(()).unwrap();
    world.advance(secs(1));
    assert_eq!(world.seen(), [1, 3], "the wish that was made during the delivery is delivered after it");
}

#[test]
fn a_repeated_creation_makes_one_timer() {
    let world = World::done();
    let id = TimerId::from_u128(42);
    let place = || world.timers().schedule_blocking(Spec::new(Note(1)).after(secs(5)).id(id)).unwrap();
    assert_eq!(place(), Placed::Created(id));
    assert_eq!(place(), Placed::Repeated(id));
    world.advance(secs(6));
    assert_eq!(place(), Placed::Repeated(id), "also after its end");
    world.advance(secs(3_700));
    assert_eq!(world.seen(), [1]);
    assert_eq!(place(), Placed::Created(id), "an hour later it is forgotten");
}

#[test]
fn timers_are_cancelled_by_label_in_batches() {
    let world = World::done();
    for number in 0..1_200 {
        let label = if number % 3 == 0 { "fizz" } else { "other" };
        world.schedule(Spec::new(Note(number)).after(secs(100)).label(label).label("all"));
    }
    let mut steps = Vec::new();
    let cancelled = block_on(world.timers().cancel_labelled("", "other", |progress| {
        steps.push(progress.cancelled);
        true
    }));
    assert_eq!(cancelled.unwrap().cancelled, 800);
    assert_eq!(steps, [500, 800]);
    let filter = Filter { label: Some("all".into()), ..Filter::default() };
    assert_eq!(block_on(world.timers().list(filter, None, 1_000)).unwrap().timers.len(), 400);
    world.advance(secs(101));
    assert_eq!(world.seen().len(), 400);
}

#[test]
fn a_late_delivery_is_skipped_beyond_its_grace_and_counted() {
    let mut world = World::done();
    let specs =
        |number, misfire| Spec::new(Note(number)).after(secs(10)).key(format!("k{number}")).misfire(misfire);
    world.schedule(specs(1, Misfire::Fire));
    world.schedule(specs(2, Misfire::Within(secs(60))));
    world.schedule(specs(3, Misfire::Within(secs(3_600))));
    drop(world.durable.take());
    world.clock.advance(secs(1_000));
    world.start(|builder| builder);
    world.settle();
    let mut seen = world.seen();
    seen.sort_unstable();
    assert_eq!(seen, [1, 3]);
    assert_eq!(world.timers().stats().skipped, 1);
    let incidents = world.incidents.lock().unwrap().join("\n");
    assert!(incidents.contains("Skipped") && incidents.contains("k2"), "{incidents}");
    assert_eq!(world.count(Phase::Pending), 0);
}

#[test]
fn a_series_goes_on_from_its_scheduled_instants() {
    let mut world = World::done();
    let spec = Spec::new(Note(1)).after(secs(60)).key("minutely");
    world.schedule(spec.repeat(Plan::Every(60_000), MissedInstants::Skip));
    for _ in 0..5 {
        world.advance(secs(61));
    }
    assert_eq!(world.seen().len(), 5);
    let preview = block_on(world.timers().preview("minutely", 10)).unwrap();
    assert_eq!(preview.len(), 10);
    assert!(preview.windows(2).all(|pair| pair[1] - pair[0] == secs(60)));
    drop(world.durable.take());
    world.clock.advance(secs(600));
    world.start(|builder| builder);
    world.settle();
    assert_eq!(world.seen().len(), 6, "the late one, once");
    assert_eq!(world.timers().stats().instants_skipped, 9 + 1 - 1);
    world.advance(secs(60));
    assert_eq!(world.seen().len(), 7);
    let scheduled: Vec<UtcMillis> =
        world.seen.lock().unwrap().iter().map(|(_, delivery, _)| delivery.scheduled).collect();
    assert!(
        scheduled.windows(2).all(|pair| (pair[1] - pair[0]).as_secs().is_multiple_of(60)),
        "{scheduled:?}"
    );
    assert_eq!(block_on(world.timers().pause("minutely")).unwrap(), Changed::Changed);
    world.advance(secs(600));
    assert_eq!(world.seen().len(), 7);
    assert_eq!(block_on(world.timers().resume("minutely")).unwrap(), Changed::Changed);
    world.settle();
    assert_eq!(world.seen().len(), 8);
    assert!(matches!(world.timers().cancel_blocking("minutely").unwrap(), Cancelled::Cancelled(_)));
    world.advance(DAY);
    assert_eq!(world.seen().len(), 8);
}

#[test]
fn each_instant_that_was_missed_may_have_its_occurrence() {
    let mut world = World::done();
    let spec = Spec::new(Note(1)).after(secs(60)).repeat(Plan::Every(60_000), MissedInstants::All);
    world.schedule(spec);
    drop(world.durable.take());
    world.clock.advance(secs(601));
    world.start(|builder| builder);
    world.settle();
    assert_eq!(world.seen().len(), 10);
    let ids: std::collections::BTreeSet<TimerId> =
        world.seen.lock().unwrap().iter().map(|(_, delivery, _)| delivery.id).collect();
    assert_eq!(ids.len(), 10);
}

#[test]
fn a_handler_that_panics_has_failed() {
    let world = World::new(|number, delivery| {
        assert!(delivery.attempt > 1, "number {number}");
        Verdict::Done
    });
    world.schedule(Spec::new(Note(7)).backoff(Backoff::Fixed(secs(10))));
    world.advance(secs(1));
    let timers = block_on(world.timers().list(Filter::default(), None, 10)).unwrap().timers;
    assert_eq!(timers[0].last_error.as_deref(), Some("the handler panicked: number 7"));
    world.advance(secs(10));
    assert_eq!(world.timers().stats().done, 1);
}

/// Waits for a condition of another thread.
fn eventually(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_asynchronous_handler_that_never_answers_is_dropped_after_its_time() {
    struct NoteDrop(Arc<Mutex<u32>>);
    impl Drop for NoteDrop {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let clock = ManualClock::new();
    let (drops, calls) = (Arc::<Mutex<u32>>::default(), Arc::<Mutex<u32>>::default());
    let (counted, called) = (Arc::clone(&drops), Arc::clone(&calls));
    let durable = Durable::builder(MemoryStore::new(clock.clone()))
        .clock(clock.clone())
        .handler(move |_: Note, _| {
            *called.lock().unwrap() += 1;
            let guard = NoteDrop(Arc::clone(&counted));
            async move {
                std::future::pending::<()>().await;
                drop(guard);
            }
        })
        .start()
        .unwrap();
    let timers = durable.handle();
    let spec = Spec::new(Note(1)).timeout(secs(5)).attempts(2).backoff(Backoff::Fixed(secs(1)));
    let id = timers.schedule_blocking(spec).unwrap().id();
    clock.advance(secs(1));
    eventually(|| *calls.lock().unwrap() == 1);
    clock.advance(secs(6));
    eventually(|| *drops.lock().unwrap() == 1);
    eventually(|| timers.stats().retried == 1);
    clock.advance(secs(2));
    eventually(|| *calls.lock().unwrap() == 2);
    clock.advance(secs(6));
    eventually(|| timers.stats().dead == 1);
    let timer = block_on(timers.get(id)).unwrap().unwrap();
    assert_eq!(timer.last_error.as_deref(), Some("the handler did not answer in time"));
}

#[test]
fn a_blocking_handler_that_never_returns_takes_its_place_and_nothing_else() {
    let clock = ManualClock::new();
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let inside = Arc::clone(&gate);
    let calls = Arc::<Mutex<u32>>::default();
    let called = Arc::clone(&calls);
    let durable = Durable::builder(MemoryStore::new(clock.clone()))
        .clock(clock.clone())
        .workers(2)
        .blocking_handler(move |Note(number), _| {
            if number == 0 {
                *called.lock().unwrap() += 1;
                let (open, changed) = &*inside;
                let mut open = open.lock().unwrap();
                while !*open {
                    open = changed.wait(open).unwrap();
                }
            }
        })
        .start()
        .unwrap();
    let timers = durable.handle();
    timers.schedule_blocking(Spec::new(Note(0)).timeout(secs(5)).attempts(1)).unwrap();
    clock.advance(secs(1));
    eventually(|| *calls.lock().unwrap() == 1);
    clock.advance(secs(6));
    eventually(|| timers.stats().dead == 1);
    assert!(matches!(timers.health(), Health::Overrun(1)), "{:?}", timers.health());
    for number in 1..100 {
        timers.schedule_blocking(Spec::new(Note(number))).unwrap();
    }
    clock.advance(secs(1));
    eventually(|| timers.stats().done == 99);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    eventually(|| timers.stats().running == 0);
    assert_eq!(timers.stats().done, 99, "an answer after the time counts no more");
}

#[test]
fn a_shutdown_gives_back_what_runs_and_counts_no_attempt() {
    let clock = ManualClock::new();
    clock.set(UtcMillis::from_millis(START).to_timestamp());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let shared: Arc<dyn tourbillon_durable::store::TimerStore> = Arc::<MemoryStore>::clone(&store);
    let durable = Durable::builder_on(Arc::clone(&shared))
        .clock(clock.clone())
        .concurrency(50)
        .workers(50)
        .handler(|_: Note, _| std::future::pending::<()>())
        .start()
        .unwrap();
    for number in 0..200 {
        durable.handle().schedule_blocking(Spec::new(Note(number))).unwrap();
    }
    clock.advance(secs(1));
    eventually(|| durable.handle().stats().running == 50);
    let begin = Instant::now();
    let stats = durable.shutdown(Duration::from_millis(50));
    assert!(begin.elapsed() < secs(5), "{:?}", begin.elapsed());
    assert_eq!(stats.released, 50);
    let counts = block_on(shared.counts()).unwrap();
    assert_eq!((counts.of(Phase::Pending), counts.of(Phase::Leased)), (200, 0));
    let page = block_on(shared.list(Filter::default(), None, 500)).unwrap();
    assert!(page.timers.iter().all(|timer| (timer.deliveries, timer.failures) == (0, 0)));
}

#[test]
fn a_timer_without_a_handler_waits_for_a_runtime_that_has_one() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Other;
    impl Kind for Other {
        const NAME: &'static str = "other";
    }
    let mut world = World::done();
    drop(world.durable.take());
    world.start(|builder| builder.handler(|_: Other, _| async {}));
    world.timers().schedule_blocking(Spec::new(Other).after(secs(5))).unwrap();
    world.timers().schedule_blocking(Spec::new(Other).after(secs(5)).at_most_once()).unwrap();
    drop(world.durable.take());
    world.start(|builder| builder);
    let refused = world.timers().schedule_blocking(Spec::new(Other)).unwrap_err();
    assert!(matches!(refused.reason, Rejection::UnknownKind(_)));
    world.advance(secs(10));
    assert_eq!((world.count(Phase::Parked), world.timers().stats().unknown_kind), (2, 2));
    drop(world.durable.take());
    world.start(|builder| builder.handler(|_: Other, _| async {}));
    world.settle();
    assert_eq!((world.count(Phase::Parked), world.timers().stats().delivered), (0, 2));
}

/// Two of three works are dropped, every second of these by a panic. The other timers of the same claim are not lost
/// with it, though the store has forgotten those that are delivered at most once.
#[test]
fn an_executor_that_drops_the_work_or_panics_loses_no_timer() {
    let clock = ManualClock::new();
    let (begun, called) = (AtomicUsize::new(0), Arc::<Mutex<Vec<u64>>>::default());
    let calls = Arc::clone(&called);
    let durable = Durable::builder(MemoryStore::new(clock.clone()))
        .clock(clock.clone())
        .executor(move |work: tourbillon_durable::Work| match begun.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => panic!("an executor panics"),
            1 => drop(work),
            _ => drop(std::thread::spawn(|| block_on(work))),
        })
        .handler(move |note: Note, _| {
            calls.lock().unwrap().push(note.0);
            async {}
        })
        .start()
        .unwrap();
    let timers = durable.handle();
    for number in 0..20 {
        let spec = Spec::new(Note(number)).after(secs(1));
        let spec = if number % 2 == 0 { spec.at_most_once() } else { spec };
        timers.schedule_blocking(spec).unwrap();
    }
    eventually(|| {
        clock.advance(secs(1));
        assert!(timers.await_idle(PATIENCE));
        called.lock().unwrap().len() >= 20
    });
    called.lock().unwrap().sort_unstable();
    assert_eq!(*called.lock().unwrap(), (0..20).collect::<Vec<u64>>());
    assert_eq!(block_on(timers.counts()).unwrap().by_namespace.len(), 0, "{:?}", timers.stats());
}

/// The process was stopped between the claim and the handler, for longer than the lease.
#[test]
fn no_handler_is_called_after_its_lease_has_ended() {
    let clock = ManualClock::new();
    let (held, calls) =
        (Arc::<Mutex<Vec<tourbillon_durable::Work>>>::default(), Arc::<Mutex<Vec<u32>>>::default());
    let (holder, called) = (Arc::clone(&held), Arc::clone(&calls));
    // The runtime's own alarms go by the system's clock: no renewal comes in between.
    let durable = Durable::builder(MemoryStore::new(clock.clone()))
        .executor(move |work| holder.lock().unwrap().push(work))
        .handler(move |_: Note, delivery: Delivery| {
            called.lock().unwrap().push(delivery.delivery);
            async {}
        })
        .start()
        .unwrap();
    let timers = durable.handle();
    timers.schedule_blocking(Spec::new(Note(1))).unwrap();
    clock.advance(secs(1));
    let work = || held.lock().unwrap().pop();
    eventually(|| !held.lock().unwrap().is_empty());
    clock.advance(secs(60));
    block_on(work().unwrap());
    assert_eq!(*calls.lock().unwrap(), [0; 0], "the lease has ended");
    eventually(|| !held.lock().unwrap().is_empty());
    block_on(work().unwrap());
    eventually(|| timers.stats().done == 1);
    assert_eq!(
        (timers.stats().released, &calls.lock().unwrap()[..]),
        (1, &[1][..]),
        "and no delivery was counted"
    );
}

#[test]
fn a_series_whose_zone_is_gone_does_not_end_unseen() {
    use tourbillon_durable::state::{DeathReason, State};
    use tourbillon_durable::store::TimerStore;
    let world = World::done();
    let daily =
        |zone: &str| Plan::Cron { expression: "0 9 * * *".into(), zone: zone.into(), skip_gaps: false };
    let id = world.schedule(Spec::new(Note(1)).after(DAY).repeat(daily("UTC"), MissedInstants::Skip));
    let Ok(Cancelled::Cancelled(mut timer)) = world.timers().cancel_blocking(id) else {
        panic!("it was pending")
    };
    timer.series.as_mut().unwrap().plan = daily("Europe/Nowhere");
    block_on(world.store.import(vec![*timer])).unwrap();
    world.advance(DAY + secs(1));
    assert_eq!(world.seen(), [1]);
    let timer = block_on(world.timers().get(id)).unwrap().unwrap();
    assert!(matches!(&timer.state, State::Dead(death) if death.reason == DeathReason::Plan), "{timer:?}");
    assert_eq!(world.timers().stats().dead, 1);
}

#[test]
fn a_timer_is_delivered_at_most_once_on_demand() {
    let world = World::new(|_, _| Verdict::Retry { error: "no".into(), after: None });
    world.schedule(Spec::new(Note(1)).at_most_once());
    world.advance(secs(1));
    world.advance(DAY);
    assert_eq!(world.seen(), [1]);
    assert_eq!(world.count(Phase::Pending) + world.count(Phase::Dead), 0);
}

#[test]
fn what_is_out_of_bounds_is_refused_and_handed_back() {
    let world = World::done();
    let refused = |spec| world.timers().schedule_blocking(spec).unwrap_err().reason;
    let note = || Spec::new(Note(1));
    assert!(matches!(refused(note().after(Duration::MAX)), Rejection::DueTooFar));
    assert!(matches!(refused(note().at(UtcMillis::MAX)), Rejection::DueTooFar));
    assert!(matches!(refused(note().key("k".repeat(256))), Rejection::TooLong("the key")));
    assert!(matches!(refused(note().namespace("n".repeat(65))), Rejection::TooLong("the namespace")));
    let labels = (0..9).fold(note(), |spec, n| spec.label(n.to_string()));
    assert!(matches!(refused(labels), Rejection::TooLong("the list of labels")));
    let cron = Plan::Cron { expression: "nonsense".into(), zone: "UTC".into(), skip_gaps: false };
    assert!(matches!(refused(note().repeat(cron, MissedInstants::Skip)), Rejection::Plan(_)));
    #[derive(Debug, Serialize, Deserialize)]
    struct Long(String);
    impl Kind for Long {
        const NAME: &'static str = "note";
    }
    let long = world.timers().schedule_blocking(Spec::new(Long("x".repeat(70_000)))).unwrap_err();
    assert!(matches!(long.reason, Rejection::PayloadTooLong(70_002)));
    assert_eq!(long.payload.0.len(), 70_000);
    assert!(matches!(
        Durable::builder(MemoryStore::default())
            .handler(|_: Note, _| async {})
            .handler(|_: Long, _| async {})
            .start(),
        Err(tourbillon_durable::StartError::DuplicateKind("note"))
    ));
}

#[test]
fn a_herd_is_claimed_no_faster_than_it_is_handled() {
    let world = World::done();
    for number in 0..20_000 {
        world.schedule(Spec::new(Note(number)).after(secs(10)));
    }
    world.advance(secs(11));
    assert_eq!(world.seen().len(), 20_000);
    let distinct: std::collections::BTreeSet<u64> = world.seen().into_iter().collect();
    assert_eq!(distinct.len(), 20_000);
}

#[test]
fn after_a_downtime_timers_come_at_the_rate_and_the_longest_due_first() {
    let mut world = World::done();
    for number in 0..1_000 {
        world.schedule(Spec::new(Note(number)).after(secs(1 + number)));
    }
    drop(world.durable.take());
    world.clock.advance(secs(10_000));
    world.start(|builder| builder.catch_up_rate(Some(100)).workers(1));
    eventually(|| world.seen().len() == 10);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(world.seen().len(), 10, "a tenth of a second's worth");
    for _ in 0..100 {
        world.clock.advance(Duration::from_millis(100));
        std::thread::sleep(Duration::from_millis(2));
    }
    eventually(|| {
        world.clock.advance(Duration::from_millis(10));
        world.seen().len() == 1_000
    });
    world.settle();
    assert_eq!(world.seen(), (0..1_000).collect::<Vec<_>>());
}

#[test]
fn after_a_downtime_each_namespace_has_the_rate_for_itself_and_timers_in_time_wait_for_none() {
    let mut world = World::done();
    let number = |nth: u64, namespace: u64| 1_000 * namespace + nth;
    for nth in 0..150 {
        for (namespace, name) in (1..).zip(["a", "b"]) {
            world.schedule(Spec::new(Note(number(nth, namespace))).namespace(name).after(secs(1_000)));
        }
    }
    world.schedule(Spec::new(Note(3_000)).namespace("c").after(secs(9_999)));
    drop(world.durable.take());
    world.clock.advance(secs(10_000));
    world.start(|builder| builder.in_turn().catch_up_rate(Some(100)));
    let seen = |namespace: u64| world.seen().iter().filter(|number| **number / 1_000 == namespace).count();
    let counts = || [1, 2, 3].map(seen);
    eventually(|| counts() == [10, 10, 1]);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(counts(), [10, 10, 1], "a tenth of a second's worth each, and what is in time");
    eventually(|| {
        world.clock.advance(Duration::from_millis(50));
        std::thread::sleep(Duration::from_millis(2));
        counts() == [150, 150, 1]
    });
}

#[test]
fn a_clock_that_steps_back_makes_nothing_early() {
    let world = World::done();
    world.schedule(Spec::new(Note(1)).after(secs(100)));
    world.advance(secs(50));
    world.clock.set(UtcMillis::from_millis(START - 86_400_000).to_timestamp());
    world.settle();
    world.advance(secs(86_400));
    assert_eq!(world.seen(), [0_u64; 0]);
    world.advance(secs(101));
    assert_eq!(world.seen(), [1]);
}

/// Timers that wait for a share are looked at again, whatever becomes of those that have it.
#[test]
fn timers_beyond_a_share_are_claimed_though_no_handler_of_the_others_is_called() {
    let mut world = World::done();
    drop(world.durable.take());
    for number in 0..100 {
        world.start(|builder| builder.in_turn());
        world.schedule(Spec::new(Note(number)).after(secs(1)).misfire(Misfire::Within(secs(60))));
        drop(world.durable.take());
    }
    world.clock.advance(secs(3_600));
    world.start(|builder| builder.in_turn());
    world.settle();
    assert_eq!((world.seen().len(), world.count(Phase::Pending)), (0, 0), "all are too late");
}

#[test]
fn a_namespace_with_many_timers_has_its_share_of_the_handlers_and_all_come() {
    let mut world = World::done();
    drop(world.durable.take());
    world.start(|builder| builder.in_turn());
    for number in 0..200 {
        let namespace = if number % 20 == 0 { "other" } else { "herd" };
        world.schedule(Spec::new(Note(number)).namespace(namespace).after(secs(1)));
    }
    world.advance(secs(2));
    let mut seen = world.seen();
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}
