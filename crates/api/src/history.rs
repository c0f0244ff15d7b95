//! The work of the service over time.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// The service's numbers over time, at most 72 hours. They survive a restart of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// The beginning of the first interval.
    pub since: Moment,
    /// The end of the last interval.
    pub until: Moment,
    /// The length of an interval, a multiple of ten seconds.
    pub interval_ms: u64,
    /// The recorded intervals, the oldest first. There are none for the time in which the service was down.
    pub points: Vec<HistoryPoint>,
}

/// The numbers of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryPoint {
    /// The beginning of the interval.
    pub at: Moment,
    /// The part of the interval in which the service ran.
    pub covered_ms: u64,
    /// The number of timers that were made.
    pub created: u64,
    /// The number of deliveries that succeeded.
    pub delivered: u64,
    /// The number of deliveries that failed.
    pub failed: u64,
    /// The number of timers that were cancelled.
    pub cancelled: u64,
    /// The number of timers that died.
    pub dead: u64,
    /// The greatest age of a due timer.
    pub overdue_ms: u64,
    /// The number of pending timers at the interval's end.
    pub pending: u64,
}

/// How late deliveries have begun in the last hour, by the second of the minute for which they were due. Sixty cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatenessBySecond {
    /// The cells, that of the second 0 first.
    pub seconds: Vec<SecondLateness>,
}

/// The lateness of the deliveries that were due in the same second of any minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecondLateness {
    /// The number of deliveries.
    pub count: u64,
    /// The greatest lateness.
    pub max_ms: u64,
    /// A lateness that 99 of a hundred deliveries do not exceed, rounded up by at most a quarter.
    pub p99_ms: u64,
}

/// The number of pending timers by the time until they are due. Schedules are among them, each due at its next instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Horizon {
    /// The service's time.
    pub now: Moment,
    /// The buckets, the nearest first. The first has the timers that are due.
    pub buckets: Vec<HorizonBucket>,
    /// The number of timers that are in none of the buckets. They belong to the buckets with `at_least`.
    #[serde(default)]
    pub unplaced: u64,
}

/// The pending timers that become due after the end of the bucket before, and not after `within_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HorizonBucket {
    /// The end of the bucket, from now on: 0 for timers that are due. From six hours on, the bucket ends with an hour
    /// of UTC. The last bucket has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// The number of timers.
    pub count: u64,
    /// Whether there may be more timers: the service looks at a limited number of the nearest timers.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub at_least: bool,
}
