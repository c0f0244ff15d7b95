//! The answers in which a time module may differ from tokio's. The mount says which answer is right.

use super::super::{ENDED, IS_BOUND_WHEN_MADE, NEEDS_A_RUNTIME, NEEDS_A_TIMER, WAITS_FOR_ITS_RUNTIME};
use super::time::{self, Instant};
use super::{Panicked, Task, current_thread, panic_of, runtimes};
use crate::support::{HOUR, MS, block_on};
use std::future::pending;
use std::pin::Pin;
use std::task::Poll;
use std::thread;
use tokio::runtime::Builder;

const NO_RUNTIME: &str =
    "there is no reactor running, must be called from the context of a Tokio 1.x runtime";
const NO_TIMER: &str = "A Tokio 1.x context was found, but timers are disabled. \
                        Call `enable_time` on the runtime builder to enable timers.";

type Begin = fn() -> Wait;
type Wait = Pin<Box<dyn Future<Output = ()>>>;

/// The functions that make a timer, by their names.
const WAITS: [(&str, Begin); 6] = [
    ("sleep", || Box::pin(time::sleep(MS))),
    ("sleep_until", || Box::pin(time::sleep_until(Instant::now() + MS))),
    ("timeout", || {
        let timeout = time::timeout(MS, pending::<()>());
        Box::pin(async move { assert!(timeout.await.is_err()) })
    }),
    ("timeout_at", || {
        let timeout = time::timeout_at(Instant::now() + MS, pending::<()>());
        Box::pin(async move { assert!(timeout.await.is_err()) })
    }),
    ("interval", || {
        let mut interval = time::interval(MS);
        Box::pin(async move {
            interval.tick().await;
        })
    }),
    ("interval_at", || {
        let mut interval = time::interval_at(Instant::now() + MS, MS);
        Box::pin(async move {
            interval.tick().await;
        })
    }),
];

/// Fails unless a panic has this text and blames the caller. An interval's panic blames the time module instead.
fn assert_panics(name: &str, panicked: &Panicked, text: &str) {
    assert_eq!(panicked.text, text, "{name}");
    assert!(name.starts_with("interval") || panicked.file == file!(), "{name}: {}", panicked.file);
}

#[test]
fn outside_of_a_runtime_a_timer_panics_or_works() {
    for (name, wait) in WAITS {
        if NEEDS_A_RUNTIME {
            assert_panics(name, &panic_of(wait), NO_RUNTIME);
        } else {
            block_on(wait());
        }
    }
}

#[test]
fn in_a_runtime_without_a_timer_a_timer_panics_or_works() {
    for (name, wait) in WAITS {
        let runtime = Builder::new_current_thread().build().unwrap();
        let entered = runtime.enter();
        if NEEDS_A_TIMER {
            assert_panics(name, &panic_of(wait), NO_TIMER);
        } else {
            runtime.block_on(wait());
        }
        drop(entered);
    }
}

#[test]
fn after_the_end_of_its_runtime_a_sleep_panics() {
    for runtime in runtimes() {
        let (mut polled, mut fresh) = {
            let _entered = runtime.enter();
            let mut polled = Task::new(time::sleep(HOUR));
            assert!(polled.poll().is_pending());
            (polled, Task::new(time::sleep(HOUR)))
        };
        drop(runtime);
        assert!(polled.take_wakes() >= 1);
        assert_eq!(panic_of(|| polled.poll()).text, ENDED);
        polled.future.as_mut().reset(Instant::now() + HOUR);
        assert_eq!(panic_of(|| polled.poll()).text, ENDED);
        if IS_BOUND_WHEN_MADE {
            assert_eq!(panic_of(|| fresh.poll()).text, ENDED);
        } else {
            assert!(fresh.poll().is_pending());
            let deadline = Instant::now() + 5 * MS;
            fresh.future.as_mut().reset(deadline);
            block_on(fresh.future);
            assert!(Instant::now() >= deadline);
        }
    }
}

#[test]
fn after_the_end_of_its_runtime_a_timeout_panics() {
    for runtime in runtimes() {
        let mut task = {
            let _entered = runtime.enter();
            let mut task = Task::new(time::timeout(HOUR, pending::<()>()));
            assert!(task.poll().is_pending());
            task
        };
        drop(runtime);
        assert_eq!(panic_of(|| task.poll()).text, ENDED);
    }
}

/// Only the thread that runs a current-thread runtime turns the runtime's timers. A sleep on the runtime waits while no
/// thread runs it, or ends.
#[test]
fn while_nobody_runs_its_runtime_a_sleep_waits_or_ends() {
    let idle = current_thread();
    let mut task = {
        let _entered = idle.enter();
        Task::new(time::sleep(MS))
    };
    let first_poll = task.poll();
    thread::sleep(20 * MS);
    if WAITS_FOR_ITS_RUNTIME {
        assert_eq!((first_poll, task.poll(), task.take_wakes()), (Poll::Pending, Poll::Pending, 0));
        idle.block_on(task.future);
    } else {
        block_on(task.future);
    }
}
