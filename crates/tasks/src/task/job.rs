//! The payloads of a task engine's timers.

use crate::sync::Weak;
use core::fmt;
use tourbillon::extend::{Due, Moment, Payload};

/// A closure that runs once.
pub type Call = Box<dyn FnOnce() + Send>;

/// The payload of a task engine's timer. It takes 16 bytes.
pub(crate) enum Job {
    /// The job of a one-shot. The job is consumed when it runs.
    Shot(Box<dyn Shot>),
    /// The object that owns the timer, such as a connection or a repeating task. The engine calls the object each time
    /// the timer is due. The reference is weak, because the timer would otherwise keep the object alive for ever.
    Owned(Box<Weak<dyn OnDue>>),
}

/// A job that runs once.
pub(crate) trait Shot: Send {
    /// Runs the job, on a worker.
    fn fire(self: Box<Self>, moment: &Moment<'_>);

    /// Returns the user's closure of a job that will not run; `None` if the job has no closure of the user.
    fn unfired(self: Box<Self>) -> Option<Call>;
}

/// An object that owns a timer. The engine calls the object each time the timer is due.
pub(crate) trait OnDue: Send + Sync {
    /// Reacts to a firing of the object's timer. A worker calls this method. Two calls never run at the same time.
    fn on_due(&self, moment: &Moment<'_>);
}

/// A listener for the engine's shutdown.
pub(crate) trait OnEnd: Send + Sync {
    /// Reacts to the shutdown of the engine. During the call no timer fires any more. The engine may call this method
    /// more than once. If a handler shut the engine down, other handlers may still run.
    fn on_end(&self);
}

/// Runs the job of a due timer. This is the handler of every task engine.
pub(super) fn do_job(due: Due<'_, Job>) {
    match due.payload {
        Payload::Taken(job) => job.fire(&due.moment),
        Payload::Kept(job) => job.call_owner(&due.moment),
    }
}

impl Job {
    pub(super) fn fire(self, moment: &Moment<'_>) {
        match self {
            Self::Shot(shot) => shot.fire(moment),
            Self::Owned(_) => {}
        }
    }

    /// Calls [`OnDue::on_due`] of the object that owns the timer, if the object still exists.
    fn call_owner(&self, moment: &Moment<'_>) {
        if let Self::Owned(owner) = self
            && let Some(owner) = owner.upgrade()
        {
            owner.on_due(moment);
        }
    }

    pub(super) fn unfired(self) -> Option<Call> {
        match self {
            Self::Shot(shot) => shot.unfired(),
            Self::Owned(_) => None,
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shot(_) => "Shot",
            Self::Owned(_) => "Owned",
        })
    }
}

/// Returns the user's closure of a job that will not run. If the job has none, returns a closure that does nothing.
pub(super) fn give_back(job: Job) -> Call {
    job.unfired().unwrap_or_else(|| Box::new(|| {}))
}

/// A user's closure that takes no argument.
pub(super) struct Plain<F>(pub(super) F);

impl<F: FnOnce() + Send + 'static> Shot for Plain<F> {
    fn fire(self: Box<Self>, _: &Moment<'_>) {
        (self.0)();
    }

    fn unfired(self: Box<Self>) -> Option<Call> {
        Some(Box::new(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_two_words() {
        assert_eq!(size_of::<Job>(), 16);
    }
}
