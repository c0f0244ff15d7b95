//! The nodes of a deployment, and the shards that each of them serves.
//!
//! A *node* is a store that claims. It is known by an incarnation, which it draws when it is opened; names are for
//! people. A store that only places timers is no node. The nodes divide the shards between them, so that a shard is
//! looked at by one of them. This spares work and decides nothing: who delivers a timer is decided by the token of its
//! lease, so two nodes that both take themselves for the owner of a shard do no harm.
//!
//! # A shard
//!
//! | state | the hash `meta` of the shard | left by |
//! |---|---|---|
//! | free | no `owner` | a claim of the node that wants the shard: owned |
//! | owned | `owner`, and `until` is ahead by at most `ttl` | a claim of the owner, which moves `until`; a release: free; time: expired |
//! | expired | `owner`, and `until` is past, or further ahead than `ttl`, which a clock that was set back leaves | a claim of the owner: owned; a claim of another node that wants the shard: owned by the other node, and a *takeover* is counted |
//!
//! `epoch` counts the changes of owner. It is for people too: after a failover that lost writes it steps back, and two
//! nodes may have owned a shard in the same epoch. `id` is the deployment's. A shard without it was lost by its server,
//! and is left alone until it is mended ([`losses`](crate::losses)). With another one the deployment was created anew;
//! the store is closed then, and mixes nothing.
//!
//! # A node
//!
//! | state | begins with | ends with |
//! |---|---|---|
//! | outside | the opening; `leave`; a step back | a claim: the node gives a sign of life, and is live |
//! | live | a sign of life, one each quarter of `ttl` | no sign for `ttl`: silent; no connection at two looks of another node: buried |
//! | buried | its last sign is made as old as that of a silent one, then its shards are expired | a sign, if it lives after all: live |
//! | silent | | a sign: live; an hour: forgotten |
//!
//! *Death by connection.* A node listens to a channel of its own, on the connection by which it gets the others'
//! messages. Twice a second each node asks the server which channels have a listener. One that had, and has none at two
//! looks, has no connection: its process has died, or its network has. It is buried by a script that asks the server
//! once more. A node that merely sleeps (SIGSTOP, a paused machine) keeps its connection, and so its shards until its
//! `ttl` is over. A node is buried only by one that has seen it with its connection, and that has kept its own
//! connection since: after a restart of the server nobody is buried before it was seen again. Old programs, and stores
//! without a thread, have no channel. In a cluster, whose servers know only of their own listeners, all nodes listen at
//! the primary that has the key of the deployment, which the looks ask. A look that does not find its own node there
//! says nothing of the others: that primary is a new one, and nobody is buried before it was seen there.
//!
//! Every node computes by rendezvous hashing ([`rendezvous`]) to which live node a shard belongs. A node *wants* the
//! shards that belong to it. It claims these, and releases those that it owns and does not want. So no node has to
//! lead, and nodes that differ in what they know agree as soon as they know the same.
//!
//! A node *steps back* if its runtime has not claimed for `ttl` although a timer of its shards is due, as one does
//! whose handlers are all busy: the other nodes have room perhaps. The next claim enters again.
//!
//! # Races
//!
//! - *Two nodes take a shard.* The script of the claim takes it: the second one finds an owner.
//! - *A node is paused for longer than `ttl` and comes back.* Its shards have other owners. What it had claimed before
//!   is leased under its tokens: an end is refused if the lease is over and the timer claimed again. Its next claim
//!   answers that the shards are not its own.
//! - *A node comes.* The others get its message, give a sign at once or 1.25 s after their last one, and learn of
//!   it, however long `ttl` and the pause of the poll are. If that sign fails, it is given again.
//! - *A node is buried that lives:* it was without its connection for some time and makes it again. Its shards have
//!   other owners, its next claim is answered so, and its next sign makes it live again. What it has leased stays its
//!   own.
//! - *Two nodes bury a third one.* The second script finds no sign.
//! - *A node that buries another one dies between the burial and the end of the shards' time.* The shards are free when
//!   their time is over.
//! - *A node gives a sign between the look and the burial.* The script asks for the listener, and not for the sign: a
//!   node without its connection is buried all the same, and its next sign makes it live.
//! - *A sign of life is lost.* The next one follows after the pause of a poll. The shards are the node's until their
//!   time is over, whatever the others think of it, and its claims go on moving that time.
//! - *The server of the nodes' registry is out, and other servers of the cluster are not.* The nodes go on with the
//!   live nodes that they knew: each counts as live for `ttl` after its last known sign. A node that wants shards of a
//!   node which it wrongly takes for silent is answered that they are owned.
//! - *A failover loses the last writes.* A shard may be owned by its owner before last. Both claim, the script lets
//!   only the owner lease, and the other node takes the shard back once it is released or expired. Tokens differ, so no
//!   end of one node is taken for that of the other.
//! - *A server loses its data, or a part of them.* See `id` above.
//! - *The key of the deployment is lost, and its shards are not.* Signs of life fail. A node goes on with the live
//!   nodes that it knew, and takes itself for live.
//! - *A claim is answered after the node has left.* The shards that it took are released again.
//! - *The answer of the claim that took a shard is lost, a release fails, or its answer comes after a later claim's.*
//!   The node does not take the shard for its own then, and its next look asks when the first lease there ends. A claim
//!   that takes a shard answers the same by itself. The runtime reaps at that moment: a dead node may have leased
//!   there.
//!
//! # Data that go back
//!
//! A server that was started from an older snapshot, and a replica that took over without the last writes, have data of
//! before. The key of the deployment has the moment of the latest sign of life of any node, which never goes back by
//! itself; a sign carries the latest one that its node knows of. By more than `may_lose`, the sign fails and changes
//! nothing, and the store is closed for good: timers that were created would be missing, and cancelled ones would be
//! delivered. A quarter of `ttl` is added to that, since the last sign may be lost with the last moment. By less, the
//! node goes on and counts it. A node whose connection was made again gives its sign before it claims. A node that is
//! started again knows nothing of before, and takes the data as they are. In a cluster only the server of the nodes'
//! registry is seen to go back.
//!
//! # The thread
//!
//! A store with a poll has a thread ([`poll`]). It gives the signs of life, releases, and looks at each shard of the
//! node once in a pause: by a claim that leases nothing. If a timer is due that the runtime does not know of, the
//! thread wakes it. No error ends the thread, and no panic. It waits for no server longer than for its next duty: what
//! is at a server stays there, and the other groups of shards are looked at meanwhile.
//!
//! The thread also takes a step of the [`sweep`](crate::sweep) in 20 pauses of the poll.
//!
//! *Hints* make polls rare. A commit that makes a timer the first one of a shard publishes a message if the timer is
//! due before the next poll and another node owns the shard ([`hints`]). While such messages reach a node, it polls
//! every 1.25 s, and otherwise every 250 ms. A hint that is lost makes a timer late by a poll at most.
//!
//! # Groups
//!
//! On one server one script looks at all shards of a node. In a cluster each shard has a script of its own. A group
//! whose server fails, or does not answer within a moment after the others, is *sick*: the claims of the runtime leave
//! it out, the thread goes on asking, and its first answer makes it healthy. A claim fails only if no group has
//! answered it. Reaps leave sick groups out, too: the look that finds one healthy asks when its first lease ends. A
//! group that fails at a reap is asked again after a second.
//!
//! A group is in *doubt* if a claim leased there perhaps, and its answer was lost. The next claim of the runtime asks
//! for these leases once the group is healthy, and the thread wakes the runtime for it.

