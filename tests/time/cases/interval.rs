//! Ticks at a fixed period.

use super::time::{self, Duration, Instant, Interval, MissedTickBehavior};
use super::{SECOND, Task, YEAR, assert_passed, bell};
use crate::support::{HOUR, Log, MS};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

const ALL: [MissedTickBehavior; 3] =
    [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip];

impl Task<Interval> {
    fn tick(&mut self) -> Poll<Instant> {
        self.future.poll_tick(&mut Context::from_waker(&self.waker))
    }

    /// Returns all ticks of the interval that are ready now.
    fn ticks(&mut self) -> Vec<Instant> {
        let mut ticks = Vec::new();
        while let Poll::Ready(tick) = self.tick() {
            ticks.push(tick);
            assert!(ticks.len() < 100, "ticks without an end");
        }
        ticks
    }
}

/// An interval of 40 ms that a test polls by hand. The test counts ticks in milliseconds after the interval's start.
struct Forty {
    start: Instant,
    task: Task<Interval>,
}

impl Forty {
    fn new(behavior: MissedTickBehavior) -> Self {
        let mut task = Task::new(time::interval(40 * MS));
        task.future.set_missed_tick_behavior(behavior);
        Self { start: Instant::now(), task }
    }

    /// Advances the clock by `millis` milliseconds. Returns the ticks that are ready then.
    async fn after(&mut self, millis: u32) -> Vec<u128> {
        time::advance(millis * MS).await;
        self.task.ticks().into_iter().map(|tick| (tick - self.start).as_millis()).collect()
    }

    /// Lets `reset` move the interval's next tick, at 55 ms. Returns the next three ticks, with the moments at which
    /// they came.
    async fn reset_at_55(behavior: MissedTickBehavior, reset: impl FnOnce(&mut Self)) -> Vec<(u128, u128)> {
        let mut forty = Self::new(behavior);
        assert_eq!(forty.after(0).await, [0]);
        assert_eq!(forty.after(40).await, [40]);
        assert_eq!(forty.after(15).await, []);
        reset(&mut forty);
        let mut ticks = Vec::new();
        let mut step = 0;
        while ticks.len() < 3 {
            let came = forty.after(step).await;
            let now = forty.start.elapsed().as_millis();
            ticks.extend(came.into_iter().map(|tick| (tick, now)));
            step = 1;
        }
        ticks.truncate(3);
        ticks
    }
}

// --- Regular ticks ---

