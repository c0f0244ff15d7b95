//! Schedules, in requests and in answers.

use crate::{Callback, Moment, Policy, Pull};
use serde::{Deserialize, Serialize};
use tourbillon_words::{Missed, Overlap};

/// A request that makes a schedule. It has exactly one of `cron`, `monthly` and `every_ms`, and exactly one of
/// `callback` and `pull`. A schedule's instants are the moments that its plan names. An occurrence is the timer that
/// the service makes for an instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct NewSchedule {
    /// A cron expression with five fields, with six if it begins with a field for the second, or with seven if it also
    /// ends with a field for the year. A word such as `@daily` may stand for all fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// A day of each month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monthly: Option<Monthly>,
    /// A fixed period, counted from `start`. Without `start`, counted from the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100))]
    pub every_ms: Option<u64>,
    /// The time zone, a name from the IANA database such as `Europe/Zurich`. `UTC` by default. A fixed period has no
    /// time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The treatment of local times that a clock change skips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// The treatment of missed instants, which passed while the service could not handle them, for example because it
    /// was down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// The grace period: an instant counts as missed if the service handles it with a greater delay. 10 s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// The treatment of an instant that comes while the previous occurrence is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// The greatest delay from an instant until its occurrence is due. The actual delay depends on the schedule's key,
    /// and is the same for all occurrences. Zero by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
    /// The schedule has no instants before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Moment>,
    /// The schedule has no instants after this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Moment>,
    /// The HTTP request that each occurrence sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The queue from which a receiver fetches each occurrence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// The policy for the deliveries of each occurrence. It has neither `misfire_within_ms` nor `jitter_ms`.
    #[serde(skip_serializing_if = "is_default")]
    pub policy: Policy,
    /// The labels of the occurrences: at most 8, of at most 64 bytes each. Every occurrence also has the label
    /// `schedule:` followed by the schedule's key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 8))]
    pub labels: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A change of a schedule. Fields that are left out stay unchanged. A change that sets one of `cron`, `monthly` and
/// `every_ms` removes the other two. A change that sets one of `callback` and `pull` removes the other. A change cannot
/// remove `start` or `end`: to remove them, make the schedule again under the same key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SchedulePatch {
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monthly: Option<Monthly>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100))]
    pub every_ms: Option<u64>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Moment>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Moment>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// See this field of `NewSchedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// The new policy, which replaces the old policy as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The new labels, which replace all old labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 8))]
    pub labels: Option<Vec<String>>,
}

impl SchedulePatch {
    /// Returns the schedule `to` with this change applied.
    #[must_use]
    pub fn apply(self, to: NewSchedule) -> NewSchedule {
        let is_other_plan = self.cron.is_some() || self.monthly.is_some() || self.every_ms.is_some();
        let is_other_target = self.callback.is_some() || self.pull.is_some();
        let (cron, monthly, every_ms) = if is_other_plan {
            (self.cron, self.monthly, self.every_ms)
        } else {
            (to.cron, to.monthly, to.every_ms)
        };
        let (callback, pull) =
            if is_other_target { (self.callback, self.pull) } else { (to.callback, to.pull) };
        // A fixed period has neither a zone nor gaps.
        let is_every = every_ms.is_some();
        NewSchedule {
            cron,
            monthly,
            every_ms,
            zone: self.zone.or(to.zone.filter(|_| !is_every)),
            gap: self.gap.or(to.gap.filter(|_| !is_every)),
            missed: self.missed.or(to.missed),
            grace_ms: self.grace_ms.or(to.grace_ms),
            overlap: self.overlap.or(to.overlap),
            jitter_ms: self.jitter_ms.or(to.jitter_ms),
            start: self.start.or(to.start),
            end: self.end.or(to.end),
            callback,
            pull,
            policy: self.policy.unwrap_or(to.policy),
            labels: self.labels.unwrap_or(to.labels),
        }
    }
}

