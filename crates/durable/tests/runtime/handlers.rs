//! Tests handlers that panic, never answer or are missing, executors that lose work, and the stop of a runtime.

use super::{Note, PATIENCE, START, World, block_on, eventually, secs};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon::ManualClock;
use tourbillon_durable::policy::Backoff;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Filter, MemoryStore, TimerStore};
use tourbillon_durable::{Delivery, Durable, Health, Kind, Rejection, Spec, UtcMillis, Verdict};

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
    clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(START).as_nanos()));
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let shared: Arc<dyn TimerStore> = Arc::<MemoryStore>::clone(&store);
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

/// The stop does not wait for a handler that blocks the only worker. Timers that wait behind it have been claimed.
/// Those whose handlers were not called are pending again, and so are those that are delivered at most once.
#[test]
fn a_stop_loses_no_timer_whose_handler_was_not_called() {
    let clock = ManualClock::new();
    clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(START).as_nanos()));
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock.clone()));
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let (called, inside) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::clone(&gate));
    let begun = Arc::clone(&called);
    let durable = Durable::builder_on(Arc::clone(&store))
        .clock(clock.clone())
        // An executor permits more places than workers.
        .executor(|work| drop(std::thread::spawn(|| block_on(work))))
        .concurrency(8)
        .workers(1)
        .blocking_handler(move |Note(number), _| {
            begun.lock().unwrap().push(number);
            let (open, changed) = &*inside;
            drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        })
        .start()
        .unwrap();
    for number in 0..8 {
        durable.handle().schedule_blocking(Spec::new(Note(number)).at_most_once()).unwrap();
    }
    clock.advance(secs(1));
    eventually(|| durable.handle().stats().running == 8 && called.lock().unwrap().len() == 1);
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), 0, "all are claimed");
    drop(durable.shutdown(Duration::from_millis(20)));
    let counts = block_on(store.counts()).unwrap();
    assert_eq!((counts.of(Phase::Pending), counts.of(Phase::Leased)), (7, 0));
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let page = block_on(store.list(Filter::default(), None, 100)).unwrap();
    assert!(page.timers.iter().all(|timer| timer.deliveries == 0));
    assert_eq!(called.lock().unwrap().len(), 1, "the others are not called after the stop");
}

#[test]
fn a_timer_without_a_handler_waits_for_a_runtime_that_has_one() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Other;
    impl Kind for Other {
        const NAME: &'static str = "other";
    }
    let mut world = World::done();
    world.stop();
    world.start(|builder| builder.handler(|_: Other, _| async {}));
    world.timers().schedule_blocking(Spec::new(Other).after(secs(5))).unwrap();
    world.timers().schedule_blocking(Spec::new(Other).after(secs(5)).at_most_once()).unwrap();
    world.stop();
    world.start(|builder| builder);
    let refused = world.timers().schedule_blocking(Spec::new(Other)).unwrap_err();
    assert!(matches!(refused.reason, Rejection::UnknownKind(_)));
    world.advance(secs(10));
    assert_eq!((world.count(Phase::Parked), world.timers().stats().unknown_kind), (2, 2));
    world.stop();
    world.start(|builder| builder.handler(|_: Other, _| async {}));
    world.settle();
    assert_eq!((world.count(Phase::Parked), world.timers().stats().delivered), (0, 2));
}

/// Tests an executor that drops two of three deliveries, half of them by a panic. The timers of the same claim are not
/// lost. Neither are timers that are delivered at most once, whose deliveries have not begun.
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

/// Tests an executor that drops the first delivery of each timer. The handler has not put the timer off, so the timer
/// counts as given back, whatever its guarantee.
#[test]
fn a_delivery_that_the_executor_drops_counts_as_released() {
    let clock = ManualClock::new();
    let begun = AtomicUsize::new(0);
    let durable = Durable::builder(MemoryStore::new(clock.clone()))
        .clock(clock.clone())
        .executor(move |work: tourbillon_durable::Work| match begun.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => drop(work),
            _ => drop(std::thread::spawn(|| block_on(work))),
        })
        .handler(async |_: Note, _| {})
        .start()
        .unwrap();
    let timers = durable.handle();
    timers.schedule_blocking(Spec::new(Note(1)).after(secs(1))).unwrap();
    timers.schedule_blocking(Spec::new(Note(2)).after(secs(1)).at_most_once()).unwrap();
    for _ in 0..2 {
        clock.advance(secs(2));
        assert!(timers.await_idle(PATIENCE));
    }
    let stats = timers.stats();
    assert_eq!((stats.released, stats.snoozed, stats.done), (2, 0, 2));
}

/// Tests a lease that ends while its handler runs. The same runtime claims the timer again. A renewal finds that the
/// first lease is lost, and keeps the second lease.
#[test]
fn a_lease_that_is_lost_does_not_end_a_later_delivery_of_its_timer() {
    let (clock, alarms) = (ManualClock::new(), ManualClock::new());
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock.clone()));
    let (open, gate) = std::sync::mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    let calls = Arc::<AtomicUsize>::default();
    let called = Arc::clone(&calls);
    let durable = Durable::builder_on(Arc::clone(&store))
        // The alarms stand still, so the runtime does not renew its lease before the test wants that.
        .clock(alarms.clone())
        .handler(move |_: Note, delivery: Delivery| {
            let gate = Arc::clone(&gate);
            called.fetch_add(1, Ordering::Relaxed);
            async move {
                match delivery.delivery {
                    1 => std::future::pending().await,
                    _ => gate.lock().unwrap().recv().unwrap(),
                }
            }
        })
        .start()
        .unwrap();
    let timers = durable.handle();
    timers.schedule_blocking(Spec::new(Note(1))).unwrap();
    clock.advance(secs(1));
    timers.look();
    // A delivery counts as running a little before its handler is called. If the clock moved in between, the handler
    // would not be called, because its lease would have ended.
    eventually(|| calls.load(Ordering::Relaxed) == 1);
    clock.advance(secs(60));
    // Another process ends the lease.
    assert_eq!(block_on(store.reap(1)).unwrap().returned.len(), 1);
    timers.look();
    eventually(|| calls.load(Ordering::Relaxed) == 2);
    // A third of a lease has passed, so the runtime renews.
    alarms.advance(secs(10));
    eventually(|| timers.stats().leases_lost > 0);
    open.send(()).unwrap();
    eventually(|| timers.stats().done + timers.stats().leases_lost > 1);
    let stats = timers.stats();
    assert_eq!((stats.delivered, stats.done, stats.leases_lost), (2, 1, 1));
    assert_eq!(block_on(timers.counts()).unwrap().by_namespace.len(), 0);
}

/// Tests a process that stands still between a claim and its handler, for longer than the lease.
#[test]
fn no_handler_is_called_after_its_lease_has_ended() {
    let clock = ManualClock::new();
    let (held, calls) =
        (Arc::<Mutex<Vec<tourbillon_durable::Work>>>::default(), Arc::<Mutex<Vec<u32>>>::default());
    let (holder, called) = (Arc::clone(&held), Arc::clone(&calls));
    // The runtime's alarms go by the system's clock, so no renewal comes in between.
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
