//! Plans: how a task repeats, settled before the task is started.

use super::error::RepeatErrorKind;
use super::occurrences::{Cadence, Occurrences, nanoseconds};
use super::policies::{OnPanic, Overlap};
use super::progress::Progress;
use super::wall::Wall;
#[cfg(feature = "calendar")]
use crate::calendar::Calendar;
use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::hash::DefaultHasher;
use std::time::SystemTime;
use tourbillon::{Missed, Timestamp};

/// The plan of a repeating task: its instants, the number of its runs, and its policies for late and long runs. Taken
/// by [`Tasks::repeat`](super::Tasks::repeat).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::{Missed, OnPanic, Repeat};
///
/// let clean_up = Repeat::every(Duration::from_secs(60))
///     .spread_by("clean-up")
///     .missed(Missed::Skip)
///     .on_panic(OnPanic::Stop);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a plan does nothing by itself"]
pub struct Repeat {
    cadence: Cadence,
    first: First,
    times: Option<u64>,
    missed: Missed,
    overlap: Overlap,
    pub(super) on_panic: OnPanic,
}

/// The moment of the first run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum First {
    /// One period from the start.
    #[default]
    AfterPeriod,
    /// At the start.
    AtOnce,
    /// This long after the start.
    After(Duration),
    /// At the first moment that is a whole number of periods after this time. The task keeps the phase that it has had
    /// since then, however often it is started anew.
    InStepWith(SystemTime),
}

impl Repeat {
    fn at(cadence: Cadence) -> Self {
        Self {
            cadence,
            first: First::default(),
            times: None,
            missed: Missed::Skip,
            overlap: Overlap::default(),
            on_panic: OnPanic::default(),
        }
    }

    /// Repeats at a fixed rate: the instants are a period apart, however long runs take.
    pub fn every(period: Duration) -> Self {
        Self::at(Cadence::Rate(period))
    }

    /// Repeats with a fixed pause from the end of a run to the next run.
    pub fn pausing(pause: Duration) -> Self {
        Self::at(Cadence::Pause(pause))
    }

    /// Repeats at the instants of a calendar, each computed from the instant before it. The calendar decides on the
    /// first run, too.
    ///
    /// The wall clock decides. If the wall clock is the system's, a task that waits looks at it again every half
    /// minute, so that the task is at most half a minute late after the clock was set forward. If the clock is set
    /// back, the task waits.
    #[cfg(feature = "calendar")]
    pub fn on(calendar: Calendar) -> Self {
        Self::at(Cadence::Calendar(calendar))
    }

    /// Sets the moment of the first run; the default is one period from the start.
    pub fn first(mut self, first: First) -> Self {
        self.first = first;
        self
    }

    /// Sets a phase by a key, so that ten thousand tasks of one period do not fire in one tick. The phase is always the
    /// same for the same key and period, in every process that is built with the same standard library.
    pub fn spread_by(self, key: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.first(First::InStepWith(SystemTime::UNIX_EPOCH + Duration::from_nanos(hasher.finish() >> 1)))
    }

    /// Sets the number of runs; without it the task repeats for ever.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Sets the policy for missed instants, those that came before a run of another instant began, because the engine
    /// or its workers were late; the default skips them. With [`Missed::Burst`] instants that come during a burst join
    /// it, whatever [`Overlap`] says. For a calendar, which has no period, [`Missed::Delay`] is [`Missed::Skip`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets the policy for instants that come while a run lasts; the default skips them.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets the policy for a task that panics; by default the task goes on.
    pub fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.on_panic = on_panic;
        self
    }

    /// The progress of a task that starts now.
    pub(super) fn begin(
        &self,
        wall: Wall,
        now: Timestamp,
        tick: Duration,
    ) -> Result<Progress, RepeatErrorKind> {
        if self.times == Some(0) {
            return Err(RepeatErrorKind::NoRuns);
        }
        let occurrences = Occurrences::new(self.cadence.clone(), wall);
        let first = match self.cadence {
            Cadence::Rate(period) | Cadence::Pause(period) if period.is_zero() => {
                return Err(RepeatErrorKind::ZeroPeriod);
            }
            Cadence::Rate(period) | Cadence::Pause(period) if period < tick => {
                return Err(RepeatErrorKind::BelowTick { period, tick });
            }
            Cadence::Rate(period) | Cadence::Pause(period) => {
                occurrences.instant(now + self.first.delay(period, wall.at(now)))
            }
            #[cfg(feature = "calendar")]
            Cadence::Calendar(_) => {
                occurrences.after(occurrences.instant(now)).ok_or(RepeatErrorKind::NeverFires)?
            }
        };
        Ok(Progress::new(occurrences, first, self.times, self.missed, self.overlap))
    }
}

impl First {
    /// The time from the start to the first run.
    fn delay(self, period: Duration, time: SystemTime) -> Duration {
        match self {
            Self::AfterPeriod => period,
            Self::AtOnce => Duration::ZERO,
            Self::After(delay) => delay,
            Self::InStepWith(origin) => match time.duration_since(origin) {
                Ok(since) => period - remainder(since, period),
                Err(ahead) => match remainder(ahead.duration(), period) {
                    Duration::ZERO => period,
                    delay => delay,
                },
            },
        }
    }
}

/// The remainder of `span` after whole periods.
fn remainder(span: Duration, period: Duration) -> Duration {
    nanoseconds(span.as_nanos() % period.as_nanos())
}
