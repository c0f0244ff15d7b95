//! The reasons why a repeating task was not started. The error returns the closure.

use core::fmt;
use core::time::Duration;
use tourbillon::Refusal;

/// The reason why a repeating task was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepeatErrorKind {
    /// The period or the pause is zero.
    ZeroPeriod,
    /// The period or the pause is shorter than a tick. So several runs would fall into the same tick.
    BelowTick {
        /// The period or pause that the plan asks for.
        period: Duration,
        /// The length of the engine's tick.
        tick: Duration,
    },
    /// The plan allows no run at all.
    NoRuns,
    /// The calendar of the plan has no instant after the present moment.
    NeverFires,
    /// The engine refused the timer.
    Refused(Refusal),
}

impl fmt::Display for RepeatErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroPeriod => f.write_str("the period is zero"),
            Self::BelowTick { period, tick } => {
                write!(f, "the period of {period:?} is shorter than the engine's tick of {tick:?}")
            }
            Self::NoRuns => f.write_str("the task is to run no times"),
            Self::NeverFires => f.write_str("the calendar has no further instant"),
            Self::Refused(kind) => kind.fmt(f),
        }
    }
}

/// The error for a repeating task that was not started. The error returns the closure.
pub struct RepeatError<F> {
    /// The reason why the task was not started.
    pub kind: RepeatErrorKind,
    /// The closure that would have run.
    pub task: F,
}

impl<F> fmt::Debug for RepeatError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepeatError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<F> fmt::Display for RepeatError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<F> std::error::Error for RepeatError<F> {}
