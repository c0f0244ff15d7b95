//! Namespaces: roles, limits and signing secrets.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// The role of a token: the requests that it permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// To see timers without their payloads, operations and events. With a token for all namespaces also the whole
    /// service: its numbers, its metrics and the events of all namespaces.
    Reader,
    /// To see payloads too, to make and change timers, and to fetch those of queues.
    Writer,
    /// To change the signing secrets of a namespace too. With a token for all namespaces also the namespaces
    /// themselves.
    Admin,
}

/// The limits of a namespace. Each field that is left out has no limit beyond the service's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct NamespaceLimits {
    /// The greatest number of stored timers. Requests that run at the same time may exceed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_timers: Option<u64>,
    /// The greatest number of timers that are made in a second. The service's `limits.creations` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub creations_per_second: Option<u32>,
    /// The greatest number of schedules. The service's `limits.schedules` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_schedules: Option<u64>,
    /// The greatest number of deliveries a second. Further deliveries wait, which does not count as an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub rate_per_second: Option<u32>,
    /// The greatest number of deliveries at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub concurrency: Option<u32>,
    /// The greatest body of a delivery, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u32>,
    /// The longest time to the due moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay_ms: Option<u64>,
    /// The hosts that callbacks may go to, with their subdomains if a name begins with `*.`. All hosts if there are
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 100))]
    pub allowed_hosts: Vec<String>,
    /// Whether deliveries are held back. Timers are accepted nevertheless.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub paused: bool,
    /// Whether the beginning of a receiver's answer is kept with the attempt, for people who look for a fault.
    /// Otherwise only the status is kept: a callback must not become a way to read the answers of a host behind the
    /// service.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub keep_answers: bool,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NamespaceView {
    /// The name.
    pub name: String,
    /// The limits.
    pub limits: NamespaceLimits,
    /// The signing secrets that are active, without the secrets themselves.
    #[serde(default)]
    pub secrets: Vec<SecretView>,
    /// The number of pending timers.
    pub pending: u64,
    /// The number of timers that are being delivered.
    pub leased: u64,
    /// The number of parked timers.
    pub parked: u64,
    /// The number of dead timers.
    pub dead: u64,
    /// The number of schedules, also of those that are paused or have ended.
    #[serde(default)]
    pub schedules: u64,
}

/// A signing secret, without the secret value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretView {
    /// The moment at which it was made.
    pub made: Moment,
    /// The moment at which it stops signing. The newest secret has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
}

/// A new signing secret. It is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewSecret {
    /// The secret, `whsec_` and base 64.
    pub secret: String,
    /// The moment until which the secrets before it sign too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_until: Option<Moment>,
}

impl core::fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NewSecret").field("former_until", &self.former_until).finish_non_exhaustive()
    }
}
