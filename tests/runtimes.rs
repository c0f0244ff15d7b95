//! The shards of tokio runtimes: runtimes that end, that block, that come one after the other, and their children.
#![cfg(feature = "tokio")]

mod support;

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use support::{HOUR, MS, PATIENCE, block_on, within_patience};
use tokio::runtime::{Builder, Runtime};
use tourbillon::extend::sleep_outside_of_runtimes;
use tourbillon::{Fired, future, time};

fn several_threads(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_time().build().unwrap()
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Returns the number of threads of this process that the engine has started.
#[cfg(target_os = "linux")]
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("tb-")).count()
}

#[test]
#[cfg(target_os = "linux")]
fn runtimes_that_end_while_timers_are_pending_leave_no_thread() {
    let run = || {
        for runtime in [current_thread(), several_threads(2)] {
            runtime.block_on(async {
                drop(tokio::spawn(time::sleep(HOUR)));
                let mut polls = 0;
                let twice = poll_fn(|cx| {
                    polls += 1;
                    cx.waker().wake_by_ref();
                    if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
                });
                time::timeout(HOUR, twice).await.unwrap();
            });
        }
    };
    run();
    let before = threads();
    for _ in 0..50 {
        run();
    }
    // Another test may have started the process's own threads.
    assert!(threads() <= before + 20, "{before} threads before, {} after", threads());
}

/// A value that counts its drop if the drop happens during a panic.
struct Unwound(Arc<AtomicUsize>);

impl Drop for Unwound {
    fn drop(&mut self) {
        self.0.fetch_add(usize::from(thread::panicking()), Ordering::SeqCst);
    }
}

#[test]
fn a_task_does_not_take_the_end_of_its_runtime_for_a_timeout() {
    let (panics, timeouts) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..30 {
        for runtime in [current_thread(), several_threads(4)] {
            for n in 0..100 {
                let (unwound, timeouts) = (Unwound(Arc::clone(&panics)), timeouts.clone());
                drop(runtime.spawn(async move {
                    match n % 4 {
                        0 => time::sleep(HOUR).await,
                        1 => drop(time::timeout(HOUR, pending::<()>()).await),
                        2 => drop(future::timeout(HOUR, pending::<()>()).await),
                        _ => {
                            let futures = time::shards().expect("inside a runtime").futures().clone();
                            futures.sleep(HOUR).await;
                        }
                    }
                    timeouts.fetch_add(1, Ordering::SeqCst);
                    drop(unwound);
                }));
            }
            runtime.block_on(async { time::sleep(MS).await });
        }
    }
    let count = |number: &AtomicUsize| number.load(Ordering::SeqCst);
    assert_eq!((count(&panics), count(&timeouts)), (0, 0));
}

/// A task wakes the task that turns the timers, and then blocks its worker. tokio runs the task that was woken last on
/// the same worker. The timers of other tasks still fire in time.
#[test]
fn a_blocked_worker_holds_up_no_timer_of_the_others() {
    within_patience(|| {
        several_threads(4).block_on(async {
            let other = tokio::spawn(async {
                let begin = Instant::now();
                time::sleep(100 * MS).await;
                begin.elapsed()
            });
            tokio::time::sleep(10 * MS).await;
            let blocks = tokio::spawn(async {
                let mut sleep = std::pin::pin!(time::sleep(30 * MS));
                poll_fn(|cx| {
                    assert!(sleep.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
                thread::sleep(20 * 100 * MS);
            });
            let took = other.await.unwrap();
            assert!(took >= 100 * MS);
            assert!(took < Duration::from_secs(1), "the worker that is blocked held it up: {took:?}");
            blocks.await.unwrap();
        });
    });
}

#[test]
fn a_worker_that_waits_for_a_sleep_without_the_runtime_gets_it() {
    within_patience(|| {
        several_threads(2).block_on(async {
            tokio::spawn(async { block_on(time::sleep(20 * MS)) }).await.unwrap();
        });
    });
}

#[test]
fn nested_and_alternating_runtimes_have_their_own_timers() {
    within_patience(|| {
        let (first, second) = (current_thread(), several_threads(2));
        for _ in 0..20 {
            first.block_on(async { time::sleep(MS).await });
            second.block_on(async { future::sleep(MS).await });
            first.block_on(async {
                let _entered = second.enter();
                assert!(time::timeout(MS, pending::<()>()).await.is_err());
            });
        }
    });
}

#[test]
fn many_runtimes_come_and_go() {
    within_patience(|| {
        for n in 0..200 {
            let runtime = if n % 2 == 0 { current_thread() } else { several_threads(2) };
            let begin = Instant::now();
            runtime.block_on(async { time::sleep(MS).await });
            assert!(begin.elapsed() >= MS);
        }
    });
}

#[test]
fn a_runtime_without_a_timer_is_served_from_outside() {
    within_patience(|| {
        let without = Builder::new_current_thread().build().unwrap();
        let with = current_thread();
        for _ in 0..3 {
            without.block_on(async {
                time::sleep(MS).await;
                assert!(future::timeout(MS, pending::<()>()).await.is_err());
                assert!(time::shards().is_none());
            });
            with.block_on(async { assert!(time::shards().is_some()) });
        }
    });
}

#[test]
fn a_sleep_outside_of_runtimes_ends_while_the_only_thread_of_a_runtime_waits_for_it() {
    within_patience(|| {
        current_thread().block_on(async {
            // The runtime has shards of its own by now.
            time::sleep(MS).await;
            block_on(sleep_outside_of_runtimes(20 * MS));
        });
    });
}

#[test]
fn entered_shards_come_before_those_of_the_runtime() {
    let mut driven = tourbillon::Builder::new().driven_shards().unwrap();
    let took = current_thread().block_on(async {
        let begin = Instant::now();
        driven.block_on(time::sleep(HOUR)).unwrap();
        driven.block_on(async { future::sleep(HOUR).await }).unwrap();
        begin.elapsed()
    });
    assert!(took < PATIENCE);
    let shown = tourbillon::Clock::now(driven.clock()) - tourbillon::Timestamp::ZERO;
    // `time::sleep` counts from its creation, by the machine's clock, which the driven clock does not follow.
    assert!(
        shown + took >= 2 * HOUR && shown < 2 * HOUR + Duration::from_secs(60),
        "{shown:?} after {took:?}"
    );
}

#[test]
fn handlers_on_the_shards_of_a_runtime_run_in_it() {
    within_patience(|| {
        several_threads(2).block_on(async {
            let (sender, mut log) = tokio::sync::mpsc::unbounded_channel();
            let id = tokio::runtime::Handle::current().id();
            let handler = move |timer: Fired<'_, u64>| {
                sender.send((timer.payload, tokio::runtime::Handle::current().id())).unwrap();
            };
            let engine = time::shards().unwrap().engine().start(handler).unwrap();
            engine.handle().schedule(MS, 17).unwrap();
            assert_eq!(log.recv().await, Some((17, id)));
        });
    });
}

#[test]
fn a_timeout_counts_from_the_first_poll_that_finds_its_future_pending() {
    current_thread().block_on(async {
        let limit = future::timeout(20 * MS, pending::<()>());
        thread::sleep(30 * MS);
        let begin = Instant::now();
        assert!(limit.await.is_err());
        assert!(begin.elapsed() >= 20 * MS);
        let limit = time::timeout(20 * MS, pending::<()>());
        let begin = Instant::now();
        thread::sleep(30 * MS);
        assert!(limit.await.is_err());
        assert!(begin.elapsed() >= 20 * MS, "from the call, as tokio's");
    });
}
