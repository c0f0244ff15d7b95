//! Periodic tasks.

use crate::annotate;
use crate::delivery::Delivery;
use crate::engine::tb_engine;
use crate::event::{Target, nanos, tb_callback, tb_event};
use crate::events;
use crate::handles::{self, Handle};
use crate::origin::Origin;
use crate::outcome::tb_outcome;
use crate::status::{Failure, guard, tb_status};
use std::ffi::c_void;
use std::time::Duration;
use tourbillon::Timestamp;
use tourbillon_tasks::{Repeat, Run, Task};

/// A periodic task.
#[derive(Debug)]
pub struct tb_task {
    task: Task,
    origin: Origin,
}

impl Handle for tb_task {
    const NAME: &'static str = "tb_task";

    fn origin(&self) -> Origin {
        self.origin
    }
}

impl tb_task {
    fn start(engine: &tb_engine, period: Duration, target: Target) -> Result<Self, Failure> {
        let (tasks, plan) = (engine.tasks(), Repeat::every(period));
        let mut instants = Instants { period: nanos(period).max(1), next: None };
        let task = match engine.delivery() {
            Delivery::Call => {
                let call = move |run: &Run| target.call(&instants.event(target, run));
                tasks.repeat(plan, call).map_err(|error| error.kind)?
            }
            Delivery::Poll(_) => {
                let put = move |run: &Run| events::put(instants.event(target, run));
                tasks.repeat(plan, put).map_err(|error| error.kind)?
            }
        };
        Ok(Self { task, origin: engine.origin() })
    }

    fn stop(&self, and_wait: bool) -> tb_outcome {
        let means = self.origin.means;
        let and_wait = and_wait && means.has_callbacks();
        means.outcome(if and_wait { self.task.stop_and_wait() } else { self.task.stop() })
    }
}

/// Computes which instants each event of a periodic task counts. The instants are the moments at which the task is due,
/// one in each period. Exactly one event counts each instant, even if the task had no run for the instant.
struct Instants {
    /// The period of the task, in nanoseconds.
    period: u64,
    /// The first instant that no event has counted yet, in nanoseconds on the engine's clock. `None` before the first
    /// run.
    next: Option<u64>,
}

impl Instants {
    /// Makes the event of a run. The event counts all instants up to the start of the run that no earlier event has
    /// counted. There are several such instants if the task had no runs for some of them: they came during the previous
    /// run, or after this run was due and before it began.
    fn event(&mut self, target: Target, run: &Run) -> tb_event {
        let scheduled = run.scheduled.as_nanos();
        let first = self.next.unwrap_or(scheduled).min(scheduled);
        let count = ((scheduled - first) / self.period).saturating_add(run.missed).saturating_add(1);
        self.next = Some(first.saturating_add(count.saturating_mul(self.period)));
        let lateness = run.lateness + Duration::from_nanos(scheduled - first);
        target.event(0, Timestamp::from_nanos(first), lateness, count)
    }
}

/// Starts a task that is due every `period_ns`, at a fixed rate. The moments at which the task is due are its instants,
/// and the first of them is one period from now. An instant is missed if it comes before the callback for an earlier
/// instant has returned, or before the event of an earlier instant was polled. A missed instant has no run of its own.
/// The event of the next run counts it: the field `count` of an event is the number of instants that the event counts,
/// and `deadline_ns` is the first of these instants. If `task` is NULL, the task goes on until the shutdown.
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

/// As `tb_task_stop`, but waits until a run that has begun has returned. In a callback of this engine, in a turn of a
/// loop and in the child of a fork it does not wait, and may return `TB_RUNNING`. Elsewhere it never returns
/// `TB_RUNNING`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_task_stop_and_wait(task: *const tb_task, outcome: *mut tb_outcome) -> tb_status {
    // SAFETY: the contract.
    unsafe { stop(task, outcome, true) }
}

/// Stops a task. If `and_wait` is true, waits for a run that has begun as [`tb_task_stop_and_wait`] does.
///
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

/// Stops a task as `tb_task_stop` does, and frees its handle. A task may be freed before or after its engine.
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
