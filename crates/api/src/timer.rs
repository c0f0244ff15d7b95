//! Timers, in requests and in answers.

use crate::{Moment, Policy, RawJson};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tourbillon_words::Phase;

/// A request that makes a timer. It has exactly one of `callback` and `pull`, and at most one of `due` and `delay_ms`.
/// Without `due` and `delay_ms`, the timer is due at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewTimer {
    /// The moment from which the timer is due. It may be in the past: the timer is then due at once, and `scheduled`
    /// keeps the given moment. If the moment is further in the past than `misfire_within_ms` of the policy, the
    /// delivery is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Moment>,
    /// The time until the timer is due. It begins when the service accepts the timer, by the service's clock.
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
    /// The labels, by which timers are listed and cancelled together: at most 8, of at most 64 bytes each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 8))]
    pub labels: Vec<String>,
    /// What happens if another timer already has the key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub if_present: IfPresent,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl NewTimer {
    /// Makes a timer that is due at once, and that sends the request `callback`.
    #[must_use]
    pub fn callback(callback: Callback) -> Self {
        Self { callback: Some(callback), ..Self::default() }
    }

    /// Makes a timer that is due at once, and that a receiver fetches from the queue in `pull`.
    #[must_use]
    pub fn pull(pull: Pull) -> Self {
        Self { pull: Some(pull), ..Self::default() }
    }

    /// Makes the timer due at the moment `due`.
    #[must_use]
    pub fn at(self, due: Moment) -> Self {
        Self { due: Some(due), delay_ms: None, ..self }
    }

    /// Makes the timer due `delay` milliseconds after the service accepts it.
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

    /// Sets what happens if another timer already has the key.
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
    /// The URL.
    #[cfg_attr(feature = "openapi", schema(format = "uri", max_length = 2048, pattern = "^https?://"))]
    pub url: String,
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`. `POST` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^(GET|POST|PUT|PATCH|DELETE)$"))]
    pub method: Option<String>,
    /// The headers. Headers that the connection or the service sets are not permitted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body as a JSON value. Its media type is `application/json` by default; `headers` can name another type. The
    /// service sends the value byte for byte as written here. It may be any JSON: its keys, the size of its numbers and
    /// its depth are not checked. `null` means no body.
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
    /// Makes a POST request without a body.
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

/// A queue from which receivers fetch the timer, and a body for the receiver. It has at most one of `json`, `body` and
/// `body_base64`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Pull {
    /// The name of the queue: 1 to 64 letters, digits, `-`, `_` or `.`.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 64, pattern = r"^[A-Za-z0-9._-]+$"))]
    pub queue: String,
    /// The body as a JSON value, which the receiver gets byte for byte as written here. `null` means no body.
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

/// What happens to a new timer if another timer already has its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum IfPresent {
    /// The new timer is refused with the problem `key-exists`.
    #[default]
    Reject,
    /// The old timer stays, and the new timer is discarded. The answer has the old timer's phase in `kept`.
    Keep,
    /// The new timer replaces the old timer.
    Replace,
    /// The new timer replaces the old timer, but keeps the old timer's due moment.
    ReplaceKeepDue,
}

/// The answer to the creation of a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Placed {
    /// The id of the stored timer. Each delivery of the timer has this id in the header `webhook-id`.
    pub id: String,
    /// The timer's key. None if the timer has no key, or if it has ended and the service no longer remembers the
    /// request that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What the request did.
    pub outcome: PlaceOutcome,
    /// The timer that was replaced. None if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// The old timer that was kept. None if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// The outcome of the creation of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PlaceOutcome {
    /// The new timer is stored.
    Created,
    /// An earlier request with the same idempotency key stored the timer. The timer may have ended since, and this
    /// request has made none.
    Repeated,
    /// The old timer that has the key was kept.
    Kept,
    /// The new timer replaced another timer.
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
    /// The old timer's phase. If it is `leased`, a delivery of the old timer has begun before this request. To make
    /// sure that a delivery begins after this request, repeat the request with `if_present: replace`.
    pub was: Phase,
}

/// A stored timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Timer {
    /// The timer's id.
    pub id: String,
    /// The timer's namespace.
    pub namespace: String,
    /// The key with which the timer was made. A timer gives up its key when it dies, and when it is cancelled or
    /// replaced during its delivery. Another timer may have the key then, and only the id finds this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The timer's labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The stage of the timer's life cycle.
    pub phase: Phase,
    /// The moment at which the service accepted the timer.
    pub created: Moment,
    /// The moment for which the timer is scheduled. Retries change only `due`, not this moment.
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
    /// The moment at which the timer became dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_since: Option<Moment>,
    /// The HTTP request that delivers the timer. A client with the role `reader` sees neither its headers nor its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The queue in which the due timer waits for a receiver, and the body that the receiver gets. A client with the
    /// role `reader` does not see the body.
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
    /// The effect of the cancellation.
    pub result: CancelResult,
}

/// The effect of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CancelResult {
    /// No further delivery will begin.
    Cancelled,
    /// A delivery has already begun. No other delivery will follow.
    InFlight,
    /// No such timer is stored: it never existed, or it has ended.
    NotFound,
}

/// A new due moment. It has exactly one of `due` and `delay_ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// The new due moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Moment>,
    /// The time from now to the new due moment.
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
