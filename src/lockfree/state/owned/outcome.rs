//! The results of the operations on an owned timer. Each result tells the caller its next step.

use crate::base::tick::Timestamp;

/// The result of arming a timer: the caller's next step, or the reason why the timer is not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Arm {
    /// The timer is armed: the deadline is in force.
    Pending,
    /// The timer's handler runs. The new deadline will be in force when the handler has ended.
    Running,
    /// The deadline is in force. The caller must push a ticket (a request to check a timer) with `stamp` for the moment
    /// `check` (O2).
    Queue { stamp: u16, check: Timestamp },
    /// The timer is not armed, because the engine is shut down.
    Shut,
    /// The timer is not armed, because its handle was dropped.
    Dropped,
}

/// The result of disarming a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disarm {
    /// The timer was armed, and now does not fire. Its handler does not run.
    Disarmed,
    /// The timer was not armed, and its handler does not run.
    Idle,
    /// The timer's handler has begun and has not ended. If the timer was armed after the handler had begun, the
    /// disarming removed that arming, too. The timer does not fire again before it is armed again.
    Running,
}

/// The state in which a call that disarms a timer found the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Withdrawn {
    /// The timer was armed. The disarming removed the arming.
    Armed,
    /// The timer was not armed.
    Idle,
    /// The timer's handler runs. If the timer was armed after the handler had begun, `was_armed` is true, and the
    /// disarming removed that arming.
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

/// The result of checking a timer's deadline. It tells the checking thread its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Check {
    /// The timer is due, or its handle was dropped. The caller calls `begin`, or makes another thread call `begin`.
    Due,
    /// The timer was postponed. The caller must queue a ticket with `stamp` for the moment `check` (O2).
    Later { stamp: u16, check: Timestamp },
    /// The caller has nothing left to do. Other threads may change the timer again.
    AtRest,
}

/// The result of beginning a timer's run. It tells the worker its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Begin {
    /// The caller runs the handler and then calls `end_with`.
    Run { deadline: Timestamp },
    /// The timer was postponed. The caller must queue a ticket with `stamp` for the moment `check`.
    Later { stamp: u16, check: Timestamp },
    /// The caller has nothing left to do. Other threads may change the timer again.
    AtRest,
    /// The timer's handle was dropped, and the caller has vacated the slot. The caller owns the payload and the slot.
    Free,
}

/// The result of ending a timer's run. It tells the worker its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct End {
    /// Whether a thread waits for the end of the run. If true, the worker must wake that thread.
    pub(crate) waited: bool,
    pub(crate) then: AfterRun,
}

/// The state of a timer after its run, and the worker's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum AfterRun {
    /// The timer was postponed. The caller must queue a ticket with `stamp` for the moment `check`.
    Later { stamp: u16, check: Timestamp },
    /// The worker has nothing left to do. Other threads may change the timer again.
    AtRest,
    /// The timer's handle was dropped, and the worker has vacated the slot. The worker owns the payload and the slot.
    Free,
}

/// The result of dropping a timer's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Release {
    /// The caller has vacated the timer's slot. The caller owns the payload and the slot.
    Vacated,
    /// Another thread checks or fires the timer. That thread will vacate the slot.
    Left,
}

/// The state in which the shutdown found the slot of an owned timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Shut {
    /// The timer still exists. The drop of its handle, or the end of its run, will vacate the slot.
    Kept,
    /// The timer's handle was dropped before, and no thread will check the timer. The caller has vacated the slot, and
    /// owns the payload and the slot.
    Free,
    /// The timer's last run has begun. The caller makes the final call with the payload (`state::owned`), and then
    /// calls `end_with`.
    Run,
}
