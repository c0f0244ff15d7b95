//! Makes timers at the instants of a rule, until the rule is removed.
//!
//! A schedule is stored as a timer of a special kind, which is due at the schedule's next instant. The delivery of this
//! timer is a *decision* of the schedule. The decision determines which of the instants that have come get a timer of
//! their own, an *occurrence*. In a [`Series`](crate::plan::Series) the next occurrence comes only after the end of the
//! last occurrence. A schedule goes on while its occurrences are delivered, fail or die.
//!
//! # What happens to an instant
//!
//! An instant comes when its occurrence would be due: at the instant plus the jitter. Each instant comes at most once.
//! Then it is in one of these states, and moves down the table until it is counted:
//!
//! | state | in [`Progress`] | what happens next |
//! |---|---|---|
//! | it has not come | after `settled` | it comes, if the schedule is not paused then |
//! | it has come, without a decision | `undecided` | a decision handles it: it is late by more than the grace, or on time |
//! | late, [`Missed::Skip`] | | counted in `missed` |
//! | late, [`Missed::Once`] | `catch_up` | the last late instant waits, and the others are counted in `missed`; all are, if an instant on time gets its occurrence at once |
//! | late, [`Missed::All`] | `catch_up` | the last [`MOST_CAUGHT_UP`] late instants wait, and the others are counted in `missed` |
//! | it waits as late | `catch_up` | with [`Overlap::Allow`] it gets its occurrence at once, otherwise after the end of the one before |
//! | on time, and the last occurrence has ended, or [`Overlap::Allow`] | | it gets its occurrence |
//! | on time, [`Overlap::QueueOne`], and none is queued | `queued` | it gets its occurrence after the end of the last one |
//! | on time, and an overlap otherwise | | counted in `skipped` |
//! | it gets its occurrence | `storing`, in a store without transactions | counted in `fired` once the occurrence is stored |
//!
//! These events change the states:
//!
//! | event | instants that have come before it | instants that come between it and the next decision |
//! |---|---|---|
//! | pause | stay as they are | never come, and are not counted |
//! | resume | stay as they are | come |
//! | another plan, or another start of a fixed period | `queued` stays if the new plan has it, and counts in `skipped` otherwise; the others count in `missed` | come by the new plan, from the change on |
//! | another start or end | those outside count in `missed`, or in `skipped` if queued | come by the new rule; none that is before the change |
//! | longer jitter | stay as they are | come later |
//! | shorter jitter | stay as they are | those that come by the change are on time within the grace after it |
//! | a plan that cannot be followed | stay as they are | come when the plan can be followed again, and are late then |
//! | the clock steps back | those that are in the future now come again | come by the present clock |
//! | a decision fails | stay as they are, but for those that the section below names | come |
//!
//! [`decide`](Progress::decide), [`changed`](Progress::changed) and [`resumed`](Progress::resumed) contain these rules.
//! The file `storing.rs` contains those of the next section. Both use neither a store nor a clock. [`Schedules`] does
//! everything else.
//!
//! # A decision and its occurrences
//!
//! A transaction stores the occurrences and the schedule's next state. So a restart loses no instant, and a repeated
//! delivery makes the same occurrences under the same ids. A store without transactions makes several changes: the
//! first one notes in the schedule which occurrences are being stored, so a later delivery can complete the decision.
//! An instant in [`Progress::storing`] leaves it in one of these ways:
//!
//! | event | what happens to the instant |
//! |---|---|
//! | the decision has stored its occurrence | it counts in `fired` |
//! | the same, and another process has changed the schedule | it counts in `fired` of the changed state, before the decision's delivery ends |
//! | the store has surely refused its occurrence | it waits again, where it was before the decision |
//! | another delivery comes while the decision's delivery goes on | it stays, and the other delivery tries again later |
//! | the decision's delivery has ended, at least once, at most 50 minutes after the decision | its occurrence is stored, unless the store knows the id; it counts in `fired` |
//! | the decision's delivery has ended, later than that, or at most once | it counts in `fired` if its occurrence is stored, and otherwise in `missed`, although it may have run |
//! | the store fails for this occurrence in such a later delivery | it stays, and the other instants leave `storing` |
//!
//! The store remembers the id of an occurrence for an hour after its end. An attempt to store the occurrence after that
//! hour would make a second one.
//!
//! A decision may be carried out in part: the store refuses some of its occurrences or loses an answer, or another
//! process changes the schedule during a transaction. Then the instants whose occurrences are stored count in `fired`.
//! Those that the decision has counted in `missed` or `skipped` stay so: otherwise a later decision would find the last
//! of them late, and [`Missed::Once`] would give it an occurrence as well. All others wait where they were before.
//!
//! The instants follow the store's present clock, and the present rules of the time zone. The stored next instant is
//! only the moment at which the schedule looks again. Each decision, change and resume computes it anew from
//! [`Progress::settled`], and so does [`Progress::followed`] at the start of a runtime with these schedules and after
//! each step back of the clock.

mod backfill;
mod decide;
mod instants;
mod key;
#[cfg(test)]
mod model;
#[cfg(test)]
mod oracle;
mod progress;
mod runner;
mod schedules;
mod store;
mod stored;
mod storing;
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

/// A span of instants that have come, and about which no decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undecided {
    /// The first of these instants.
    pub next: UtcMillis,
    /// The moment up to which instants are in the span.
    pub last: UtcMillis,
    /// The moment of the change of the jitter by which these instants came sooner than before. They are on time if they
    /// get their decision within the grace after it. `None` if they came by the clock.
    #[serde(default)]
    pub sooner: Option<UtcMillis>,
}

/// The progress of a schedule through its instants, with the counts of their outcomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The id of the schedule. The ids of the occurrences that follow the plan are computed from it.
    pub id: TimerId,
    /// The moment at which the schedule was created.
    pub created: UtcMillis,
    /// No instant up to this moment comes any more: each has come, or never comes. Each decision, resume and change of
    /// the rule moves it on, to the present moment minus the jitter.
    #[serde(default)]
    pub settled: UtcMillis,
    /// The first instant after [`settled`](Self::settled), as it was computed last. Each decision computes it again,
    /// because the rules of a time zone may change. `None` if there is no further instant.
    pub next: Option<UtcMillis>,
    /// The instants that have come and have no decision yet, in order. A decision handles at most [`MOST_AT_ONCE`] of
    /// them. A pause and a change of the rule keep those that came before.
    #[serde(default)]
    pub undecided: Vec<Undecided>,
    /// The instants whose occurrences are being stored, in a store without transactions. If the process dies meanwhile,
    /// the next delivery of the schedule's timer completes the decision. Empty between two decisions.
    #[serde(default)]
    pub storing: Vec<UtcMillis>,
    /// The moment since which the occurrences of [`storing`](Self::storing) are being stored. `None` if it is empty.
    #[serde(default)]
    pub storing_since: Option<UtcMillis>,
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
    /// The moment at which the schedule was paused. `None` if it is not paused.
    #[serde(default)]
    pub paused: Option<UtcMillis>,
    /// The reason why the plan is no longer valid, for example because its time zone is unknown. `None` if the plan is
    /// valid.
    #[serde(default)]
    pub fault: Option<Box<str>>,
}
