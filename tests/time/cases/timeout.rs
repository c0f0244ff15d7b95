//! Limiting the time of a future.

use super::time::error::Elapsed;
use super::time::{self, Duration, Instant};
use super::{NANO, Task, YEAR, assert_passed, runtimes};
use crate::support::{HOUR, MS};
use std::error::Error;
use std::future::{Ready, pending, ready};
use std::io;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::oneshot;

// --- A future that is ready ---

#[tokio::test(start_paused = true)]
async fn a_future_that_is_ready_is_never_timed_out() {
    let now = Instant::now();
    for deadline in [now - 10 * MS, now, now + NANO, now + HOUR] {
        assert_eq!(Task::new(time::timeout_at(deadline, ready(17))).poll(), Poll::Ready(Ok(17)));
    }
    for delay in [Duration::ZERO, NANO, HOUR, Duration::MAX] {
        assert_eq!(Task::new(time::timeout(delay, ready(17))).poll(), Poll::Ready(Ok(17)));
    }
    assert_eq!(now.elapsed(), Duration::ZERO);
}

/// A timeout polls its future before it checks the clock. An answer that is there counts, even after the deadline.
#[tokio::test(start_paused = true)]
async fn an_answer_after_the_deadline_counts_if_it_is_there_at_the_next_poll() {
    let (sender, answer) = oneshot::channel();
    let mut task = Task::new(time::timeout(10 * MS, answer));
    assert!(task.poll().is_pending());
    time::advance(20 * MS).await;
    sender.send(17).unwrap();
    assert_eq!(task.poll(), Poll::Ready(Ok(Ok(17))));
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_the_deadline_is_passed_on() {
    let now = Instant::now();
    for is_by_deadline in [false, true] {
        let (sender, answer) = oneshot::channel();
        let limit = if is_by_deadline {
            time::timeout_at(Instant::now() + 100 * MS, answer)
        } else {
            time::timeout(100 * MS, answer)
        };
        let mut task = Task::new(limit);
        assert!(task.poll().is_pending());
        time::advance(90 * MS).await;
        assert_eq!(task.take_wakes(), 0);
        assert!(task.poll().is_pending());
        sender.send(17).unwrap();
        assert_eq!(task.take_wakes(), 1);
        assert_eq!(task.poll(), Poll::Ready(Ok(Ok(17))));
    }
    assert_eq!(now.elapsed(), 180 * MS);
}

#[tokio::test(start_paused = true)]
async fn the_longest_timeout_waits_for_the_answer() {
    let (sender, answer) = oneshot::channel();
    let mut task = Task::new(time::timeout(Duration::MAX, answer));
    assert!(task.poll().is_pending());
    time::advance(10 * YEAR).await;
    assert_eq!(task.take_wakes(), 0);
    assert!(task.poll().is_pending());
    sender.send(17).unwrap();
    assert_eq!(task.poll(), Poll::Ready(Ok(Ok(17))));
}

// --- A future that is not ready ---

#[tokio::test(start_paused = true)]
async fn a_future_that_never_ends_is_timed_out_at_its_deadline() {
    let start = Instant::now();
    let mut task = Task::new(time::timeout_at(start + 300 * MS, pending::<()>()));
    assert!(task.poll().is_pending());
    time::advance(299 * MS).await;
    assert_eq!(task.take_wakes(), 0);
    assert!(task.poll().is_pending());
    time::advance(2 * MS).await;
    assert_eq!(task.take_wakes(), 1);
    assert!(matches!(task.poll(), Poll::Ready(Err(_))));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_awaited_takes_its_time() {
    for delay in [MS, 10 * MS, HOUR] {
        let start = Instant::now();
        assert!(time::timeout(delay, pending::<()>()).await.is_err());
        assert_eq!(start.elapsed(), delay);
        assert!(time::timeout_at(start + 2 * delay, pending::<()>()).await.is_err());
        assert_eq!(start.elapsed(), 2 * delay);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_come_times_out_at_once() {
    let now = Instant::now();
    for deadline in [now - 10 * MS, now] {
        assert!(time::timeout_at(deadline, pending::<()>()).await.is_err());
    }
    assert!(time::timeout(Duration::ZERO, pending::<()>()).await.is_err());
    assert_passed(now, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_counts_from_its_creation() {
    let mut task = Task::new(time::timeout(10 * MS, pending::<()>()));
    time::advance(20 * MS).await;
    assert!(matches!(task.poll(), Poll::Ready(Err(_))));
    let start = Instant::now();
    let timeout = time::timeout(30 * MS, pending::<()>());
    time::advance(20 * MS).await;
    assert!(timeout.await.is_err());
    assert_eq!(start.elapsed(), 30 * MS);
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_even_after_the_timeout_has_elapsed() {
    let (sender, answer) = oneshot::channel();
    let mut task = Task::new(time::timeout(10 * MS, answer));
    assert!(task.poll().is_pending());
    time::advance(10 * MS).await;
    for _ in 0..3 {
        assert!(matches!(task.poll(), Poll::Ready(Err(_))));
    }
    sender.send(17).unwrap();
    assert_eq!(task.poll(), Poll::Ready(Ok(Ok(17))));
}

#[tokio::test(start_paused = true)]
async fn the_shorter_of_two_nested_timeouts_ends_first() {
    for (outer, inner) in [(10, 20), (20, 10)] {
        let start = Instant::now();
        let outcome = time::timeout(outer * MS, time::timeout(inner * MS, pending::<()>())).await;
        assert_eq!(start.elapsed(), 10 * MS);
        assert_eq!(outcome.is_err(), outer < inner);
        assert_eq!(outcome.is_ok_and(|inner| inner.is_err()), inner < outer);
    }
}

// --- Its future ---

#[tokio::test(start_paused = true)]
async fn a_timeout_gives_its_future_back() {
    let mut timeout = time::timeout(MS, ready(17));
    assert_eq!(timeout.get_ref().clone().await, 17);
    *timeout.get_mut() = ready(18);
    assert_eq!(timeout.into_inner().await, 18);
    assert_eq!(time::timeout_at(Instant::now(), ready(19)).into_inner().await, 19);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_dropped_drops_its_future_and_wakes_nobody() {
    let kept = Arc::new(());
    let inner = Arc::clone(&kept);
    let mut task = Task::new(time::timeout(10 * MS, async move {
        pending::<()>().await;
        drop(inner);
    }));
    assert!(task.poll().is_pending());
    assert_eq!(Arc::strong_count(&kept), 2);
    let bell = task.drop_future();
    assert_eq!(Arc::strong_count(&kept), 1);
    time::advance(HOUR).await;
    assert_eq!(bell.take(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_has_elapsed_keeps_its_future_until_it_is_dropped() {
    let kept = Arc::new(());
    let inner = Arc::clone(&kept);
    let mut task = Task::new(time::timeout(10 * MS, async move {
        pending::<()>().await;
        drop(inner);
    }));
    assert!(task.poll().is_pending());
    time::advance(10 * MS).await;
    assert!(matches!(task.poll(), Poll::Ready(Err(_))));
    assert_eq!(Arc::strong_count(&kept), 2);
    drop(task);
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[tokio::test(start_paused = true)]
async fn anything_that_turns_into_a_future_may_be_limited() {
    struct Seventeen;
    impl IntoFuture for Seventeen {
        type Output = u32;
        type IntoFuture = Ready<u32>;

        fn into_future(self) -> Self::IntoFuture {
            ready(17)
        }
    }
    assert_eq!(time::timeout(MS, Seventeen).await, Ok(17));
    assert_eq!(time::timeout_at(Instant::now(), Seventeen).await, Ok(17));
}

// --- Its error ---

#[tokio::test(start_paused = true)]
async fn elapsed_is_an_error_and_turns_into_an_io_error() {
    let elapsed: Elapsed = time::timeout(MS, pending::<()>()).await.unwrap_err();
    let other = time::timeout(MS, pending::<()>()).await.unwrap_err();
    assert_eq!(elapsed, other);
    assert_eq!(elapsed.to_string(), "deadline has elapsed");
    assert!(format!("{elapsed:?}").starts_with("Elapsed"));
    assert!((&elapsed as &dyn Error).source().is_none());
    assert_eq!(io::Error::from(elapsed).kind(), io::ErrorKind::TimedOut);
    async fn reads() -> io::Result<()> {
        time::timeout(MS, pending::<io::Result<()>>()).await?
    }
    assert_eq!(reads().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

// --- In real time ---

#[test]
fn a_timeout_ends_on_every_runtime_and_not_early() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let (sender, answer) = oneshot::channel::<()>();
            let start = Instant::now();
            assert!(time::timeout(10 * MS, answer).await.is_err());
            assert!(start.elapsed() >= 10 * MS);
            drop(sender);
            assert_eq!(time::timeout(HOUR, ready(17)).await, Ok(17));
        });
    }
}
