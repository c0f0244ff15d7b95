//! Reads the registry of the nodes and the owners of the shards from the servers.

use super::peer::{NodeRecord, Peer};
use super::this_node::{Node, State};
use crate::deployment::Answered;
use crate::layout::{Part, Shard};
use crate::script::{Values, bytes, maybe_number};
use std::collections::HashMap;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{self, Shard as ShardOfNodes, StoreError};

/// Decodes the list of the deployment's nodes from the answer of a script.
pub(super) fn peers(answered: &mut Answered) -> Result<Vec<Peer>, StoreError> {
    let (mut signs, mut stored) = (answered.rest.list()?, answered.rest.list()?);
    let mut records = HashMap::new();
    while !stored.is_empty() {
        let (node, record) = (bytes(stored.next()?)?, bytes(stored.next()?)?);
        records.insert(node, NodeRecord::read(&record.unwrap_or_default()));
    }
    let mut peers = Vec::new();
    while !signs.is_empty() {
        let (node, seen) = (bytes(signs.next()?)?, signs.number()?);
        let incarnation = node.as_deref().and_then(|node| core::str::from_utf8(node).ok()?.parse().ok());
        // Without a record, the `ttl` is zero, so the node does not count as live.
        let record = records.remove(&node).unwrap_or_default();
        // An entry whose name is not a number does not belong to a node.
        peers.extend(incarnation.map(|incarnation| Peer {
            incarnation,
            seen: UtcMillis::from_millis(seen),
            record,
        }));
    }
    Ok(peers)
}

impl State {
    /// Describes a shard whose server does not answer. Combines the server's last answer with this node's own
    /// knowledge. `this` is the incarnation of this node.
    fn as_known(&self, number: Shard, this: u64) -> ShardOfNodes {
        let told = self.told.get(usize::from(number)).cloned().unwrap_or_default();
        let mut shard = ShardOfNodes { number, is_silent: true, ..told };
        // This node knows better than an old answer whether it owns the shard.
        shard.owner = shard.owner.filter(|owner| *owner != this);
        if self.shards.is_owned(number) {
            shard.owner = Some(this);
            shard.first_due = self.shards.due(number);
        }
        shard.polled = self.shards.polled(number);
        shard
    }
}

impl Node {
    /// Reads all nodes and shards from the servers. In a cluster, one server stores the list of the nodes, and each
    /// server stores some of the shards. If a server does not answer, the result describes this server's part of the
    /// data as this node knows it.
    pub(crate) async fn nodes(&self) -> Result<store::Nodes, StoreError> {
        let groups = self.deployment.all_groups().into_iter().map(Some);
        let calls = [None].into_iter().chain(groups).map(|group| ((), self.ask_registry(group)));
        let gathered = self.deployment.gather_or_fail(calls.collect::<Vec<_>>()).await?.any()?;
        let this = self.incarnation;
        let mut state = self.state();
        let (mut now, mut registered) = (None, None);
        let mut shards: Vec<_> =
            self.deployment.layout.shards().map(|shard| state.as_known(shard, this)).collect();
        for ((), told) in gathered.answers {
            let (then, answered) = match told {
                Told::Registry(then, peers) => {
                    registered = Some(peers);
                    (then, Vec::new())
                }
                Told::Shards(then, shards) => (then, shards),
            };
            now = now.max(Some(then));
            for shard in answered {
                let polled = state.shards.polled(shard.number);
                if let Some(known) = shards.get_mut(usize::from(shard.number)) {
                    *known = ShardOfNodes { polled, ..shard };
                }
            }
        }
        state.told.clone_from(&shards);
        let is_silent = registered.as_ref().is_none_or(Vec::is_empty);
        let now = now.unwrap_or_else(|| self.deployment.time.now());
        let node_of = |peer: Peer| store::Node {
            incarnation: peer.incarnation,
            seen: peer.seen,
            // This node lives, even if its signs of life cannot be stored.
            is_live: peer.is_live(now) || is_silent && state.is_member && peer.incarnation == this,
            is_this: peer.incarnation == this,
            name: peer.record.name,
            version: peer.record.version,
            since: peer.record.since,
        };
        // A server that has lost the registry names no nodes, although this node exists.
        let registered = registered.filter(|peers| !peers.is_empty() || !state.is_member);
        let peers = registered.unwrap_or_else(|| state.peers.clone());
        let mut nodes: Vec<store::Node> = peers.into_iter().map(node_of).collect();
        nodes.sort_by_key(|node| (node.since, node.incarnation));
        let set_backs = state.set_backs;
        Ok(store::Nodes { now, nodes, shards, set_backs })
    }

    /// Asks a server for the owners of the shards in `group`. If `group` is `None`, asks for the deployment's nodes
    /// instead.
    async fn ask_registry(&self, group: Option<Vec<Shard>>) -> Result<Told, StoreError> {
        let Some(group) = group else {
            let keys = vec![self.keys.signs.clone(), self.keys.records.clone()];
            let mut answered = self.deployment.run(|scripts| &scripts.nodes, keys, []).await?;
            return Ok(Told::Registry(answered.now, peers(&mut answered)?));
        };
        let keys = self.deployment.keys(&group, [Part::Meta, Part::Slices]);
        let mut answered = self.deployment.run(|scripts| &scripts.owners, keys, []).await?;
        let mut values = answered.rest.list()?;
        let shards: Result<_, StoreError> =
            group.into_iter().map(|number| shard_of(number, &mut values)).collect();
        Ok(Told::Shards(answered.now, shards?))
    }
}

/// The answer to [`ask_registry`](Node::ask_registry).
enum Told {
    /// The server's time, and the registered nodes.
    Registry(UtcMillis, Vec<Peer>),
    /// The server's time, and the shards that were asked for, with their owners.
    Shards(UtcMillis, Vec<ShardOfNodes>),
}

fn shard_of(number: Shard, values: &mut Values) -> Result<ShardOfNodes, StoreError> {
    let owner = values.filled()?;
    let mut next = || maybe_number(values.next()?);
    let mut shard = ShardOfNodes {
        number,
        owner: owner.and_then(|owner| core::str::from_utf8(&owner).ok()?.parse().ok()),
        polled: None,
        epoch: next()?.unwrap_or_default(),
        takeovers: next()?.unwrap_or_default(),
        taken_over: next()?.map(UtcMillis::from_millis),
        first_due: next()?.map(UtcMillis::from_millis),
        is_silent: false,
        is_lost: false,
    };
    shard.is_lost = values.filled()?.is_none();
    Ok(shard)
}
