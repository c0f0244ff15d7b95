//! The clock that a contestant reads, and how often it reads it. Also a clock of the same kind for handlers.

use std::fmt;
use std::time::Instant;

/// How often the measured operations read a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The operations read the clock for each arming of a timer.
    EachArm(Clock),
    /// The caller reads the clock once for [`PER_ITERATION`] requests, as in an iteration of an event loop. Deadlines
    /// count from this reading.
    EachIteration(Clock),
    /// The operations read no clock.
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

/// The number of requests that an event loop handles in one iteration.
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

/// Measures the nanoseconds after the stopwatch was made. All contestants share the clock of the stopwatch, so the
/// contestants' own clocks have no influence.
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
