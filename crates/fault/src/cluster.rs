//! Starts a cluster of three primaries with a replica each.

use crate::ports::free_port;
use crate::server::{Server, is_installed};
use crate::wait::eventually;
use redis::Value;
use std::time::{Duration, Instant};

/// The number of hash slots of a Redis cluster. Each key belongs to one slot.
const SLOTS: u16 = 16_384;

/// The number of primaries in the cluster.
const PRIMARIES: u16 = 3;

/// A Redis cluster of six nodes for a test. At the start, nodes 0, 1 and 2 are primaries, and nodes 3, 4 and 5 are
/// their replicas in this order.
#[derive(Debug)]
pub struct Cluster {
    /// The servers of the cluster. Each is a node.
    pub nodes: Vec<Server>,
}

/// A range of hash slots that belongs to one primary.
struct Range {
    first: i64,
    last: i64,
    /// The ports of the primary and of its replicas. The primary's port comes first.
    ports: Vec<i64>,
}

/// Asks a node by `CLUSTER SLOTS` for the ranges of hash slots and their owners.
fn ranges(node: &Server) -> Vec<Range> {
    let fields = |value| match value {
        Value::Array(fields) => fields,
        other => panic!("CLUSTER SLOTS: {other:?}"),
    };
    let number = |value: &Value| match value {
        Value::Int(number) => *number,
        other => panic!("CLUSTER SLOTS: {other:?}"),
    };
    let range = |value| {
        let range = fields(value);
        let [first, last, nodes @ ..] = &range[..] else { panic!("CLUSTER SLOTS: {range:?}") };
        let ports = nodes.iter().map(|node| number(&fields(node.clone())[1])).collect();
        Range { first: number(first), last: number(last), ports }
    };
    fields(node.query(&["CLUSTER", "SLOTS"])).into_iter().map(range).collect()
}

