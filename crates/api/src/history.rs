//! The work of the service over time.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// Statistics of the service over time, such as the number of deliveries, for at most the last 72 hours. The statistics
/// survive a restart of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// The beginning of the first interval.
    pub since: Moment,
    /// The end of the last interval.
    pub until: Moment,
    /// The length of an interval, a multiple of ten seconds.
    pub interval_ms: u64,
    /// The recorded intervals, the oldest first. Intervals in which the service was down are missing.
    pub points: Vec<HistoryPoint>,
}

/// The statistics of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryPoint {
    /// The beginning of the interval.
    pub at: Moment,
    /// The part of the interval in which the service ran, in milliseconds.
    pub covered_ms: u64,
    /// The number of timers that were made.
    pub created: u64,
    /// The number of deliveries that succeeded.
    pub delivered: u64,
    /// The number of deliveries that failed.
    pub failed: u64,
    /// The number of timers that were cancelled.
    pub cancelled: u64,
    /// The number of timers that became dead because the service gave up on their delivery.
    pub dead: u64,
    /// The longest time by which a timer was overdue.
    pub overdue_ms: u64,
    /// The number of pending timers at the interval's end.
    pub pending: u64,
}

/// How late the deliveries of the last hour began, by the second of the minute at which they were due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatenessBySecond {
    /// One entry for each second of a minute, 60 in all, from second 0 on.
    pub seconds: Vec<SecondLateness>,
}

/// The lateness of all deliveries that were due at one second of the minute, for example at second 30 of every minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecondLateness {
    /// The number of deliveries that were due at this second of the minute.
    pub count: u64,
    /// The greatest lateness of these deliveries.
    pub max_ms: u64,
    /// The 99th percentile of the lateness of these deliveries. It is rounded up by at most a quarter of the exact
    /// value.
    pub p99_ms: u64,
}

/// The numbers of pending timers, grouped by the time until they are due. A schedule counts as a timer that is due at
/// the schedule's next instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Horizon {
    /// The service's time.
    pub now: Moment,
    /// The buckets, the nearest first. The first bucket counts the timers that are already due.
    pub buckets: Vec<HorizonBucket>,
    /// The number of pending timers that are missing from the counts of the buckets. They belong to buckets whose
    /// `at_least` is true.
    #[serde(default)]
    pub unplaced: u64,
}

/// A bucket counts the pending timers that become due after the end of the previous bucket, but not later than
/// `within_ms` from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HorizonBucket {
    /// The time from now until the end of the bucket: 0 for timers that are already due. From six hours on, buckets
    /// end at full hours of UTC. None for the last bucket, which has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// The number of pending timers in the bucket.
    pub count: u64,
    /// True if the bucket may have more timers than `count`, because the service examines only a limited number of the
    /// nearest timers.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub at_least: bool,
}
