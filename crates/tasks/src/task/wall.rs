//! The time of day, for tasks that follow a calendar.

use std::time::SystemTime;
use tourbillon::Timestamp;

/// Converts an engine's moments to wall-clock time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wall {
    /// The wall-clock time is the time of the system's clock. A user may set that clock while a task waits.
    System,
    /// The wall-clock time is this time plus the time on the engine's clock.
    Since(SystemTime),
}

impl Wall {
    /// Returns the wall-clock time at `now`. [`Wall::System`] ignores `now` and returns the present time.
    /// [`Wall::Since`] returns the origin plus `now`, or the origin if the sum exceeds the range of `SystemTime`.
    pub(crate) fn at(self, now: Timestamp) -> SystemTime {
        match self {
            Self::System => SystemTime::now(),
            Self::Since(origin) => origin.checked_add(now - Timestamp::ZERO).unwrap_or(origin),
        }
    }

    /// Returns whether the wall clock can jump while the engine's clock does not.
    #[cfg(feature = "calendar")]
    pub(crate) fn may_be_set(self) -> bool {
        matches!(self, Self::System)
    }
}
