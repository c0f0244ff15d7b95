//! Which clock a contestant reads, how often, and a clock of the same kind for its handlers.

use std::fmt;
use std::time::Instant;
use tourbillon::{Clock as _, MonotonicClock};

/// The clock reads inside the timed region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// One for each arm.
    EachArm(Clock),
    /// One for each iteration of an event loop, [`PER_ITERATION`] requests; the deadlines are counted from it.
    EachIteration(Clock),
    /// None at all.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `std::time::Instant::now`
    Instant,
    /// The engine's default, the processor's counter where that is usable
    Tsc,
    /// `System.nanoTime`
    Java,
    /// Go's `nanotime`
    Go,
}

/// Requests that an event loop handles in one iteration.
pub(crate) const PER_ITERATION: usize = 64;

impl Reads {
    /// The clock that shows how late its timers are.
    pub(crate) fn clock(self) -> Clock {
        match self {
            Self::EachArm(clock) | Self::EachIteration(clock) => clock,
            Self::Never => Clock::Instant,
        }
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Never = self {
            return f.write_str("none");
        }
        f.write_str(match self.clock() {
            Clock::Instant => "Instant",
            Clock::Tsc => "TSC",
            Clock::Java => "nanoTime",
            Clock::Go => "nanotime",
        })?;
        match self {
            Self::EachArm(_) | Self::Never => f.write_str(", each arm"),
            Self::EachIteration(_) => write!(f, ", each {PER_ITERATION}"),
        }
    }
}

/// Nanoseconds since it was made, by a clock of the contestant's kind but none of its own: what it believes has no part
/// in what is measured. Of another kind it would run up to some 30 millionths faster or slower.
#[derive(Clone, Debug)]
pub(crate) enum Stopwatch {
    Instant(Instant),
    Tsc(MonotonicClock),
}

impl Stopwatch {
    pub(crate) fn start(clock: Clock) -> Self {
        match clock {
            Clock::Tsc => Self::Tsc(MonotonicClock::new()),
            _ => Self::Instant(Instant::now()),
        }
    }

    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        match self {
            Self::Instant(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Self::Tsc(clock) => clock.now().as_nanos(),
        }
    }
}
