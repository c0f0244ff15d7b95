//! The hosts that callbacks go to.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// A host of callbacks, as the service has met it since its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Endpoint {
    /// The host and port.
    pub host: String,
    /// The state of the breaker that is open for the longest time, of those of all namespaces.
    pub breaker: Breaker,
    /// The moment from which that breaker has not been closed. None if it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
    /// The time for which that breaker lets no callbacks through, if it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_for_ms: Option<u64>,
    /// The breakers that are not closed: each is that of a namespace, for the host or for a path. At most 20, those
    /// that are open for the longest time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakers: Vec<OpenBreaker>,
    /// The callbacks under way.
    pub running: u64,
    /// The failures since the last success of the namespace that has the most.
    pub failures_in_a_row: u32,
    /// The timers that wait for a place at the host, or for its recovery or that of a path.
    pub parked: u64,
    /// The number of callbacks that were sent.
    pub deliveries: u64,
    /// Of these, the number that failed.
    pub errors: u64,
    /// The number of callbacks in the last hour or two, to which the percentiles belong.
    pub recent: u64,
    /// Of these, the number that failed.
    pub recent_errors: u64,
    /// The time that half of the recent callbacks do not exceed, rounded up by at most a quarter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// The time that 99 of a hundred recent callbacks do not exceed, rounded up by at most a quarter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// The moment of the last callback's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Moment>,
    /// The last error, cut to 200 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// A breaker that is not closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenBreaker {
    /// The namespace whose callbacks wait.
    pub namespace: String,
    /// The path to which they go. All of the host if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The moment from which the breaker has not been closed.
    pub since: Moment,
    /// The time for which it lets no callbacks through. Once it is zero, one finds out whether the receiver works.
    pub open_for_ms: u64,
    /// The failures since the last success.
    pub failures_in_a_row: u32,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Breaker {
    /// Callbacks are sent.
    Closed,
    /// No callback is sent for a time.
    Open,
    /// The time is over, and one callback finds out whether the receiver works.
    HalfOpen,
}
