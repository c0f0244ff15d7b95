//! The errors of the engine. An error hands back the payload of a refused timer.

use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use core::fmt;

/// The reason why a timer was not scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No slot is left. Pending timers, running handlers, and vacant slots in the reserves of other threads use up the
    /// engine's `capacity`.
    EngineFull,
    /// The calling thread's lane (its queue of tickets to the shard) is full: the thread has posted `lane_capacity`
    /// tickets that the shard has not taken.
    LaneFull,
    /// The engine was shut down.
    ShutDown,
    /// This process is the child of a fork, and the engine's threads are in the parent.
    Forked,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EngineFull => "the engine's capacity of pending timers is used up",
            Self::LaneFull => "the lane to the shard is full",
            Self::ShutDown => "the engine was shut down",
            Self::Forked => "the engine was built before a fork, and its threads are in the parent process",
        })
    }
}

impl std::error::Error for Refusal {}

/// The error of a timer that was not scheduled. The error hands the payload back.
pub struct ScheduleError<T> {
    /// The reason why the timer was not scheduled.
    pub kind: Refusal,
    /// The payload of the refused timer.
    pub payload: T,
}

impl<T> ScheduleError<T> {
    /// Returns this error with its payload mapped by `f`.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> ScheduleError<U> {
        ScheduleError { kind: self.kind, payload: f(self.payload) }
    }
}

/// The error of a batch in which some timers were not scheduled. The error hands the payloads of these timers back.
pub struct BatchError<T> {
    /// The reason why the timers in `refused` were not scheduled.
    pub kind: Refusal,
    /// The ids of the timers that were scheduled, in the order of the batch.
    pub scheduled: Vec<TimerId>,
    /// The deadlines and payloads of the timers that were not scheduled.
    pub refused: Vec<(Timestamp, T)>,
}

/// The reason why a timer was not moved to another deadline.
#[non_exhaustive]
pub enum RescheduleError<T> {
    /// The timer's handler has begun and has not ended.
    Running,
    /// The timer had ended before the call: it had fired, or was cancelled, or a shutdown had returned it.
    Gone,
    /// The calling thread's lane is full, and the call did not wait for room. Either the call never waits, or the
    /// calling thread would wait for itself. The timer is unchanged.
    LaneFull,
    /// The call cancelled the timer, and then the engine was shut down, so the timer was not armed again. The value is
    /// the timer's payload.
    ShutDown(T),
    /// The call cancelled the timer and did not arm it again. This process is the child of a fork, and the engine's
    /// threads are in the parent. The value is the timer's payload.
    Forked(T),
}

impl<T> RescheduleError<T> {
    /// Returns this error with its payload mapped by `f`.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> RescheduleError<U> {
        match self {
            Self::Running => RescheduleError::Running,
            Self::Gone => RescheduleError::Gone,
            Self::LaneFull => RescheduleError::LaneFull,
            Self::ShutDown(payload) => RescheduleError::ShutDown(f(payload)),
            Self::Forked(payload) => RescheduleError::Forked(f(payload)),
        }
    }
}

/// The reason why a timer was not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArmError {
    /// The engine was shut down.
    ShutDown,
    /// This process is the child of a fork, and the engine's threads are in the parent.
    Forked,
    /// The handler tried to arm its [`Timer`](crate::Timer) again, but the `Timer` was dropped while the handler ran.
    Dropped,
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShutDown => Refusal::ShutDown.fmt(f),
            Self::Forked => Refusal::Forked.fmt(f),
            Self::Dropped => f.write_str("the timer was dropped"),
        }
    }
}

impl std::error::Error for ArmError {}

// These impls are written by hand: an error can be printed even if its payload cannot.
impl<T> fmt::Debug for ScheduleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for ScheduleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<T> std::error::Error for ScheduleError<T> {}

/// Drops the payload, so that `?` returns the reason alone.
impl<T> From<ScheduleError<T>> for Refusal {
    fn from(error: ScheduleError<T>) -> Self {
        error.kind
    }
}

impl<T> fmt::Debug for BatchError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchError")
            .field("kind", &self.kind)
            .field("scheduled", &self.scheduled.len())
            .field("refused", &self.refused.len())
            .finish()
    }
}

impl<T> fmt::Display for BatchError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} timers of a batch were refused: {}", self.refused.len(), self.kind)
    }
}

impl<T> std::error::Error for BatchError<T> {}

/// Drops the ids and the payloads, so that `?` returns the reason alone. The timers that were scheduled stay pending.
impl<T> From<BatchError<T>> for Refusal {
    fn from(error: BatchError<T>) -> Self {
        error.kind
    }
}

impl<T> fmt::Debug for RescheduleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("Running"),
            Self::Gone => f.write_str("Gone"),
            Self::LaneFull => f.write_str("LaneFull"),
            Self::ShutDown(_) => f.write_str("ShutDown"),
            Self::Forked(_) => f.write_str("Forked"),
        }
    }
}

impl<T> fmt::Display for RescheduleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("the timer's handler is running"),
            Self::Gone => f.write_str("the timer is gone"),
            Self::LaneFull => Refusal::LaneFull.fmt(f),
            Self::ShutDown(_) => Refusal::ShutDown.fmt(f),
            Self::Forked(_) => Refusal::Forked.fmt(f),
        }
    }
}

impl<T> std::error::Error for RescheduleError<T> {}

/// The reason why an engine was not built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// An option was set to a value out of its bounds.
    OutOfBounds {
        /// The name of the builder's method that sets the option.
        option: &'static str,
        /// The value to which the option was set.
        value: String,
        /// A description of the values that the option accepts.
        bound: String,
    },
    /// The system refused to start a thread. The value is the system's error.
    Thread(std::io::Error),
    /// The builder set an option of shards, but the engine uses shards that are running already.
    NotOfAnEngine {
        /// The name of the builder's method that sets the option.
        option: &'static str,
    },
    /// The process's own shards were started before, so their options cannot be set any more.
    TooLate,
    /// The shards were started before a fork, and their threads are in the parent process.
    Forked,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { option, value, bound } => {
                write!(f, "{option} is {value}, but must be {bound}")
            }
            Self::Thread(error) => write!(f, "a thread of the engine could not be started: {error}"),
            Self::NotOfAnEngine { option } => {
                write!(
                    f,
                    "{option} is an option of new shards, and this engine uses shards that are started already"
                )
            }
            Self::TooLate => f.write_str("the process's shards were started before"),
            Self::Forked => f.write_str(
                "the shards were started before a fork, and their threads are in the parent process",
            ),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OutOfBounds { .. } | Self::NotOfAnEngine { .. } | Self::TooLate | Self::Forked => None,
            Self::Thread(error) => Some(error),
        }
    }
}
