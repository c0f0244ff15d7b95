//! The type of the store, which joins its parts.

use super::builder::RedisBuilder;
use crate::claim::{Claims, Leases, ParkedClaims};
use crate::deployment::{Deployment, kept};
use crate::node::Node;
use crate::operation::{Batches, Bulk, Held, Imports, Transactions, partial};
use crate::read::{Counter, Walk, check, dump, find, horizon, list, reasons};
use crate::upkeep::Upkeep;
use core::fmt;
use std::sync::Arc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    self, Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit, Op, Outcome,
    Page, Reaped, Reasons, Renewal, Shares, StoreFuture, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};

/// A store of timers on a Redis server or a Redis Cluster, for any number of processes.
///
/// Processes that open the same deployment share its timers: each timer is claimed by one process. The crate's
/// documentation describes deployments, and the differences from a store in a file.
pub struct RedisStore {
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) node: Arc<Node>,
    pub(crate) held: Arc<Held>,
    pub(crate) batches: Batches,
    bulk: Arc<Bulk>,
    imports: Imports,
    leases: Arc<Leases>,
    pub(crate) claims: Arc<Claims>,
    parked_claims: ParkedClaims,
    counter: Arc<Counter>,
    pub(crate) upkeep: Arc<Upkeep>,
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        // This ends the thread. If the store has not left before, its shards become free when their `ttl` is over.
        self.node.bell.close();
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("layout", &self.deployment.layout).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Returns a builder that opens the deployment of this name, or creates it if it does not exist. The name has 1 to
    /// 64 characters: ASCII letters, digits, `-`, `_` and `.`.
    pub fn builder(deployment: impl Into<Box<str>>) -> RedisBuilder {
        RedisBuilder::new(deployment.into())
    }

    /// Builds a store and its parts from an open deployment and its node.
    pub(super) fn assemble(deployment: Arc<Deployment>, node: Arc<Node>) -> Self {
        let held = Arc::new(Held::default());
        let transactions = Arc::new(Transactions {
            deployment: Arc::clone(&deployment),
            node: Arc::clone(&node),
            held: Arc::clone(&held),
        });
        let bulk = Arc::new(Bulk::new(&transactions));
        let leases = Arc::new(Leases::new(Arc::clone(&transactions)));
        let claims = Arc::new(Claims::new(Arc::clone(&leases)));
        let counter = Arc::new(Counter::new(Arc::clone(&deployment)));
        deployment.on_anew({
            // Weak references are needed: the parts keep the deployment alive, so the deployment must not keep the
            // parts alive.
            let (node, held) = (Arc::downgrade(&node), Arc::downgrade(&held));
            let (claims, counter) = (Arc::downgrade(&claims), Arc::downgrade(&counter));
            move || {
                node.upgrade().inspect(|node| node.begin_anew());
                held.upgrade().inspect(|held| held.clear());
                claims.upgrade().inspect(|claims| claims.clear());
                counter.upgrade().inspect(|counter| counter.clear());
            }
        });
        Self {
            imports: Imports::new(&transactions),
            batches: Batches::new(transactions, Arc::clone(&bulk)),
            bulk,
            parked_claims: ParkedClaims::new(Arc::clone(&claims)),
            upkeep: Arc::new(Upkeep::new(Arc::clone(&claims))),
            deployment,
            node,
            held,
            leases,
            claims,
            counter,
        }
    }
}

impl RedisStore {
    /// Sets a function that is called whenever any process has parked a timer, that is, set the timer aside for a
    /// reason. The argument is this reason. The argument is `None` if messages about parked timers may have been
    /// missed: after a new connection, or after a change of the set of live nodes.
    ///
    /// The function tells a process when to call [`Timers::fetch`](tourbillon_durable::Timers::fetch), which delivers
    /// parked timers. A thread of the store calls the function while this process is a node. The function must not
    /// block.
    pub fn on_parked(&self, tell: impl Fn(Option<&str>) + Send + Sync + 'static) {
        self.deployment.parkings.subscribe(Box::new(tell));
    }

    /// Sets the moment from which this store does nothing with timers. `None` permits any moment, as at first.
    ///
    /// A request may reach its server seconds after the store has sent it. With a limit, each server looks at its own
    /// clock when it gets a request about timers. At `until` or later, it refuses the request, which then surely has
    /// had no effect. Shared documents have no limit, and neither has a deployment on a test clock. The new limit does
    /// not apply to requests that the store has already sent.
    pub fn work_until(&self, until: Option<UtcMillis>) {
        self.deployment.work_until(until);
    }

    /// Returns the number that identifies this process among the nodes ([`Node::incarnation`]).
    ///
    /// [`Node::incarnation`]: tourbillon_durable::store::Node::incarnation
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.node.incarnation
    }
}

impl TimerStore for RedisStore {
    fn now(&self) -> UtcMillis {
        self.deployment.time.now()
    }

