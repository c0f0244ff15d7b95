//! The processes that share a store.

use tourbillon_words::UtcMillis;

/// The processes that share a store, and the shards between which they divide its timers.
///
/// A node delivers the timers of the shards that it owns. So the others need not look for them. The lease of a timer
/// decides which node delivers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// The store's time.
    pub now: UtcMillis,
    /// The nodes, by the moments of their starts.
    pub nodes: Vec<Node>,
    /// The shards, by their numbers.
    pub shards: Vec<Shard>,
    /// How often the store's data have gone back while this process had it open, as after a failover that lost the last
    /// writes.
    pub set_backs: u64,
}

/// One start of a process that shares a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The number that this start has drawn. Another start has another number, whatever its name.
    pub incarnation: u64,
    /// The configured name. Several nodes may have the same.
    pub name: Box<str>,
    /// The version of the program.
    pub version: Box<str>,
    /// The moment of the start, by the store's time.
    pub since: UtcMillis,
    /// The moment of the last sign of life, by the store's time.
    pub seen: UtcMillis,
    /// Whether that sign is young enough for the node to have shards.
    pub is_live: bool,
    /// Whether the node is this process.
    pub is_this: bool,
}

/// A part of a store's timers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// The number, from 0 on.
    pub number: u16,
    /// The incarnation that owns the shard; `None` if its time is over, or the shard was released.
    pub owner: Option<u64>,
    /// The moment at which the owner last looked for due timers without an error, as far as it is known here.
    pub polled: Option<UtcMillis>,
    /// The due moment of the first pending timer.
    pub first_due: Option<UtcMillis>,
    /// The number of owners so far.
    pub epoch: u64,
    /// How often the shard was taken from an owner that had not released it: the owner had died, or could not reach the
    /// store.
    pub takeovers: u64,
    /// The last such takeover.
    pub taken_over: Option<UtcMillis>,
    /// Whether the shard's server did not answer. The fields above are then those of its last answer: the owner has not
    /// looked since [`polled`](Self::polled), and another timer may be the first by now.
    pub is_silent: bool,
    /// Whether the shard's server has lost it, as after a restart without its data: nobody delivers its timers, and it
    /// takes no new timers, until somebody brings it back. The other shards go on.
    pub is_lost: bool,
}

impl Nodes {
    /// The time by which the shard's first timer is late, as far as it is known: see [`Shard::is_silent`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::store::{Nodes, Shard};
    ///
    /// let nodes = Nodes { now: UtcMillis::from_millis(5_000), ..Nodes::default() };
    /// let shard = Shard { first_due: Some(UtcMillis::from_millis(3_000)), ..Shard::default() };
    /// assert_eq!(nodes.lateness(&shard), Duration::from_secs(2));
    /// ```
    #[must_use]
    pub fn lateness(&self, shard: &Shard) -> core::time::Duration {
        shard.first_due.map_or(core::time::Duration::ZERO, |due| self.now - due)
    }
}
