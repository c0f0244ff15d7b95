//! The time that an engine reads: a trait, and the clocks that come with the engine.
//!
//! Arming and firing need different values. A deadline is `now + delay`, so an arming needs a moment that is not before
//! the true time, but may be a little after it ([`Clock::now`]). The decision whether a deadline has come needs a
//! moment that is not after the true time ([`Clock::true_now`]). The default clock has a fast path for the first value
//! (`upper`), and reads the system's clock for the second value.

mod alarms;
mod counter;
mod engine_clock;
mod manual;
mod monotonic;
#[cfg(feature = "tokio")]
pub(crate) mod runtime;
mod system;
mod upper;

pub(crate) use alarms::Alarms;
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
/// A clock should not run backwards. If it does, the engine waits until the clock has caught up, and nothing panics.
/// Nothing fires early, with one rare exception: a one-shot that is scheduled after the step back, in the memory slot
/// of an ended timer, may fire early by less than the step. A clock must not panic, because the shards' threads read
/// it.
pub trait Clock: Send + Sync {
    /// Returns the present moment, or a slightly later moment. Deadlines are counted from the returned moment.
    fn now(&self) -> Timestamp;

    /// Returns the present moment, or an earlier moment. The engine compares deadlines with the returned moment to
    /// decide whether a deadline has come. The default implementation returns [`now`](Self::now), which is right for a
    /// clock whose `now` is exact.
    fn true_now(&self) -> Timestamp {
        self.now()
    }

    /// Returns the kind of the clock, and the observed error of [`now`](Self::now).
    fn report(&self) -> ClockReport {
        ClockReport::exact("custom")
    }

    /// Returns how long a thread may sleep from `now` on in order to be awake at `deadline`. A clock that moves only in
    /// steps returns `None` (see [`subscribe`](Self::subscribe)).
    fn sleep_for(&self, now: Timestamp, deadline: Timestamp) -> Option<Duration> {
        Some(deadline - now)
    }

    /// Registers a function. A clock that moves in steps calls the function after each step. Other clocks ignore the
    /// function.
    fn subscribe(&self, on_step: OnStep) {
        drop(on_step);
    }
}

/// A function that a clock calls after each of its steps ([`Clock::subscribe`]). Once the function has returned false,
/// the clock drops it.
pub type OnStep = Box<dyn Fn() -> bool + Send + Sync>;

/// The kind of a clock, and the observed error of its fast readings. [`Stats`](crate::Stats) and
/// [`Health`](crate::Health) contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockReport {
    /// The source of the time: `system`, `boot`, `manual`, `custom`, or `counter` for the processor's counter, which is
    /// checked against the system's clock.
    pub source: &'static str,
    /// The greatest time by which a reading of [`Clock::now`] was ahead of the true time, in this process.
    pub ahead: Duration,
    /// The greatest time by which a reading of [`Clock::now`] was behind the true time. A timer may have fired early by
    /// up to this time. The value is zero if the processor's counter never stepped.
    pub behind: Duration,
    /// The number of steps of the processor's counter that the clock has noticed. A sudden change of the counter's rate
    /// counts as a step. After three steps within a minute, the process reads the system's clock in place of the
    /// counter.
    pub steps: u64,
}

impl ClockReport {
    /// Makes the report of a clock whose readings are exact.
    #[must_use]
    pub const fn exact(source: &'static str) -> Self {
        Self { source, ahead: Duration::ZERO, behind: Duration::ZERO, steps: 0 }
    }
}
