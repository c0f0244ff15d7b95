//! Events of the service, as they happen.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// An event. Events are sent live and are not stored. A reader that is too slow misses events, and the next event says
/// how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// The moment of the event.
    pub at: Moment,
    /// The kind of the event.
    pub kind: EventKind,
    /// The namespace of the timer or the schedule.
    pub namespace: String,
    /// The timer's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The key of the timer or the schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number of the attempt, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The time from the due moment to the start of the delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
    /// The duration of the delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The status of the receiver's answer, the error, or the reason for the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The number of events that this reader missed just before this event.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(missed: &u64) -> bool {
    *missed == 0
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// A timer was made.
    Created,
    /// A new timer with the same key has replaced the timer.
    Replaced,
    /// A timer was cancelled.
    Cancelled,
    /// A timer's due moment was moved.
    Moved,
    /// A delivery has begun.
    Started,
    /// A delivery succeeded.
    Delivered,
    /// A delivery failed and will be repeated.
    Failed,
    /// A delivery was postponed, for example because the host is paused or because the service is stopping. A postponed
    /// delivery does not count as an attempt.
    Parked,
    /// The service gave up on delivering a timer.
    Dead,
    /// Moments that a schedule's plan names were missed, for example while the service was down. The service made no
    /// timers for these moments. In this kind of event and in the three kinds below, `key` is the key of the schedule.
    Missed,
    /// Moments that a schedule's plan names were skipped because an earlier timer of the schedule had not ended. The
    /// service made no timers for these moments.
    Skipped,
    /// A schedule was parked, because the service can no longer follow its plan, for example because the time zone is
    /// unknown. The schedule makes no timers until it is changed or resumed.
    ScheduleParked,
    /// A schedule has ended: its plan names no further moments.
    ScheduleEnded,
}
