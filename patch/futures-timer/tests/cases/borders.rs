//! Cases at the borders: other threads, runtimes that stand still or end, and times at both ends.

use super::{HOUR, MS, PATIENCE, poll, task};
use crate::subject::Delay;
use pollster::block_on;
use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A runtime whose only thread is the thread that calls `block_on`.
fn of_one_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// Makes a delay, and polls it once. The delay is pending, unless the time is so short that it has passed.
fn begun(time: Duration) -> Delay {
    let mut delay = Delay::new(time);
    let polled = poll(&mut delay, Waker::noop());
    assert!(polled.is_pending() || time < PATIENCE, "{time:?}");
    delay
}

/// Makes a delay in a runtime, and polls it once.
fn begun_in(runtime: &Runtime, time: Duration) -> Delay {
    runtime.block_on(poll_fn(|_| Poll::Ready(begun(time))))
}

#[test]
fn a_reset_to_no_time_wakes_the_task() {
    let (waker, wakes) = task();
    let mut delay = Delay::new(HOUR);
    assert!(poll(&mut delay, &waker).is_pending());
    delay.reset(Duration::ZERO);
    assert_eq!(wakes.recv_timeout(PATIENCE), Ok(()));
    assert_eq!(poll(&mut delay, &waker), Poll::Ready(()));
}

#[test]
fn a_delay_that_is_reset_while_it_comes_due_takes_the_new_time() {
    for round in 0..200 {
        let mut delay = begun(MS);
        thread::sleep(MS / 2 + Duration::from_micros(5 * round));
        let begin = Instant::now();
        delay.reset(4 * MS);
        block_on(delay);
        assert!(begin.elapsed() >= 4 * MS, "round {round}");
    }
}

#[test]
fn a_delay_may_be_reset_many_times() {
    let mut delay = begun(HOUR);
    for n in 0..10_000_u64 {
        delay.reset(Duration::from_secs(1 + n % 100));
    }
    let begin = Instant::now();
    delay.reset(10 * MS);
    block_on(delay);
    assert!(begin.elapsed() >= 10 * MS);
}

#[test]
fn no_time_is_too_long() {
    for time in [20 * YEAR, 500 * YEAR, 600 * YEAR, Duration::from_secs(u64::MAX), Duration::MAX] {
        let mut delay = begun(time);
        delay.reset(time);
        assert!(poll(&mut delay, Waker::noop()).is_pending(), "{time:?}");
    }
}

#[test]
fn delays_may_be_dropped_in_another_thread_while_they_come_due() {
    for _ in 0..20 {
        let delays: Vec<_> = (0..200_u64).map(|n| begun(MS + Duration::from_micros(10 * n))).collect();
        thread::spawn(move || {
            for delay in delays {
                thread::sleep(Duration::from_micros(5));
                drop(delay);
            }
        })
        .join()
        .expect("no drop panics");
    }
}

#[test]
fn a_delay_may_be_reset_in_another_thread() {
    let (waker, wakes) = task();
    let mut delay = Delay::new(HOUR);
    assert!(poll(&mut delay, &waker).is_pending());
    let delay = thread::spawn(move || {
        delay.reset(10 * MS);
        delay
    });
    let mut delay = delay.join().expect("no reset panics");
    assert_eq!(wakes.recv_timeout(PATIENCE), Ok(()));
    assert_eq!(poll(&mut delay, &waker), Poll::Ready(()));
}

/// A thread-local value that holds a delay. At the thread's end, its drop polls and resets that delay, and makes a
/// second delay.
struct AtTheEnd(Delay, Sender<bool>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let is_pending = poll(&mut self.0, Waker::noop()).is_pending();
        drop(begun(HOUR));
        self.0.reset(HOUR);
        // The test waits for it.
        let _ = self.1.send(is_pending);
    }
}

#[test]
fn delays_may_be_used_while_their_thread_ends() {
    thread_local! {
        static KEPT: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }
    let (ended, end) = channel();
    thread::spawn(move || KEPT.set(Some(AtTheEnd(begun(HOUR), ended)))).join().expect("no end panics");
    assert_eq!(end.recv_timeout(PATIENCE), Ok(true));
}

/// A waker that makes, polls and drops a delay each time it is woken.
struct Busy(Sender<()>);

impl Wake for Busy {
    fn wake(self: Arc<Self>) {
        drop(begun(HOUR));
        // The test waits for it.
        let _ = self.0.send(());
    }
}

#[test]
fn a_waker_may_use_delays() {
    let (woken, wakes) = channel();
    let mut delay = Delay::new(HOUR);
    assert!(poll(&mut delay, &Arc::new(Busy(woken)).into()).is_pending());
    delay.reset(10 * MS);
    assert_eq!(wakes.recv_timeout(PATIENCE), Ok(()));
}

#[test]
fn a_delay_moves_from_task_to_task() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let begin = Instant::now();
    let first = runtime.spawn(poll_fn(|cx| {
        let mut delay = Delay::new(40 * MS);
        let _ = poll(&mut delay, cx.waker());
        Poll::Ready(delay)
    }));
    let second = runtime.spawn(async { first.await.expect("a delay").await });
    runtime.block_on(second).expect("it completes");
    assert!(begin.elapsed() >= 40 * MS);
}

#[test]
fn a_delay_outlives_the_runtime_in_which_it_was_polled() {
    let begin = Instant::now();
    let runtime = of_one_thread();
    let mut delay = begun_in(&runtime, 60 * MS);
    drop(runtime);
    block_on(&mut delay);
    assert!(begin.elapsed() >= 60 * MS);
    delay.reset(10 * MS);
    block_on(delay);
}

#[test]
fn a_delay_goes_on_while_nobody_runs_its_runtime() {
    let runtime = of_one_thread();
    let delay = begun_in(&runtime, 20 * MS);
    block_on(delay);
    drop(runtime);
}

#[test]
fn the_only_thread_of_a_runtime_may_wait_by_another_executor() {
    of_one_thread().block_on(async {
        let mut delay = Delay::new(20 * MS);
        block_on(&mut delay);
        delay.reset(20 * MS);
        block_on(delay);
    });
}

#[test]
fn runtimes_without_a_timer_have_delays() {
    for runtime in
        [Builder::new_current_thread().build(), Builder::new_multi_thread().worker_threads(1).build()]
    {
        let begin = Instant::now();
        runtime.expect("a runtime").block_on(Delay::new(10 * MS));
        assert!(begin.elapsed() >= 10 * MS);
    }
}

#[test]
fn delays_complete_in_many_runtimes_at_once() {
    let run = |seed: u32| {
        of_one_thread().block_on(async {
            let tasks: Vec<_> = (0..50)
                .map(|n| {
                    let time = MS * ((n * 7 + seed) % 20);
                    let begin = Instant::now();
                    tokio::spawn(async move {
                        Delay::new(time).await;
                        assert!(begin.elapsed() >= time, "{time:?}");
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("it completes in time");
            }
        });
    };
    thread::scope(|scope| {
        for seed in 0..8 {
            scope.spawn(move || run(seed));
        }
    });
}

#[test]
fn a_runtime_may_end_while_its_tasks_wait() {
    for _ in 0..20 {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
        for n in 0..50 {
            drop(runtime.spawn(Delay::new(MS * n)));
        }
        runtime.shutdown_background();
    }
    block_on(Delay::new(10 * MS));
}
