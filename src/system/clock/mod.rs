//! The time that an engine reads: a trait, and the clocks that come with the engine.
//!
//! Arming and firing need different values. A deadline is `now + delay`, so an arming may read a moment that is a
//! little late, but never a moment that is early ([`Clock::now`]). The decision whether a deadline has come needs a
//! moment that is never ahead ([`Clock::true_now`]). The default clock has a fast path for the first value (`upper`)
//! and asks the system for the second.

mod alarm;
mod counter;
mod engine_clock;
mod manual;
mod monotonic;
mod system;
mod upper;

pub(crate) use alarm::Alarm;
pub(crate) use engine_clock::EngineClock;
pub use manual::ManualClock;
pub use monotonic::MonotonicClock;
#[cfg(target_os = "linux")]
pub use system::BootClock;
pub use system::SystemClock;
#[cfg(all(test, tourbillon_loom))]
pub(crate) use upper::{AHEAD_NANOS, Source, UpperClock};

use crate::base::tick::Timestamp;
use core::time::Duration;

/// A source of time that an engine can run on.
///
/// A clock should not run backwards. If a clock does, the engine waits until the clock has caught up: nothing fires
/// early, and nothing panics. A clock must not panic, since it is read on the shards' threads.
pub trait Clock: Send + Sync {
    /// The present moment, or a moment a little after it. Deadlines are counted from it.
    fn now(&self) -> Timestamp;

    /// The present moment, or a moment before it. It decides whether a deadline has come. The default implementation
    /// returns [`now`](Self::now), which is right for a clock whose `now` is exact.
    fn true_now(&self) -> Timestamp {
        self.now()
    }

    /// The kind of the clock, and the observed error of [`now`](Self::now).
    fn report(&self) -> ClockReport {
        ClockReport::exact("custom")
    }

    /// The time that a thread may sleep from `now` on in order to be awake at `deadline`. `None` if no sleep helps,
    /// because the clock moves only in steps (see [`subscribe`](Self::subscribe)).
    fn sleep_for(&self, now: Timestamp, deadline: Timestamp) -> Option<Duration> {
        Some(deadline - now)
    }

    /// Registers a function, which the clock calls after each step if it moves in steps. Other clocks ignore the
    /// function.
    fn subscribe(&self, on_step: OnStep) {
        drop(on_step);
    }
}

/// A function that the clock calls after each step, if the clock moves in steps. Once the function has returned false,
/// the clock drops it.
pub type OnStep = Box<dyn Fn() -> bool + Send + Sync>;

/// The kind of a clock, and the observed error of its fast readings. [`Stats`](crate::Stats) and
/// [`Health`](crate::Health) contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockReport {
    /// The source of the time: `counter` (the processor's, checked against the system's clock), `system`, `boot`,
    /// `manual` or `custom`.
    pub source: &'static str,
    /// The greatest time by which [`Clock::now`] was seen ahead of the true time, in this process.
    pub ahead: Duration,
    /// The greatest time by which [`Clock::now`] was seen behind the true time. A timer may have fired early by this
    /// time. Zero unless the counter stepped.
    pub behind: Duration,
    /// The number of steps of the counter, or changes of its rate, that were noticed. After three within a minute the
    /// process reads the system's clock only.
    pub steps: u64,
}

impl ClockReport {
    /// The report of a clock whose readings are exact.
    #[must_use]
    pub const fn exact(source: &'static str) -> Self {
        Self { source, ahead: Duration::ZERO, behind: Duration::ZERO, steps: 0 }
    }
}
