//! Tests handlers that fail in each way.

use crate::{Note, World, eventually, secs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tourbillon_durable::policy::Backoff;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{MemoryStore, TimerStore};
use tourbillon_durable::{Delivery, Durable, Spec, Verdict};

#[test]
fn handlers_that_panic_or_fail_are_called_again_and_the_loop_goes_on() {
    let world = World::with(
        |number, delivery| match (number % 3, delivery.attempt) {
            (0, 1) => std::panic::resume_unwind(Box::new(format!("number {number}"))),
            (1, 1) => Verdict::Retry { error: "no".into(), after: None },
            _ => Verdict::Done,
        },
        |builder| builder,
    );
    for number in 0..300 {
        world.schedule(Spec::new(Note(number)).backoff(Backoff::Fixed(secs(10))));
    }
    world.advance(secs(1));
    world.advance(secs(10));
    let stats = world.timers().stats();
    assert_eq!((stats.done, stats.retried, stats.delivered), (300, 200, 500));
    world.assert_whole(&[]);
}

/// The payload of a panic whose drop panics with another such payload.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        explode();
    }
}

fn explode() -> ! {
    std::panic::resume_unwind(Box::new(Bomb))
}

#[test]
fn a_panic_whose_payload_panics_in_its_drop_ends_no_thread() {
    let world = World::with(
        |number, _| if number < 8 { explode() } else { Verdict::Done },
        |builder| builder.workers(2).on_incident(|_| explode()).observe(|_| explode()),
    );
    for number in 0..8 {
        world.schedule(Spec::new(Note(number)).attempts(1));
    }
    world.advance(secs(1));
    assert_eq!(world.timers().stats().dead, 8);
    for number in 8..16 {
        world.schedule(Spec::new(Note(number)));
    }
    world.advance(secs(1));
    assert_eq!(world.timers().stats().done, 8);
    world.assert_whole(&[(Phase::Dead, 8)]);
}

/// Makes a runtime on the system's clocks whose handler sleeps for the time `sleep`. Also returns the store and the
/// number of the handler's calls.
fn sleeping(lease: Duration, sleep: Duration) -> (Durable, Arc<dyn TimerStore>, Arc<AtomicUsize>) {
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Note, _: Delivery| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(sleep);
    };
    let builder = Durable::builder_on(Arc::clone(&store)).lease(lease).blocking_handler(handler);
    (builder.start().unwrap(), store, calls)
}

#[test]
fn a_handler_that_is_slower_than_the_lease_keeps_its_timer() {
    let (durable, store, calls) = sleeping(secs(1), Duration::from_millis(2_500));
    durable.handle().schedule_blocking(Spec::new(Note(1))).unwrap();
    eventually(|| durable.handle().stats().done == 1);
    let stats = durable.shutdown(secs(1));
    assert_eq!((stats.delivered, stats.leases_lost, calls.load(Ordering::SeqCst)), (1, 0, 1));
    assert_eq!(crate::phases(&*store), [].into());
}

#[test]
fn a_handler_that_hangs_is_over_after_its_time_and_called_again() {
    let (durable, _store, calls) = sleeping(secs(30), Duration::from_millis(700));
    let spec = Spec::new(Note(1)).timeout(Duration::from_millis(100)).attempts(2);
    let id = durable.handle().schedule_blocking(spec.backoff(Backoff::Fixed(Duration::ZERO))).unwrap().id();
    eventually(|| durable.handle().stats().dead == 1);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    let timer = pollster::block_on(durable.handle().get(id)).unwrap().unwrap();
    assert_eq!((timer.failures, timer.state.phase()), (2, Phase::Dead));
}

/// Tests the end of a lease whose holder is gone. The lease ends while nothing else is due, and also while deliveries
/// come one after the other.
#[test]
fn the_lease_of_a_holder_that_is_gone_ends_by_itself() {
    for is_busy in [false, true] {
        let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
        let start = || {
            let builder = Durable::builder_on(Arc::clone(&store)).lease(secs(1));
            builder.handler(async |_: Note, _| {}).start().unwrap()
        };
        start().handle().schedule_blocking(Spec::new(Note(0)).after(Duration::from_millis(100))).unwrap();
        let by = tourbillon_durable::store::Claimant { incarnation: 1, lease: secs(2) };
        let limit = tourbillon_durable::store::Limit { timers: 1, bytes: 1 };
        eventually(|| !pollster::block_on(store.claim(by, 1, limit, None)).unwrap().leased.is_empty());
        let (durable, begin) = (start(), Instant::now());
        let mut busy = 0;
        while durable.handle().stats().done < busy + 1 {
            assert!(begin.elapsed() < secs(10), "{:?}", durable.handle());
            if is_busy {
                durable.handle().schedule_blocking(Spec::new(Note(1))).unwrap();
                busy += 1;
            }
            std::thread::sleep(Duration::from_millis(20));
            eventually(|| durable.handle().stats().done >= busy);
        }
        assert!(begin.elapsed() > secs(1), "not before the lease's end");
    }
}
