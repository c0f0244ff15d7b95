//! Logs when this node has taken over shards of nodes that have stopped or died.

use std::collections::BTreeMap;
use tourbillon_durable::store::Nodes;
use tracing::warn;

/// The number of takeovers of each shard, by any node, as counted at the last check. `None` before the first check.
#[derive(Debug, Default)]
pub(crate) struct Takeovers(Option<BTreeMap<u32, u64>>);

impl Takeovers {
    /// Logs how many shards this node has taken over since the last check. Logs nothing at the first check.
    pub(crate) fn look(&mut self, nodes: &Nodes) {
        let shards = self.taken(nodes);
        if shards > 0 {
            warn!(target: "takeover", shards, "this node has taken shards over from nodes that are gone");
        }
    }

    fn taken(&mut self, nodes: &Nodes) -> usize {
        let this = nodes.nodes.iter().find(|node| node.is_this).map(|node| node.incarnation);
        let now: BTreeMap<_, _> =
            nodes.shards.iter().map(|shard| (shard.number.into(), shard.takeovers)).collect();
        let Some(before) = self.0.replace(now) else { return 0 };
        // `this` is `None` if this node is not listed. Shards without an owner would then count as shards of this node.
        let own = nodes.shards.iter().filter(|shard| shard.owner.is_some() && shard.owner == this);
        own.filter(|shard| before.get(&shard.number.into()).is_some_and(|count| *count < shard.takeovers))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_durable::UtcMillis;
    use tourbillon_durable::store::{Node, Shard};

    #[test]
    fn shards_count_that_this_node_took_since_the_last_look() {
        let node = |incarnation, is_this| Node {
            incarnation,
            name: "n".into(),
            version: "1".into(),
            since: UtcMillis::ZERO,
            seen: UtcMillis::ZERO,
            is_live: true,
            is_this,
        };
        let shard =
            |number, owner, takeovers| Shard { number, owner: Some(owner), takeovers, ..Shard::default() };
        let nodes = |shards| Nodes {
            now: UtcMillis::ZERO,
            nodes: vec![node(7, true), node(8, false)],
            shards,
            set_backs: 0,
        };
        let mut takeovers = Takeovers::default();
        assert_eq!(takeovers.taken(&nodes(vec![shard(0, 7, 5), shard(1, 8, 0), shard(2, 8, 0)])), 0);
        let later = nodes(vec![shard(0, 7, 5), shard(1, 7, 1), shard(2, 8, 1)]);
        assert_eq!(takeovers.taken(&later), 1, "one was taken by this node, one by another");
        assert_eq!(takeovers.taken(&later), 0);
    }
}
