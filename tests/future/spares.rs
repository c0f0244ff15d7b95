//! Timers that dropped sleeps leave for the next sleeps of their thread.

use crate::support::{HOUR, MS};
use crate::tasks::{SECOND, Task, bell, driven, driven_with, poll_with};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use tourbillon::future::{Sleep, Wakeup};
use tourbillon::{Builder, Handle};

/// Makes a sleep that has armed a timer.
fn armed(engine: &Handle<Wakeup>, delay: core::time::Duration) -> Sleep {
    let mut sleep = engine.sleep(delay);
    assert!(poll_with(&mut sleep, Waker::noop()).is_pending());
    sleep
}

#[test]
fn a_thousand_timeouts_one_after_the_other_post_one_ticket() {
    let mut engine = driven();
    for _ in 0..1_000 {
        drop(armed(engine.handle(), 5 * SECOND));
        engine.advance(MS);
    }
    let stats = engine.handle().stats();
    assert_eq!((stats.owned.alive, stats.owned.posted, stats.owned.fired), (0, 1, 0));
    assert!(stats.total.tickets <= 1, "stale tickets stayed in the wheel");
}

#[test]
fn the_next_sleep_keeps_to_its_own_deadline() {
    let mut engine = driven();
    for (first, second) in [(5 * SECOND, 5 * MS), (5 * MS, 5 * SECOND), (SECOND, SECOND)] {
        drop(armed(engine.handle(), first));
        let mut next = Task::new(engine.handle().sleep(second));
        assert!(next.poll().is_pending());
        engine.advance(second - MS);
        assert_eq!(next.take_wakes(), 0, "{first:?}, {second:?}: woken early");
        engine.advance(2 * MS);
        assert_eq!(next.take_wakes(), 1, "{first:?}, {second:?}: not woken");
        assert!(next.poll().is_ready());
    }
}

#[test]
fn a_dropped_sleep_that_had_fired_says_nothing_to_the_next_one() {
    let mut engine = driven();
    let mut first = Task::new(engine.handle().sleep(SECOND));
    assert!(first.poll().is_pending());
    engine.advance(SECOND + MS);
    assert_eq!(first.take_wakes(), 1);
    drop(first);
    let mut next = Task::new(engine.handle().sleep(SECOND));
    assert!(next.poll().is_pending());
    engine.advance(SECOND - 2 * MS);
    assert!(next.poll().is_pending() && next.take_wakes() == 0);
    engine.advance(4 * MS);
    assert!(next.take_wakes() == 1 && next.poll().is_ready());
}

#[test]
fn a_spare_does_not_keep_its_former_task_alive() {
    let engine = driven();
    let (bell, waker) = bell();
    let mut sleep = engine.handle().sleep(HOUR);
    assert!(poll_with(&mut sleep, &waker).is_pending());
    drop((sleep, waker));
    assert_eq!(Arc::strong_count(&bell), 1);
}

#[test]
fn an_engine_with_a_small_capacity_keeps_no_slots_back() {
    let engine = driven_with(Builder::new().capacity(64));
    drop((0..64).map(|_| armed(engine.handle(), HOUR)).collect::<Vec<_>>());
    let elsewhere = || (0..60).map(|_| armed(engine.handle(), HOUR)).collect::<Vec<_>>();
    let sleeps = thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
    // This thread's stock of vacant slots keeps a few of the 64.
    assert_eq!((sleeps.len(), engine.handle().stats().owned.alive), (60, 60));
}

/// Each thread leaves two spares, the most of an engine with this capacity. All threads together would leave more than
/// the capacity.
#[test]
fn threads_that_end_give_the_slots_of_their_spares_back() {
    const CAPACITY: u32 = 8_192;
    let engine = driven_with(Builder::new().capacity(CAPACITY));
    for _ in 0..CAPACITY / 2 + 100 {
        let handle = engine.handle().clone();
        thread::spawn(move || drop([armed(&handle, HOUR), armed(&handle, HOUR)])).join().unwrap();
    }
    assert_eq!(engine.handle().stats().owned.alive, 0);
    let all: Vec<_> = (0..CAPACITY).map(|_| armed(engine.handle(), HOUR)).collect();
    assert_eq!(engine.handle().stats().owned.alive, u64::from(CAPACITY));
    drop(all);
}

#[test]
fn a_spare_of_an_engine_that_was_shut_down_serves_nobody() {
    let engine = driven();
    let handle = engine.handle().clone();
    drop(armed(&handle, HOUR));
    drop(engine);
    let mut late = handle.sleep(SECOND);
    assert!(crate::tasks::is_cut_off(&mut late));
    drop(late);
    // A new engine, perhaps at the same address.
    let mut engine = driven();
    let mut sleep = Task::new(engine.handle().sleep(SECOND));
    assert!(sleep.poll().is_pending());
    engine.advance(SECOND + MS);
    assert_eq!(sleep.take_wakes(), 1);
}
