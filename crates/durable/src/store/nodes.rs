//! Describes the processes that share a store, for monitoring.

use tourbillon_words::UtcMillis;

/// The processes that share a store, called nodes, and the shards into which the store's timers are divided. A node
/// looks for due timers only in the shards that it owns. The lease of a timer decides which node delivers the timer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// The store's time when the processes and shards were read.
    pub now: UtcMillis,
    /// The nodes, in the order of their starts.
    pub nodes: Vec<Node>,
    /// The shards, in the order of their numbers.
    pub shards: Vec<Shard>,
    /// The number of times that the store's data was set back to an earlier state while this process had the store
    /// open. A failover that loses the last writes sets the data back.
    pub set_backs: u64,
}

/// One start of a process that shares a store with other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The random number of this start of the process. Each start draws a new number, even if the name stays the same.
    pub incarnation: u64,
    /// The configured name of the node. Several nodes may have the same name.
    pub name: Box<str>,
    /// The version of the node's program.
    pub version: Box<str>,
    /// The moment of the node's start, by the store's time.
    pub since: UtcMillis,
    /// The last moment, by the store's time, at which the node reported to the store that it still runs.
    pub seen: UtcMillis,
    /// Whether `seen` is recent enough for the node to own shards.
    pub is_live: bool,
    /// Whether the node is this process.
    pub is_this: bool,
}

/// A part of a store's timers, in which a single node at a time looks for due timers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// The shard's number, counted from 0.
    pub number: u16,
    /// The [`incarnation`](Node::incarnation) of the node that owns the shard. `None` if the ownership has expired, or
    /// if the owner has released the shard.
    pub owner: Option<u64>,
    /// The last moment, as far as this process knows, at which the owner asked the shard for due timers and got an
    /// answer. `None` if this process knows no such moment.
    pub polled: Option<UtcMillis>,
    /// The due moment of the shard's first pending timer. `None` if the shard has no pending timer.
    pub first_due: Option<UtcMillis>,
    /// The number of times that a node has become the shard's owner.
    pub epoch: u64,
    /// The number of times that a node took the shard from an owner that had not released the shard. The former owner
    /// had died, or could not reach the store.
    pub takeovers: u64,
    /// The moment of the last takeover. `None` if `takeovers` is 0.
    pub taken_over: Option<UtcMillis>,
    /// Whether the shard's server does not answer. If so, the other fields are from the server's last answer, and may
    /// be out of date. For example, [`first_due`](Self::first_due) may belong to a timer that has ended since then.
    /// This process knows nothing of the time after [`polled`](Self::polled).
    pub is_silent: bool,
    /// Whether the shard's server has lost the shard, for example after a restart without its data. A lost shard
    /// accepts no new timers, and its timers are not delivered until an operator restores the shard. The other shards
    /// are not affected.
    pub is_lost: bool,
}

impl Nodes {
    /// Returns the time for which the shard's first pending timer has been due, as far as this process knows. Zero if
    /// no timer is due. If the shard's server does not answer ([`is_silent`](Shard::is_silent)), the result comes from
    /// its last answer.
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
