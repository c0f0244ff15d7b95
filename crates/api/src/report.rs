//! Reports on the service as a whole.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// The counts of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceStats {
    /// The version of the service.
    pub version: String,
    /// The service's time.
    pub now: Moment,
    /// The time since the service started.
    pub up_ms: u64,
    /// The number of pending timers, which wait for their due moment.
    pub pending: u64,
    /// The number of timers that are being delivered.
    pub leased: u64,
    /// The number of parked timers. A timer is parked while it cannot be delivered, for example because its host is
    /// paused or because no receiver fetches it.
    pub parked: u64,
    /// The number of dead timers, which are not delivered again, but are still stored.
    pub dead: u64,
    /// The number of records that were damaged and set aside. `tourbillond check` lists them.
    #[serde(default)]
    pub damaged: u64,
    /// The time by which the oldest due timer is overdue. Parked timers do not count: they wait for a receiver of their
    /// queue, for a limit, for a host, or for the end of a pause.
    pub overdue_ms: u64,
    /// The number of timers that were made since the service started.
    pub created: u64,
    /// The number of deliveries that succeeded since the service started.
    pub delivered: u64,
    /// The number of deliveries that failed since the service started.
    pub failed: u64,
    /// The number of timers that were cancelled since the service started.
    pub cancelled: u64,
    /// The moment at which the latest delivery began. None if no delivery has begun since the service started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fire: Option<Moment>,
    /// The hosts that receive callbacks, at most 100.
    #[serde(default)]
    pub hosts: Vec<HostView>,
}

/// A host that receives callbacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostView {
    /// The host and port.
    pub host: String,
    /// The number of callbacks to the host that are in progress.
    pub running: u64,
    /// How many of the last callbacks have failed in a row. Each namespace has its own count for the host and for each
    /// path, and this is the highest.
    pub failures: u32,
    /// The remaining time for which callbacks to the host, or to one of its paths, are held back after failures. Each
    /// namespace has its own breakers, which hold callbacks back; the time is that of the breaker that stays open
    /// longest. None if no breaker is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_for_ms: Option<u64>,
}

/// The readiness of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Readiness {
    /// True if the service is ready.
    pub ok: bool,
    /// The reasons why the service is not ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}
