//! This process as a node: its settings, and its knowledge of the other nodes.

use super::bell::Bell;
use super::peer::Peer;
use super::shards::Shards;
use crate::deployment::{Deployment, moment};
use crate::layout::{Layout, Shard};
use core::any::Any;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon::Timestamp;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

/// The default `ttl`: the time for which a node takes a shard. A node whose last sign of life is older than this time
/// counts as dead.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The default of `may_lose`, the greatest time by which a server's data may go back. After a greater loss, the store
/// closes.
pub(crate) const MAY_LOSE: Duration = Duration::from_secs(10);

/// The pause between two looks (questions about a shard's state) while messages of other nodes arrive. With this pause,
/// an idle shard of a cluster costs less than a command a second, signs of life and pings included.
pub(crate) const LONGEST_POLL: Duration = Duration::from_millis(1_250);

/// The number of polls between two steps of the sweep, the removal of old redirects. The background thread makes the
/// sweep.
const POLLS_OF_SWEEP: u32 = 20;

/// The greatest length of a node's name, in bytes.
const MOST_NAME: usize = 255;

/// Represents this process as a node of a deployment.
pub(crate) struct Node {
    pub(super) deployment: Arc<Deployment>,
    /// The number of this incarnation of the process, as the decimal digits that the scripts compare.
    pub(crate) id: Vec<u8>,
    pub(crate) incarnation: u64,
    pub(crate) ttl: Duration,
    pub(crate) keys: Keys,
    pub(super) name: Box<str>,
    deployment_name: Box<str>,
    /// The greatest time by which a server's data may go back. After a greater loss, the store closes.
    pub(crate) may_lose: Duration,
    pub(super) on_set_back: Option<OnSetBack>,
    /// The pause between two looks (questions about a shard's state) while no messages arrive. `None` if the store has
    /// no background thread.
    poll: Option<Duration>,
    pub(crate) bell: Arc<Bell>,
    /// Whether this node's subscription works, so that messages of other nodes arrive.
    pub(super) hears: AtomicBool,
    state: Mutex<State>,
}

/// The keys of the registry of nodes on the server, and the channel for messages to all nodes.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) signs: Vec<u8>,
    pub(crate) records: Vec<u8>,
    pub(crate) channel: Vec<u8>,
}

/// The changing part of a node's knowledge, all under one lock.
pub(crate) struct State {
    pub(crate) is_member: bool,
    /// The moment at which this process became a node, by the deployment's time.
    pub(super) since: UtcMillis,
    pub(super) peers: Vec<Peer>,
    /// Whether each other node was connected when this node last checked the connections. This node clears the map when
    /// its own subscription begins or ends.
    pub(crate) sights: HashMap<u64, Sight>,
    /// Counts how often this node's subscription has begun or ended.
    pub(super) hearings: u64,
    /// The live nodes between which the shards are divided, sorted.
    pub(super) live: Vec<u64>,
    /// The server's time of this node's last sign of life, from the server's answer to the sign. `None` before the
    /// first answer.
    pub(super) sign: Option<UtcMillis>,
    /// The number of an attempt to connect. This node sent its last sign of life on the connection that the attempt
    /// made.
    pub(super) sign_by: u64,
    /// The moment of the latest sign of life of any node, as far as this node knows.
    pub(super) latest: UtcMillis,
    /// Counts how often the server's data have gone back.
    pub(super) set_backs: u64,
    /// Whether other nodes have come or gone, so that this node must send a sign of life at once.
    pub(super) is_stirred: bool,
    pub(crate) shards: Shards,
    last_claim: Option<LastClaim>,
    /// The shards in the last answer of [`nodes`](Node::nodes). If a server does not answer the next call, the call
    /// uses these values.
    pub(super) told: Vec<tourbillon_durable::store::Shard>,
    /// The subscription to messages of other nodes. The subscription ends when this value is dropped.
    pub(super) listening: Option<Box<dyn Any + Send>>,
}

