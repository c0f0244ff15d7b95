//! Sleeping: when a sleep ends, and whom it wakes.

use super::time::{self, Duration, Instant, Sleep};
use super::{NANO, Task, YEAR, assert_passed, bell, current_thread, nobody, runtimes};
use crate::support::{HOUR, Log, MS, Rng, lock, within_patience};
use std::future::{pending, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

// --- When it ends ---

#[tokio::test(start_paused = true)]
async fn a_sleep_until_now_takes_no_time() {
    let now = Instant::now();
    let mut sleep = pin!(time::sleep_until(now));
    assert!(!sleep.is_elapsed());
    sleep.as_mut().await;
    assert!(sleep.is_elapsed());
    assert_passed(now, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_until_the_past_takes_no_time() {
    let now = Instant::now();
    for before in [NANO, MS, 10 * MS] {
        time::sleep_until(now - before).await;
    }
    assert_passed(now, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_sleeps_without_a_delay_take_no_time() {
    let now = Instant::now();
    for _ in 0..1_000 {
        time::sleep(Duration::ZERO).await;
    }
    assert_passed(now, Duration::ZERO);
}

#[tokio::test]
async fn sleeps_without_a_delay_end_in_real_time() {
    for _ in 0..200 {
        time::sleep(Duration::ZERO).await;
    }
}

/// While a future waits for its first poll, its runtime goes on, and its timers with it.
#[tokio::test]
async fn what_is_first_polled_after_its_deadline_is_over_at_once() {
    for _ in 0..20 {
        let mut sleep = pin!(time::sleep(2 * MS));
        let mut timeout = pin!(time::timeout(2 * MS, pending::<()>()));
        time::sleep(5 * MS).await;
        assert!(sleep.as_mut().poll(&mut nobody()).is_ready());
        assert!(timeout.as_mut().poll(&mut nobody()).is_ready());
    }
}

/// Sleeps of lengths around the borders of a wheel's levels end on their millisecond. They start at moments before and
/// after such borders.
#[tokio::test(start_paused = true)]
async fn each_sleep_ends_on_its_millisecond() {
    for from in [0, 5, 63, 64, 250, 4_095] {
        time::sleep(from * MS).await;
        for millis in [1, 2, 10, 59, 60, 63, 64, 65, 255, 256, 4_095, 4_096, 70_000] {
            let start = Instant::now();
            time::sleep(millis * MS).await;
            assert_eq!(start.elapsed(), millis * MS);
            time::sleep_until(start + 2 * millis * MS).await;
            assert_eq!(start.elapsed(), 2 * millis * MS);
        }
    }
}

/// The clock is paused at a moment inside a tick of the runtime. Sleeps still end within a millisecond.
#[tokio::test]
async fn sleeps_from_an_odd_moment_end_within_a_millisecond() {
    time::pause();
    for millis in [1, 10, 60, 64, 100] {
        let start = Instant::now();
        time::sleep_until(start + millis * MS).await;
        assert_passed(start, millis * MS);
    }
}

#[tokio::test]
async fn a_part_of_a_millisecond_is_rounded_up() {
    time::pause();
    for _ in 0..5 {
        let start = Instant::now();
        time::sleep_until(start + MS + NANO).await;
        assert_passed(start, MS + NANO);
    }
}

#[tokio::test(start_paused = true)]
async fn no_sleep_ends_before_its_deadline() {
    let mut rng = Rng::new(7);
    for _ in 0..2_000 {
        time::advance(rng.nanos_below(3 * MS)).await;
        let deadline = Instant::now() + rng.nanos_below(200 * MS);
        time::sleep_until(deadline).await;
        let late = Instant::now().checked_duration_since(deadline);
        assert!(late.is_some_and(|late| late < 2 * MS), "{late:?}");
    }
}

#[tokio::test]
async fn sleeps_of_years_end_on_time() {
    time::pause();
    for years in [1, 1, 1, 5, 10] {
        let deadline = Instant::now() + years * YEAR;
        time::sleep_until(deadline).await;
        assert_passed(deadline, Duration::ZERO);
        assert!(Instant::now() >= deadline);
    }
}

#[tokio::test]
async fn the_longest_sleeps_end_on_a_clock_that_stands() {
    time::pause();
    for delay in [Duration::MAX, Duration::MAX - MS, Duration::from_secs(u64::MAX / 10)] {
        let start = Instant::now();
        time::sleep(delay).await;
        assert!(start.elapsed() >= 29 * YEAR);
    }
}

#[tokio::test(start_paused = true)]
async fn sleeps_of_centuries_stay_pending() {
    let now = Instant::now();
    let mut tasks = [100, 500, 1_000, 100_000].map(|years| Task::new(time::sleep_until(now + years * YEAR)));
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    time::advance(50 * YEAR).await;
    for task in &mut tasks {
        assert_eq!(task.take_wakes(), 0);
        assert!(task.poll().is_pending());
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_sleep_ends_before_the_longest() {
    let start = Instant::now();
    for delay in [Duration::MAX, Duration::from_secs(u64::MAX / 10)] {
        let mut long = pin!(time::sleep(delay));
        let mut short = pin!(time::sleep(NANO));
        poll_fn(|cx| {
            assert!(long.as_mut().poll(cx).is_pending());
            short.as_mut().poll(cx)
        })
        .await;
    }
    assert!(start.elapsed() <= 2 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_beyond_the_range_of_a_wheel_delays_no_other() {
    let far = tokio::spawn(time::sleep(Duration::from_millis(10 << 36)));
    time::advance(Duration::from_millis((1 << 30) - 1)).await;
    let start = Instant::now();
    time::sleep(10 * MS).await;
    assert_passed(start, 10 * MS);
    assert!(!far.is_finished());
}

#[tokio::test(start_paused = true)]
async fn sleeps_complete_in_the_order_of_their_deadlines() {
    const SLEEPS: u32 = 200;
    let log = Log::new();
    let sleeps: Vec<_> = (0..SLEEPS)
        .map(|n| n * 37 % SLEEPS)
        .map(|millis| {
            let log = log.clone();
            tokio::spawn(async move {
                time::sleep(millis * MS).await;
                log.push(millis);
            })
        })
        .collect();
    for sleep in sleeps {
        sleep.await.unwrap();
    }
    assert_eq!(log.take(), (0..SLEEPS).collect::<Vec<_>>());
}

// --- What it says of itself ---

#[tokio::test(start_paused = true)]
async fn a_sleep_has_elapsed_from_its_deadline_on() {
    let mut task = Task::new(time::sleep(10 * MS));
    assert!(!task.future.is_elapsed());
    assert!(task.poll().is_pending());
    time::advance(9 * MS).await;
    assert!(!task.future.is_elapsed());
    time::advance(MS).await;
    assert!(task.future.is_elapsed());
    assert!(task.poll().is_ready());
    assert!(task.future.is_elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_was_never_polled_has_not_elapsed() {
    let sleep = time::sleep(MS);
    time::advance(10 * MS).await;
    assert!(!sleep.is_elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_the_present_and_the_delay() {
    time::advance(MS / 3).await;
    let now = Instant::now();
    for delay in [Duration::ZERO, NANO, MS, HOUR] {
        assert_eq!(time::sleep(delay).deadline(), now + delay);
        assert_eq!(time::sleep_until(now + delay).deadline(), now + delay);
    }
    assert_eq!(time::sleep_until(now - MS).deadline(), now - MS);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_completed_stays_complete() {
    let mut task = Task::new(time::sleep(MS));
    task.future.as_mut().await;
    for _ in 0..3 {
        assert!(task.poll().is_ready());
    }
    time::sleep(HOUR).await;
    assert!(task.poll().is_ready());
}

// --- Whom it wakes ---

#[tokio::test(start_paused = true)]
async fn a_sleep_wakes_its_task_at_its_deadline_and_once() {
    let mut task = Task::new(time::sleep(10 * MS));
    assert!(task.poll().is_pending());
    time::advance(9 * MS).await;
    assert_eq!(task.take_wakes(), 0);
    time::advance(MS).await;
    assert_eq!(task.take_wakes(), 1);
    time::advance(HOUR).await;
    assert_eq!(task.take_wakes(), 0);
    assert!(task.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_sleep_wakes_the_task_that_polled_it_last() {
    let (former, former_waker) = bell();
    let mut task = Task::new(time::sleep(10 * MS));
    assert!(task.future.as_mut().poll(&mut Context::from_waker(&former_waker)).is_pending());
    assert!(task.poll().is_pending());
    time::advance(10 * MS).await;
    assert_eq!((former.take(), task.take_wakes()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_is_dropped_wakes_nobody() {
    let mut task = Task::new(time::sleep(10 * MS));
    assert!(task.poll().is_pending());
    time::advance(5 * MS).await;
    let bell = task.drop_future();
    time::advance(HOUR).await;
    assert_eq!(bell.take(), 0);
}

// --- Drops at awkward moments ---

#[tokio::test(start_paused = true)]
async fn sleeps_are_dropped_after_jumps_past_their_deadlines() {
    drop(tokio::spawn(time::sleep(Duration::from_millis(10 << 36))));
    time::advance(Duration::from_millis((1 << 30) - 1)).await;
    let mut first = Task::new(time::sleep(10 * MS));
    let mut second = Task::new(time::sleep(20 * MS));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    time::advance(30 * MS).await;
    drop(first);
    time::advance(Duration::from_millis(1 << 31)).await;
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_was_moved_to_the_tick_of_another_is_dropped_there() {
    let start = Instant::now();
    let mut early = Task::new(time::sleep(5 * MS));
    let mut moved = Task::new(time::sleep(5 * MS));
    let mut late = Task::new(time::sleep(10 * MS));
    assert!(early.poll().is_pending() && moved.poll().is_pending() && late.poll().is_pending());
    moved.future.as_mut().reset(start + 10 * MS);
    early.future.await;
    drop(moved);
    late.future.await;
    assert_eq!(start.elapsed(), 10 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_waker_may_drop_all_sleeps_of_its_tick() {
    struct Sweep {
        sleeps: Mutex<Vec<Pin<Box<Sleep>>>>,
        sweeps: AtomicUsize,
    }
    impl Wake for Sweep {
        fn wake(self: Arc<Self>) {
            let swept = mem::take(&mut *lock(&self.sleeps));
            drop(swept);
            self.sweeps.fetch_add(1, Ordering::SeqCst);
        }
    }
    let sweep = Arc::new(Sweep { sleeps: Mutex::default(), sweeps: AtomicUsize::new(0) });
    let waker = Waker::from(Arc::clone(&sweep));
    for _ in 0..100 {
        let mut sleep = Box::pin(time::sleep(10 * MS));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        lock(&sweep.sleeps).push(sleep);
    }
    time::sleep(11 * MS).await;
    assert!(lock(&sweep.sleeps).is_empty());
    assert!(sweep.sweeps.load(Ordering::SeqCst) > 0);
}

/// The drop of a sleep drops the sleep's waker, which drops another sleep. A lock held at that moment would be taken
/// twice.
#[test]
fn a_waker_may_drop_another_sleep_when_it_is_dropped() {
    struct Owner {
        _sleep: Pin<Box<Sleep>>,
    }
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {
            unreachable!("nothing is due");
        }
    }
    within_patience(|| {
        current_thread().block_on(async {
            let mut owned = Box::pin(time::sleep(HOUR));
            assert!(owned.as_mut().poll(&mut nobody()).is_pending());
            let owner = Arc::new(Owner { _sleep: owned });
            let is_kept = Arc::downgrade(&owner);
            let mut sleep = Box::pin(time::sleep(HOUR));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&owner.into())).is_pending());
            drop(sleep);
            assert_eq!(is_kept.strong_count(), 0);
        });
    });
}

#[test]
fn a_waker_may_start_a_sleep_when_it_is_dropped() {
    struct Restless;
    impl Wake for Restless {
        fn wake(self: Arc<Self>) {
            unreachable!("nothing is due");
        }
    }
    impl Drop for Restless {
        fn drop(&mut self) {
            assert!(pin!(time::sleep(HOUR)).poll(&mut nobody()).is_pending());
        }
    }
    async fn drops_a_waker() {
        let mut sleep = Box::pin(time::sleep(HOUR));
        let waker = Waker::from(Arc::new(Restless));
        assert_eq!(sleep.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        drop(waker);
        drop(sleep);
        tokio::task::yield_now().await;
    }
    within_patience(|| {
        for runtime in runtimes() {
            runtime.block_on(async { tokio::spawn(drops_a_waker()).await.unwrap() });
        }
    });
}
