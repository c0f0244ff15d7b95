//! Where an engine reads the time: a trait, and the clocks that come with it.
//!
//! Arming and firing need different answers. A deadline is `now + delay`, so an arming may read a moment that is a little
//! late, never one that is early ([`Clock::now`]). What decides whether a deadline has come must never be ahead
//! ([`Clock::true_now`]). The default clock has a fast answer to the first question (`upper`) and asks the system
//! for the second.

mod counter;
mod manual;
mod monotonic;
mod system;
mod upper;

pub use manual::ManualClock;
pub use monotonic::MonotonicClock;
#[cfg(target_os = "linux")]
pub use system::BootClock;
pub use system::SystemClock;
#[cfg(feature = "tasks")]
pub(crate) use system::system_time;
#[cfg(all(test, tourbillon_loom))]
pub(crate) use upper::{AHEAD_NANOS, Source, UpperClock};

use crate::tick::Timestamp;
use core::time::Duration;

/// A source of time that an engine can run on.
///
/// A clock should not run backwards. If one does, the engine waits until it has caught up: nothing fires early, and
/// nothing panics. It must not panic: it is read on the shards' threads.
pub trait Clock: Send + Sync {
    /// The present moment, or one a little after it: what deadlines are counted from.
    fn now(&self) -> Timestamp;

    /// The present moment, or one before it: what decides whether a deadline has come. Where [`now`](Self::now) is
    /// exact, as by default, this is the same.
    fn true_now(&self) -> Timestamp {
        self.now()
    }

    /// What the clock is, and how far off [`now`](Self::now) was seen.
    fn report(&self) -> ClockReport {
        ClockReport::exact("custom")
    }

    /// How long a thread may sleep at `now` so as to be awake at `deadline`; `None` when no sleep helps, because the
    /// clock moves by [`subscribe`](Self::subscribe)d steps only.
    fn sleep_for(&self, now: Timestamp, deadline: Timestamp) -> Option<Duration> {
        Some(deadline - now)
    }

    /// Asks to be called after each step of a clock that moves in steps. Others ignore it.
    fn subscribe(&self, on_step: OnStep) {
        drop(on_step);
    }
}

/// Called by a clock that moves in steps, after each one. Once it has returned false it is dropped.
pub type OnStep = Box<dyn Fn() -> bool + Send + Sync>;

/// What a clock is, and how far its fast answers were seen from the true time: in [`Stats`](crate::Stats) and
/// [`Health`](crate::Health).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockReport {
    /// What the clock reads: `counter` (the processor's, held against the system's clock), `system`, `boot`, `manual` or
    /// `custom`.
    pub source: &'static str,
    /// The most that [`Clock::now`] was seen ahead of the true time, in this process.
    pub ahead: Duration,
    /// The most that it was seen behind: by so much a timer may have fired early. Zero unless the counter stepped.
    pub behind: Duration,
    /// Steps of the counter, or changes of its rate, that were noticed. After three within a minute the process reads the
    /// system's clock only.
    pub steps: u64,
}

impl ClockReport {
    /// The report of a clock whose answers are exact.
    #[must_use]
    pub const fn exact(source: &'static str) -> Self {
        Self { source, ahead: Duration::ZERO, behind: Duration::ZERO, steps: 0 }
    }
}

/// The clock as an engine holds it: the default one is read without an indirect call.
pub(crate) enum EngineClock {
    Monotonic(MonotonicClock),
    Custom(Box<dyn Clock>),
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
