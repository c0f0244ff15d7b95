//! The handle of a repeating task.

use super::report::Report;
use crate::sync::StdArc;
use core::fmt;
use tourbillon::Timestamp;

/// A repeating task that was started. Clones refer to the same task; the task goes on when all of them are dropped.
#[derive(Clone)]
pub struct Task {
    repeats: StdArc<dyn Repeats>,
}

/// The outcome of stopping a task. In every case no run begins any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a run may not have ended"]
#[non_exhaustive]
pub enum Stopped {
    /// No run of the task is under way.
    Stopped,
    /// A run has begun and may not have ended.
    Running,
    /// The task had ended before, by itself or by another call, and no run is under way.
    Gone,
}

impl Task {
    pub(super) fn new(repeats: StdArc<dyn Repeats>) -> Self {
        Self { repeats }
    }

    /// Ends the task: no run begins any more. The call does not wait for a run that is under way.
    pub fn stop(&self) -> Stopped {
        self.repeats.stop()
    }

    /// As [`stop`](Self::stop), but waits until runs that are under way have ended. It never returns
    /// [`Stopped::Running`], except inside a task of its engine, where the call does not wait because it might wait for
    /// itself.
    pub fn stop_and_wait(&self) -> Stopped {
        self.repeats.stop_and_wait()
    }

    /// The moment of the next run, on the engine's clock; `None` when the task has ended, and while a run lasts that
    /// the next run waits for. For a calendar: the moment of the next look at the wall clock.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.repeats.next()
    }

    /// Whether the task has ended: no run begins any more. The last run may still be under way.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.repeats.has_ended()
    }

    /// The counts of the task so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.repeats.report()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("next", &self.next()).field("report", &self.report()).finish()
    }
}

/// A task, whatever the type of its closure.
pub(super) trait Repeats: Send + Sync {
    fn stop(&self) -> Stopped;
    fn stop_and_wait(&self) -> Stopped;
    fn next(&self) -> Option<Timestamp>;
    fn has_ended(&self) -> bool;
    fn report(&self) -> Report;
}
