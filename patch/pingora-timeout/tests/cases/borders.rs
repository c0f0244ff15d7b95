//! Cases at the borders: other threads, many runtimes, runtimes that end, and times at both ends.

use super::{EARLY, MINUTE, MS, PATIENCE, alone, poll, run, shared};
use crate::subject::fast_timeout::{fast_timeout_to_tokio_threshold, set_fast_timeout_to_tokio_threshold};
use crate::subject::timer::{TimerManager, TimerStub};
use crate::subject::{Elapsed, sleep, timeout};
use pollster::block_on;
use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

type Limited = Pin<Box<dyn Future<Output = Result<(), Elapsed>> + Send>>;

fn of_one_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn of_two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

/// Makes a limit on a future that is never ready, and polls it once.
fn begun(time: Duration) -> Limited {
    let mut limited: Limited = Box::pin(timeout(time, pending()));
    let polled = poll(limited.as_mut());
    assert!(polled.is_pending() || time < PATIENCE, "{time:?}");
    limited
}

/// Makes a limit on a future that is never ready, and polls it once, inside a runtime.
fn begun_in(runtime: &Runtime, time: Duration) -> Limited {
    runtime.block_on(poll_fn(|_| Poll::Ready(begun(time))))
}

#[test]
fn no_time_is_over_soon() {
    let _shared = shared();
    // The original counts milliseconds from its start, and cannot count back from the first.
    run(sleep(2 * MS));
    let begin = Instant::now();
    for time in [Duration::ZERO, Duration::from_nanos(1)] {
        run(sleep(time));
        assert!(run(timeout(time, pending::<()>())).is_err());
    }
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn no_limit_is_too_long() {
    let _alone = alone();
    let years = Duration::from_secs(20 * 365 * 86_400);
    run(async {
        for time in [years, 20 * years, Duration::MAX] {
            assert!(poll(pin!(timeout(time, pending::<()>()))).is_pending(), "{time:?}");
        }
    });
    let threshold = fast_timeout_to_tokio_threshold();
    set_fast_timeout_to_tokio_threshold(None);
    let polled = poll(pin!(timeout(years, pending::<()>())));
    set_fast_timeout_to_tokio_threshold(threshold);
    assert!(polled.is_pending());
}

#[test]
fn limits_may_be_dropped_in_another_thread_while_they_come_due() {
    let _shared = shared();
    let runtime = of_two_threads();
    for _ in 0..20 {
        let limited: Vec<_> =
            runtime.block_on(async { (0..200).map(|n| begun(MS + Duration::from_micros(10 * n))).collect() });
        thread::spawn(move || {
            for limit in limited {
                thread::sleep(Duration::from_micros(5));
                drop(limit);
            }
        })
        .join()
        .expect("no drop panics");
    }
}

/// A thread-local value that holds a limit. At the thread's end, its drop polls that limit, and makes a second limit.
struct AtTheEnd(Limited, Sender<bool>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let is_pending = poll(self.0.as_mut()).is_pending();
        drop(begun(MINUTE));
        // The test waits for it.
        let _ = self.1.send(is_pending);
    }
}

#[test]
fn limits_may_be_used_while_their_thread_ends() {
    thread_local! {
        static KEPT: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }
    let _shared = shared();
    let (ended, end) = channel();
    thread::spawn(move || KEPT.set(Some(AtTheEnd(begun(MINUTE), ended)))).join().expect("no end panics");
    assert_eq!(end.recv_timeout(PATIENCE), Ok(true));
}

/// A waker that makes, polls and drops a limit each time it is woken.
struct Busy(Sender<()>);

impl Wake for Busy {
    fn wake(self: Arc<Self>) {
        drop(begun(MINUTE));
        // The test waits for it.
        let _ = self.0.send(());
    }
}

