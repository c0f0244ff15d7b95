//! How a task repeats: said once, before it is started.

use super::course::{Course, Pace, Row, nanoseconds};
use super::error::RepeatErrorKind;
use super::wall::Wall;
#[cfg(feature = "calendar")]
use crate::calendar::Calendar;
use crate::tick::Timestamp;
use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::hash::DefaultHasher;
use std::time::SystemTime;

/// When, how often, and what if it is late: a plan for [`Tasks::repeat`](super::Tasks::repeat).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::task::{Missed, OnPanic, Repeat};
///
/// let clean_up = Repeat::every(Duration::from_secs(60))
///     .spread_by("clean-up")
///     .missed(Missed::Skip)
///     .on_panic(OnPanic::Stop);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a plan does nothing by itself"]
pub struct Repeat {
    pace: Pace,
    first: First,
    times: Option<u64>,
    missed: Missed,
    overlap: Overlap,
    pub(super) on_panic: OnPanic,
}

/// When the first run is.
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
    /// At the first moment that is a whole number of periods after this one: the phase that the task has had since then,
    /// however often it was started anew.
    InStepWith(SystemTime),
}

/// What becomes of instants that came before a run of another one began, because the engine or its workers were late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// Each has its run, one after the other, as fast as they go; those that come meanwhile join them, whatever
    /// [`Overlap`] says.
    Burst,
    /// They have none, and the next one is a whole period after the late run began. By a calendar: as `Skip`.
    Delay,
    /// They have none; the next run is at the next instant, in step with those before.
    #[default]
    Skip,
}

/// What becomes of instants that come while a run lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// They have no run.
    #[default]
    Skip,
    /// The last of them runs when that run has ended.
    QueueOne,
}

/// What becomes of a task that panicked. The engine counts and reports the panic in both cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// It runs again at its next instant.
    #[default]
    GoOn,
    /// It has ended.
    Stop,
}

impl Repeat {
    fn at(pace: Pace) -> Self {
        Self {
            pace,
            first: First::default(),
            times: None,
            missed: Missed::default(),
            overlap: Overlap::default(),
            on_panic: OnPanic::default(),
        }
    }

    /// At a fixed rate: its instants are a period apart, however long runs take.
    pub fn every(period: Duration) -> Self {
        Self::at(Pace::Rate(period))
    }

    /// With a fixed pause from the end of a run to the next one.
    pub fn pausing(pause: Duration) -> Self {
        Self::at(Pace::Pause(pause))
    }

    /// At the instants of a calendar, each computed after the one before it. When the first run is, is the calendar's to say.
    ///
    /// The wall clock decides. Where it is the system's, a task that waits looks at it again every half minute, so that it
    /// is at most that late after the clock was set forward; set back, it waits.
    #[cfg(feature = "calendar")]
    pub fn on(calendar: Calendar) -> Self {
        Self::at(Pace::Calendar(calendar))
    }

    /// When the first run is; one period from the start unless said.
    pub fn first(mut self, first: First) -> Self {
        self.first = first;
        self
    }

    /// Gives it a phase by a key, so that ten thousand tasks of one period do not fire in one tick: always the same for the
    /// same key and period, in every process that is built with the same standard library.
    pub fn spread_by(self, key: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.first(First::InStepWith(SystemTime::UNIX_EPOCH + Duration::from_nanos(hasher.finish() >> 1)))
    }

    /// Exactly this many runs; for ever unless said.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// What becomes of missed instants; they are skipped unless said.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// What becomes of instants that come while a run lasts; they are skipped unless said.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// What becomes of the task if it panics; it goes on unless said.
    pub fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.on_panic = on_panic;
        self
    }

    /// The course of a task that starts now.
    pub(super) fn begin(
        &self,
        wall: Wall,
        now: Timestamp,
        tick: Duration,
    ) -> Result<Course, RepeatErrorKind> {
        if self.times == Some(0) {
            return Err(RepeatErrorKind::NoRuns);
        }
        let row = Row::new(self.pace.clone(), wall);
        let first = match self.pace {
            Pace::Rate(period) | Pace::Pause(period) if period.is_zero() => {
                return Err(RepeatErrorKind::ZeroPeriod);
            }
            Pace::Rate(period) | Pace::Pause(period) if period < tick => {
                return Err(RepeatErrorKind::BelowTick { period, tick });
            }
            Pace::Rate(period) | Pace::Pause(period) => {
                row.instant(now + self.first.delay(period, wall.at(now)))
            }
            #[cfg(feature = "calendar")]
            Pace::Calendar(_) => row.after(row.instant(now)).ok_or(RepeatErrorKind::NeverFires)?,
        };
        Ok(Course::new(row, first, self.times, self.missed, self.overlap))
    }
}

impl First {
    /// How long after the start the first run is.
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

/// What is left of `span` after whole periods.
fn remainder(span: Duration, period: Duration) -> Duration {
    nanoseconds(span.as_nanos() % period.as_nanos())
}
