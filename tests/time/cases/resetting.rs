//! Giving a sleep another deadline.

use super::time::{self, Instant};
use super::{Task, assert_passed};
use crate::support::{HOUR, MS};
use std::pin::pin;

#[tokio::test(start_paused = true)]
async fn a_reset_to_a_later_deadline_waits_for_it() {
    let start = Instant::now();
    let mut task = Task::new(time::sleep(100 * MS));
    assert!(task.poll().is_pending());
    task.future.as_mut().reset(start + 200 * MS);
    assert_eq!(task.future.deadline(), start + 200 * MS);
    time::advance(150 * MS).await;
    assert_eq!(task.take_wakes(), 0);
    assert!(!task.future.is_elapsed() && task.poll().is_pending());
    task.future.await;
    assert_eq!(start.elapsed(), 200 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_reset_to_an_earlier_deadline_waits_for_it() {
    // Before the runtime has seen the sleep, and after.
    for slept in [0, 10] {
        let start = Instant::now();
        let mut task = Task::new(time::sleep(100 * MS));
        assert!(task.poll().is_pending());
        time::sleep(slept * MS).await;
        task.future.as_mut().reset(start + 80 * MS);
        task.future.await;
        assert_eq!(start.elapsed(), 80 * MS);
    }
}

/// A task waits for a sleep that is reset. The task is woken at the new deadline, although no task polls the sleep
/// again.
#[tokio::test(start_paused = true)]
async fn a_reset_wakes_the_task_at_the_new_deadline() {
    for (before, after) in [(100, 80), (100, 200)] {
        let start = Instant::now();
        let mut task = Task::new(time::sleep(before * MS));
        assert!(task.poll().is_pending());
        task.future.as_mut().reset(start + after * MS);
        time::advance((after - 1) * MS).await;
        assert_eq!(task.take_wakes(), 0);
        time::advance(MS).await;
        assert_eq!(task.take_wakes(), 1);
        assert!(task.poll().is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_before_the_first_poll_counts() {
    let start = Instant::now();
    let mut sleep = pin!(time::sleep(HOUR));
    sleep.as_mut().reset(start + 10 * MS);
    assert_eq!(sleep.deadline(), start + 10 * MS);
    sleep.await;
    assert_eq!(start.elapsed(), 10 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_reset_after_completion_starts_the_sleep_again() {
    let start = Instant::now();
    let mut task = Task::new(time::sleep(100 * MS));
    task.future.as_mut().await;
    assert_eq!(start.elapsed(), 100 * MS);
    assert!(task.poll().is_ready());
    task.future.as_mut().reset(start + 110 * MS);
    assert!(!task.future.is_elapsed());
    task.future.as_mut().await;
    assert_eq!(start.elapsed(), 110 * MS);
    task.future.as_mut().reset(start + HOUR);
    assert_eq!(task.future.deadline(), start + HOUR);
    assert!(task.poll().is_pending() && task.poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_reset_to_the_past_makes_the_next_poll_ready() {
    let start = Instant::now();
    let mut task = Task::new(time::sleep(100 * MS));
    assert!(task.poll().is_pending());
    time::sleep(50 * MS).await;
    assert_eq!(task.take_wakes(), 0);
    task.future.as_mut().reset(start + 40 * MS);
    assert!(task.poll().is_ready());
    assert!(task.future.is_elapsed());
    assert_eq!(start.elapsed(), 50 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_reset_to_the_past_wakes_the_task_that_waits() {
    let start = Instant::now();
    let mut task = Task::new(time::sleep(100 * MS));
    assert!(task.poll().is_pending());
    time::sleep(50 * MS).await;
    task.future.as_mut().reset(start + 40 * MS);
    tokio::task::yield_now().await;
    assert_eq!(task.take_wakes(), 1);
    assert_eq!(start.elapsed(), 50 * MS);
}

/// An example of tokio's documentation of `Sleep`: a sleep is pinned once, and selected on and reset in a loop.
#[tokio::test(start_paused = true)]
async fn a_sleep_is_reset_in_a_loop() {
    let start = Instant::now();
    let mut sleep = pin!(time::sleep(10 * MS));
    for round in 1..=3 {
        tokio::select! {
            () = &mut sleep => sleep.as_mut().reset(Instant::now() + 50 * MS),
        }
        assert_eq!(start.elapsed(), 10 * MS + (round - 1) * 50 * MS);
    }
}

#[tokio::test]
async fn resets_in_real_time_are_not_early() {
    let start = Instant::now();
    let mut sleep = pin!(time::sleep(HOUR));
    for round in 1..=3 {
        let deadline = start + round * 5 * MS;
        sleep.as_mut().reset(deadline);
        sleep.as_mut().await;
        assert!(Instant::now() >= deadline);
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_resets_leave_the_last_deadline() {
    let start = Instant::now();
    let mut task = Task::new(time::sleep(HOUR));
    assert!(task.poll().is_pending());
    for n in 0..1_000_u32 {
        task.future.as_mut().reset(start + (n * 7_919 % 1_000 + 1) * MS);
    }
    task.future.as_mut().reset(start + 500 * MS);
    task.future.await;
    assert_passed(start, 500 * MS);
}
