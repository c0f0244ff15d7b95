//! Periodic tasks.

use crate::annotate;
use crate::delivery::Delivery;
use crate::engine::{tb_engine, tb_outcome};
use crate::event::{Target, tb_callback, tb_event};
use crate::events::Source;
use crate::handles::{self, Handle};
use crate::status::{Failure, guard, tb_status};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tourbillon::Timestamp;
use tourbillon_tasks::{Repeat, Run, Stopped, Task};

/// A periodic task.
#[derive(Debug)]
pub struct tb_task {
    task: Task,
    polled: Option<Arc<Polled>>,
}

impl Handle for tb_task {
    const NAME: &'static str = "tb_task";
}

impl tb_task {
    fn start(engine: &tb_engine, period: Duration, target: Target) -> Result<Self, Failure> {
        let (tasks, plan) = (engine.tasks(), Repeat::every(period));
        let (task, polled) = match engine.delivery() {
            Delivery::Call => {
                let call = move |run: &Run| {
                    target.call(&target.event(0, run.scheduled, run.lateness, instants(run)));
                };
                (tasks.repeat(plan, call).map_err(|error| error.kind)?, None)
            }
            Delivery::Queue(events) => {
                let polled = Arc::new(Polled {
                    unpolled: AtomicU64::new(0),
                    last: AtomicU64::new(0),
                    queued: AtomicBool::new(false),
                    target,
                });
                let (events, ran) = (Arc::clone(events), Arc::clone(&polled));
                let announce = move |run: &Run| {
                    if ran.count(run) {
                        let source: Arc<dyn Source> = Arc::clone(&ran) as _;
                        events.queue_check(source);
                    }
                };
                (tasks.repeat(plan, announce).map_err(|error| error.kind)?, Some(polled))
            }
        };
        Ok(Self { task, polled })
    }

    fn stop(&self, and_wait: bool) -> tb_outcome {
        let Some(polled) = &self.polled else {
            return if and_wait { self.task.stop_and_wait() } else { self.task.stop() }.into();
        };
        // Ordering: AcqRel. One CAS or swap takes an event out of the word.
        let unpolled = polled.unpolled.swap(STOPPED, Ordering::AcqRel);
        match self.task.stop() {
            Stopped::Gone if unpolled == 0 || unpolled == STOPPED => tb_outcome::TB_GONE,
            // A run that has begun finds the word stopped.
            _ => tb_outcome::TB_CANCELLED,
        }
    }
}

impl From<Stopped> for tb_outcome {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Stopped => Self::TB_CANCELLED,
            Stopped::Gone => Self::TB_GONE,
            // `Running`, and every outcome that a later version may add: a caller that frees nothing is safe with each.
            _ => Self::TB_RUNNING,
        }
    }
}

fn instants(run: &Run) -> u64 {
    run.missed.saturating_add(1)
}

/// The value of a word whose task was stopped: no event is polled any more.
const STOPPED: u64 = u64::MAX;

/// A task whose events are polled: see [`crate::events`].
#[derive(Debug)]
struct Polled {
    /// The number of instants that have come and were not polled, or `STOPPED`.
    unpolled: AtomicU64,
    /// The latest instant, in nanoseconds.
    last: AtomicU64,
    queued: AtomicBool,
    target: Target,
}

impl Polled {
    /// Counts the instants of a run. Returns false if the task was stopped.
    fn count(&self, run: &Run) -> bool {
        self.last.store(run.scheduled.as_nanos(), Ordering::Relaxed);
        let add = |unpolled: u64| match unpolled {
            STOPPED => None,
            _ => Some(unpolled.saturating_add(instants(run)).min(STOPPED - 1)),
        };
        // Ordering: Release. Publishes the instant stored before.
        self.unpolled.fetch_update(Ordering::Release, Ordering::Relaxed, add).is_ok()
    }
}

impl Source for Polled {
    fn queued(&self) -> &AtomicBool {
        &self.queued
    }

    fn claim(&self) -> Option<tb_event> {
        let take = |unpolled: u64| (unpolled != 0 && unpolled != STOPPED).then_some(0);
        // Ordering: Acquire. `last` is read after it: the instant of the last run that the count includes, or of a
        // later run.
        let count = self.unpolled.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).ok()?;
        let last = Timestamp::from_nanos(self.last.load(Ordering::Relaxed));
        Some(self.target.event(0, last, Duration::ZERO, count))
    }
}

/// Starts a task that is due every `period_ns`, for the first time one period from now, at a fixed rate. An instant
/// that was missed has no run of its own: the next event counts it. The same holds for instants that were not polled in
/// time. If `task` is NULL, the task goes on until the shutdown.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_every(
    engine: *const tb_engine,
    period_ns: u64,
    callback: tb_callback,
    user: *mut c_void,
    task: *mut *mut tb_task,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        let target = engine.delivery().target(callback, user)?;
        annotate::handed_over(user);
        let started = tb_task::start(engine, Duration::from_nanos(period_ns), target)?;
        // SAFETY: the contract.
        if let Ok(place) = unsafe { handles::place(task, "task") } {
            place.write(handles::give(started));
        }
        Ok(())
    })
}

/// Stops a task: no run of it begins any more, and no event of it is polled. `outcome` may be NULL.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_task_stop(task: *const tb_task, outcome: *mut tb_outcome) -> tb_status {
    // SAFETY: the contract.
    unsafe { stop(task, outcome, false) }
}

/// As `tb_task_stop`, but waits until a run that has begun has returned. It never returns `TB_RUNNING`, except in a
/// callback of this engine, where it does not wait.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_task_stop_and_wait(task: *const tb_task, outcome: *mut tb_outcome) -> tb_status {
    // SAFETY: the contract.
    unsafe { stop(task, outcome, true) }
}

/// # Safety
///
/// The [contract](crate#contract).
unsafe fn stop(task: *const tb_task, outcome: *mut tb_outcome, and_wait: bool) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let stopped = unsafe { handles::lend(task) }?.stop(and_wait);
        if and_wait {
            annotate::waited_for_callbacks();
        }
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(outcome, stopped) };
        Ok(())
    })
}

/// Stops a task as `tb_task_stop` does, and frees its handle, before or after the engine.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_task_free(task: *mut tb_task) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        if let Some(task) = unsafe { handles::take(task) }? {
            task.stop(false);
        }
        Ok(())
    })
}