mod bell;
mod groups;
mod hints;
mod membership;
mod peer;
mod poll;
mod rendezvous;
mod shards;

pub(crate) use bell::Bell;
pub(crate) use membership::time_text;
pub(crate) use poll::start;
pub(crate) use shards::{Look, Seen, Shards};

use crate::layout::Layout;
use core::any::Any;
use core::time::Duration;
use peer::Peer;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon::Timestamp;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

/// The time for which a node takes a shard, and after which a silent node is not live any more, unless it is set.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The time by which a server's data may go back, unless it is set.
pub(crate) const MAY_LOSE: Duration = Duration::from_secs(10);

/// The pause between two looks at a shard while hints arrive. With signs of life and pings, an idle shard of a cluster
/// costs less than a command a second.
pub(crate) const LONGEST_POLL: Duration = Duration::from_millis(1_250);

/// The number of pauses of the poll between two steps of the sweep.
const POLLS_OF_SWEEP: u32 = 20;

/// The most bytes of a node's name.
const MOST_NAME: usize = 255;

/// What a node is, and what it knows of the others.
pub(crate) struct Nodes {
    /// The incarnation as the scripts have it.
    pub(crate) node: Vec<u8>,
    pub(crate) incarnation: u64,
    pub(crate) ttl: Duration,
    pub(crate) keys: Keys,
    name: Box<str>,
    deployment: Box<str>,
    /// The time by which the data may go back.
    pub(crate) may_lose: Duration,
    on_set_back: Option<OnSetBack>,
    /// The pause between two looks without hints; `None` without a thread.
    poll: Option<Duration>,
    pub(crate) bell: Arc<Bell>,
    /// Messages of other nodes arrive.
    hears: AtomicBool,
    state: Mutex<State>,
}

