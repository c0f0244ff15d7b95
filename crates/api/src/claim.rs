//! Timers that receivers fetch.

use crate::{Moment, Problem};
use serde::{Deserialize, Serialize};

/// A request for due timers of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ClaimRequest {
    /// The greatest number of timers to fetch: 1 by default, at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub max: Option<u32>,
    /// The time to wait if no timer is due, at most 20 s. By default, the request does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 20_000))]
    pub wait_ms: Option<u64>,
}

/// The answer to a request for due timers. The list is empty if no timer is due, not even after the wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claims {
    /// The fetched timers, each with its claim.
    pub claims: Vec<Claim>,
}

/// A timer that a receiver fetched. If the receiver does not acknowledge it before `until`, it is delivered again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claim {
    /// The name of this claim. The receiver needs the name to acknowledge, reject or renew the delivery.
    pub claim: String,
    /// The timer's id, which is the same for all deliveries of the timer.
    pub id: String,
    /// The timer's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The timer's labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The moment for which the timer is scheduled. Retries do not change this moment.
    pub scheduled: Moment,
    /// The number of the attempt, counted from 1.
    pub attempt: u32,
    /// The end of the claim. If the receiver has not acknowledged, rejected or renewed the delivery by then, the
    /// delivery counts as failed.
    pub until: Moment,
    /// The W3C trace context of the request that made the timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The id of the request that made the timer, if the client gave it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The body, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body in base 64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

/// The answer to the renewal of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renewed {
    /// The new end of the claim. If the receiver has not acknowledged, rejected or renewed the delivery by then, the
    /// delivery counts as failed. A claim lasts an hour at most.
    pub until: Moment,
}

/// Claims that are acknowledged in one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Acks {
    /// The names of the claims, at most 100.
    #[cfg_attr(feature = "openapi", schema(max_items = 100))]
    pub claims: Vec<String>,
}

/// The answer to a request that acknowledges several claims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AckAnswer {
    /// One result for each claim of the request, in the same order.
    pub results: Vec<AckResult>,
}

/// The result of one claim that was to be acknowledged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AckResult {
    /// The name of the claim.
    pub claim: String,
    /// The problem that the acknowledgement of this claim alone would have got. None if the claim is acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// The report of a delivery that has not succeeded: it failed, or the receiver puts the timer off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Nack {
    /// The error, which is stored with the timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The pause before the next delivery. The policy's pause applies instead if it is longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400_000))]
    pub retry_after_ms: Option<u64>,
    /// True if the delivery can never succeed. The timer then becomes dead at once.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub dead: bool,
    /// The time for which the receiver puts the timer off, at most a day. The delivery has not failed, and counts as no
    /// attempt. The other fields must then be absent. If the timer's policy does not permit a delivery that late, the
    /// timer becomes dead. A timer that is delivered at most once cannot be put off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400_000))]
    pub snooze_ms: Option<u64>,
}