#[test]
fn a_waker_may_use_limits() {
    let _shared = shared();
    let (woken, wakes) = channel();
    let mut limited = pin!(timeout(300 * MS, pending::<()>()));
    let waker = Arc::new(Busy(woken)).into();
    assert!(limited.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(wakes.recv_timeout(PATIENCE), Ok(()));
}

#[test]
fn the_task_that_polls_last_is_woken() {
    let _shared = shared();
    let begin = Instant::now();
    let runtime = of_two_threads();
    let first = runtime.spawn(poll_fn(|cx| {
        let mut limited: Limited = Box::pin(timeout(300 * MS, pending()));
        assert!(limited.as_mut().poll(cx).is_pending());
        Poll::Ready(limited)
    }));
    let second = runtime.spawn(async { first.await.expect("a limit").await });
    assert!(runtime.block_on(second).expect("it ends").is_err());
    assert!(begin.elapsed() >= 300 * MS - EARLY);
}

#[test]
fn a_limit_moves_from_one_runtime_to_another() {
    let _shared = shared();
    let (first, second) = (of_two_threads(), of_one_thread());
    let begin = Instant::now();
    let limited = begun_in(&first, 40 * MS);
    assert!(second.block_on(limited).is_err());
    assert!(begin.elapsed() >= 40 * MS - EARLY);
}

#[test]
fn a_limit_outlives_the_runtime_in_which_it_began() {
    let _shared = shared();
    for runtime in [of_one_thread(), of_two_threads()] {
        let begin = Instant::now();
        let (here, there) = (begun_in(&runtime, 60 * MS), begun_in(&runtime, 60 * MS));
        drop(runtime);
        assert!(of_one_thread().block_on(there).is_err());
        assert!(block_on(here).is_err());
        assert!((60 * MS - EARLY..PATIENCE).contains(&begin.elapsed()));
    }
}

#[test]
fn a_task_of_another_runtime_is_woken_though_the_first_has_ended() {
    let _shared = shared();
    let (first, second) = (of_two_threads(), of_two_threads());
    let begin = Instant::now();
    let limited = begun_in(&first, 100 * MS);
    let waits = second.spawn(limited);
    thread::sleep(20 * MS);
    drop(first);
    assert!(second.block_on(waits).expect("it ends").is_err());
    assert!((100 * MS - EARLY..PATIENCE).contains(&begin.elapsed()));
}

#[test]
fn a_runtime_may_end_while_its_tasks_wait() {
    let _shared = shared();
    for _ in 0..20 {
        let runtime = of_two_threads();
        for n in 0..50 {
            drop(runtime.spawn(timeout(MS * n, pending::<()>())));
            drop(runtime.spawn(sleep(MS * n)));
        }
        runtime.shutdown_background();
    }
    run(sleep(10 * MS));
}

/// Many threads have a runtime each, as in a server that gives each thread its own runtime. The limits of all threads
/// hold at the same time.
#[test]
fn limits_hold_in_many_runtimes_at_once() {
    let _shared = shared();
    let serve = |seed: u32| {
        of_one_thread().block_on(async {
            let tasks: Vec<_> = (0..50)
                .map(|n| {
                    let time = MS * ((n * 7 + seed) % 20 + 1);
                    tokio::spawn(async move {
                        let begin = Instant::now();
                        assert!(timeout(time, pending::<()>()).await.is_err());
                        assert!(timeout(MINUTE, sleep(time)).await.is_ok());
                        assert!(begin.elapsed() >= 2 * (time - EARLY));
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("its limits hold");
            }
        });
    };
    thread::scope(|scope| {
        for seed in 0..8 {
            scope.spawn(move || serve(seed));
        }
    });
}

#[test]
fn runtimes_come_and_go() {
    let _shared = shared();
    for _ in 0..30 {
        for runtime in [of_one_thread(), of_two_threads()] {
            assert!(runtime.block_on(async { timeout(MS, pending::<()>()).await }).is_err());
        }
    }
}

#[test]
fn a_runtime_without_a_timer_has_limits() {
    let _shared = shared();
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let begin = Instant::now();
    assert!(runtime.block_on(async { timeout(10 * MS, pending::<()>()).await }).is_err());
    runtime.block_on(sleep(10 * MS));
    assert!(begin.elapsed() >= 2 * (10 * MS - EARLY));
}

#[test]
fn a_blocking_thread_of_a_runtime_may_wait_by_another_executor() {
    let _shared = shared();
    of_two_threads().block_on(async {
        let waits = tokio::task::spawn_blocking(|| block_on(timeout(20 * MS, pending::<()>())));
        assert!(waits.await.expect("it ends").is_err());
    });
}

#[test]
fn a_manager_may_end_before_its_timers() {
    let _shared = shared();
    let stubs: Vec<TimerStub> = {
        let manager = TimerManager::new();
        (0..10).map(|_| manager.register_timer(MINUTE)).collect()
    };
    drop(stubs);
}
