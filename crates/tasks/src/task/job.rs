//! Jobs: the payloads of a task engine's timers.

use crate::sync::Weak;
use core::fmt;
use core::time::Duration;
use tourbillon::extend::{Due, DueId, Payload};
use tourbillon::{TimerId, Timestamp};

/// A closure that runs once.
pub type Call = Box<dyn FnOnce() + Send>;

/// The payload of a task engine's timer, 16 bytes in both variants.
pub(crate) enum Job {
    /// The job of a one-shot, which is consumed when it is done.
    Shot(Box<dyn Shot>),
    /// The owner of an owned timer, which is called each time the timer is due. The reference is weak, since otherwise
    /// a timer would keep its owner alive for ever.
    Owned(Box<Weak<dyn OnDue>>),
}

/// A job that is done once.
pub(crate) trait Shot: Send {
    /// Does the job, on a worker.
    fn fire(self: Box<Self>, moment: &Moment<'_>);

    /// The closure that the user gets back when the job will not be done.
    fn unfired(self: Box<Self>) -> Option<Call>;
}

/// The owner of an owned timer.
pub(crate) trait OnDue: Send + Sync {
    /// Called on a worker when the timer is due; never twice at a time.
    fn on_due(&self, moment: &Moment<'_>);
}

/// A listener for the engine's shutdown.
pub(crate) trait OnEnd: Send + Sync {
    /// Called, perhaps more than once, when no timer is due any more. In a shutdown by a handler, other handlers may
    /// still run.
    fn on_end(&self);
}

/// The id of a timer that fired, its deadline and its lateness.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Moment<'a> {
    id: DueId<'a>,
    /// The moment that the timer was armed for.
    pub deadline: Timestamp,
    /// The time from the deadline to the start of the closure.
    pub lateness: Duration,
}

impl Moment<'_> {
    /// The timer's id. That of a one-shot is stale once the closure has returned.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.id.get()
    }

    /// The moment at which the handler began.
    pub(crate) fn now(&self) -> Timestamp {
        self.deadline + self.lateness
    }
}

/// The handler of a task engine: does the job of a timer that is due.
pub(super) fn do_job(Due { id, deadline, lateness, payload, .. }: Due<'_, Job>) {
    let moment = Moment { id, deadline, lateness };
    match payload {
        Payload::Taken(job) => job.fire(&moment),
        Payload::Kept(job) => job.call_owner(&moment),
    }
}

impl Job {
    /// Does the job of a one-shot.
    pub(super) fn fire(self, moment: &Moment<'_>) {
        match self {
            Self::Shot(shot) => shot.fire(moment),
            Self::Owned(_) => {}
        }
    }

    /// Calls the owner of an owned timer.
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

/// The closure of a job that will not be done.
pub(super) fn give_back(job: Job) -> Call {
    job.unfired().unwrap_or_else(|| Box::new(|| {}))
}

/// A user's closure.
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
