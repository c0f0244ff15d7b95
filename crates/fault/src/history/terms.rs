//! The losses and delays that a run's settings permit.

use super::Moment;

/// The losses and delays that a run's settings permit. Lengths are in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The spans of time in which the servers may lose a call that they have acknowledged.
    pub lossy: Vec<(Moment, Moment)>,
    /// Whether a failover may lose the end of a delivery. Nodes report ends to the primary and do not wait for a
    /// replica.
    pub loses_ends: bool,
    /// How long a lease lasts.
    pub lease: Moment,
    /// How long a node owns a shard without a renewal.
    pub ttl: Moment,
    /// How long a client waits for a reply.
    pub response: Moment,
    /// How many handlers a node runs at a time.
    pub workers: usize,
    /// The microseconds between the start of 1970 and the zero of the monotonic clock.
    pub wall: u64,
    /// By how many milliseconds a delivery may seem early, since the server's clock differs from the machine's.
    pub tolerance: u64,
}
