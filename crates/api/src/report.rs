//! The service as a whole.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// The numbers of the service. They come from counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceStats {
    /// The version of the service.
    pub version: String,
    /// The service's time.
    pub now: Moment,
    /// The time since the start.
    pub up_ms: u64,
    /// The number of pending timers.
    pub pending: u64,
    /// The number of timers that are being delivered.
    pub leased: u64,
    /// The number of parked timers.
    pub parked: u64,
    /// The number of dead timers.
    pub dead: u64,
    /// The number of records that were damaged and set aside. `tourbillond check` names them.
    #[serde(default)]
    pub damaged: u64,
    /// The age of the oldest pending timer that is due.
    pub overdue_ms: u64,
    /// The number of timers that were made since the start.
    pub created: u64,
    /// The number of deliveries that succeeded since the start.
    pub delivered: u64,
    /// The number of deliveries that failed since the start.
    pub failed: u64,
    /// The number of timers that were cancelled since the start.
    pub cancelled: u64,
    /// The moment of the last delivery's beginning since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fire: Option<Moment>,
    /// The hosts of callbacks, at most 100.
    #[serde(default)]
    pub hosts: Vec<HostView>,
}

/// A host of callbacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostView {
    /// The host and port.
    pub host: String,
    /// The callbacks under way.
    pub running: u64,
    /// The failures since the last success of the namespace that has the most.
    pub failures: u32,
    /// The longest time for which callbacks of a namespace wait, to the host or to a path, if a breaker is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_for_ms: Option<u64>,
}

/// Whether the service can work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Readiness {
    /// Whether it can.
    pub ok: bool,
    /// The reasons why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}
