//! This process as a node: its settings, and its knowledge of the other nodes.

use super::bell::Bell;
use super::peer::Peer;
use super::shards::Shards;
use crate::deployment::Deployment;
use crate::layout::{Layout, Shard};
use core::any::Any;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon::Timestamp;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{ServerTime, StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

/// The default of `ttl`, the time for which a node owns a shard after a claim. A node also counts as dead if it has
/// sent no sign of life, a heartbeat to the server, for this time.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The default of [`may_lose`](Node::may_lose). With this default, the store is closed if a server loses more than the
/// changes of the last 10 seconds.
pub(crate) const MAY_LOSE: Duration = Duration::from_secs(10);

/// The pause between two polls of a shard while messages of other nodes arrive. With this pause, an idle shard of a
/// cluster costs less than one command a second, including the node's signs of life (heartbeats to the server) and its
/// pings.
pub(crate) const LONGEST_POLL: Duration = Duration::from_millis(1_250);

/// The number of polls between two steps of the sweep, by which the background thread repairs stored data.
const POLLS_OF_SWEEP: u32 = 20;

/// The greatest length of a node's name, in bytes.
const MOST_NAME: usize = 255;

/// This process as a node of a deployment.
pub(crate) struct Node {
    pub(super) deployment: Arc<Deployment>,
    /// The incarnation of this node (its random number) in decimal digits, as the scripts compare it.
    pub(crate) id: Vec<u8>,
    pub(crate) incarnation: u64,
    pub(crate) ttl: Duration,
    pub(crate) keys: Keys,
    pub(super) name: Box<str>,
    deployment_name: Box<str>,
    /// The greatest loss of data that an open store accepts. A server may lose its latest changes, for example in a
    /// failover. If these are the changes of a longer period than `may_lose`, the store is closed.
    pub(crate) may_lose: Duration,
    pub(super) on_set_back: Option<OnSetBack>,
    /// The pause between two polls of a shard while no messages arrive, or `None` if the store has no background
    /// thread.
    poll: Option<Duration>,
    pub(crate) bell: Arc<Bell>,
    /// True while this node's subscription works, so that messages of other nodes arrive.
    pub(super) hears: AtomicBool,
    state: Mutex<State>,
}

/// The keys of the registry of nodes, and the channel for messages to all nodes.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) signs: Vec<u8>,
    pub(crate) records: Vec<u8>,
    pub(crate) channel: Vec<u8>,
}

/// The part of a node's state that changes. One lock protects it.
pub(crate) struct State {
    pub(crate) is_member: bool,
    /// The moment at which this process became a node, by the deployment's time.
    pub(super) since: UtcMillis,
    pub(super) peers: Vec<Peer>,
    /// The result of the last check of another node's connection, by the node's incarnation. A node has an entry once
    /// it was seen connected. The map is cleared when this node's own subscription begins or ends.
    pub(crate) sights: HashMap<u64, Sight>,
    /// The number of times that this node's subscription has begun or ended. If it changes during a request for the
    /// connections of other nodes, the answer is ignored.
    pub(super) hearings: u64,
    /// The live nodes between which the shards are divided, sorted.
    pub(super) live: Vec<u64>,
    /// The server's time when it stored this node's last sign of life, a heartbeat. `None` if the server has answered
    /// no sign since this store became a node.
    pub(super) sign: Option<UtcMillis>,
    /// Identifies the connection on which this node sent its last sign of life, a heartbeat to the server. The value is
    /// the number of the attempt to connect that made this connection.
    pub(super) sign_by: u64,
    /// The moment of the latest sign of life (a heartbeat to the server) of any node, as far as this node knows. If the
    /// server knows only earlier signs, it has lost data.
    pub(super) latest: UtcMillis,
    /// The number of times that a server has lost its latest changes, but the store has stayed open because
    /// [`may_lose`](Node::may_lose) permits a loss of this size.
    pub(super) set_backs: u64,
    /// True if this node must send a sign of life, a heartbeat to the server, at once: other nodes have come or gone,
    /// or messages about them may have been lost. The answer names the nodes.
    pub(super) is_stirred: bool,
    pub(crate) shards: Shards,
    last_claim: Option<LastClaim>,
    /// The shards that the last call of [`nodes`](Node::nodes) returned. The next call of `nodes` reads this list for
    /// the shards of servers that do not answer.
    pub(super) told: Vec<tourbillon_durable::store::Shard>,
    /// The subscription to messages of other nodes, which ends when this value is dropped.
    pub(super) listening: Option<Box<dyn Any + Send>>,
}

/// The last claim of this process.
#[derive(Clone, Copy)]
struct LastClaim {
    at: Timestamp,
    /// The length of the leases that the claim asked for.
    lease: Duration,
}

/// The result of the last check of another node's connection.
#[derive(Clone, Copy)]
pub(crate) enum Sight {
    /// The node was connected.
    There,
    /// The moment of the first check that found the node disconnected. All later checks have found the same.
    Away(Timestamp),
}

/// A function that is called when a server has lost its latest changes. The argument is the length of the period whose
/// changes are lost.
pub(crate) type OnSetBack = Arc<dyn Fn(Duration) + Send + Sync>;

/// The settings of a node, before they are checked.
pub(crate) struct Settings {
    pub(crate) name: Option<Box<str>>,
    pub(crate) ttl: Duration,
    pub(crate) poll: Option<Duration>,
    pub(crate) may_lose: Duration,
    pub(crate) on_set_back: Option<OnSetBack>,
}

