//! The past of a timer.

use crate::{Moment, Phase};
use serde::{Deserialize, Serialize};

/// The past of a timer that is stored, or that ended recently. The service keeps the attempts and the ends of about ten
/// thousand timers in memory, and forgets them when it stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Past {
    /// The timer's id.
    pub id: String,
    /// The namespace.
    pub namespace: String,
    /// The timer's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The timer's phase. A timer that is no longer stored is `done` or `withdrawn`, or `leased` if a delivery of it is
    /// still in progress.
    pub phase: Phase,
    /// The moment at which the service accepted the timer. Unknown if the timer was replaced before its first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Moment>,
    /// The moment for which the timer is scheduled. Retries change only `due`, not this moment. Unknown if the timer
    /// was replaced before its first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<Moment>,
    /// The moment from which the next delivery is due. None if no delivery will follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Moment>,
    /// The number of deliveries that were begun.
    pub deliveries: u32,
    /// The last attempts, the oldest first: at most 16 attempts that have ended, and the attempt in progress, if any.
    /// The service does not remember attempts before its own start.
    pub attempts: Vec<PastAttempt>,
    /// The moments at which the service found that a delivery had been interrupted because its process had died, at
    /// most the first four. The receiver may have got the interrupted delivery, and may get the timer again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<Moment>,
    /// The moments at which the dead timer was replayed, at most the last four. After each replay, attempts and
    /// deliveries are again numbered from 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replayed: Vec<Moment>,
    /// The number of times that the timer was parked since its first remembered attempt. The delivery of a parked timer
    /// is held back, for example because its host is paused.
    #[serde(default)]
    pub parks: u32,
    /// The reason why the timer is parked now. If it is not parked, the reason why it was parked the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_for: Option<String>,
    /// How and when the timer ended. None if the timer has not ended, or if the answering node does not know how it has
    /// ended. A dead timer has ended, although it is still stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<PastEnd>,
}

/// One attempt to deliver a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PastAttempt {
    /// The number of the attempt, counted from 1. A replay restarts the count.
    pub attempt: u32,
    /// The number of the delivery, counted from 1. It is greater than `attempt` if earlier deliveries ended without a
    /// stored result, for example because the process died.
    pub delivery: u32,
    /// The moment from which the attempt was due.
    pub due: Moment,
    /// The moment at which the service took the due timer from the store to deliver it.
    pub claimed: Moment,
    /// The moment at which the service sent the callback, or at which a receiver fetched the timer.
    pub started: Moment,
    /// The moment at which the attempt ended. None while it is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// The time from `due` to `started`.
    pub late_ms: u64,
    /// The time from `started` to the receiver's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The attempt's outcome. None while the attempt is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AttemptOutcome>,
    /// The HTTP status of the receiver's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub status: Option<u16>,
    /// The error of a failed attempt, cut to 200 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The beginning of the receiver's answer, if the namespace keeps answers and the token may see payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The reason why the receiver may get the timer twice: it may have acted on this attempt, and the service may
    /// deliver the timer again. None if the service knows no such reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_repeat: Option<RepeatCause>,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The attempt succeeded.
    Delivered,
    /// The attempt failed, and another attempt follows.
    Failed,
    /// The attempt failed, and the service gave up on the timer.
    Dead,
    /// The delivery was postponed, for example because the host is paused. A postponed delivery does not count as an
    /// attempt.
    Parked,
    /// The service stopped during the delivery, and made the timer pending again. Such a delivery does not count as an
    /// attempt.
    GivenBack,
    /// The service lost its lease of the timer (the exclusive right to deliver it) before the attempt ended, or could
    /// not store the outcome of the attempt. Or the timer is delivered at most once, and its delivery did not go on
    /// after the timer was removed.
    Lost,
}

/// The reason why a receiver may get a timer more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RepeatCause {
    /// The receiver did not answer in time, or the connection failed. The receiver may have acted on the delivery
    /// nevertheless.
    NoAnswer,
    /// The service lost its lease of the timer (the exclusive right to deliver it) before the receiver's answer came.
    LeaseLost,
    /// The delivery ended, but the service could not store its outcome.
    EndLost,
    /// The service stopped while the delivery was in progress.
    GivenBack,
    /// The service's process died while the delivery was in progress.
    ProcessDied,
}

/// How and when a timer ended, for example by a successful delivery or by a cancellation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PastEnd {
    /// The moment at which the timer ended.
    pub at: Moment,
    /// The way in which the timer ended.
    pub how: EndKind,
    /// For a dead timer, the last error or another reason for which the service gave up. For a timer whose only
    /// delivery failed, the error. For a replaced timer, the id of the timer that replaced it. None for other ends.
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
    /// The delivery was skipped because it would have been too late.
    Skipped,
    /// The timer was cancelled, or it was dead and was dropped.
    Cancelled,
    /// Another timer replaced this timer.
    Replaced,
    /// The service gave up on the timer. The timer is stored and can be replayed.
    Dead,
    /// The only delivery of a timer that is delivered at most once failed. The timer is not stored.
    Failed,
}