impl Cluster {
    /// Starts the nodes, and waits until every node sees the whole cluster. Returns `None` if no `redis-server` is
    /// installed.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let node = |_| {
            Server::launch(|_| {
                let bus = free_port().to_string();
                let words = [
                    ["--cluster-enabled", "yes"],
                    ["--cluster-port", &bus],
                    // A short timeout makes nodes talk to each other more often, so that they agree sooner.
                    ["--cluster-node-timeout", "1000"],
                    // With the factor 0, a replica may take over even after a long absence.
                    ["--cluster-replica-validity-factor", "0"],
                ];
                words.concat().into_iter().chain(arguments.iter().copied()).map(str::to_owned).collect()
            })
        };
        let nodes: Vec<_> = (0..2 * PRIMARIES).map(node).collect();
        let cluster = Self { nodes };
        cluster.join();
        cluster.node_timeout(Duration::from_secs(60));
        Some(cluster)
    }

    fn join(&self) {
        for (epoch, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(epoch + 1).to_string()]);
        }
        for index in 0..PRIMARIES {
            let (from, to) = (index * (SLOTS / PRIMARIES + 1), (index + 1) * (SLOTS / PRIMARIES + 1) - 1);
            let to = to.min(SLOTS - 1);
            let node = &self.nodes[usize::from(index)];
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
        }
        // Introduces every node to every other: gossip would take seconds.
        for (place, node) in self.nodes.iter().enumerate() {
            let bus: Vec<String> = node.query(&["CONFIG", "GET", "cluster-port"]);
            for other in &self.nodes[..place] {
                other.command(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), &bus[1]]);
            }
        }
        for node in &self.nodes {
            eventually("each node knows six", || {
                let info: String = node.query(&["CLUSTER", "INFO"]);
                info.contains("cluster_known_nodes:6") && self.ids_known_to(node)
            });
        }
        let (primaries, replicas) = self.nodes.split_at(usize::from(PRIMARIES));
        for (primary, replica) in primaries.iter().zip(replicas) {
            let id: String = primary.query(&["CLUSTER", "MYID"]);
            eventually("a replica accepts its primary", || {
                replica.try_query::<String>(&["CLUSTER", "REPLICATE", &id]).is_ok()
            });
        }
        for node in &self.nodes {
            eventually("each node sees the whole cluster", || {
                let info: String = node.query(&["CLUSTER", "INFO"]);
                let ranges = ranges(node);
                info.contains("cluster_state:ok")
                    && ranges.len() == usize::from(PRIMARIES)
                    && ranges.iter().all(|range| range.ports.len() == 2)
            });
        }
        for replica in replicas {
            eventually("each replica follows", || {
                replica.info("master_link_status").as_deref() == Some("up")
            });
        }
    }

    /// Sets how long a node may be silent before the other nodes consider it dead. [`start`](Self::start) sets a
    /// minute. With a shorter time, a node that is slow on a busy machine could count as dead, and its replica would
    /// replace it as the primary.
    pub fn node_timeout(&self, time: Duration) {
        let milliseconds = time.as_millis().to_string();
        for node in &self.nodes {
            node.command(&["CONFIG", "SET", "cluster-node-timeout", &milliseconds]);
        }
    }

    /// Makes the node with the index `replica` the primary in place of its present primary.
    ///
    /// `how` is the word after `CLUSTER FAILOVER`: `FORCE`, `TAKEOVER`, or `None`. With `None` the old primary hands
    /// over, and no change is lost.
    ///
    /// The primaries vote on the change, except with `TAKEOVER`. After a vote for a replica of some primary, a voter
    /// refuses all replicas of the same primary for twice the node timeout. Within this time, two nodes can exchange
    /// their roles and change back, because the second vote is for a replica of another primary. A third change needs
    /// another vote for a replica of the first primary, so it is refused.
    ///
    /// # Panics
    ///
    /// If the replica has not taken over within three minutes.
    pub fn take_over(&self, replica: usize, how: Option<&str>) {
        /// The time after which a replica has surely given up its attempt to take over from its primary.
        const HAND_OVER: Duration = Duration::from_secs(6);
        let again_after = how.map_or(HAND_OVER, |_| Duration::from_secs(1));
        let words: Vec<&str> = ["CLUSTER", "FAILOVER"].into_iter().chain(how).collect();
        let (node, mut asked) = (&self.nodes[replica], None::<Instant>);
        eventually("the replica takes over", || {
            let is_over = node.info("role").as_deref() == Some("master");
            // The votes may be refused, or the hand-over may take too long on a busy machine. So the loop asks again.
            if !is_over && asked.is_none_or(|asked| asked.elapsed() > again_after) {
                asked = Some(Instant::now());
                drop(node.try_query::<Value>(&words));
            }
            is_over
        });
    }

    /// Returns whether `node` has the ids of all nodes in the cluster, and not only their addresses.
    fn ids_known_to(&self, node: &Server) -> bool {
        let known: String = node.query(&["CLUSTER", "NODES"]);
        self.nodes.iter().all(|other| {
            let id: String = other.query(&["CLUSTER", "MYID"]);
            known.contains(&id)
        })
    }

    /// Returns the URLs of all nodes in the cluster.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// Returns the hash slot to which a key belongs.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        self.nodes[0].query(&["CLUSTER", "KEYSLOT", key])
    }

    /// Asks the node with the index `witness` which primary owns a slot. Returns the primary's index in
    /// [`nodes`](Self::nodes); `None` if no primary owns the slot.
    #[must_use]
    pub fn owner(&self, witness: usize, slot: u16) -> Option<usize> {
        let slot = i64::from(slot);
        let range = ranges(&self.nodes[witness])
            .into_iter()
            .find(|range| (range.first..=range.last).contains(&slot))?;
        self.nodes.iter().position(|node| Some(&i64::from(node.port())) == range.ports.first())
    }

    /// Begins to move a hash slot from the node `from` to the node `to`. From now on, `from` redirects a call if `from`
    /// no longer has the call's key.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let ids = [source, target].map(|node| node.query::<String>(&["CLUSTER", "MYID"]));
        let slot = slot.to_string();
        target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]);
        source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]);
    }

    /// Moves `keys` from the node `from` to the node `to`. The caller must have begun the move of their slot by
    /// [`begin_move`](Self::begin_move).
    pub fn move_keys(&self, keys: &[&str], from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        for key in keys {
            self.nodes[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "20000"]);
        }
    }

    /// Moves all keys that the slot still has on the node `from` to the node `to`. Afterwards `from` redirects all
    /// calls for the slot.
    pub fn move_all_keys(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        loop {
            let keys: Vec<String> = self.nodes[from].query(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                return;
            }
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            self.move_keys(&keys, from, to);
        }
    }

    /// Moves all keys that the slot still has on the node `from`, and makes the node `to` the slot's owner.
    pub fn finish_move(&self, slot: u16, from: usize, to: usize) {
        self.move_all_keys(slot, from, to);
        let slot = slot.to_string();
        let id: String = self.nodes[to].query(&["CLUSTER", "MYID"]);
        // The target comes first, as the specification of Redis Cluster asks.
        for node in [to, from] {
            self.nodes[node].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }
}
