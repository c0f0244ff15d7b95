//! The handle of a repeating task.

use super::report::Report;
use crate::sync::StdArc;
use core::fmt;
use tourbillon::Timestamp;

/// A repeating task that was started. Clones refer to the same task. The task goes on when all clones are dropped.
#[derive(Clone)]
pub struct Task {
    repeats: StdArc<dyn Repeats>,
}

/// The outcome of stopping a task. In every case, no further run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a run may not have ended"]
#[non_exhaustive]
pub enum Stopped {
    /// No run of the task is under way.
    Stopped,
    /// A run has begun and may not have ended. A run in parallel that still waits for a worker has not begun.
    Running,
    /// The task had ended before this call, by itself or by another call. No run of the task is under way.
    Gone,
}

impl Task {
    pub(super) fn new(repeats: StdArc<dyn Repeats>) -> Self {
        Self { repeats }
    }

    /// Ends the task: no further run begins. Does not wait for a run that is under way.
    pub fn stop(&self) -> Stopped {
        self.repeats.stop()
    }

    /// Works as [`stop`](Self::stop), but waits until runs that have begun have ended.
    ///
    /// In four places the call does not wait, because it might wait for itself or for ever: inside a closure of this
    /// engine, on a thread that runs a shard of this engine at that moment, on the threads of the engine's rayon pool,
    /// and in the child of a fork. Only there it may return [`Stopped::Running`]. A thread runs a shard inside a
    /// closure of any engine that runs inline on these shards, in an executor that a shard calls, and in the turn of a
    /// loop. If a closure hands work to another thread and waits for the work, the work must not call this method.
    pub fn stop_and_wait(&self) -> Stopped {
        self.repeats.stop_and_wait()
    }

    /// Returns the moment of the next run, on the engine's clock. Returns `None` if the task has ended, or if the next
    /// run waits for the end of a run under way. For a calendar, returns the moment at which the task next checks the
    /// wall clock.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.repeats.next()
    }

    /// Returns whether the task has ended, so that no further run begins. The last run may still be under way. In the
    /// child of a fork, each task has ended that was started before the fork, unless its engine has no threads.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.repeats.has_ended()
    }

    /// Returns the numbers of the task's runs, panics and missed instants so far.
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

/// The methods of a repeating task. They do not depend on the type of its closure.
pub(super) trait Repeats: Send + Sync {
    fn stop(&self) -> Stopped;
    fn stop_and_wait(&self) -> Stopped;
    fn next(&self) -> Option<Timestamp>;
    fn has_ended(&self) -> bool;
    fn report(&self) -> Report;
}
