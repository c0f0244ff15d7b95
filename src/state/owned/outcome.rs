//! What each operation on an owned timer leaves its caller to do.

use crate::tick::Timestamp;

/// What whoever arms a timer now owes or knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Arm {
    /// The deadline is in force.
    Pending,
    /// It will be when the handler that runs has ended.
    Running,
    /// It is in force, and the caller posts a ticket with this stamp (O2).
    Post { stamp: u32, look: Timestamp },
    /// The engine is shut down.
    Shut,
    /// The handle has gone.
    Dropped,
}

/// How a disarming ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disarm {
    /// It was armed, and does not fire. No handler of it runs.
    Disarmed,
    /// It was not armed, and no handler of it runs.
    Idle,
    /// Its handler has begun and has not ended. It does not fire again before it is armed again, whether or not it had been
    /// since that handler began.
    Running,
}

/// What a disarming found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Withdrawn {
    /// An arming, which it took away.
    Armed,
    /// No arming.
    Idle,
    /// A handler that runs; it took away the arming since that began, if there was one.
    Running { was_armed: bool },
}

impl From<Withdrawn> for Disarm {
    #[inline(always)]
    fn from(withdrawn: Withdrawn) -> Self {
        match withdrawn {
            Withdrawn::Armed => Self::Disarmed,
            Withdrawn::Idle => Self::Idle,
            Withdrawn::Running { .. } => Self::Running,
        }
    }
}

/// What the holder of a timer now owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Look {
    /// It is due, or was dropped: the caller still holds it, and calls `begin` or lets somebody else call it.
    Due,
    /// The caller posts a ticket with this stamp for this moment (O2).
    Later { stamp: u32, look: Timestamp },
    /// It is nobody's any more.
    AtRest,
}

/// What a worker with a due timer now owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Begin {
    /// The caller runs the handler and calls `end`.
    Run { deadline: Timestamp },
    /// As in [`Look`].
    Later { stamp: u32, look: Timestamp },
    /// As in [`Look`].
    AtRest,
    /// The caller vacated the slot: it owns the payload and the slot.
    Free,
}

/// What the worker owes after the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct End {
    /// Somebody waits for it.
    pub(crate) waited: bool,
    pub(crate) then: AfterRun,
}

/// What became of a timer after its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum AfterRun {
    /// As in [`Look`].
    Later { stamp: u32, look: Timestamp },
    /// As in [`Look`].
    AtRest,
    /// As in [`Begin`].
    Free,
}

/// What became of a timer whose handle is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Release {
    /// The caller vacated the slot: it owns the payload and the slot.
    Vacated,
    /// The holder will.
    Left,
}

/// What the shutdown found in a slot of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Shut {
    /// A timer that its handle or its handler still has.
    Kept,
    /// A dropped timer that nobody will look at: the caller vacated its slot, and owns payload and slot.
    Free,
    /// It runs for the last time: the caller says the last word to its payload and calls `end_with`.
    Run,
}
