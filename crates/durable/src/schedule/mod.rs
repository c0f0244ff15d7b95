//! Makes timers by rules, again and again, until a rule is removed.
//!
//! A schedule is stored as one timer of its own kind, which is due at the schedule's next instant. Its delivery decides
//! which of the instants that have come get their timers, the *occurrences*. It stores these together with the
//! schedule's next state in one transaction. So the last instant survives a restart, no instant is forgotten, and a
//! repeated delivery makes the same occurrences under the same ids.
//!
//! In a [`Series`](crate::plan::Series) the next occurrence comes only after the end of the last. A schedule goes on
//! while its occurrences are delivered, fail or die. [`Overlap`] decides about an instant that comes while an
//! occurrence has not ended, and [`Missed`] about instants that passed while no process ran.
//!
//! The instants follow the store's present clock. If the clock was ahead for a moment, decisions made then could keep
//! the schedule waiting. So [`Progress::followed`] computes the next instant anew: at the start of a runtime with these
//! schedules, after each step back of the clock, and at a change or a resume.
//!
//! [`decide`](Progress::decide) is the whole policy, and uses neither a store nor a clock. [`Schedules`] does
//! everything else.

mod backfill;
mod decide;
mod instants;
mod key;
mod runner;
mod schedules;
mod store;
mod stored;
#[cfg(test)]
mod tests;
mod words;

pub use decide::{Decision, MOST_AT_ONCE, MOST_CAUGHT_UP};
pub use instants::Occurrence;
pub use key::ScheduleKey;
pub use schedules::Schedules;
pub use tourbillon_calendar::ClockChange;
pub use tourbillon_words::{Missed, Overlap};
pub use words::{BackfillStep, ScheduleEvent, ScheduleFault, ScheduleView, SchedulesPage, Template};

use crate::id::TimerId;
use crate::plan::Plan;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use tourbillon_words::UtcMillis;

/// The rule of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The plan that gives the instants.
    pub plan: Plan,
    /// Decides about instants that passed while no process decided on them.
    #[serde(default)]
    pub missed: Missed,
    /// The time after which an instant that was not decided on counts as missed. 10 s by default.
    #[serde(default = "default_grace")]
    pub grace: Duration,
    /// Decides about an instant that comes while the occurrence before it is under way.
    #[serde(default)]
    pub overlap: Overlap,
    /// The width of the window in which occurrences become due after their instants. All occurrences of the schedule
    /// are late by the same time, which follows from its key. Zero by default.
    #[serde(default)]
    pub jitter: Duration,
    /// The moment before which there is no instant. Periods are counted from it.
    #[serde(default)]
    pub start: Option<UtcMillis>,
    /// The moment after which there is no instant.
    #[serde(default)]
    pub end: Option<UtcMillis>,
}

fn default_grace() -> Duration {
    Duration::from_secs(10)
}

impl Schedule {
    /// Makes a schedule of this plan, with defaults for the rest.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::plan::Plan;
    /// use tourbillon_durable::schedule::{Missed, Overlap, Schedule};
    ///
    /// let every = Plan::every(Duration::from_secs(60));
    /// let schedule = Schedule { overlap: Overlap::QueueOne, ..Schedule::new(every) };
    /// assert_eq!((schedule.missed, schedule.grace), (Missed::Once, Duration::from_secs(10)));
    /// ```
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            missed: Missed::default(),
            grace: default_grace(),
            overlap: Overlap::default(),
            jitter: Duration::ZERO,
            start: None,
            end: None,
        }
    }
}

/// Tells how far a schedule has come, and counts its instants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The id of the schedule, from which the ids of its occurrences follow.
    pub id: TimerId,
    /// The moment at which the schedule was created.
    pub created: UtcMillis,
    /// The next instant; `None` if none is left.
    pub next: Option<UtcMillis>,
    /// The last instant that was decided on: fired, skipped, missed or queued.
    #[serde(default)]
    pub last_scheduled: Option<UtcMillis>,
    /// The moment at which the last occurrence was stored.
    #[serde(default)]
    pub last_fired: Option<UtcMillis>,
    /// The id of the last occurrence.
    #[serde(default)]
    pub last_occurrence: Option<TimerId>,
    /// The instant that is queued until the last occurrence ends.
    #[serde(default)]
    pub queued: Option<UtcMillis>,
    /// The number of instants that got their occurrences.
    #[serde(default)]
    pub fired: u64,
    /// The number of instants that were missed. At most [`MOST_COUNTED`](crate::plan::MOST_COUNTED) are counted at
    /// once.
    #[serde(default)]
    pub missed: u64,
    /// The number of instants that were skipped because of an overlap.
    #[serde(default)]
    pub skipped: u64,
    /// The number of occurrences that a trigger or a backfill has made, apart from the plan.
    #[serde(default)]
    pub asked: u64,
    /// Whether the schedule is paused.
    #[serde(default)]
    pub paused: bool,
    /// The reason why the plan cannot be followed; `None` if it can.
    #[serde(default)]
    pub fault: Option<Box<str>>,
}
