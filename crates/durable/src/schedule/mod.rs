//! Makes timers at the instants of a rule, until the rule is removed.
//!
//! A schedule is stored as a timer of a special kind, which is due at the schedule's next instant. The delivery of this
//! timer is a *decision* of the schedule. The decision determines which of the instants that have come get a timer of
//! their own, an *occurrence*. A single transaction stores the occurrences and the schedule's next state. So a restart
//! loses no instant, and a repeated delivery makes the same occurrences under the same ids.
//!
//! In a [`Series`](crate::plan::Series) the next occurrence comes only after the end of the last occurrence. A schedule
//! goes on while its occurrences are delivered, fail or die. [`Overlap`] decides about an instant that comes while an
//! occurrence has not ended. [`Missed`] decides about instants that passed while no process ran.
//!
//! The instants follow the store's present clock. If the clock was ahead for a while, a decision in that time has
//! computed a next instant that is too late. So [`Progress::followed`] recomputes the next instant in three cases: at
//! the start of a runtime with these schedules, after each step back of the clock, and at a change or a resume.
//!
//! [`decide`](Progress::decide) contains all rules, and uses neither a store nor a clock. [`Schedules`] does everything
//! else.

mod backfill;
mod decide;
mod instants;
mod key;
#[cfg(test)]
mod model;
mod progress;
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

/// The rule by which a schedule makes timers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The plan, which determines the instants of the schedule.
    pub plan: Plan,
    /// The rule for instants that passed while no process ran.
    #[serde(default)]
    pub missed: Missed,
    /// The longest time from an instant (plus the jitter) to the moment at which the schedule decides whether the
    /// instant gets an occurrence. If the schedule decides later, for example because no process ran, the instant
    /// counts as missed. 10 s by default.
    #[serde(default = "default_grace")]
    pub grace: Duration,
    /// The rule for an instant that comes while the last occurrence has not ended.
    #[serde(default)]
    pub overlap: Overlap,
    /// The length of the window in which an occurrence becomes due. The window begins at the occurrence's instant. All
    /// occurrences of a schedule have the same offset in their windows. The offset is computed from the schedule's
    /// name. Zero by default.
    #[serde(default)]
    pub jitter: Duration,
    /// The start of the schedule: no instant is earlier. Fixed periods are counted from the start. `None` if the
    /// schedule has no start. Fixed periods are then counted from the creation of the schedule.
    #[serde(default)]
    pub start: Option<UtcMillis>,
    /// The last moment at which the schedule may have an instant. `None` if the schedule does not end.
    #[serde(default)]
    pub end: Option<UtcMillis>,
}

fn default_grace() -> Duration {
    Duration::from_secs(10)
}

impl Schedule {
    /// Makes a schedule of this plan. The other fields have their defaults.
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

/// A span of missed instants that wait for their occurrences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatchUp {
    /// The first of these instants.
    pub next: UtcMillis,
    /// The moment up to which instants wait.
    pub last: UtcMillis,
}

/// A change of the jitter by which instants come sooner than before. These instants are on time if they get their
/// decision within the grace after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sooner {
    /// The last moment whose instant had come before the change.
    pub after: UtcMillis,
    /// The moment of the change.
    pub at: UtcMillis,
}

impl Progress {
    /// Returns whether an instant that has come still waits for its occurrence.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.queued.is_some() || !self.catch_up.is_empty()
    }
}

/// The progress of a schedule through its instants, with the counts of their outcomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The id of the schedule. The ids of the occurrences that follow the plan are computed from it.
    pub id: TimerId,
    /// The moment at which the schedule was created.
    pub created: UtcMillis,
    /// No instant up to this moment comes any more. This is the moment of the creation, of the last resume, or of the
    /// last change of the plan, minus the jitter.
    #[serde(default)]
    pub settled: UtcMillis,
    /// The next instant about which no decision was made. `None` if there is no further instant.
    pub next: Option<UtcMillis>,
    /// The last instant about which a decision was made. The instant got its occurrence, or was skipped, missed or
    /// queued.
    #[serde(default)]
    pub last_scheduled: Option<UtcMillis>,
    /// The moment at which the last occurrence was created. `None` before the first occurrence.
    #[serde(default)]
    pub last_fired: Option<UtcMillis>,
    /// The id of the last occurrence that follows the plan. `None` before the first such occurrence.
    #[serde(default)]
    pub last_occurrence: Option<TimerId>,
    /// The instant that waits until the last occurrence ends ([`Overlap::QueueOne`]). `None` if no instant waits.
    #[serde(default)]
    pub queued: Option<UtcMillis>,
    /// The missed instants that wait for their occurrences ([`Missed::All`] and [`Missed::Once`]), in order.
    #[serde(default)]
    pub catch_up: Vec<CatchUp>,
    /// The last change of the jitter by which instants have come that have no decision yet. `None` if there is none.
    #[serde(default)]
    pub sooner: Option<Sooner>,
    /// The last instant about which a decision was made while the store's clock was ahead of the true time. Instants up
    /// to it may have had their occurrences. `None` if the present time is later.
    #[serde(default)]
    pub ahead: Option<UtcMillis>,
    /// The number of instants that got their occurrences.
    #[serde(default)]
    pub fired: u64,
    /// The number of instants that were missed. A decision counts at most [`MOST_COUNTED`](crate::plan::MOST_COUNTED)
    /// missed instants.
    #[serde(default)]
    pub missed: u64,
    /// The number of instants that were skipped because an occurrence had not ended.
    #[serde(default)]
    pub skipped: u64,
    /// The number of occurrences that triggers and backfills have made.
    #[serde(default)]
    pub asked: u64,
    /// True while the schedule is paused.
    #[serde(default)]
    pub paused: bool,
    /// The reason why the plan is no longer valid, for example because its time zone is unknown. `None` if the plan is
    /// valid.
    #[serde(default)]
    pub fault: Option<Box<str>>,
}
