//! The budget of a task: a task that is never made to wait lets other tasks run all the same.

use super::Task;
use super::time::{self, Duration};
use crate::support::{HOUR, Log, MS};
use tokio::task::{coop, yield_now};

/// A number of operations that exceeds a task's budget in tokio.
const MANY: usize = 1_000;

async fn many_sleeps_that_are_ready() {
    for _ in 0..MANY {
        time::sleep(Duration::ZERO).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_of_sleeps_that_are_ready_lets_other_tasks_run() {
    let log = Log::new();
    let other = log.clone();
    let task = tokio::spawn(async move { other.push(()) });
    many_sleeps_that_are_ready().await;
    assert_eq!(log.len(), 1);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_budget_is_not_interrupted() {
    let log = Log::new();
    let other = log.clone();
    let task = tokio::spawn(async move { other.push(()) });
    coop::unconstrained(many_sleeps_that_are_ready()).await;
    assert_eq!(log.len(), 0);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_is_ready_spends_budget_and_wakes_the_task_that_has_none_left() {
    let mut task = Task::new(time::sleep(Duration::ZERO));
    assert!(task.poll().is_ready());
    assert!((0..MANY).any(|_| task.poll().is_pending()));
    assert!(!coop::has_budget_remaining());
    yield_now().await;
    assert!(task.take_wakes() > 0);
    assert!(task.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_is_pending_spends_no_budget() {
    let mut task = Task::new(time::sleep(HOUR));
    for _ in 0..MANY {
        assert!(task.poll().is_pending());
    }
    assert!(coop::has_budget_remaining());
}

#[tokio::test(start_paused = true)]
async fn a_row_of_ticks_that_are_ready_lets_other_tasks_run() {
    let log = Log::new();
    let other = log.clone();
    let mut interval = time::interval(MS);
    time::advance(HOUR).await;
    let task = tokio::spawn(async move { other.push(()) });
    for _ in 0..MANY {
        interval.tick().await;
    }
    assert_eq!(log.len(), 1);
    task.await.unwrap();
}

/// The test runs in real time. The task is never idle, so a paused clock would never move.
#[tokio::test]
async fn a_timeout_ends_a_future_that_spends_the_whole_budget() {
    async fn never_rests() {
        loop {
            coop::consume_budget().await;
        }
    }
    assert!(time::timeout(MS, never_rests()).await.is_err());
}
