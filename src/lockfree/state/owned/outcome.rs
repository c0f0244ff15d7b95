//! The results of the operations on an owned timer. Each result says what work is left to the caller.

use crate::base::tick::Timestamp;

/// The result of arming a timer: the caller's next step, or the reason why the timer is not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Arm {
    /// The deadline is in force.
    Pending,
    /// The deadline will be in force when the handler that runs has ended.
    Running,
    /// The deadline is in force, and the caller queues a ticket with this stamp (O2).
    Queue { stamp: u32, check: Timestamp },
    /// The engine is shut down.
    Shut,
    /// The handle has gone.
    Dropped,
}

/// The result of disarming a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disarm {
    /// The timer was armed, and does not fire. No handler of it runs.
    Disarmed,
    /// The timer was not armed, and no handler of it runs.
    Idle,
    /// The timer's handler has begun and has not ended. The timer does not fire again before it is armed again, even if
    /// it had been armed since that handler began.
    Running,
}

/// The state in which a disarming found the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Withdrawn {
    /// An arming, which the disarming removed.
    Armed,
    /// No arming.
    Idle,
    /// A handler that runs. If the timer had been armed since the handler began, the disarming removed that arming.
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

/// The result of a check: the next step of the timer's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Check {
    /// The timer is due, or was dropped. The caller still holds it, and calls `begin` or lets another thread call
    /// `begin`.
    Due,
    /// The caller queues a ticket with this stamp for this moment (O2).
    Later { stamp: u32, check: Timestamp },
    /// No thread holds the timer any more.
    AtRest,
}

/// The result of `begin`: the next step of a worker with a due timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Begin {
    /// The caller runs the handler and calls `end`.
    Run { deadline: Timestamp },
    /// See [`Check::Later`].
    Later { stamp: u32, check: Timestamp },
    /// See [`Check::AtRest`].
    AtRest,
    /// The caller vacated the slot: it owns the payload and the slot.
    Free,
}

/// The result of the end of a run: the worker's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct End {
    /// A thread waits for the end of the run.
    pub(crate) waited: bool,
    pub(crate) then: AfterRun,
}

/// The state of a timer after its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum AfterRun {
    /// See [`Check::Later`].
    Later { stamp: u32, check: Timestamp },
    /// See [`Check::AtRest`].
    AtRest,
    /// See [`Begin::Free`].
    Free,
}

/// The result of dropping a timer's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Release {
    /// The caller vacated the slot: it owns the payload and the slot.
    Vacated,
    /// The holder will vacate the slot.
    Left,
}

/// The state in which the shutdown found the slot of an owned timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Shut {
    /// A timer that its handle or its handler still has.
    Kept,
    /// A dropped timer that no thread will check. The caller vacated its slot, and owns the payload and the slot.
    Free,
    /// The timer runs for the last time. The caller gives the last word to its payload and calls `end_with`.
    Run,
}