impl Settings {
    /// Checks the name and the `ttl`.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if the name has more than 255 bytes or a zero byte, or if the `ttl` is not
    /// between 100 ms and an hour.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        let limit = |message: String| Err(StoreError::new(StoreErrorKind::Limit, message));
        // Zero bytes separate the parts of a node's record.
        if let Some(name) = &self.name
            && (name.len() > MOST_NAME || name.contains('\0'))
        {
            return limit(format!(
                "{name:?} cannot be the name of a node: at most {MOST_NAME} bytes, and no zero"
            ));
        }
        let permitted = Duration::from_millis(100)..=Duration::from_secs(3_600);
        if !permitted.contains(&self.ttl) {
            return limit(format!("a node cannot own shards for {:?}: 100 ms to an hour", self.ttl));
        }
        Ok(())
    }
}

impl Node {
    /// Creates the node that represents this process in a deployment, with a new incarnation number.
    pub(crate) fn new(deployment: Arc<Deployment>, deployment_name: &str, settings: Settings) -> Self {
        let Settings { name, ttl, poll, may_lose, on_set_back } = settings;
        // The first half of a fresh id is mostly the time. The second half distinguishes processes that start at the
        // same moment.
        let bytes = TimerId::fresh().as_u128().to_be_bytes();
        let incarnation = bytes.last_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let state = State {
            is_member: false,
            since: UtcMillis::ZERO,
            peers: Vec::new(),
            sights: HashMap::new(),
            hearings: 0,
            live: Vec::new(),
            sign: None,
            sign_by: 0,
            latest: UtcMillis::ZERO,
            set_backs: 0,
            is_stirred: false,
            shards: Shards::new(deployment.layout.shards().len(), deployment.topology, poll.is_some()),
            last_claim: None,
            told: Vec::new(),
            listening: None,
        };
        Self {
            deployment,
            id: incarnation.to_string().into_bytes(),
            deployment_name: deployment_name.into(),
            incarnation,
            ttl,
            keys: Keys {
                signs: Layout::signs(deployment_name),
                records: Layout::node_records(deployment_name),
                channel: Layout::channel(deployment_name),
            },
            name: name.unwrap_or_else(|| format!("process {}", std::process::id()).into()),
            may_lose,
            on_set_back,
            poll,
            bell: Arc::default(),
            hears: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this node's subscription works.
    #[cfg(test)]
    pub(crate) fn hears(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Returns the channel to which the node with this incarnation listens while it is connected.
    pub(crate) fn channel_of(&self, node: u64) -> Vec<u8> {
        Layout::channel_of(&self.deployment_name, node)
    }

    /// Returns whether this node can ask its server for the connections of other nodes, which needs a working
    /// subscription.
    pub(crate) fn sees_connections(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Returns whether this store has a background thread, which polls the shards.
    pub(crate) fn has_thread(&self) -> bool {
        self.poll.is_some()
    }

    /// Returns the pause between two steps of the sweep, by which the background thread repairs stored data.
    pub(crate) fn pause_of_sweep(&self) -> Duration {
        self.poll.unwrap_or(LONGEST_POLL).saturating_mul(POLLS_OF_SWEEP)
    }

    /// Returns the pause between two polls of a shard, which is longer while messages of other nodes arrive.
    pub(crate) fn pause(&self) -> Duration {
        let poll = self.poll.unwrap_or(LONGEST_POLL);
        if self.hears.load(Ordering::Relaxed) { poll.max(LONGEST_POLL) } else { poll }
    }

    /// Notes that the runtime claims now. `lease` is the length of the leases that the claim asks for.
    pub(crate) fn note_claim(&self, lease: Duration) {
        self.state().last_claim = Some(LastClaim { at: ServerTime::moment(), lease });
    }

    /// Returns the length of the leases that the last claim asked for, or `None` before the first claim.
    pub(crate) fn last_lease(&self) -> Option<Duration> {
        self.state().last_claim.map(|claim| claim.lease)
    }

    /// Returns whether the runtime is behind: it has made no claim for `ttl`, although a timer has been due for `ttl`.
    /// Its handlers may be busy, or it may be stuck.
    pub(crate) fn is_behind(&self, now: UtcMillis) -> bool {
        let state = self.state();
        state.is_member
            && state.last_claim.is_some_and(|claim| ServerTime::moment() - claim.at >= self.ttl)
            && state.shards.next_due().is_some_and(|due| due + self.ttl <= now)
    }

    /// Returns the shards whose timers this process would claim. If this store is a node of the deployment, these are
    /// the shards that it owns. Otherwise, for example before its first claim, these are all shards.
    pub(crate) fn shards_here(&self) -> Vec<Shard> {
        let state = self.state();
        if state.is_member { state.shards.owned() } else { self.deployment.layout.shards().collect() }
    }

    /// Wakes all subscribers of this store, so that the runtime makes a claim.
    pub(crate) fn wake(&self) {
        self.deployment.alarm.wake();
    }

    /// Wakes the subscribers, because the store may have a new timer of which this process does not know. Does nothing
    /// in a store with a background thread, because the thread finds the timer.
    pub(crate) fn wake_unless_polled(&self) {
        if !self.has_thread() {
            self.wake();
        }
    }

    /// Wakes the subscribers if the outcome of a change is unknown, because the change may have stored a timer. Does
    /// nothing in a store with a background thread. Returns `result` unchanged.
    pub(crate) fn wake_if_unknown<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.inspect_err(|error| {
            if error.kind() == StoreErrorKind::Unknown {
                self.wake_unless_polled();
            }
        })
    }
}
