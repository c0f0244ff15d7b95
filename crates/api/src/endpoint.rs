//! The hosts that callbacks go to.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// A host that receives callbacks: its present state, and statistics of the callbacks since the start of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Endpoint {
    /// The host and port.
    pub host: String,
    /// The state of the host's circuit breaker, which stops callbacks to the host for a pause after failures. Each
    /// namespace has its own breakers for the host. This field, `since` and `open_for_ms` describe the breaker with the
    /// longest remaining pause.
    pub breaker: Breaker,
    /// The moment since which the breaker with the longest remaining pause is open. None if all breakers of the host
    /// are closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
    /// The longest remaining pause of the breakers: the time for which the breaker lets no callbacks through. At zero,
    /// one callback tests whether the receiver works. None if all breakers of the host are closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_for_ms: Option<u64>,
    /// The breakers that are not closed, at most 20. The breakers with the longest remaining pauses come first. Each
    /// breaker is for one namespace, and for either the whole host or one path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakers: Vec<OpenBreaker>,
    /// The number of callbacks that are in progress.
    pub running: u64,
    /// How many of the last callbacks have failed in a row. Each namespace has its own count for the host and for each
    /// path, and this is the highest.
    pub failures_in_a_row: u32,
    /// The number of due timers that wait for the host: they wait until fewer callbacks to it are in progress, or until
    /// the host or a path of it recovers. As the depth of a queue, the number follows changes of timers within seconds,
    /// and counts the timers in the shards of the answering node.
    pub parked: u64,
    /// The number of callbacks that were sent to the host.
    pub deliveries: u64,
    /// The number of callbacks to the host that failed.
    pub errors: u64,
    /// The number of callbacks to the host within the last hour or two. The percentiles are computed from these recent
    /// callbacks.
    pub recent: u64,
    /// The number of the recent callbacks that failed.
    pub recent_errors: u64,
    /// The median duration of the recent callbacks. It is rounded up by at most a quarter of the exact value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// The 99th percentile of the durations of the recent callbacks. It is rounded up by at most a quarter of the exact
    /// value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// The moment at which the latest callback to the host ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Moment>,
    /// The error of the latest callback that failed, cut to 200 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// A circuit breaker that is not closed: it stops the callbacks of a namespace to a host, or to one path of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenBreaker {
    /// The namespace whose callbacks the breaker holds back.
    pub namespace: String,
    /// The path of the callbacks that the breaker holds back. None if the breaker is for all paths of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The moment at which the breaker opened.
    pub since: Moment,
    /// The remaining time for which the breaker lets no callbacks through. At zero, one callback tests whether the
    /// receiver works.
    pub open_for_ms: u64,
    /// The number of callbacks that have failed since the last success.
    pub failures_in_a_row: u32,
}

/// The state of a circuit breaker, which stops callbacks to a host for a pause after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Breaker {
    /// Callbacks are sent as usual.
    Closed,
    /// No callback is sent until the breaker's pause is over.
    Open,
    /// The breaker's pause is over, and one callback tests whether the receiver works.
    HalfOpen,
}