/// A day of each month, at a local time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Monthly {
    /// The day of the month, from 1 to 31.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 31))]
    pub day: i8,
    /// The local time, such as `09:00` or `09:00:30`. Midnight by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$"))]
    pub time: Option<String>,
    /// The treatment of months that do not have this day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_short: Option<ShortMonth>,
}

/// The treatment of a month that does not have the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ShortMonth {
    /// The instant is on the last day of the month.
    #[default]
    LastDay,
    /// The schedule has no instant in this month, so it makes no occurrence.
    Skip,
}

/// The treatment of a local time that a clock change skips. A cron expression whose second, minute or hour begins with
/// `*` has no instants at such times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Gap {
    /// The instant is the first moment after the gap.
    #[default]
    Move,
    /// The schedule has no instant for this local time, so it makes no occurrence.
    Skip,
}

/// A stored schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    /// The schedule's key.
    pub key: String,
    /// The schedule's namespace.
    pub namespace: String,
    /// The settings of the schedule, with all fields. A client with the role `reader` sees neither headers nor bodies.
    pub schedule: NewSchedule,
    /// Whether the schedule is active, paused, parked or ended.
    pub state: ScheduleState,
    /// The reason why the schedule is parked, which means that its plan cannot be followed. If it is not parked, the
    /// error of its last attempt to handle an instant, which is tried again. None if there is no such error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The moment at which the schedule was made.
    pub created: Moment,
    /// The moment at which the next occurrence is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Moment>,
    /// The latest instant that the service has handled: it got an occurrence, was skipped, or was missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scheduled: Option<Moment>,
    /// The moment at which the latest occurrence was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fired: Option<Moment>,
    /// The time by which the handling of the schedule's next instant is overdue.
    pub overdue_ms: u64,
    /// The number of instants that got occurrences.
    pub fired: u64,
    /// The number of instants that were missed.
    pub missed: u64,
    /// The number of instants that were skipped because of an overlap.
    pub skipped: u64,
    /// The number of occurrences that were made on request: by a trigger, or by a backfill of past instants.
    pub asked: u64,
    /// The next ten instants, and the local times between them that a clock change skips. A list of schedules leaves
    /// them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upcoming: Vec<Occurrence>,
}

/// The state of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ScheduleState {
    /// The schedule makes occurrences at its instants.
    Active,
    /// The schedule is paused, and makes no occurrences.
    Paused,
    /// The plan cannot be followed, for example because the service no longer knows the time zone. The schedule waits
    /// until it is changed or resumed.
    Parked,
    /// The schedule has no more instants.
    Ended,
}

/// A local time that a schedule plans, and its instant. A local time that a clock change skips may have no instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Occurrence {
    /// The instant. None if a clock change skips the local time and the schedule then has no instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// The local time that the schedule names, without an offset.
    pub planned: String,
    /// The local time at the instant, with its offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// The effect of a clock change on the local time. None if no clock change affects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_change: Option<ClockChange>,
}

/// The effect of a clock change on a local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClockChange {
    /// The local time does not exist. The instant is the first moment after the gap.
    Moved,
    /// The local time does not exist, and has no instant.
    Skipped,
    /// The local time exists twice. A cron expression whose second, minute or hour begins with `*` has an instant at
    /// both times, and every other plan only at the first.
    Doubled,
}

/// The answer to a request that asks for the next instants of a schedule without storing the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Preview {
    /// The next ten instants, and the local times between them that a clock change skips.
    pub upcoming: Vec<Occurrence>,
}

/// The answer to a trigger, which is a request that makes an occurrence of a schedule at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Triggered {
    /// The id of the new occurrence, which is a timer.
    pub id: String,
}

/// A request that makes an occurrence for each past instant in a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Backfill {
    /// The first moment of the range.
    pub from: Moment,
    /// The last moment of the range: now by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
    /// The greatest number of instants in the range: 1,000 by default, at most 10,000. The service refuses a range
    /// with more instants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10_000))]
    pub limit: Option<u32>,
}

/// The answer to the removal of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removed {
    /// True if there was such a schedule.
    pub removed: bool,
}
