//! Events of the service, as they happen.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// An event. Events are shown live and are not stored: a reader that is too slow misses some, and is shown how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// The moment.
    pub at: Moment,
    /// The kind.
    pub kind: EventKind,
    /// The namespace.
    pub namespace: String,
    /// The timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The timer's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The time from the due moment to the start of the delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
    /// The time that the delivery took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The status of the receiver's answer, the error, or the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The number of events that this reader has missed before this event.
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
    /// A delivery was put off. That does not count as an attempt.
    Parked,
    /// Deliveries of a timer were given up.
    Dead,
    /// Instants of a schedule passed unnoticed and got no occurrences. Here and in the three kinds below, the key is
    /// the schedule's.
    Missed,
    /// Instants of a schedule were skipped because of an overlap.
    Skipped,
    /// The plan of a schedule cannot be followed any more.
    ScheduleParked,
    /// A schedule has no instant left.
    ScheduleEnded,
}
