//! Timers that receivers fetch.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// A request for timers of a queue that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ClaimRequest {
    /// The greatest number of timers: 1 by default, at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub max: Option<u32>,
    /// The time for which the request waits if no timer is due: none by default, at most 20 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 20_000))]
    pub wait_ms: Option<u64>,
}

/// Timers that were fetched, none if none became due in time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claims {
    /// The timers.
    pub claims: Vec<Claim>,
}

/// A timer that was fetched. It is delivered again unless it is acknowledged before `until`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claim {
    /// The name of this delivery, by which it is acknowledged, refused or prolonged.
    pub claim: String,
    /// The timer's id: the same for all deliveries of the timer.
    pub id: String,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The moment for which the timer was made.
    pub scheduled: Moment,
    /// The number of the attempt, from 1 on.
    pub attempt: u32,
    /// The moment at which the delivery has failed unless it was ended or prolonged.
    pub until: Moment,
    /// The trace context of the creation.
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
    /// The moment at which the delivery has failed unless it was ended or prolonged again. A claim is open for an hour
    /// at most.
    pub until: Moment,
}

/// A delivery that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Nack {
    /// The error, which is stored with the timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The pause before the next delivery. The policy's counts if it is longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400_000))]
    pub retry_after_ms: Option<u64>,
    /// Whether the work can never succeed: the timer is dead at once.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub dead: bool,
}
