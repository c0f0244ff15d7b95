//! What a task engine's timers carry: something to do.

use crate::engine::{Due, Handler, Payload};
use crate::sync::Weak;
use crate::tick::Timestamp;
use crate::ticket::TimerId;
use core::fmt;
use core::time::Duration;

/// A closure that runs once.
pub type Call = Box<dyn FnOnce() + Send>;

/// The payload of a task engine's timer: 16 bytes, whichever it is.
pub(crate) enum Job {
    /// Of a one-shot: done and gone.
    Shot(Box<dyn Shot>),
    /// Of an owned timer: told each time. Its owner keeps it, for a timer would keep its owner alive for ever.
    Owned(Box<Weak<dyn OnDue>>),
}

/// Something to be done once.
pub(crate) trait Shot: Send {
    /// Does it, on a worker.
    fn fire(self: Box<Self>, moment: &Moment);

    /// What its user gets back when it will not be done.
    fn unfired(self: Box<Self>) -> Option<Call>;
}

/// The owner of an owned timer.
pub(crate) trait OnDue: Send + Sync {
    /// Hears, on a worker, that the timer is due. Never twice at a time.
    fn on_due(&self, moment: &Moment);
}

/// Who wants to hear that the engine was shut down.
pub(crate) trait OnEnd: Send + Sync {
    /// Hears it, perhaps more than once, when nothing is due any more; in a shutdown by a handler, other handlers may still
    /// run.
    fn on_end(&self);
}

/// Which timer fired, and when.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Moment {
    /// Its id, stale once the closure has returned.
    pub id: TimerId,
    /// The moment it was armed for.
    pub deadline: Timestamp,
    /// How long after the deadline the closure began.
    pub lateness: Duration,
}

impl Moment {
    /// When the handler began.
    pub(crate) fn now(&self) -> Timestamp {
        self.deadline + self.lateness
    }
}

/// The handler of a task engine: does what each timer says.
pub(super) fn do_jobs() -> Handler<Job> {
    Box::new(|Due { id, deadline, lateness, payload }: Due<'_, Job>, _| {
        let moment = Moment { id, deadline, lateness };
        match payload {
            Payload::Taken(job) => job.fire(&moment),
            Payload::Kept(job) => job.tell(&moment),
        }
    })
}

impl Job {
    /// Does what is to be done once.
    pub(super) fn fire(self, moment: &Moment) {
        match self {
            Self::Shot(shot) => shot.fire(moment),
            Self::Owned(_) => {}
        }
    }

    /// Tells the owner of an owned timer.
    fn tell(&self, moment: &Moment) {
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

/// A user's closure.
pub(super) struct Plain<F>(pub(super) F);

impl<F: FnOnce() + Send + 'static> Shot for Plain<F> {
    fn fire(self: Box<Self>, _: &Moment) {
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
