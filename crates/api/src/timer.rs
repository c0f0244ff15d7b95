//! Timers: how they are made, and how they are shown.

use crate::{Moment, Policy, RawJson};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tourbillon_words::Phase;

/// The creation of a timer. It has `callback` or `pull`, and at most one of `due` and `delay_ms`; without both it is
/// due at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewTimer {
    /// The moment from which the timer is due. A moment that has passed is accepted: the timer is due at once, and
    /// `scheduled` keeps the moment; with `misfire_within_ms` in the policy the delivery is skipped if the moment is
    /// longer ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Moment>,
    /// The time after which the timer is due, from the moment at which the service accepts it, by the service's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// The HTTP request that is sent when the timer is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The queue from which a receiver fetches the timer when it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// The policy for failed and late deliveries.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: Policy,
    /// Words by which timers are listed and cancelled together: at most 8, of at most 64 bytes each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 8))]
    pub labels: Vec<String>,
    /// The effect of the creation if another timer has the key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub if_present: IfPresent,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl NewTimer {
    /// A timer that sends this request, due at once.
    #[must_use]
    pub fn callback(callback: Callback) -> Self {
        Self { callback: Some(callback), ..Self::default() }
    }

    /// A timer that a receiver fetches, due at once.
    #[must_use]
    pub fn pull(pull: Pull) -> Self {
        Self { pull: Some(pull), ..Self::default() }
    }

    /// Makes the timer due at this moment.
    #[must_use]
    pub fn at(self, due: Moment) -> Self {
        Self { due: Some(due), delay_ms: None, ..self }
    }

    /// Makes the timer due `delay` milliseconds after its acceptance.
    #[must_use]
    pub fn after_ms(self, delay: u64) -> Self {
        Self { due: None, delay_ms: Some(delay), ..self }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.labels.push(label.into());
        self
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets the effect of the creation if another timer has the key.
    #[must_use]
    pub fn if_present(self, if_present: IfPresent) -> Self {
        Self { if_present, ..self }
    }
}

/// An HTTP request. It has at most one of `json`, `body` and `body_base64`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Callback {
    /// The address.
    #[cfg_attr(feature = "openapi", schema(format = "uri", max_length = 2048, pattern = "^https?://"))]
    pub url: String,
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`. `POST` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^(GET|POST|PUT|PATCH|DELETE)$"))]
    pub method: Option<String>,
    /// Headers, but for those of the connection and of the service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body as a JSON value, with the type `application/json` if `headers` names none. It is sent byte for byte as
    /// it is written here, and may be any JSON: its keys, the size of its numbers and its depth are not checked. `null`
    /// is the same as no body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub json: Option<RawJson>,
    /// The body as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body as bytes in base 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(
            pattern = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
        )
    )]
    pub body_base64: Option<String>,
}

impl Callback {
    /// A POST request without a body.
    #[must_use]
    pub fn post(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }

    /// Sets the body to a JSON value.
    #[must_use]
    pub fn json(self, json: impl Into<RawJson>) -> Self {
        Self { json: Some(json.into()), ..self }
    }
}

/// A timer's place in a queue from which receivers fetch. It has at most one of `json`, `body` and `body_base64`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Pull {
    /// The queue's name: 1 to 64 letters, digits, `-`, `_` or `.`.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 64, pattern = r"^[A-Za-z0-9._-]+$"))]
    pub queue: String,
    /// The body as a JSON value, which the receiver gets byte for byte as it is written here. `null` is the same as no
    /// body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub json: Option<RawJson>,
    /// The body as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body as bytes in base 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(
            pattern = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
        )
    )]
    pub body_base64: Option<String>,
}

/// The effect of the creation of a timer whose key another timer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum IfPresent {
    /// The new timer is refused with the problem `key-exists`.
    #[default]
    Reject,
    /// The old timer stays, and the new timer is dropped. The answer has the old timer's phase in `kept`.
    Keep,
    /// The new timer takes the place of the old timer.
    Replace,
    /// The new timer takes the place of the old timer, and keeps its due moment.
    ReplaceKeepDue,
}

/// The answer to the creation of a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Placed {
    /// The id of the timer that is stored now. Each delivery of it carries the id in the header `webhook-id`.
    pub id: String,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What happened.
    pub outcome: PlaceOutcome,
    /// The timer that was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// The timer that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// The effect of the creation of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PlaceOutcome {
    /// The timer is stored.
    Created,
    /// An earlier request with the same idempotency key has stored the timer.
    Repeated,
    /// The timer that has the key stays.
    Kept,
    /// The timer took the place of another timer.
    Replaced,
}

/// A timer that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Replaced {
    /// The old timer's id.
    pub id: String,
    /// The old timer's phase. If it is `leased`, a delivery of the old timer has begun and may still succeed.
    pub was: Phase,
}

/// A timer that was kept in place of a new timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Kept {
    /// Its phase. If it is `leased`, its delivery has begun, perhaps before the state that the new timer is for. To get
    /// a delivery after this request, repeat the request with `if_present: replace`.
    pub was: Phase,
}

/// A stored timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Timer {
    /// The id.
    pub id: String,
    /// The namespace.
    pub namespace: String,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The phase.
    pub phase: Phase,
    /// The moment at which the service accepted the timer.
    pub created: Moment,
    /// The moment for which the timer was made.
    pub scheduled: Moment,
    /// The moment from which the next delivery is due.
    pub due: Moment,
    /// The number of deliveries that were begun.
    pub deliveries: u32,
    /// The number of deliveries that failed.
    pub failures: u32,
    /// The error of the last delivery that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The reason why the timer is parked or dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The moment from which the timer is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_since: Option<Moment>,
    /// The HTTP request. Readers see no headers and no body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The queue. Readers see no body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// The policy, with all its fields.
    pub policy: Policy,
    /// The id of the request that made the timer, if the client gave it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The answer to a cancellation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cancelled {
    /// What happened.
    pub result: CancelResult,
}

/// The effect of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CancelResult {
    /// No delivery begins any more.
    Cancelled,
    /// A delivery has begun. It is the last delivery.
    InFlight,
    /// No such timer is stored: there was none, or it has ended.
    NotFound,
}

/// A new due moment. It has one of `due` and `delay_ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// The moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Moment>,
    /// The time from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// The answer to a change of a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Changed {
    /// The timer's id.
    pub id: String,
}
