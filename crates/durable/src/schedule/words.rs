//! Defines the arguments, answers, errors and events of the calls about schedules.

use super::instants::Occurrence;
use super::key::{LONGEST_KEY, ScheduleKey};
use super::{Progress, Schedule};
use crate::id::TimerId;
use crate::plan::PlanError;
use crate::policy::Policy;
use crate::store::{Cursor, StoreError};
use crate::timer::Payload;
use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use tourbillon_words::UtcMillis;

/// The description of the timers that a schedule makes for its instants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Template {
    /// The kind of the timers that the schedule makes.
    pub kind: Box<str>,
    /// The payload of the timers that the schedule makes. The handler of these timers gets the payload.
    pub payload: Payload,
    /// The labels of the timers that the schedule makes. Each of these timers also has the label of the schedule.
    #[serde(default)]
    pub labels: Vec<Box<str>>,
    /// The policy for failed deliveries. Its `misfire` and `jitter` are ignored: the schedule has its own rules for
    /// lateness and jitter.
    #[serde(default)]
    pub policy: Policy,
}

/// A schedule with its present state, as callers get it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScheduleView {
    /// The name of the schedule.
    pub at: ScheduleKey,
    /// The rule by which the schedule makes timers.
    pub schedule: Schedule,
    /// The description of the timers that the schedule makes.
    pub template: Template,
    /// The progress of the schedule through its instants, with the counts of their outcomes.
    pub progress: Progress,
    /// The moment at which the next occurrence is due: the next instant plus the jitter. `None` if the schedule is
    /// paused or has ended, or if its plan is not valid.
    pub due: Option<UtcMillis>,
    /// The time by which the schedule's next decision (choice of the instants that get occurrences) is late. Zero if
    /// the decision is not late.
    pub overdue: Duration,
    /// The error of the last attempt of this decision, which is tried again: the store has failed, or this machine does
    /// not know the time zone. `None` if no attempt has failed.
    pub failure: Option<Box<str>>,
}

impl ScheduleView {
    /// Returns the next `count` instants of the schedule that have not passed at `now`, in the form of
    /// [`Schedule::preview`]. An instant has passed if its occurrence would be due by now. So the first of these
    /// instants, plus the jitter, is [`due`](Self::due), unless a decision is late.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn upcoming(&self, now: UtcMillis, count: usize) -> Result<Vec<Occurrence>, PlanError> {
        let passed = self.progress.passed(self.at.jitter(self.schedule.jitter), now);
        self.schedule.preview(self.progress.created, passed, count)
    }
}

/// A page of a list of schedules.
#[derive(Clone, Debug, Default)]
pub struct SchedulesPage {
    /// The schedules of this page, in the order of their keys.
    pub schedules: Vec<ScheduleView>,
    /// The cursor of the next page. `None` at the end of the list.
    pub next: Option<Cursor>,
}

/// The result of one step of a backfill, which is one call of [`Schedules::backfill`](super::Schedules::backfill).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackfillStep {
    /// The number of occurrences (timers for instants of the schedule) that the step stored.
    pub stored: u64,
    /// The number of instants for which the step stored no timer, because the timer for the instant had already been
    /// stored earlier.
    pub repeated: u64,
    /// The number of instants that the step left out, because they wait for a decision or for their timers by the
    /// schedule's own rule.
    pub waiting: u64,
    /// The moment from which the backfill continues. `None` if the backfill is complete.
    pub next: Option<UtcMillis>,
}

/// The reason why a call about a schedule failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ScheduleFault {
    /// The store has no schedule with this name.
    NotFound,
    /// The key is empty, or the key or the namespace is too long or contains the character U+0000 or U+001F.
    Key,
    /// The schedule's end is before its start.
    EndBeforeStart,
    /// The schedule's plan is not valid.
    Plan(PlanError),
    /// The namespace already has this number of schedules, which is the limit that the caller has given.
    Full(u64),
    /// The rule or the template of the schedule was changed after the caller had read it.
    Changed,
    /// The store failed, with this error.
    Store(StoreError),
}

impl fmt::Display for ScheduleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such schedule"),
            Self::Key => {
                write!(f, "the key of a schedule has 1 to {LONGEST_KEY} bytes, and none of them is 00 or 1F")
            }
            Self::EndBeforeStart => f.write_str("the end of the schedule is before its start"),
            Self::Plan(error) => error.fmt(f),
            Self::Full(most) => write!(f, "the namespace has {most} schedules, as many as it may have"),
            Self::Changed => f.write_str("the schedule was changed by another call"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl Schedule {
    /// Checks the rule, as each call does that stores it.
    ///
    /// # Errors
    ///
    /// Fails if the end is before the start, or if the plan is not valid.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::plan::Plan;
    /// use tourbillon_durable::schedule::{Schedule, ScheduleFault};
    ///
    /// let (start, end) = (Some(UtcMillis::from_millis(2)), Some(UtcMillis::from_millis(1)));
    /// let hourly = Schedule::new(Plan::every(Duration::from_secs(3_600)));
    /// assert!(hourly.check().is_ok());
    /// assert!(matches!(Schedule { start, end, ..hourly }.check(), Err(ScheduleFault::EndBeforeStart)));
    /// ```
    pub fn check(&self) -> Result<(), ScheduleFault> {
        if let (Some(start), Some(end)) = (self.start, self.end)
            && end < start
        {
            return Err(ScheduleFault::EndBeforeStart);
        }
        self.plan.instants()?;
        Ok(())
    }
}

impl core::error::Error for ScheduleFault {}

impl From<PlanError> for ScheduleFault {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

impl From<StoreError> for ScheduleFault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// An event of a schedule, as an observer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleEvent {
    /// The schedule has made an occurrence: a timer for one of its instants, or for the moment of a call of
    /// [`Schedules::trigger`](super::Schedules::trigger).
    Fired {
        /// The id of the new timer.
        id: TimerId,
        /// The instant, or the moment of the call, for which the timer was made.
        instant: UtcMillis,
    },
    /// Instants were missed, and got no occurrences. The value is their number.
    Missed(u64),
    /// Instants were skipped because an occurrence had not ended. The value is their number.
    Skipped(u64),
    /// The plan is no longer valid, for the reason in this text. The schedule makes no occurrences until it is changed
    /// or resumed.
    Parked(Box<str>),
    /// The schedule has no further instant.
    Ended,
    /// The next instant was recomputed, because it had been computed while the store's clock was ahead of the true
    /// time, or before a change of the rules of the time zone.
    Followed {
        /// The former next instant. `None` if the schedule had ended.
        from: Option<UtcMillis>,
        /// The recomputed next instant.
        to: UtcMillis,
    },
}
