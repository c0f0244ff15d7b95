//! The losses and delays that a run's settings permit.

use super::Moment;

/// The losses and delays that a run's settings permit. Durations are in microseconds unless a field says otherwise.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The spans of time in which the servers may lose the effect of an acknowledged call.
    pub lossy: Vec<(Moment, Moment)>,
    /// Whether a failover may lose the end of a delivery. A node reports the end to the primary, and does not wait for
    /// a replica.
    pub loses_ends: bool,
    /// How long a lease of a timer lasts. When it has ended, another node may deliver the timer.
    pub lease: Moment,
    /// How long a node owns a shard without a renewal.
    pub ttl: Moment,
    /// How long a client waits for a server's reply.
    pub response: Moment,
    /// The greatest number of handlers that a node runs at a time.
    pub workers: usize,
    /// Whether a node parks a timer whose delivery it must hold back, as a node of the service does. An at-most-once
    /// timer is not stored until the node has parked it.
    pub parks: bool,
    /// The moment at which the monotonic clock was zero, in microseconds of UTC.
    pub wall: u64,
    /// The greatest time by which a delivery may seem early, in milliseconds, because the clocks of the server and of
    /// the machine differ.
    pub tolerance: u64,
}
