//! The payloads of a task engine's timers.

use crate::sync::Weak;
use core::fmt;
use core::time::Duration;
use tourbillon::extend::{Due, DueId, Payload};
use tourbillon::{TimerId, Timestamp};

/// A closure that runs once.
pub type Call = Box<dyn FnOnce() + Send>;

/// The payload of a task engine's timer. Both variants have 16 bytes.
pub(crate) enum Job {
    /// The job of a one-shot. The job is consumed when it runs.
    Shot(Box<dyn Shot>),
    /// The owner of an owned timer, which is called each time the timer is due. The reference is weak, because the
    /// timer would otherwise keep its owner alive for ever.
    Owned(Box<Weak<dyn OnDue>>),
}

/// A job that runs once.
pub(crate) trait Shot: Send {
    /// Runs the job, on a worker.
    fn fire(self: Box<Self>, moment: &Moment<'_>);

    /// Returns the user's closure, for a job that will not run. Returns `None` if the job has no closure of the user.
    fn unfired(self: Box<Self>) -> Option<Call>;
}

/// The owner of an owned timer. The engine calls the owner when the timer is due.
pub(crate) trait OnDue: Send + Sync {
    /// Reacts to the owned timer when the timer is due. A worker calls this method. Two calls never run at the same
    /// time.
    fn on_due(&self, moment: &Moment<'_>);
}

/// A listener for the engine's shutdown.
pub(crate) trait OnEnd: Send + Sync {
    /// Reacts to the shutdown of the engine. During the call no timer fires any more. The engine may call this method
    /// more than once. If a handler shut the engine down, other handlers may still run.
    fn on_end(&self);
}

/// Describes to a closure which timer fired: its id, its deadline and its lateness.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Moment<'a> {
    id: DueId<'a>,
    /// The moment for which the timer was armed.
    pub deadline: Timestamp,
    /// The time between the deadline and the start of the closure.
    pub lateness: Duration,
}

impl Moment<'_> {
    /// Returns the timer's id. The id of a one-shot is stale once the closure has returned.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.id.get()
    }

    /// Returns the moment at which the closure began.
    pub(crate) fn now(&self) -> Timestamp {
        self.deadline + self.lateness
    }
}

/// Runs the job of a due timer. This is the handler of every task engine.
pub(super) fn do_job(due: Due<'_, Job>) {
    let moment = Moment { id: due.id, deadline: due.deadline, lateness: due.lateness() };
    match due.payload {
        Payload::Taken(job) => job.fire(&moment),
        Payload::Kept(job) => job.call_owner(&moment),
    }
}

impl Job {
    /// Runs the job of a one-shot.
    pub(super) fn fire(self, moment: &Moment<'_>) {
        match self {
            Self::Shot(shot) => shot.fire(moment),
            Self::Owned(_) => {}
        }
    }

    /// Calls the owner of an owned timer, if the owner still exists.
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

/// Returns the user's closure of a job that will not run.
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
