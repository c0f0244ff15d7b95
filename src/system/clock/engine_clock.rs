//! The clock as shards and engines hold it.

use super::{Clock, ClockReport, MonotonicClock};
use crate::base::sync::StdArc;
use crate::base::tick::Timestamp;
use core::time::Duration;

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

    /// Whether `deadline` has come. The fast clock is read first: a deadline that has not come by the fast clock has
    /// not come.
    #[inline]
    pub(crate) fn has_come(&self, deadline: Timestamp) -> bool {
        self.now() >= deadline && self.true_now() >= deadline
    }

    /// The time that a thread may sleep from now on to be awake at `deadline`; `None` if no sleep helps.
    pub(crate) fn sleep_until(&self, deadline: Timestamp) -> Option<Duration> {
        let clock = self.as_dyn();
        clock.sleep_for(clock.true_now(), deadline)
    }

    /// See [`Clock::report`].
    pub(crate) fn report(&self) -> ClockReport {
        self.as_dyn().report()
    }

    pub(crate) fn as_dyn(&self) -> &dyn Clock {
        match self {
            Self::Monotonic(clock) => clock,
            Self::Custom(clock) => &**clock,
        }
    }
}
