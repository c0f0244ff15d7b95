//! Schedules: how they are made, and how they are shown.

use crate::{Callback, Moment, Policy, Pull};
use serde::{Deserialize, Serialize};
use tourbillon_words::{Missed, Overlap};

/// The creation of a schedule. It has one of `cron`, `monthly` and `every_ms`, and one of `callback` and `pull`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct NewSchedule {
    /// A cron expression of five fields, or of six with the second before them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// A day of each month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monthly: Option<Monthly>,
    /// A fixed period, counted from the start or else from the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100))]
    pub every_ms: Option<u64>,
    /// The time zone, a name of the IANA database such as `Europe/Zurich`. `UTC` by default. A fixed period has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The effect of a local time that clocks skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// The effect of instants that passed unnoticed, while the service was down for example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// An instant that is noticed later than this is missed. 10 s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// The effect of an instant that comes while the occurrence before it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// The width of the window in which occurrences become due after their instants: all by the same time, which
    /// follows from the key. Zero by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
    /// No instant is before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Moment>,
    /// No instant is after this moment.
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
    /// Labels of the occurrences, at most 8 of at most 64 bytes each. They have the label `schedule:` with the key
    /// besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 8))]
    pub labels: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A change of a schedule. Fields that are left out stay as they are. One of `cron`, `monthly` and `every_ms` takes the
/// place of the others, and so does one of `callback` and `pull`. Only a new creation under the same key removes a
/// start or an end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SchedulePatch {
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monthly: Option<Monthly>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100))]
    pub every_ms: Option<u64>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Moment>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Moment>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// See the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// The whole policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// All labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 8))]
    pub labels: Option<Vec<String>>,
}

impl SchedulePatch {
    /// The schedule after the change.
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

/// A day of each month.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Monthly {
    /// The day, 1 to 31.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 31))]
    pub day: i8,
    /// The local time, `09:00` or `09:00:30`. Midnight by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$"))]
    pub time: Option<String>,
    /// The instant in months that are too short for the day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_short: Option<ShortMonth>,
}

/// The instant in a month that is too short for the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ShortMonth {
    /// The last day of the month takes the place of the day.
    #[default]
    LastDay,
    /// It is left out.
    Skip,
}

/// The effect of a local time that clocks skip. A cron expression whose second, minute or hour begins with `*` never
/// comes at such a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Gap {
    /// The first instant after the gap takes its place.
    #[default]
    Move,
    /// It is left out.
    Skip,
}

/// A stored schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    /// The key.
    pub key: String,
    /// The namespace.
    pub namespace: String,
    /// The schedule as it was made, with all its fields. Readers see neither headers nor bodies.
    pub schedule: NewSchedule,
    /// The state.
    pub state: ScheduleState,
    /// The reason why the schedule is parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The moment of the creation.
    pub created: Moment,
    /// The moment at which the next occurrence is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Moment>,
    /// The last instant that was decided on: it got its occurrence, was skipped, or was missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scheduled: Option<Moment>,
    /// The moment at which the last occurrence was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fired: Option<Moment>,
    /// The time by which the schedule's next decision is late.
    pub overdue_ms: u64,
    /// The number of instants that got their occurrences.
    pub fired: u64,
    /// The number of instants that were missed.
    pub missed: u64,
    /// The number of instants that were skipped because of an overlap.
    pub skipped: u64,
    /// The number of occurrences that triggers and backfills have made.
    pub asked: u64,
    /// The next ten instants. Lists have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upcoming: Vec<Occurrence>,
}

/// The state of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ScheduleState {
    /// Occurrences come at their instants.
    Active,
    /// The schedule is paused: its instants pass by.
    Paused,
    /// The plan cannot be followed, for example since the service does not know the time zone any more. The schedule
    /// waits until it is changed or resumed.
    Parked,
    /// No instant is left.
    Ended,
}

/// An instant of a schedule, or a local time that has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Occurrence {
    /// The instant. Missing if clocks skip the local time and the schedule leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// The local time that the schedule names, without an offset.
    pub planned: String,
    /// The local time at the instant, with its offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// The effect of a clock change.
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
    /// The local time exists twice. A time of the day comes at the first of them, a repeating cron expression at both.
    Doubled,
}

/// The next ten instants of a schedule that is not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Preview {
    /// The instants.
    pub upcoming: Vec<Occurrence>,
}

/// The occurrence that a trigger has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Triggered {
    /// The id of the timer.
    pub id: String,
}

/// A range of instants whose occurrences are made at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Backfill {
    /// The first moment of the range.
    pub from: Moment,
    /// The last moment of the range. The present by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
    /// The greatest number of instants in the range: 1,000 by default, at most 10,000. A range with more is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10_000))]
    pub limit: Option<u32>,
}

/// The answer to the removal of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removed {
    /// Whether there was such a schedule.
    pub removed: bool,
}
