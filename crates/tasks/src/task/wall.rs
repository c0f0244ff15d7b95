//! The time of day, for tasks that follow the calendar.

use std::time::SystemTime;
use tourbillon::Timestamp;

/// The mapping from an engine's moments to wall-clock time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wall {
    /// By the system's clock, which may be set while a task waits.
    System,
    /// By the engine's clock, whose origin was at this wall-clock time.
    Since(SystemTime),
}

impl Wall {
    /// The wall-clock time at `now`. With [`Wall::System`] it is the present wall-clock time, whatever `now` is. With
    /// [`Wall::Since`] it is the origin plus `now`, or the origin itself if the sum exceeds the range of `SystemTime`.
    pub(crate) fn at(self, now: Timestamp) -> SystemTime {
        match self {
            Self::System => SystemTime::now(),
            Self::Since(origin) => origin.checked_add(now - Timestamp::ZERO).unwrap_or(origin),
        }
    }

    /// Whether the wall clock can jump while the engine's clock does not.
    #[cfg(feature = "calendar")]
    pub(crate) fn may_be_set(self) -> bool {
        matches!(self, Self::System)
    }
}
