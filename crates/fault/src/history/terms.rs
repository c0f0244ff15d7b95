//! Terms of a run.

use super::Moment;

/// The losses and delays that a run's settings permit. Lengths are microseconds.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Times in which a call may be lost although it was acknowledged: the servers' settings, or the policy, permit it.
    pub lossy: Vec<(Moment, Moment)>,
    /// Whether a failover may lose the end of a delivery: nodes tell the server of ends, and do not wait until a
    /// replica has them.
    pub loses_ends: bool,
    /// The length of a lease.
    pub lease: Moment,
    /// The time for which a node takes a shard.
    pub ttl: Moment,
    /// The time after which a reply is no longer waited for.
    pub response: Moment,
    /// The handlers of a node.
    pub workers: usize,
    /// The microseconds from the start of 1970 to that of the monotonic clock.
    pub wall: u64,
    /// The milliseconds by which a delivery may seem early, since the server's clock is not the machine's.
    pub tolerance: u64,
}
