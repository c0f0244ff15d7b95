//! Runtimes: of every kind, several in one process, and at their end.

use super::time::{self, Instant};
use super::{Task, current_thread, nobody, runtimes, several_threads, standing};
use crate::support::{HOUR, MS, block_on, within_patience};
use std::future::{pending, poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

/// Sleeps for ten milliseconds, and checks that they have passed.
async fn sleep_and_check() {
    let start = Instant::now();
    time::sleep(10 * MS).await;
    assert!(start.elapsed() >= 10 * MS);
    let deadline = Instant::now() + 10 * MS;
    time::sleep_until(deadline).await;
    assert!(Instant::now() >= deadline);
}

#[test]
fn sleeps_end_on_every_runtime_and_not_early() {
    for runtime in runtimes() {
        runtime.block_on(sleep_and_check());
        runtime.block_on(async { tokio::spawn(sleep_and_check()).await.unwrap() });
    }
}

#[test]
fn hundreds_of_sleeps_and_timeouts_end_and_not_early() {
    async fn limit_and_check() {
        let start = Instant::now();
        assert!(time::timeout(10 * MS, pending::<()>()).await.is_err());
        assert!(start.elapsed() >= 10 * MS);
    }
    for runtime in runtimes() {
        runtime.block_on(async {
            let sleeps: Vec<_> = (0..500).map(|_| tokio::spawn(sleep_and_check())).collect();
            let limits: Vec<_> = (0..500).map(|_| tokio::spawn(limit_and_check())).collect();
            for task in sleeps.into_iter().chain(limits) {
                task.await.unwrap();
            }
        });
    }
}

#[test]
fn a_task_that_never_rests_sleeps_no_longer() {
    within_patience(|| {
        for runtime in runtimes() {
            runtime.block_on(async {
                let deadline = Instant::now() + 10 * MS;
                let mut sleep = pin!(time::sleep_until(deadline));
                poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    sleep.as_mut().poll(cx)
                })
                .await;
                assert!(Instant::now() >= deadline);
            });
        }
    });
}

// --- Several runtimes ---

#[test]
fn a_sleep_keeps_the_clock_of_the_runtime_that_made_it() {
    let first = standing();
    thread::sleep(2 * MS);
    let second = standing();
    let _entered = first.enter();
    let start = Instant::now();
    let mut sleep = pin!(time::sleep(MS));
    assert!(sleep.as_mut().poll(&mut nobody()).is_pending());
    second.block_on(async { sleep.as_mut().reset(start + 2 * MS) });
    first.block_on(sleep);
    assert_eq!(start.elapsed(), 2 * MS);
}

#[test]
fn a_sleep_may_be_awaited_in_another_runtime() {
    let (home, abroad) = (several_threads(1), current_thread());
    let deadline = Instant::now() + 10 * MS;
    let sleep = {
        let _entered = home.enter();
        time::sleep_until(deadline)
    };
    abroad.block_on(sleep);
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_sleep_may_be_awaited_on_a_thread_without_a_runtime() {
    let runtime = several_threads(1);
    let deadline = Instant::now() + 10 * MS;
    let (sleep, timeout) = {
        let _entered = runtime.enter();
        (time::sleep_until(deadline), time::timeout_at(deadline, pending::<()>()))
    };
    block_on(sleep);
    assert!(Instant::now() >= deadline);
    assert!(block_on(timeout).is_err());
}

#[test]
fn a_sleep_that_moves_from_task_to_task_wakes_the_last() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let start = Instant::now();
            let mut task = Task::new(time::sleep(20 * MS));
            let _ = task.poll();
            tokio::spawn(task.future).await.unwrap();
            assert!(start.elapsed() >= 20 * MS);
        });
    }
}

#[test]
fn sleeps_are_dropped_on_any_thread() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let kept = tokio::spawn(sleep_and_check());
            let mut sleeps: Vec<_> = (0..100).map(|n| Task::new(time::sleep((n % 20) * MS))).collect();
            for sleep in &mut sleeps {
                let _ = sleep.poll();
            }
            thread::spawn(move || drop(sleeps)).join().unwrap();
            kept.await.unwrap();
        });
    }
}

// --- The end of a runtime ---

#[test]
fn a_runtime_ends_while_its_tasks_wait() {
    within_patience(|| {
        for runtime in runtimes() {
            let kept = Arc::new(());
            for n in 0..100 {
                let kept = Arc::clone(&kept);
                drop(runtime.spawn(async move {
                    if n % 2 == 0 {
                        time::sleep(HOUR).await;
                    } else {
                        let _ = time::timeout(HOUR, pending::<()>()).await;
                    }
                    drop(kept);
                }));
            }
            runtime.block_on(async { time::sleep(MS).await });
            drop(runtime);
            assert_eq!(Arc::strong_count(&kept), 1);
        }
    });
}

#[test]
fn sleeps_timeouts_and_intervals_may_outlive_their_runtime() {
    for runtime in runtimes() {
        let (mut sleep, mut timeout, mut interval) = {
            let _entered = runtime.enter();
            let interval = time::interval_at(Instant::now() + HOUR, HOUR);
            (Task::new(time::sleep(HOUR)), Task::new(time::timeout(HOUR, pending::<()>())), interval)
        };
        assert!(sleep.poll().is_pending() && timeout.poll().is_pending());
        assert!(interval.poll_tick(&mut nobody()).is_pending());
        drop(runtime);
        thread::spawn(move || drop((sleep, timeout, interval))).join().unwrap();
    }
}

#[test]
fn a_sleep_may_be_reset_after_the_end_of_its_runtime() {
    for runtime in runtimes() {
        let (mut polled, mut fresh) = {
            let _entered = runtime.enter();
            (Task::new(time::sleep(HOUR)), Task::new(time::sleep(HOUR)))
        };
        assert!(polled.poll().is_pending());
        drop(runtime);
        let deadline = Instant::now() + 2 * HOUR;
        for task in [&mut polled, &mut fresh] {
            task.future.as_mut().reset(deadline);
            assert_eq!(task.future.deadline(), deadline);
        }
    }
}

#[test]
fn a_future_that_is_ready_is_passed_on_after_the_end_of_the_runtime() {
    for runtime in runtimes() {
        let mut task = {
            let _entered = runtime.enter();
            Task::new(time::timeout(HOUR, ready(17)))
        };
        drop(runtime);
        assert_eq!(task.poll(), Poll::Ready(Ok(17)));
    }
}

/// A timeout of the longest duration makes no timer, so it needs no runtime.
#[test]
fn the_longest_timeout_needs_no_runtime() {
    let mut task = Task::new(time::timeout(time::Duration::MAX, ready(17)));
    assert_eq!(task.poll(), Poll::Ready(Ok(17)));
    let mut task = Task::new(time::timeout(time::Duration::MAX, pending::<()>()));
    assert!(task.poll().is_pending());
}
