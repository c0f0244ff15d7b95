//! The time of day, for tasks that go by the calendar.

use crate::clock::system_time;
use crate::tick::Timestamp;
use std::time::SystemTime;

/// How an engine's moments are told in wall-clock time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wall {
    /// By the system's clock, which may be set while one waits.
    System,
    /// By the engine's clock, whose origin was at this time.
    Since(SystemTime),
}

impl Wall {
    /// The time of day at the engine's `now`; at the end of what the system can tell, that end.
    pub(crate) fn at(self, now: Timestamp) -> SystemTime {
        match self {
            Self::System => system_time(),
            Self::Since(origin) => origin.checked_add(now - Timestamp::ZERO).unwrap_or(origin),
        }
    }

    /// Whether it can jump while the engine's clock does not.
    #[cfg(feature = "calendar")]
    pub(crate) fn may_be_set(self) -> bool {
        matches!(self, Self::System)
    }
}
