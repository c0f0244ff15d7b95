//! The outcome of a cancel, a disarm or a stop.

use tourbillon::{Cancel, Disarm};
use tourbillon_tasks::Stopped;

/// The outcome of a cancel, a disarm or a stop.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tb_outcome {
    /// The one-shot, timer or task was pending: its callback has not begun and will not begin, and no event of it is
    /// polled.
    TB_CANCELLED = 1,
    /// The callback of the one-shot, timer or task has begun, and may not have returned. An engine whose events are
    /// polled never returns this outcome.
    TB_RUNNING = 2,
    /// Nothing was pending. A one-shot has fired, or was cancelled before. A timer was not armed, or a task had ended,
    /// and no callback of the timer or task runs. On an engine whose events are polled, this outcome may also mean that
    /// the event was polled, perhaps by another thread at this moment.
    TB_GONE = 3,
}

impl From<Cancel<()>> for tb_outcome {
    fn from(outcome: Cancel<()>) -> Self {
        match outcome {
            Cancel::Cancelled(()) => Self::TB_CANCELLED,
            Cancel::Gone => Self::TB_GONE,
            // `Running`, or an outcome that a later engine adds. With `TB_RUNNING` the caller frees nothing, which is
            // always safe.
            _ => Self::TB_RUNNING,
        }
    }
}

impl From<Disarm> for tb_outcome {
    fn from(outcome: Disarm) -> Self {
        match outcome {
            Disarm::Disarmed => Self::TB_CANCELLED,
            Disarm::Idle => Self::TB_GONE,
            // `Running`, or an outcome that a later engine adds. With `TB_RUNNING` the caller frees nothing, which is
            // always safe.
            _ => Self::TB_RUNNING,
        }
    }
}

impl From<Stopped> for tb_outcome {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Stopped => Self::TB_CANCELLED,
            Stopped::Gone => Self::TB_GONE,
            // `Running`, or an outcome that a later version adds. With `TB_RUNNING` the caller frees nothing, which is
            // always safe.
            _ => Self::TB_RUNNING,
        }
    }
}