    fn least_now(&self) -> UtcMillis {
        self.deployment.time.least()
    }

    fn fresh_id(&self, namespace: &str, key: Option<&str>) -> TimerId {
        // An id that belongs to the shard of the key needs no redirect.
        key.map_or_else(TimerId::fresh, |key| self.deployment.layout.fresh_id(namespace, key))
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> StoreFuture<'_, Vec<Outcome>> {
        Box::pin(self.batches.apply(ops, durability))
    }

    fn claim(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        shares: Option<Shares>,
    ) -> StoreFuture<'_, Claimed> {
        Box::pin(self.claims.claim(by, claim, limit, shares))
    }

    fn claim_parked(
        &self,
        by: Claimant,
        claim: u64,
        reason: Box<str>,
        wanted: u32,
        limit: Limit,
    ) -> StoreFuture<'_, Option<Claimed>> {
        Box::pin(async move { self.parked_claims.claim(by, claim, &reason, wanted, limit).await.map(Some) })
    }

    fn recover(&self, by: Claimant, claim: u64) -> StoreFuture<'_, Vec<Leased>> {
        Box::pin(self.claims.recover(by, claim))
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> StoreFuture<'_, Renewal> {
        Box::pin(self.leases.renew(by, leases))
    }

    fn reap(&self, limit: u32) -> StoreFuture<'_, Reaped> {
        Box::pin(async move { self.node.wake_if_unknown(self.leases.reap(limit).await) })
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(UtcMillis, TimerId)>> {
        Box::pin(async move { Walk::ascending(&self.deployment).upcoming(from, until, limit).await })
    }

    fn get(&self, at: Address) -> StoreFuture<'_, Option<Timer>> {
        Box::pin(async move {
            let found = find(&self.deployment, &at).await?.map(|found| found.timer);
            // The index has one byte for the length of a namespace. So a name that is too long to be stored may have
            // the entry of another timer.
            Ok(found.filter(|timer| match &at {
                Address::Id(_) => true,
                Address::Key(name) => timer.key_of().as_ref() == Some(name),
            }))
        })
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> StoreFuture<'_, Page> {
        Box::pin(async move { list(&self.deployment, &filter, cursor, limit).await })
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> StoreFuture<'_, Reasons> {
        Box::pin(reasons(&self.deployment, self.node.shards_here(), after, limit))
    }

    fn put_back(&self, reason: Box<str>, limit: u32) -> StoreFuture<'_, u32> {
        Box::pin(async move {
            // The call runs several scripts. If one of them fails, others may have unparked timers. So `partial` gets a
            // count above 1, which turns a transient error into `Unknown`.
            let result = self.bulk.unpark(&reason, limit, self.node.shards_here()).await;
            let outcome = self.node.wake_if_unknown(result.map_err(|error| partial(error, 2)))?;
            // `unpark` returns this outcome only.
            Ok(if let Outcome::Unparked(found) = outcome { found } else { 0 })
        })
    }

    fn counts(&self) -> StoreFuture<'_, Counts> {
        Box::pin(self.counter.counts())
    }

    fn horizon(&self) -> StoreFuture<'_, Horizon> {
        Box::pin(horizon(&self.counter))
    }

    fn check(&self) -> StoreFuture<'_, Vec<Fault>> {
        Box::pin(check(&self.deployment))
    }

    fn export<'a>(&'a self, mut each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            // The copy of a whole shard is in memory, so the shards are read one after the other.
            for shard in self.deployment.layout.shards() {
                for timer in dump(&self.deployment, shard).await? {
                    if !each(&timer) {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    fn import(&self, timers: Vec<Timer>) -> StoreFuture<'_, ()> {
        // An import promises that its timers are stored, as an operation with `Durability::PowerLoss` does. So it waits
        // for the replicas that the `SyncPolicy` asks for.
        Box::pin(async move { self.node.wake_if_unknown(kept(self.imports.import(timers)).await) })
    }

    fn leave(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.node.leave())
    }

    fn nodes(&self) -> StoreFuture<'_, Option<store::Nodes>> {
        Box::pin(async { self.node.nodes().await.map(Some) })
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.deployment.alarm.subscribe(wake);
    }

    fn is_transactional(&self) -> bool {
        // A cluster runs no script on two shards, so a batch may take effect in part.
        false
    }

    fn parts(&self) -> u32 {
        self.deployment.topology.queues(&self.deployment.layout)
    }

    fn part_of(&self, id: TimerId) -> u32 {
        let layout = &self.deployment.layout;
        let id_shard = layout.shard_of_id(id);
        // Copies of claimed timers are kept up to a limit. Without a copy, only a read would tell the timer's shard,
        // and this method must not block.
        let home = self.held.shard_of(id).unwrap_or(id_shard);
        self.deployment.topology.queue_of(layout, home, id_shard)
    }
}
