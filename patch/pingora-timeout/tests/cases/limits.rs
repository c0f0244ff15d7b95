//! Limits on the time of a future.

use super::{EARLY, FUNCTIONS, MINUTE, MS, PATIENCE, poll, run, shared};
use crate::subject::{sleep, timeout};
use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};

#[test]
fn a_future_that_never_completes_is_timed_out() {
    let _shared = shared();
    for function in FUNCTIONS {
        let begin = Instant::now();
        assert!(run(function.limit(40 * MS, pending::<()>())).is_err(), "{function:?}");
        assert!((40 * MS - EARLY..PATIENCE).contains(&begin.elapsed()), "{function:?}");
    }
}

#[test]
fn a_future_that_takes_longer_is_timed_out() {
    let _shared = shared();
    for function in FUNCTIONS {
        let late = async { tokio::time::sleep(PATIENCE).await };
        assert!(run(function.limit(20 * MS, late)).is_err(), "{function:?}");
    }
}

#[test]
fn a_ready_future_is_not_limited() {
    let _shared = shared();
    for function in FUNCTIONS {
        for time in [Duration::ZERO, MS, MINUTE] {
            assert_eq!(run(function.limit(time, async { 17 })).ok(), Some(17), "{function:?}");
        }
    }
}

#[test]
fn an_answer_in_time_is_passed_on() {
    let _shared = shared();
    for function in FUNCTIONS {
        let answer = async {
            tokio::time::sleep(20 * MS).await;
            17
        };
        assert_eq!(run(function.limit(MINUTE, answer)).ok(), Some(17), "{function:?}");
    }
}

#[test]
fn a_sleep_is_limited_as_any_future_is() {
    let _shared = shared();
    for function in FUNCTIONS {
        let answer = async {
            sleep(20 * MS).await;
            17
        };
        assert_eq!(run(function.limit(MINUTE, answer)).ok(), Some(17), "{function:?}");
        assert!(run(function.limit(20 * MS, sleep(MINUTE))).is_err(), "{function:?}");
    }
}

#[test]
fn the_time_counts_from_the_first_pending_poll() {
    let _shared = shared();
    for function in FUNCTIONS {
        run(async {
            let limited = function.limit(40 * MS, pending::<()>());
            tokio::time::sleep(60 * MS).await;
            let begin = Instant::now();
            assert!(limited.await.is_err(), "{function:?}");
            assert!(begin.elapsed() >= 40 * MS - EARLY, "{function:?}");
        });
    }
}

#[test]
fn an_answer_that_is_polled_late_is_passed_on() {
    let _shared = shared();
    for function in FUNCTIONS {
        run(async {
            let mut polls = 0;
            let second = poll_fn(move |_| {
                polls += 1;
                if polls == 2 { Poll::Ready(17) } else { Poll::Pending }
            });
            let mut limited = function.limit(200 * MS, second);
            assert!(poll(limited.as_mut()).is_pending(), "{function:?}");
            tokio::time::sleep(400 * MS).await;
            assert!(matches!(poll(limited.as_mut()), Poll::Ready(Ok(17))), "{function:?}");
        });
    }
}

#[test]
fn limits_need_no_runtime() {
    let _shared = shared();
    assert!(pollster::block_on(timeout(20 * MS, pending::<()>())).is_err());
    assert!(pollster::block_on(timeout(MINUTE, sleep(20 * MS))).is_ok());
}

#[test]
fn the_limits_of_many_tasks_hold() {
    let _shared = shared();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let tasks: Vec<_> = (0..400_u32)
        .map(|n| {
            runtime.spawn(async move {
                for round in 0..5 {
                    let time = MS * ((n * 7 + round) % 30 + 1);
                    let begin = Instant::now();
                    assert!(timeout(time, pending::<()>()).await.is_err());
                    assert!(begin.elapsed() >= time - EARLY);
                    assert!(timeout(MINUTE, sleep(time)).await.is_ok());
                    assert!(begin.elapsed() >= 2 * (time - EARLY));
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).expect("its limits hold");
    }
}
