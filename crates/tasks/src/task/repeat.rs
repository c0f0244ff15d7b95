//! The plan of a repeating task. The plan is complete before the task starts.

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

/// A plan for a repeating task: the instants (planned moments) of its runs, the number of runs, and the policies for
/// late and long runs. [`Tasks::repeat`](super::Tasks::repeat) starts a task by a plan.
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

/// Decides when the first run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum First {
    /// The first run begins one period after the task starts.
    #[default]
    AfterPeriod,
    /// The first run begins as soon as the task starts.
    AtOnce,
    /// The first run begins this long after the start of the task.
    After(Duration),
    /// The first run begins at the next moment whose distance from this time is a whole number of periods. So a task
    /// that is started again keeps its phase.
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

    /// Makes a plan with a fixed rate: the planned moments of the runs are a period apart, however long runs take.
    pub fn every(period: Duration) -> Self {
        Self::at(Cadence::Rate(period))
    }

    /// Makes a plan with a fixed pause from the end of a run to the start of the next run.
    pub fn pausing(pause: Duration) -> Self {
        Self::at(Cadence::Pause(pause))
    }

    /// Makes a plan that repeats at the instants of a calendar. Each instant is computed from the instant before it.
    /// The calendar also decides the first run.
    ///
    /// The wall clock decides when an instant has come. While a task waits, it reads the system's clock again every
    /// half minute. If the clock is set forward, the task is at most half a minute late. If the clock is set back, the
    /// task waits.
    #[cfg(feature = "calendar")]
    pub fn on(calendar: Calendar) -> Self {
        Self::at(Cadence::Calendar(calendar))
    }

    /// Sets when the first run begins; by default one period after the start.
    pub fn first(mut self, first: First) -> Self {
        self.first = first;
        self
    }

    /// Shifts the task's runs within the period by an offset that is derived from a key. So ten thousand tasks with the
    /// same period do not all fire in the same tick. A key and a period always give the same offset, in every process
    /// that is built with the same standard library.
    pub fn spread_by(self, key: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.first(First::InStepWith(SystemTime::UNIX_EPOCH + Duration::from_nanos(hasher.finish() >> 1)))
    }

    /// Sets the number of runs. By default, the task repeats for ever.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Sets the policy for missed instants (planned moments of runs); by default they are skipped. An instant is missed
    /// if it comes while an earlier instant still waits for its run to begin, because the engine or its workers are
    /// late.
    ///
    /// With [`Missed::Burst`], a late task makes its missed runs one after the other. Further instants that come during
    /// these runs get their runs in the same way, and [`Overlap`] does not apply to them. With a calendar, which has no
    /// period, [`Missed::Delay`] works as [`Missed::Skip`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets the policy for runs whose planned moments come while another run is under way. By default, these runs are
    /// not made.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets the policy for a task that panics; by default the task goes on.
    pub fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.on_panic = on_panic;
        self
    }

    /// Checks the plan, and returns the progress of a task that starts at `now`.
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
    /// Returns the time between the start of the task and its first run.
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

fn remainder(span: Duration, period: Duration) -> Duration {
    nanoseconds(span.as_nanos() % period.as_nanos())
}
