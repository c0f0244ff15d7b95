//! Defines the arguments, answers, errors and events of the calls about schedules.

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

/// Describes the timer that is made for each instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Template {
    /// The name of the handler's kind.
    pub kind: Box<str>,
    /// The handler's argument.
    pub payload: Payload,
    /// The labels of the occurrences. Each occurrence also has the schedule's own label.
    #[serde(default)]
    pub labels: Vec<Box<str>>,
    /// The policy for deliveries that fail. Its `misfire` and `jitter` are ignored, since the schedule has its own.
    #[serde(default)]
    pub policy: Policy,
}

/// A schedule as it is shown to callers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScheduleView {
    /// The schedule's name.
    pub at: ScheduleKey,
    /// The rule.
    pub schedule: Schedule,
    /// The description of the timer that is made for each instant.
    pub template: Template,
    /// How far the schedule is.
    pub progress: Progress,
    /// The moment at which the next occurrence is due: the next instant and the jitter. `None` if the schedule is
    /// paused or has ended, or if its plan cannot be followed.
    pub due: Option<UtcMillis>,
    /// The time for which the schedule's next decision has been due.
    pub overdue: Duration,
}

/// One page of a list of schedules.
#[derive(Clone, Debug, Default)]
pub struct SchedulesPage {
    /// The schedules, in the order of their keys.
    pub schedules: Vec<ScheduleView>,
    /// The place at which the next page begins; `None` at the end of the list.
    pub next: Option<Cursor>,
}

/// The result of one step of a backfill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackfillStep {
    /// The number of occurrences that were stored.
    pub stored: u64,
    /// The number of instants that had their occurrences already.
    pub repeated: u64,
    /// The instant after which the backfill goes on; `None` if it is done.
    pub reached: Option<UtcMillis>,
}

/// The reason why a call about a schedule failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ScheduleFault {
    /// There is no such schedule.
    NotFound,
    /// The key or the namespace is empty, too long, or has the control character U+001F.
    Key,
    /// The end of the schedule is before its start.
    EndBeforeStart,
    /// The plan cannot be followed.
    Plan(PlanError),
    /// The namespace has this number of schedules, the most that the call permits.
    Full(u64),
    /// The store failed.
    Store(StoreError),
}

impl fmt::Display for ScheduleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such schedule"),
            Self::Key => {
                write!(f, "the key of a schedule has 1 to {LONGEST_KEY} bytes, and none of them is 1F")
            }
            Self::EndBeforeStart => f.write_str("the end of the schedule is before its start"),
            Self::Plan(error) => error.fmt(f),
            Self::Full(most) => write!(f, "the namespace has {most} schedules, as many as it may have"),
            Self::Store(error) => error.fmt(f),
        }
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

/// An event of a schedule, for an observer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleEvent {
    /// An instant got its occurrence.
    Fired {
        /// The id of the occurrence.
        id: TimerId,
        /// The instant of the occurrence.
        instant: UtcMillis,
    },
    /// This number of instants passed unnoticed and got no occurrences.
    Missed(u64),
    /// This number of instants were skipped because of an overlap.
    Skipped(u64),
    /// The plan cannot be followed any more. The schedule waits until it is changed or resumed.
    Parked(Box<str>),
    /// No instant is left.
    Ended,
    /// The next instant was computed anew, since a clock that was ahead had brought the schedule further.
    Followed {
        /// The next instant before the computation; `None` if the schedule had ended.
        from: Option<UtcMillis>,
        /// The next instant now.
        to: UtcMillis,
    },
}