/// When this process last claimed, and how long the leases of the claim were.
#[derive(Clone, Copy)]
struct LastClaim {
    at: Timestamp,
    /// The length of the leases that the last claim asked for.
    lease: Duration,
}

/// Whether another node was connected when this node last checked the connections.
#[derive(Clone, Copy)]
pub(crate) enum Sight {
    /// The other node was connected when this node last checked the connections.
    There,
    /// The other node has not been connected from this moment on.
    Away(Timestamp),
}

/// A function that is called with the time by which a server's data have gone back.
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
    /// Checks the name and the `ttl`, the time for which the node takes shards.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if the name has more than 255 bytes or a zero byte, or if the `ttl` is not
    /// between 100 ms and an hour.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        let limit = |message: String| Err(StoreError::new(StoreErrorKind::Limit, message));
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

    /// Returns whether messages of other nodes arrive, by the state of this node's subscription.
    #[cfg(test)]
    pub(crate) fn hears(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Returns the channel to which the node with this number listens as long as it lives.
    pub(crate) fn channel_of(&self, node: u64) -> Vec<u8> {
        Layout::channel_of(&self.deployment_name, node)
    }

    /// Returns whether this node can ask its server for the connections of other nodes. The question needs this node's
    /// own subscription.
    pub(crate) fn sees_connections(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Returns whether this store has a background thread, which asks for the state of the shards.
    pub(crate) fn has_thread(&self) -> bool {
        self.poll.is_some()
    }

    /// Returns the pause between two steps of the sweep, which removes old redirects.
    pub(crate) fn pause_of_sweep(&self) -> Duration {
        self.poll.unwrap_or(LONGEST_POLL) * POLLS_OF_SWEEP
    }

    /// Returns the pause between two looks (questions about a shard's state). The pause is longer while messages of
    /// other nodes arrive.
    pub(crate) fn pause(&self) -> Duration {
        let poll = self.poll.unwrap_or(LONGEST_POLL);
        if self.hears.load(Ordering::Relaxed) { poll.max(LONGEST_POLL) } else { poll }
    }

    /// Notes that the runtime claims now. `lease` is the length of the leases that the claim asks for.
    pub(crate) fn note_claim(&self, lease: Duration) {
        self.state().last_claim = Some(LastClaim { at: moment(), lease });
    }

    /// Returns the length of the leases that the last claim asked for. Returns `None` before the first claim.
    pub(crate) fn last_lease(&self) -> Option<Duration> {
        self.state().last_claim.map(|claim| claim.lease)
    }

    /// Returns whether the runtime has left due timers unclaimed for the time `ttl`, the time for which a node takes a
    /// shard. A runtime does so when its handlers are busy, or when it is stuck.
    pub(crate) fn is_behind(&self, now: UtcMillis) -> bool {
        let state = self.state();
        state.is_member
            && state.last_claim.is_some_and(|claim| moment() - claim.at >= self.ttl)
            && state.shards.next_due().is_some_and(|due| due + self.ttl <= now)
    }

    /// Returns the shards whose timers this process would claim. A node claims from the shards that the node owns. A
    /// store that is not a node would claim from all shards.
    pub(crate) fn shards_here(&self) -> Vec<Shard> {
        let state = self.state();
        if state.is_member { state.shards.owned() } else { self.deployment.layout.shards().collect() }
    }

    /// Wakes all subscribers of this store, so that the runtime makes a claim.
    pub(crate) fn wake(&self) {
        self.deployment.alarm.wake();
    }

    /// Wakes the subscribers, because a timer may be stored that this process has not noted. Does nothing if the store
    /// has a background thread, because that thread finds the timer.
    pub(crate) fn wake_unless_polled(&self) {
        if !self.has_thread() {
            self.wake();
        }
    }

    /// Wakes the subscribers if the outcome of a change is unknown, because the change may have stored a timer. Returns
    /// `result` unchanged.
    pub(crate) fn wake_if_unknown<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.inspect_err(|error| {
            if error.kind() == StoreErrorKind::Unknown {
                self.wake_unless_polled();
            }
        })
    }
}