#[tokio::test(start_paused = true)]
async fn the_first_tick_is_at_the_start() {
    let now = Instant::now();
    let mut present = Task::new(time::interval(10 * MS));
    let mut past = Task::new(time::interval_at(now - 5 * MS, 10 * MS));
    let mut later = Task::new(time::interval_at(now + 50 * MS, 10 * MS));
    assert_eq!((present.ticks(), past.ticks(), later.ticks()), (vec![now], vec![now - 5 * MS], vec![]));
    for due in [50, 60, 70] {
        assert_eq!(later.future.tick().await, now + due * MS);
        assert_eq!(now.elapsed(), due * MS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_returns_the_moment_for_which_it_was_due() {
    let start = Instant::now();
    let mut interval = time::interval(10 * MS);
    for n in 0..10 {
        assert_eq!(interval.tick().await, start + n * 10 * MS);
        assert_eq!(start.elapsed(), n * 10 * MS);
    }
}

/// An example of tokio's documentation: the work takes a second, and the interval's period is two seconds. A sleep
/// instead of the interval would add up both times.
#[tokio::test(start_paused = true)]
async fn work_between_ticks_is_part_of_the_period() {
    let start = Instant::now();
    let mut interval = time::interval(2 * SECOND);
    for _ in 0..5 {
        interval.tick().await;
        time::sleep(SECOND).await;
    }
    assert_eq!(start.elapsed(), 9 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_nobody_waits_for_to_the_end_is_not_lost() {
    let start = Instant::now();
    let mut interval = time::interval(10 * MS);
    interval.tick().await;
    for _ in 0..3 {
        assert!(time::timeout(3 * MS, interval.tick()).await.is_err());
    }
    assert_eq!(start.elapsed(), 9 * MS);
    assert_eq!(interval.tick().await, start + 10 * MS);
}

#[tokio::test]
async fn ticks_in_real_time_are_not_early() {
    let mut interval = time::interval(5 * MS);
    for _ in 0..5 {
        let due = interval.tick().await;
        assert!(Instant::now() >= due);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_says_its_period_and_its_policy() {
    let mut interval = time::interval(7 * MS);
    assert_eq!((interval.period(), interval.missed_tick_behavior()), (7 * MS, MissedTickBehavior::Burst));
    assert_eq!(MissedTickBehavior::default(), MissedTickBehavior::Burst);
    for behavior in ALL {
        interval.set_missed_tick_behavior(behavior);
        assert_eq!(interval.missed_tick_behavior(), behavior);
    }
    assert_eq!(time::interval_at(Instant::now() + HOUR, MS / 7).period(), MS / 7);
}

#[tokio::test(start_paused = true)]
async fn the_longest_period_ticks_once_and_can_be_reset() {
    for behavior in ALL {
        let start = Instant::now();
        let mut task = Task::new(time::interval(Duration::MAX));
        task.future.set_missed_tick_behavior(behavior);
        assert!(task.future.period() >= 29 * YEAR);
        assert_eq!(task.ticks(), [start]);
        time::advance(SECOND).await;
        task.future.reset();
        assert!(task.tick().is_pending());
        task.future.reset_after(Duration::MAX);
        assert!(task.tick().is_pending());
        task.future.reset_immediately();
        assert_eq!(task.ticks(), [start + SECOND]);
    }
}

// --- Ticks that were missed ---

#[tokio::test(start_paused = true)]
async fn burst_makes_up_for_missed_ticks_at_once() {
    let mut forty = Forty::new(MissedTickBehavior::Burst);
    assert_eq!(forty.after(0).await, [0]);
    assert_eq!(forty.after(15).await, []);
    assert_eq!(forty.after(25).await, [40]);
    assert_eq!(forty.after(95).await, [80, 120]);
    assert_eq!(forty.after(24).await, []);
    assert_eq!(forty.after(1).await, [160]);
    assert_eq!(forty.after(400).await, [200, 240, 280, 320, 360, 400, 440, 480, 520, 560]);
    assert_eq!(forty.after(40).await, [600]);
}

#[tokio::test(start_paused = true)]
async fn delay_counts_from_the_tick_that_was_taken_late() {
    let mut forty = Forty::new(MissedTickBehavior::Delay);
    assert_eq!(forty.after(0).await, [0]);
    assert_eq!(forty.after(40).await, [40]);
    assert_eq!(forty.after(95).await, [80]);
    assert_eq!(forty.after(39).await, []);
    assert_eq!(forty.after(1).await, [175]);
    assert_eq!(forty.after(40).await, [215]);
    assert_eq!(forty.after(400).await, [255]);
    assert_eq!(forty.after(40).await, [655]);
}

#[tokio::test(start_paused = true)]
async fn skip_leaves_missed_ticks_out_and_keeps_step() {
    let mut forty = Forty::new(MissedTickBehavior::Skip);
    assert_eq!(forty.after(0).await, [0]);
    assert_eq!(forty.after(40).await, [40]);
    assert_eq!(forty.after(95).await, [80]);
    assert_eq!(forty.after(24).await, []);
    assert_eq!(forty.after(1).await, [160]);
    assert_eq!(forty.after(400).await, [200]);
    assert_eq!(forty.after(40).await, [600]);
    // The wait ends on the moment of a tick. That tick is left out, too.
    assert_eq!(forty.after(120).await, [640]);
    assert_eq!(forty.after(39).await, []);
    assert_eq!(forty.after(1).await, [760]);
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_is_taken_at_most_five_milliseconds_late_is_not_missed() {
    for (late, next) in [(5, 80), (6, 86)] {
        let mut forty = Forty::new(MissedTickBehavior::Delay);
        assert_eq!(forty.after(0).await, [0]);
        assert_eq!(forty.after(40 + late).await, [40]);
        assert_eq!(forty.after(next - 40 - late - 1).await, []);
        assert_eq!(forty.after(1).await, [u128::from(next)]);
    }
}

/// A tick counts as missed only if it is more than five milliseconds late. A shorter period does not shorten this
/// limit.
#[tokio::test(start_paused = true)]
async fn the_five_milliseconds_hold_for_short_periods() {
    let start = Instant::now();
    let mut task = Task::new(time::interval(2 * MS));
    task.future.set_missed_tick_behavior(MissedTickBehavior::Skip);
    assert_eq!(task.ticks(), [start]);
    time::advance(5 * MS).await;
    assert_eq!(task.ticks(), [start + 2 * MS, start + 4 * MS]);
    time::advance(8 * MS).await;
    assert_eq!(task.ticks(), [start + 6 * MS]);
    time::advance(MS).await;
    assert_eq!(task.ticks(), [start + 14 * MS]);
}

// --- Resets ---

#[tokio::test(start_paused = true)]
async fn a_reset_ticks_next_after_a_period() {
    for behavior in ALL {
        let ticks = Forty::reset_at_55(behavior, |forty| forty.task.future.reset()).await;
        assert_eq!(ticks, [(95, 95), (135, 135), (175, 175)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_for_at_once_ticks_with_the_next_poll() {
    for behavior in ALL {
        let ticks = Forty::reset_at_55(behavior, |forty| forty.task.future.reset_immediately()).await;
        assert_eq!(ticks, [(55, 55), (95, 95), (135, 135)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_by_a_delay_ticks_after_the_delay() {
    for (delay, first) in [(0, 55), (7, 62), (40, 95), (300, 355)] {
        let reset = |forty: &mut Forty| forty.task.future.reset_after(delay * MS);
        let ticks = Forty::reset_at_55(MissedTickBehavior::Delay, reset).await;
        assert_eq!(ticks, [first, first + 40, first + 80].map(|tick| (tick, tick)));
    }
}

/// An interval is reset to a moment before its next tick, then to a moment later than a period, and then to a past
/// moment. The past moment counts as missed.
#[tokio::test(start_paused = true)]
async fn a_reset_to_a_moment_ticks_then() {
    for (behavior, at, expected) in [
        (MissedTickBehavior::Skip, 60, [(60, 60), (100, 100), (140, 140)]),
        (MissedTickBehavior::Skip, 1_000, [(1_000, 1_000), (1_040, 1_040), (1_080, 1_080)]),
        (MissedTickBehavior::Burst, 7, [(7, 55), (47, 55), (87, 87)]),
        (MissedTickBehavior::Skip, 7, [(7, 55), (87, 87), (127, 127)]),
        (MissedTickBehavior::Delay, 7, [(7, 55), (95, 95), (135, 135)]),
    ] {
        let reset = |forty: &mut Forty| forty.task.future.reset_at(forty.start + at * MS);
        assert_eq!(Forty::reset_at_55(behavior, reset).await, expected, "{behavior:?} {at}");
    }
}

/// A task waits for a tick of an interval that is reset. The task is woken at the new moment, although no task polls
/// the interval again.
#[tokio::test(start_paused = true)]
async fn a_reset_wakes_the_task_that_waits_for_a_tick() {
    let mut forty = Forty::new(MissedTickBehavior::Burst);
    assert_eq!(forty.after(15).await, [0]);
    for delay in [7, 300] {
        forty.task.future.reset_after(delay * MS);
        time::advance((delay - 1) * MS).await;
        assert_eq!(forty.task.take_wakes(), 0);
        time::advance(MS).await;
        assert_eq!(forty.task.take_wakes(), 1);
        assert_eq!(forty.after(0).await.len(), 1);
    }
}

/// The four examples in tokio's documentation of `interval` take the documented times.
#[tokio::test(start_paused = true)]
async fn the_examples_of_the_documentation_take_their_times() {
    type Reset = fn(&mut Interval);
    let resets: [(u32, Reset); 4] = [
        (250, |interval| interval.reset()),
        (150, |interval| interval.reset_immediately()),
        (170, |interval| interval.reset_after(20 * MS)),
        (180, |interval| interval.reset_at(Instant::now() + 30 * MS)),
    ];
    for (expected, reset) in resets {
        let start = Instant::now();
        let mut interval = time::interval(100 * MS);
        interval.tick().await;
        time::sleep(50 * MS).await;
        reset(&mut interval);
        interval.tick().await;
        interval.tick().await;
        assert_eq!(start.elapsed(), expected * MS);
    }
}

// --- Whom a tick wakes ---

#[tokio::test(start_paused = true)]
async fn a_tick_wakes_the_task_that_polled_last() {
    let (former, former_waker) = bell();
    let mut task = Task::new(time::interval(10 * MS));
    assert!(task.tick().is_ready());
    assert!(task.future.poll_tick(&mut Context::from_waker(&former_waker)).is_pending());
    assert!(task.tick().is_pending());
    time::advance(10 * MS).await;
    assert_eq!((former.take(), task.take_wakes()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_was_taken_wakes_nobody_before_the_next_poll() {
    let mut task = Task::new(time::interval(10 * MS));
    assert!(task.tick().is_ready());
    time::advance(HOUR).await;
    assert_eq!(task.take_wakes(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_interval_that_is_dropped_wakes_nobody() {
    let mut task = Task::new(time::interval(10 * MS));
    assert!(task.tick().is_ready() && task.tick().is_pending());
    let bell = task.drop_future();
    time::advance(HOUR).await;
    assert_eq!(bell.take(), 0);
}

/// Runs a source that passes on every fourth tick of an interval, and returns the ticks passed on. For other ticks the
/// source returns `Pending`. A tick that was ready registers no waker, so the source must wake its own task.
async fn every_fourth_tick(wakes_itself: bool) -> Vec<u32> {
    let passed_on = Log::new();
    let mut interval = time::interval(10 * MS);
    let mut ticks = 0;
    let source = poll_fn(|cx| {
        while let Poll::Ready(_due) = interval.poll_tick(cx) {
            ticks += 1;
            if ticks % 4 == 0 {
                passed_on.push(ticks);
            } else {
                if wakes_itself {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
        }
        if ticks < 12 { Poll::Pending } else { Poll::Ready(()) }
    });
    let is_complete = time::timeout(150 * MS, source).await.is_ok();
    assert_eq!(is_complete, wakes_itself);
    passed_on.take()
}

#[tokio::test(start_paused = true)]
async fn a_task_that_wakes_itself_after_a_tick_sees_all_ticks() {
    assert_eq!(every_fourth_tick(true).await, [4, 8, 12]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_wake_itself_after_a_tick_stands() {
    assert!(every_fourth_tick(false).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_waited_for_beside_a_sleep() {
    let start = Instant::now();
    let mut interval = time::interval(10 * MS);
    let mut sleep = pin!(time::sleep(35 * MS));
    let mut ticks = 0;
    loop {
        tokio::select! {
            _ = interval.tick() => ticks += 1,
            () = &mut sleep => break,
        }
    }
    assert_eq!(ticks, 4);
    assert_passed(start, 35 * MS);
}
