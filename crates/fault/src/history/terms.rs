//! The losses and delays that a run's settings permit.

use super::Moment;

/// The losses and delays that a run's settings permit. Durations are in microseconds unless a field says otherwise.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The spans of time in which the servers may lose the effect of an acknowledged call.
    pub lossy: Vec<(Moment, Moment)>,
    /// Whether a failover may lose the record that a delivery has ended. A node reports the end of a delivery to the
    /// primary, and does not wait until a replica has the report.
    pub loses_ends: bool,
    /// How long a node's lease of a timer lasts after the node has taken or renewed the lease. When the lease has
    /// ended, another node may deliver the timer.
    pub lease: Moment,
    /// How long a node owns a shard, which is a part of the timers, after it has taken or renewed the ownership.
    pub ttl: Moment,
    /// How long a client waits for a server's reply.
    pub response: Moment,
    /// The greatest number of handlers that a node runs at a time.
    pub workers: usize,
    /// The moment at which the monotonic clock was zero, in microseconds of UTC.
    pub wall: u64,
    /// The greatest time by which a delivery may seem early, in milliseconds, because the clocks of the server and of
    /// the machine differ.
    pub tolerance: u64,
}
