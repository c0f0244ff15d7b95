//! Tests timers that are claimed, and whose handlers wait for a thread or for the program's executor.

use super::{Note, START, block_on, eventually, secs};
use std::sync::{Arc, Condvar, Mutex};
use tourbillon::ManualClock;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{Filter, MemoryStore, TimerStore};
use tourbillon_durable::{Builder, Durable, Health, Spec, UtcMillis, Work};

/// A blocking handler that waits at a gate if its timer has the number 0.
#[derive(Clone, Default)]
struct Gated {
    gate: Arc<(Mutex<bool>, Condvar)>,
    calls: Arc<Mutex<Vec<u64>>>,
}

impl Gated {
    fn call(&self, number: u64) {
        self.calls.lock().unwrap().push(number);
        if number == 0 {
            drop(self.gate.1.wait_while(self.gate.0.lock().unwrap(), |open| !*open).unwrap());
        }
    }

    fn open(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

/// Makes a store on a manual clock, and the settings of a runtime on this store.
fn builder() -> (ManualClock, Arc<dyn TimerStore>, Builder) {
    let clock = ManualClock::new();
    clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(START).as_nanos()));
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock.clone()));
    let builder = Durable::builder_on(Arc::clone(&store)).clock(clock.clone());
    (clock, store, builder)
}

fn on_a_thread(work: Work) {
    drop(std::thread::spawn(|| block_on(work)));
}

/// The executor gives the runtime more places than workers, so the timers of blocking handlers wait for the only
/// worker. Their timeouts are shorter than the time for which they wait.
#[test]
fn a_timer_that_waits_for_a_worker_does_not_time_out() {
    for is_at_most_once in [false, true] {
        let (clock, _store, builder) = builder();
        let handler = Gated::default();
        let called = handler.clone();
        let builder = builder.executor(on_a_thread).concurrency(6).workers(1);
        let durable = builder.blocking_handler(move |Note(number), _| handler.call(number)).start().unwrap();
        let timers = durable.handle();
        let spec = |number| {
            let spec = Spec::new(Note(number)).timeout(secs(5)).attempts(1);
            if is_at_most_once { spec.at_most_once() } else { spec }
        };
        timers.schedule_blocking(spec(0)).unwrap();
        clock.advance(secs(1));
        eventually(|| called.calls() == 1);
        for number in 1..6 {
            timers.schedule_blocking(spec(number)).unwrap();
        }
        clock.advance(secs(1));
        eventually(|| timers.stats().running == 6);
        clock.advance(secs(6));
        // The time of the first handler is over, and so would be the time of the others if it had begun.
        eventually(|| timers.stats().overrun == 1);
        called.open();
        eventually(|| timers.stats().done == 5 && timers.stats().running == 0);
        assert_eq!(called.calls(), 6);
        assert_eq!(timers.stats().dead, u64::from(!is_at_most_once), "only the first");
    }
}

/// Without an executor, each handler occupies a worker. So more places than workers would only make timers wait.
#[test]
fn without_an_executor_no_timer_is_claimed_that_would_wait_for_a_worker() {
    let (clock, store, builder) = builder();
    let handler = Gated::default();
    let called = handler.clone();
    let builder = builder.concurrency(6).workers(1);
    let durable = builder.blocking_handler(move |Note(number), _| handler.call(number)).start().unwrap();
    for number in 0..6 {
        durable.handle().schedule_blocking(Spec::new(Note(number))).unwrap();
    }
    clock.advance(secs(1));
    eventually(|| called.calls() == 1);
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Leased), 1);
    called.open();
    eventually(|| durable.handle().stats().done == 6);
}

/// The executor keeps all work and calls no handler. The timers keep their leases for a while, and are then given back.
/// The work that the executor still has calls no handler later.
#[test]
fn a_timer_that_the_executor_does_not_call_is_given_back() {
    let (clock, store, builder) = builder();
    let (works, calls) = (Arc::<Mutex<Vec<Work>>>::default(), Arc::<Mutex<u32>>::default());
    let (kept, called) = (Arc::clone(&works), Arc::clone(&calls));
    let durable = builder
        .executor(move |work| kept.lock().unwrap().push(work))
        .concurrency(2)
        .handler(move |_: Note, _| {
            *called.lock().unwrap() += 1;
            async {}
        })
        .start()
        .unwrap();
    let timers = durable.handle();
    let spec = |number| Spec::new(Note(number)).timeout(secs(1)).attempts(1);
    let id = timers.schedule_blocking(spec(1)).unwrap().id();
    timers.schedule_blocking(spec(2).at_most_once()).unwrap();
    clock.advance(secs(1));
    eventually(|| works.lock().unwrap().len() == 2);
    for _ in 0..3 {
        clock.advance(secs(10));
        eventually(|| match block_on(timers.get(id)).unwrap().unwrap().state {
            State::Leased(lease) => lease.until > store.now() + secs(20),
            state => state == State::Pending,
        });
    }
    eventually(|| block_on(store.counts()).unwrap().of(Phase::Pending) == 2);
    let page = block_on(timers.list(Filter::default(), None, 10)).unwrap();
    assert!(page.timers.iter().all(|timer| (timer.deliveries, timer.failures) == (0, 0)), "{page:?}");
    eventually(|| timers.stats().released == 2);
    assert!(matches!(timers.health(), Health::Overrun(2)), "{:?}", timers.health());
    let late = core::mem::take(&mut *works.lock().unwrap());
    late.into_iter().for_each(block_on);
    assert_eq!(*calls.lock().unwrap(), 0, "the timers may be delivered elsewhere");
    clock.advance(secs(5));
    eventually(|| works.lock().unwrap().len() == 2);
    let work = core::mem::take(&mut *works.lock().unwrap());
    work.into_iter().for_each(block_on);
    eventually(|| timers.stats().done == 2);
    assert_eq!(*calls.lock().unwrap(), 2);
}
