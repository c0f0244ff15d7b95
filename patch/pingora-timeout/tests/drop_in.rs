//! Runs the cases against this crate, and cases of the engine behind it.

mod cases;

use cases::{MINUTE, MS, PATIENCE, alone, poll, run, shared};
use pingora_timeout as subject;
use pollster::block_on;
use std::future::pending;
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use subject::fast_timeout::{fast_timeout_to_tokio_threshold, set_fast_timeout_to_tokio_threshold};
use subject::timer::TimerManager;
use subject::{sleep, timeout};
use tourbillon::{Builder, Clock, Timestamp, time};

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn no_wait_is_early() {
    let _shared = shared();
    for time in [Duration::ZERO, Duration::from_nanos(1), MS / 2, MS, 3 * MS, 40 * MS] {
        let begin = Instant::now();
        block_on(sleep(time));
        assert!(begin.elapsed() >= time, "{time:?}");
        let begin = Instant::now();
        assert!(block_on(timeout(time, pending::<()>())).is_err());
        assert!(begin.elapsed() >= time, "{time:?}");
    }
}

#[test]
fn the_longest_waits_neither_panic_nor_end() {
    let _alone = alone();
    assert!(poll(pin!(sleep(Duration::MAX))).is_pending());
    let threshold = fast_timeout_to_tokio_threshold();
    set_fast_timeout_to_tokio_threshold(None);
    let polled = poll(pin!(timeout(Duration::MAX, pending::<()>())));
    set_fast_timeout_to_tokio_threshold(threshold);
    assert!(polled.is_pending());
}

#[test]
fn the_timers_of_each_manager_expire() {
    let _shared = shared();
    let manager = TimerManager::new();
    let begin = Instant::now();
    let (first, second) = (manager.register_timer(40 * MS), manager.register_timer(40 * MS));
    block_on(first.poll());
    block_on(second.poll());
    assert!((40 * MS..PATIENCE).contains(&begin.elapsed()));

    // The time counts from the registration.
    let unpolled = manager.register_timer(10 * MS);
    block_on(sleep(50 * MS));
    assert_eq!(poll(pin!(unpolled.poll())), Poll::Ready(()));
}

#[test]
fn a_pause_holds_up_no_timer() {
    let _shared = shared();
    let manager = TimerManager::new();
    let older = manager.register_timer(20 * MS);
    manager.pause_for_fork();
    block_on(older.poll());
    manager.unpause();
}

#[test]
fn a_timeout_that_is_dropped_leaves_no_timer_behind() {
    let _shared = shared();
    let shards = Builder::new().driven_shards().expect("shards");
    let _scope = shards.shards().enter();
    let alive = || shards.shards().futures().stats().owned.alive;
    let pending_once = || {
        let mut limited = Box::pin(timeout(10 * MINUTE, pending::<()>()));
        assert!(poll(limited.as_mut()).is_pending());
        limited
    };
    let limited: Vec<_> = (0..1_000).map(|_| pending_once()).collect();
    assert_eq!(alive(), 1_000);
    drop(limited);
    assert_eq!(alive(), 0);
}

#[test]
fn a_ready_future_makes_no_timer() {
    let _shared = shared();
    let shards = Builder::new().driven_shards().expect("shards");
    let _scope = shards.shards().enter();
    let mut limited = pin!(timeout(MINUTE, async { 17 }));
    assert!(matches!(poll(limited.as_mut()), Poll::Ready(Ok(17))));
    assert_eq!(shards.shards().futures().stats().owned.alive, 0);
}

#[test]
fn a_month_passes_at_once_on_driven_shards() {
    let _shared = shared();
    let begin = Instant::now();
    let mut shards = Builder::new().driven_shards().expect("shards");
    let month = async {
        sleep(30 * DAY).await;
        timeout(MINUTE, pending::<()>()).await
    };
    assert!(shards.block_on(month).expect("a timer wakes it").is_err());
    assert_eq!(shards.clock().now() - Timestamp::ZERO, 30 * DAY + MINUTE);
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn a_wait_ends_though_its_engine_is_shut_down() {
    let _shared = shared();
    let shards = Builder::new().shards(1).start_shards().expect("a thread");
    let begin = Instant::now();
    let mut limited = Box::pin(timeout(200 * MS, pending::<()>()));
    {
        let _scope = shards.enter();
        assert!(poll(limited.as_mut()).is_pending());
    }
    drop(shards.futures().shutdown());
    assert!(block_on(limited).is_err());
    assert!(begin.elapsed() >= 200 * MS);
}

#[test]
fn the_engine_of_a_runtime_counts_the_waits_in_it() {
    let _shared = shared();
    let fired = run(async {
        let shards = time::shards().expect("in a runtime");
        sleep(5 * MS).await;
        assert!(timeout(5 * MS, pending::<()>()).await.is_err());
        shards.futures().stats().owned.fired
    });
    assert_eq!(fired, 2);
}

/// The task that ends a wait runs in the wait's own runtime. So the wait stands still while the runtime's only thread
/// stands still. The table of differences names this difference from the original crate.
#[test]
fn a_wait_stands_still_while_the_only_thread_of_its_runtime_does() {
    let _shared = shared();
    run(async {
        let mut limited = pin!(timeout(200 * MS, pending::<()>()));
        assert!(poll(limited.as_mut()).is_pending());
        thread::sleep(400 * MS);
        assert!(poll(limited.as_mut()).is_pending());
        assert!(limited.await.is_err());
    });
}

#[test]
fn a_wait_outlives_several_runtimes() {
    let _shared = shared();
    let begin = Instant::now();
    let mut limited = Box::pin(timeout(1_000 * MS, pending::<()>()));
    for _ in 0..5 {
        run(async { assert!(poll(limited.as_mut()).is_pending()) });
    }
    assert!(block_on(limited).is_err());
    assert!((1_000 * MS..PATIENCE).contains(&begin.elapsed()));
}
