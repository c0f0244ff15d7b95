//! The clock of a set of shards, and of the engines on it.

use super::{Clock, ClockReport, MonotonicClock};
use crate::base::sync::StdArc;
use crate::base::tick::Timestamp;
use core::time::Duration;

/// The clock of a set of shards. The default clock has a variant of its own, so that reading it needs no indirect call.
#[derive(Clone)]
pub(crate) enum EngineClock {
    Monotonic(MonotonicClock),
    Custom(StdArc<dyn Clock>),
}

impl EngineClock {
    /// Returns the present moment, or a slightly later moment: see [`Clock::now`].
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Monotonic(clock) => clock.now(),
            Self::Custom(clock) => clock.now(),
        }
    }

    /// Returns the present moment, or an earlier moment: see [`Clock::true_now`].
    pub(crate) fn true_now(&self) -> Timestamp {
        self.as_dyn().true_now()
    }

    /// Returns whether this is the default clock, which follows the system's clock and moves steadily.
    pub(crate) fn is_of_the_system(&self) -> bool {
        matches!(self, Self::Monotonic(_))
    }

    /// Returns whether `deadline` has come. First reads the fast clock, because it is never behind the true clock. If
    /// the fast clock shows a moment before the deadline, the deadline has not come.
    #[inline]
    pub(crate) fn has_come(&self, deadline: Timestamp) -> bool {
        self.now() >= deadline && self.true_now() >= deadline
    }

    /// Returns how long a thread may sleep from now on in order to be awake at `deadline`. Returns `None` if the clock
    /// moves only in steps.
    pub(crate) fn sleep_until(&self, deadline: Timestamp) -> Option<Duration> {
        let clock = self.as_dyn();
        clock.sleep_for(clock.true_now(), deadline)
    }

    /// Returns the kind of the clock and its observed error: see [`Clock::report`].
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
