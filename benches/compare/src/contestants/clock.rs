//! The clock that a contestant reads, how often, and a clock of the same kind for its handlers.

use std::fmt;
use std::time::Instant;

/// The clock reads inside the timed region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// One read for each arm.
    EachArm(Clock),
    /// One read for each iteration of an event loop, which is [`PER_ITERATION`] requests; the deadlines are counted
    /// from it.
    EachIteration(Clock),
    /// No read.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `std::time::Instant::now`
    Instant,
    /// The engine's default: the processor's counter, if it is usable
    Tsc,
    /// `System.nanoTime`
    Java,
    /// Go's `nanotime`
    Go,
    /// The clock of an event loop in C, which keeps the time that it read last
    Loop,
}

/// Requests that an event loop handles in one iteration.
pub(crate) const PER_ITERATION: usize = 64;

impl Reads {
    fn clock(self) -> Option<Clock> {
        match self {
            Self::EachArm(clock) | Self::EachIteration(clock) => Some(clock),
            Self::Never => None,
        }
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(clock) = self.clock() else { return f.write_str("none") };
        f.write_str(match clock {
            Clock::Instant => "Instant",
            Clock::Tsc => "TSC",
            Clock::Java => "nanoTime",
            Clock::Go => "nanotime",
            Clock::Loop => "the loop's",
        })?;
        match self {
            Self::EachArm(_) | Self::Never => f.write_str(", each arm"),
            Self::EachIteration(_) => write!(f, ", each {PER_ITERATION}"),
        }
    }
}

/// Nanoseconds since its creation, by the caller's own clock: the contestant's idea of the time does not count.
#[derive(Clone, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