/// The keys of what all nodes share, and the channel of their hints.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) signs: Vec<u8>,
    pub(crate) texts: Vec<u8>,
    pub(crate) channel: Vec<u8>,
}

/// What changes.
pub(crate) struct State {
    pub(crate) is_member: bool,
    /// Since when, by the deployment's time.
    since: UtcMillis,
    peers: Vec<Peer>,
    /// How the others were last seen, since this node has its connection.
    pub(crate) sights: HashMap<u64, Sight>,
    /// How often that connection was made, and how often it ended.
    hearings: u64,
    /// The live nodes for which the wanted shards were computed.
    live: Vec<u64>,
    /// The last sign of life that was answered.
    sign: Option<UtcMillis>,
    /// The attempt to connect that has had it.
    sign_by: u64,
    /// The moment of the latest sign of any node, as far as it is known here.
    latest: UtcMillis,
    /// How often the data have gone back.
    set_backs: u64,
    /// The others have changed: a sign is due.
    is_stirred: bool,
    pub(crate) shards: Shards,
    /// The shards as they were last shown.
    told: Vec<tourbillon_durable::store::Shard>,
    /// Ends the subscription when it is dropped.
    listening: Option<Box<dyn Any + Send>>,
}

/// How another node was last seen.
#[derive(Clone, Copy)]
pub(crate) enum Sight {
    /// With its connection.
    There,
    /// Without it, since this moment.
    Away(Timestamp),
}

/// Called with the time by which a server's data have gone back.
pub(crate) type OnSetBack = Arc<dyn Fn(Duration) + Send + Sync>;

/// How a node is made.
pub(crate) struct Settings {
    pub(crate) name: Option<Box<str>>,
    pub(crate) ttl: Duration,
    pub(crate) poll: Option<Duration>,
    pub(crate) may_lose: Duration,
    pub(crate) on_set_back: Option<OnSetBack>,
}

impl Settings {
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if the name has too many bytes or a zero, or if the time is too short.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        let limit = |message: String| Err(StoreError::new(StoreErrorKind::Limit, message));
        if let Some(name) = &self.name
            && (name.len() > MOST_NAME || name.contains('\0'))
        {
            return limit(format!("{name:?} is no name of a node: at most {MOST_NAME} bytes, and no zero"));
        }
        let permitted = Duration::from_millis(100)..=Duration::from_secs(3_600);
        if !permitted.contains(&self.ttl) {
            return limit(format!("a node cannot own shards for {:?}: 100 ms to an hour", self.ttl));
        }
        Ok(())
    }
}

impl Nodes {
    pub(crate) fn new(deployment: &str, settings: Settings, shards: usize) -> Self {
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
            shards: Shards::new(shards, poll.is_some()),
            told: Vec::new(),
            listening: None,
        };
        Self {
            node: incarnation.to_string().into_bytes(),
            deployment: deployment.into(),
            incarnation,
            ttl,
            keys: Keys {
                signs: Layout::signs(deployment),
                texts: Layout::texts(deployment),
                channel: Layout::channel(deployment),
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

    /// Whether messages of other nodes arrive, as far as is known.
    #[cfg(test)]
    pub(crate) fn hears(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// The channel that a node keeps open.
    pub(crate) fn channel_of(&self, node: u64) -> Vec<u8> {
        Layout::channel_of(&self.deployment, node)
    }

    /// Whether messages of other nodes arrive, and so the ends of their connections are of this server.
    pub(crate) fn sees_connections(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Whether a thread looks at the shards.
    pub(crate) fn has_thread(&self) -> bool {
        self.poll.is_some()
    }

    /// The pause between two steps of the sweep.
    pub(crate) fn pause_of_sweep(&self) -> Duration {
        self.poll.unwrap_or(LONGEST_POLL) * POLLS_OF_SWEEP
    }

    /// The pause between two looks at a shard.
    pub(crate) fn pause(&self) -> Duration {
        let poll = self.poll.unwrap_or(LONGEST_POLL);
        if self.hears.load(Ordering::Relaxed) { poll.max(LONGEST_POLL) } else { poll }
    }
}
