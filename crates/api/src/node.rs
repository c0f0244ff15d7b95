//! The nodes that share the timers of a service.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// The nodes that share the timers of a service, and the shards into which the timers are divided. Each node delivers
/// the timers of some shards. A service that keeps its timers in a file of its own has no shards, and both lists are
/// empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Nodes {
    /// The store's time.
    pub now: Moment,
    /// True if the timers are in a store that several nodes share.
    pub shared: bool,
    /// The nodes, including those that stopped recently.
    pub nodes: Vec<Node>,
    /// The shards, in the order of their numbers.
    pub shards: Vec<Shard>,
}

/// A node: one run of the service's program that shares its timers with other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Node {
    /// The random number of this run of the program, in 16 hexadecimal digits. Each start of the program draws a
    /// new number.
    pub incarnation: String,
    /// The configured name of the node. Several nodes may have the same name.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The moment at which the node started.
    pub since: Moment,
    /// The moment of the node's last heartbeat.
    pub seen: Moment,
    /// True if the last heartbeat is recent enough for the node to own shards.
    pub live: bool,
    /// True for the node that answers this request.
    pub this: bool,
    /// The number of shards that the node owns.
    pub shards: u32,
}

/// A shard: one of the parts into which the timers are divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Shard {
    /// The number of the shard, counted from 0.
    #[cfg_attr(feature = "openapi", schema(maximum = 65_535))]
    pub number: u16,
    /// The owner of the shard: the `incarnation` of the node that delivers the shard's timers. None if the shard has no
    /// owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The time since the owner last looked for due timers. None if the answering node does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub polled_ms_ago: Option<u64>,
    /// The time for which the shard's first pending timer has been due, as far as the answering node knows. Zero if no
    /// pending timer is due.
    pub overdue_ms: u64,
    /// The due moment of the shard's first pending timer. None if the shard has no pending timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_due: Option<Moment>,
    /// The number of times that the shard got a new owner.
    pub epoch: u64,
    /// The number of times that a node took over the shard from an owner that had died or could not reach the store.
    pub takeovers: u64,
    /// The moment at which a node last took over the shard from an owner that had died or could not reach the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<Moment>,
    /// True if the Redis server that stores the shard does not answer. The other fields then come from the server's
    /// last answer. So `first_due` and `overdue_ms` may describe a timer that has ended since then.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub silent: bool,
    /// True if the Redis server that stores the shard has lost the shard's data. Until an administrator restores the
    /// shard, its timers are not delivered, and it accepts no new timers. The other shards are not affected.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub lost: bool,
}
