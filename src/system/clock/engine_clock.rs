//! The clock as shards and engines hold it.

use super::{Clock, MonotonicClock};
use crate::base::sync::StdArc;
use crate::base::tick::Timestamp;

/// The clock of a set of shards. The default clock is read without an indirect call.
#[derive(Clone)]
pub(crate) enum EngineClock {
    Monotonic(MonotonicClock),
    Custom(StdArc<dyn Clock>),
}

impl EngineClock {
    /// See [`Clock::now`].
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Monotonic(clock) => clock.now(),
            Self::Custom(clock) => clock.now(),
        }
    }

    /// See [`Clock::true_now`].
    pub(crate) fn true_now(&self) -> Timestamp {
        self.as_dyn().true_now()
    }

    pub(crate) fn as_dyn(&self) -> &dyn Clock {
        match self {
            Self::Monotonic(clock) => clock,
            Self::Custom(clock) => &**clock,
        }
    }
}
