//! The past of a timer.

use crate::{Moment, Phase};
use serde::{Deserialize, Serialize};

/// The past of a timer that is stored, or has ended not long ago. The service remembers some ten thousand timers, until
/// it stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Past {
    /// The timer's id.
    pub id: String,
    /// The namespace.
    pub namespace: String,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The phase: `done` or `withdrawn` if the timer is not stored any more.
    pub phase: Phase,
    /// The moment at which the service accepted the timer. Not known if the timer was replaced before any attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Moment>,
    /// The moment for which the timer was made. Not known if the timer was replaced before any attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<Moment>,
    /// The moment from which the next delivery is due, if one will be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Moment>,
    /// The number of deliveries that were begun.
    pub deliveries: u32,
    /// The attempts that the service remembers, the oldest first: at most the last 16, since the start of the service.
    pub attempts: Vec<PastAttempt>,
    /// The moments at which the service found a delivery without an end, since the process that made it had died. The
    /// receiver may have had that delivery, and gets the timer again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<Moment>,
    /// The moments at which the dead timer was replayed, at most the last four. The numbers of its attempts and
    /// deliveries begin again there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replayed: Vec<Moment>,
    /// The number of times the timer was put aside since its first remembered attempt.
    #[serde(default)]
    pub parks: u32,
    /// The reason for which the timer was put aside the last time, or is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_for: Option<String>,
    /// The end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<PastEnd>,
}

/// One attempt to deliver a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PastAttempt {
    /// The number of the attempt, from 1 on, and from 1 on again after a replay.
    pub attempt: u32,
    /// The number of the delivery, from 1 on. Greater than `attempt` if deliveries were begun and had no end.
    pub delivery: u32,
    /// The moment from which the attempt was due.
    pub due: Moment,
    /// The moment at which the service took the timer up.
    pub claimed: Moment,
    /// The moment at which the request was sent, or a receiver got the timer.
    pub started: Moment,
    /// The moment at which the attempt had ended. None while it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// The time from the due moment to `started`.
    pub late_ms: u64,
    /// The time from `started` to the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The outcome. None while the attempt is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AttemptOutcome>,
    /// The status of the receiver's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub status: Option<u16>,
    /// The error, cut to 200 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The beginning of the receiver's answer, if the namespace keeps answers and the token may see payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The reason why the receiver, which may have had this attempt, may get the timer again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_repeat: Option<RepeatCause>,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// It succeeded.
    Delivered,
    /// It failed and is repeated.
    Failed,
    /// It failed, and deliveries were given up.
    Dead,
    /// It was put off. That does not count as an attempt.
    Parked,
    /// It was given back, since the service stopped. That does not count as an attempt.
    GivenBack,
    /// It took longer than its lease, or its end could not be stored.
    Lost,
}

/// The reason why a receiver may get a timer more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RepeatCause {
    /// The receiver did not answer in time, or the connection failed: the receiver may have acted.
    NoAnswer,
    /// The service had lost its lease of the timer before the answer.
    LeaseLost,
    /// The end of the delivery could not be stored.
    EndLost,
    /// The service stopped while the delivery was under way.
    GivenBack,
    /// The process died while the delivery was under way.
    ProcessDied,
}

/// The end of a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PastEnd {
    /// The moment.
    pub at: Moment,
    /// What happened.
    pub how: EndKind,
    /// The reason, or the id of the timer that took this timer's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The way in which a timer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EndKind {
    /// A delivery succeeded.
    Delivered,
    /// The delivery was left out since it was too late.
    Skipped,
    /// The timer was cancelled, or was dead and dropped.
    Cancelled,
    /// Another timer took its place.
    Replaced,
    /// Deliveries were given up. The timer is stored and can be replayed.
    Dead,
}
