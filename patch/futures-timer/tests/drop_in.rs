//! Runs the cases against this crate, and cases of the engine behind it.

mod cases;

use cases::{HOUR, MS, PATIENCE, poll};
use futures_timer as subject;
use pollster::block_on;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use subject::Delay;
use tourbillon::{Builder, Clock, Timestamp};

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn the_engine_of_the_entered_shards_counts_each_completion() {
    let shards = Builder::new().shards(1).start_shards().expect("a thread");
    let _scope = shards.enter();
    let mut delay = Delay::new(20 * MS);
    block_on(&mut delay);
    delay.reset(20 * MS);
    block_on(&mut delay);
    let owned = shards.futures().stats().owned;
    assert_eq!((owned.alive, owned.fired), (1, 2));
}

#[test]
fn a_delay_has_a_timer_from_its_first_pending_poll_until_it_is_dropped() {
    let shards = Builder::new().driven_shards().expect("shards");
    let _scope = shards.shards().enter();
    let alive = || shards.shards().futures().stats().owned.alive;
    let mut delay = Delay::new(HOUR);
    assert_eq!(alive(), 0);
    assert!(poll(&mut delay, Waker::noop()).is_pending());
    assert_eq!(alive(), 1);
    drop(delay);
    assert_eq!(alive(), 0);
}

#[test]
fn a_month_passes_at_once_on_driven_shards() {
    let begin = Instant::now();
    let mut shards = Builder::new().driven_shards().expect("shards");
    let month = async {
        let mut delay = Delay::new(30 * DAY);
        (&mut delay).await;
        delay.reset(DAY);
        delay.await;
    };
    shards.block_on(month).expect("a timer wakes it");
    assert_eq!(shards.clock().now() - Timestamp::ZERO, 31 * DAY);
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn a_delay_completes_though_its_engine_is_shut_down() {
    let shards = Builder::new().shards(1).start_shards().expect("a thread");
    let begin = Instant::now();
    let mut delay = {
        let _scope = shards.enter();
        Delay::new(200 * MS)
    };
    let _ = poll(&mut delay, Waker::noop());
    drop(shards.futures().shutdown());
    block_on(&mut delay);
    assert!(begin.elapsed() >= 200 * MS);
    delay.reset(10 * MS);
    block_on(delay);
}

#[test]
fn delays_complete_when_the_clock_has_run_for_centuries() {
    let mut shards = Builder::new().driven_shards().expect("shards");
    shards.advance(500 * 365 * DAY);
    let day = async { Delay::new(DAY).await };
    shards.block_on(day).expect("a timer wakes it");
    assert_eq!(shards.clock().now() - Timestamp::ZERO, (500 * 365 + 1) * DAY);
}

#[test]
fn a_waker_that_panics_holds_up_no_other_delay() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a panic of the test");
        }
    }
    let mut delays: Vec<_> = (0..10).map(|_| Delay::new(HOUR)).collect();
    for delay in &mut delays {
        assert!(poll(delay, &Arc::new(Panics).into()).is_pending());
        delay.reset(10 * MS);
    }
    for delay in delays {
        block_on(delay);
    }
}
