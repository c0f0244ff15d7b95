//! Namespaces: roles, limits and signing secrets.

use crate::Moment;
use serde::{Deserialize, Deserializer, Serialize};

/// The role of a token, which determines the requests that the token permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Permits to see operations, events, and timers without their payloads. A token for all namespaces also permits to
    /// see the service as a whole, with its metrics and the events of all namespaces.
    Reader,
    /// Also permits to see payloads, to make and change timers, and to fetch timers from queues.
    Writer,
    /// Also permits to change the signing secrets of a namespace. A token for all namespaces also permits to change
    /// the namespaces themselves.
    Admin,
}

/// The limits of a namespace. Where a field is left out, only the service's own limits apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct NamespaceLimits {
    /// The greatest number of stored timers. Concurrent requests may exceed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_timers: Option<u64>,
    /// The greatest number of timers that may be made per second. By default, the service's `limits.creations`
    /// applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub creations_per_second: Option<u32>,
    /// The greatest number of schedules. By default, the service's `limits.schedules` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_schedules: Option<u64>,
    /// The greatest number of deliveries per second by one node; each node of a service counts for itself. Further
    /// deliveries wait; waiting does not count as an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub rate_per_second: Option<u32>,
    /// The greatest number of concurrent deliveries by one node; each node of a service counts for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub concurrency: Option<u32>,
    /// The greatest size of a delivery's body, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u32>,
    /// The longest time from the creation of a timer to its due moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay_ms: Option<u64>,
    /// The hosts to which callbacks may go. A name that begins with `*.` also permits the subdomains. If the list is
    /// empty, callbacks may go to all hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 100))]
    pub allowed_hosts: Vec<String>,
    /// True if deliveries are held back. Timers are still accepted.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub paused: bool,
    /// True if the service keeps the beginning of a receiver's answer with the attempt, for debugging. Otherwise it
    /// keeps only the status, so that nobody can use callbacks to read the answers of internal hosts.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub keep_answers: bool,
}

/// A change of a namespace's limits. Fields that are left out stay unchanged. A number that is null removes the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LimitsPatch {
    /// See this field of `NamespaceLimits`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub max_timers: Option<Option<u64>>,
    /// See this field of `NamespaceLimits`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    pub creations_per_second: Option<Option<u32>>,
    /// See this field of `NamespaceLimits`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub max_schedules: Option<Option<u64>>,
    /// See this field of `NamespaceLimits`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    pub rate_per_second: Option<Option<u32>>,
    /// See this field of `NamespaceLimits`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    pub concurrency: Option<Option<u32>>,
    /// See this field of `NamespaceLimits`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub max_body_bytes: Option<Option<u32>>,
    /// See this field of `NamespaceLimits`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub max_delay_ms: Option<Option<u64>>,
    /// The new list, which replaces the old list as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>, max_items = 100))]
    pub allowed_hosts: Option<Vec<String>>,
    /// See this field of `NamespaceLimits`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = bool))]
    pub paused: Option<bool>,
    /// See this field of `NamespaceLimits`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = bool))]
    pub keep_answers: Option<bool>,
}

impl LimitsPatch {
    /// Returns the limits `to` with this change applied.
    #[must_use]
    pub fn apply(self, to: NamespaceLimits) -> NamespaceLimits {
        NamespaceLimits {
            max_timers: self.max_timers.unwrap_or(to.max_timers),
            creations_per_second: self.creations_per_second.unwrap_or(to.creations_per_second),
            max_schedules: self.max_schedules.unwrap_or(to.max_schedules),
            rate_per_second: self.rate_per_second.unwrap_or(to.rate_per_second),
            concurrency: self.concurrency.unwrap_or(to.concurrency),
            max_body_bytes: self.max_body_bytes.unwrap_or(to.max_body_bytes),
            max_delay_ms: self.max_delay_ms.unwrap_or(to.max_delay_ms),
            allowed_hosts: self.allowed_hosts.unwrap_or(to.allowed_hosts),
            paused: self.paused.unwrap_or(to.paused),
            keep_answers: self.keep_answers.unwrap_or(to.keep_answers),
        }
    }
}

/// Reads the value of a field that is there. By itself, serde would take null for a field that is left out.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// A namespace: its limits, its signing secrets, and the numbers of its timers and schedules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NamespaceView {
    /// The namespace's name.
    pub name: String,
    /// The limits that were set for the namespace.
    pub limits: NamespaceLimits,
    /// The active signing secrets, without their secret values.
    #[serde(default)]
    pub secrets: Vec<SecretView>,
    /// The number of pending timers, which wait for their due moment.
    pub pending: u64,
    /// The number of timers that are being delivered.
    pub leased: u64,
    /// The number of parked timers: their deliveries are held back, for example because the host is paused or because
    /// no receiver fetches them.
    pub parked: u64,
    /// The number of dead timers: the service gave up on their delivery, and still stores them.
    pub dead: u64,
    /// The number of schedules, including paused and ended ones.
    #[serde(default)]
    pub schedules: u64,
}

/// A signing secret, without its secret value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretView {
    /// The moment at which the secret was made.
    pub made: Moment,
    /// The moment at which the secret stops signing. None for the newest secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
}

/// A new signing secret. Only the answer to its creation shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewSecret {
    /// The secret: `whsec_` followed by base 64.
    pub secret: String,
    /// The moment until which callbacks are also signed with the earlier secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_until: Option<Moment>,
}

impl core::fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NewSecret").field("former_until", &self.former_until).finish_non_exhaustive()
    }
}
