//! The nodes that share the timers of a service.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// The nodes that share the timers of a service, and the shards of which each delivers some. A service with a file of
/// its own has no shards, and is alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Nodes {
    /// The store's time.
    pub now: Moment,
    /// Whether the timers are in a store that nodes share.
    pub shared: bool,
    /// The nodes, with those that stopped not long ago.
    pub nodes: Vec<Node>,
    /// The shards, in the order of their numbers.
    pub shards: Vec<Shard>,
}

/// One start of a service that shares timers with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Node {
    /// The number of this start, in 16 hexadecimal digits.
    pub incarnation: String,
    /// The configured name. Several nodes may have the same.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The moment of the start.
    pub since: Moment,
    /// The moment of the last sign of life.
    pub seen: Moment,
    /// Whether that sign is young enough for the node to have shards.
    pub live: bool,
    /// Whether this node answers the request.
    pub this: bool,
    /// The number of its shards.
    pub shards: u32,
}

/// A part of the timers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Shard {
    /// The number, from 0 on.
    #[cfg_attr(feature = "openapi", schema(maximum = 65_535))]
    pub number: u16,
    /// The incarnation of the node that delivers its timers, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The time since its owner last looked for due timers, as far as the node that answers knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub polled_ms_ago: Option<u64>,
    /// The time for which its first pending timer is due, as far as it is known.
    pub overdue_ms: u64,
    /// The due moment of that timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_due: Option<Moment>,
    /// The number of owners so far.
    pub epoch: u64,
    /// The number of takeovers: from an owner that had died, or could not reach the store.
    pub takeovers: u64,
    /// The last such takeover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<Moment>,
    /// Whether the server of the shard does not answer. Then the other fields have the last known values, and the
    /// lateness of the first timer is unknown.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub silent: bool,
    /// Whether the server of the shard has lost it. Until somebody brings the shard back, its timers are not delivered,
    /// and it takes no new timers. The other shards go on.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub lost: bool,
}
