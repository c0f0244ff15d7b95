//! Converts the nodes that share the timers into types of the HTTP interface.

use crate::clock::millis;
use crate::convert::moment;
use core::time::Duration;
use tourbillon_api::{Node, Nodes, Shard};
use tourbillon_durable::store;

/// Formats the incarnation of a node (the number of one start of the node) as 16 hexadecimal digits.
fn digits(incarnation: u64) -> String {
    format!("{incarnation:016x}")
}

/// Finds the shard of this node whose last poll for due timers is the oldest. Returns the time since that poll, or zero
/// if this node has polled no shard.
pub(super) fn poll_age(nodes: &store::Nodes) -> Duration {
    let this = nodes.nodes.iter().find(|node| node.is_this).map(|node| node.incarnation);
    // `this` is `None` if this node is not listed. Shards without an owner would then count as shards of this node.
    let own = nodes.shards.iter().filter(|shard| shard.owner.is_some() && shard.owner == this);
    let ages = own.filter_map(|shard| shard.polled).map(|polled| nodes.now - polled);
    ages.max().unwrap_or_default()
}

pub(super) fn shown(nodes: &store::Nodes) -> Nodes {
    let owned = |incarnation| {
        let own = nodes.shards.iter().filter(|shard| shard.owner == Some(incarnation));
        u32::try_from(own.count()).unwrap_or(u32::MAX)
    };
    let node = |node: &store::Node| Node {
        incarnation: digits(node.incarnation),
        name: node.name.to_string(),
        version: node.version.to_string(),
        since: moment(node.since),
        seen: moment(node.seen),
        live: node.is_live,
        this: node.is_this,
        shards: owned(node.incarnation),
    };
    let shard = |shard: &store::Shard| Shard {
        number: shard.number,
        owner: shard.owner.map(digits),
        polled_ms_ago: shard.polled.map(|polled| millis(nodes.now - polled)),
        overdue_ms: millis(nodes.lateness(shard)),
        first_due: shard.first_due.map(moment),
        epoch: shard.epoch,
        takeovers: shard.takeovers,
        taken_over: shard.taken_over.map(moment),
        silent: shard.is_silent,
        lost: shard.is_lost,
    };
    Nodes {
        now: moment(nodes.now),
        shared: true,
        nodes: nodes.nodes.iter().map(node).collect(),
        shards: nodes.shards.iter().map(shard).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_durable::UtcMillis;

    #[test]
    fn the_age_of_the_last_poll_is_that_of_this_nodes_shard_that_was_left_longest() {
        let at = UtcMillis::from_millis;
        let node = |incarnation, is_this| store::Node {
            incarnation,
            name: "n".into(),
            version: "1".into(),
            since: at(0),
            seen: at(0),
            is_live: true,
            is_this,
        };
        let shard = |number, owner, polled: Option<u64>| store::Shard {
            number,
            owner,
            polled: polled.map(at),
            ..store::Shard::default()
        };
        let mut nodes = store::Nodes {
            now: at(100_000),
            nodes: vec![node(7, true), node(8, false)],
            shards: vec![
                shard(0, Some(7), Some(99_000)),
                shard(1, Some(7), Some(97_000)),
                shard(2, Some(7), None),
                shard(3, Some(8), Some(1_000)),
                shard(4, None, Some(1_000)),
            ],
            set_backs: 0,
        };
        assert_eq!(poll_age(&nodes), Duration::from_secs(3));
        let owned =
            |nodes: &store::Nodes| shown(nodes).nodes.iter().map(|node| node.shards).collect::<Vec<_>>();
        assert_eq!(owned(&nodes), [3, 1]);
        nodes.nodes.remove(0);
        assert_eq!(poll_age(&nodes), Duration::ZERO, "a node that is not listed has no shards");
    }
}
