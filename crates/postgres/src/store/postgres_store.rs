//! Defines the type of the store.

use super::builder::PostgresBuilder;
use super::owner::is_open_to_service;
use crate::call::Transactional;
use crate::claim::{Claims, reap, renew};
use crate::deployment::Deployment;
use crate::link::Connect;
use crate::node::{Node, nodes};
use crate::operation::{Batches, Creations, Transactions, import};
use crate::read::{check, counts, export, find, horizon, list, parked_among, reasons, recover, upcoming};
use crate::upkeep;
use core::fmt;
use core::future::Future;
use core::time::Duration;
use std::sync::Arc;
use tokio::sync::mpsc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit, Nodes, Op, Outcome,
    Page, Reaped, Reasons, Renewal, Shares, StoreError, StoreFuture, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};

/// The number of timers that an export may read ahead of its caller.
const AHEAD: usize = 256;

/// A store of timers in PostgreSQL, for any number of processes.
///
/// Processes that open the same schema share its timers: only one of them claims a timer. The crate's documentation
/// describes deployments, and the differences from a store in a file.
pub struct PostgresStore {
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) node: Arc<Node>,
    batches: Arc<Batches>,
    pub(crate) claims: Arc<Claims>,
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // This ends the background task, and so the signs of life. The other nodes can take the shards after the `ttl`,
        // or at once if this process has called `leave`.
        self.node.bell.notify_one();
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.deployment.pool.schema().as_str())
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Returns a builder that opens a deployment, or creates a deployment that does not exist.
    ///
    /// ```
    /// use tourbillon_postgres::PostgresStore;
    ///
    /// let builder = PostgresStore::builder().schema("timers").node("one");
    /// # let _ = builder;
    /// ```
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::new()
    }

    /// Returns a handle that creates, cancels, moves and ends timers of this deployment in the program's own
    /// transactions. Each call runs on a connection of the program, not on a connection of the store. Delays count by
    /// the server's clock.
    #[must_use]
    pub fn transactional(&self) -> Transactional {
        Transactional::of(&self.deployment)
    }

    pub(super) fn assemble(deployment: Arc<Deployment>, node: Arc<Node>) -> Self {
        let transactions = Transactions { deployment: Arc::clone(&deployment) };
        let creations = Arc::new(Creations::new(Arc::clone(&deployment)));
        let batches = Arc::new(Batches { transactions, creations });
        let claims = Arc::new(Claims { deployment: Arc::clone(&deployment), node: Arc::clone(&node) });
        Self { deployment, node, batches, claims }
    }

    pub(super) fn start_upkeep(&self, pause: Duration) {
        upkeep::start(&self.node, pause);
    }

    pub(super) fn start_listening(&self, connect: Connect) {
        upkeep::listen_for(&self.node, connect);
    }

    /// Returns the number that identifies this process among the nodes ([`Node::incarnation`]).
    ///
    /// [`Node::incarnation`]: tourbillon_durable::store::Node::incarnation
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.node.incarnation.cast_unsigned()
    }

    /// Returns those of the given `reasons` for which at least one due timer is parked, in any shard. A parked timer is
    /// not delivered until it is unparked or fetched. Its reason is the text with which it was parked. A process that
    /// waits for parked timers calls this method again and again, because a pooler in transaction mode passes no
    /// notifications on.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached.
    pub async fn parked_among(&self, reasons: Vec<Box<str>>) -> Result<Vec<Box<str>>, StoreError> {
        let deployment = Arc::clone(&self.deployment);
        self.call(async move { parked_among(&deployment, reasons).await }).await
    }

    /// Returns whether the service `tourbillond` may open this deployment: the deployment belongs to the service, or it
    /// has no timers and no nodes. Changes nothing, so it suits a program that only reads.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached.
    pub async fn is_open_to_service(&self) -> Result<bool, StoreError> {
        let pool = Arc::clone(&self.deployment.pool);
        self.call(async move { is_open_to_service(&pool).await }).await
    }

    /// Returns a text that changes when this process gets or loses shards. The text contains the numbers and epochs of
    /// the shards at the last claim of this process.
    #[must_use]
    pub fn owned_shards(&self) -> String {
        self.node.mark().owned
    }

    /// Runs the future of a store call on the runtime of the connections. The future runs to its end even if the
    /// returned future is dropped.
    fn call<T, F>(&self, call: F) -> StoreFuture<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        Box::pin(self.deployment.pool.spawn(call))
    }
}

impl TimerStore for PostgresStore {
    fn now(&self) -> UtcMillis {
        self.deployment.time.now()
    }

    fn least_now(&self) -> UtcMillis {
        self.deployment.time.least()
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> StoreFuture<'_, Vec<Outcome>> {
        let batches = Arc::clone(&self.batches);
        self.call(async move { batches.apply(ops, durability).await })
    }

    fn claim(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        shares: Option<Shares>,
    ) -> StoreFuture<'_, Claimed> {
        let claims = Arc::clone(&self.claims);
        self.call(async move { claims.claim(by, claim, limit, shares.as_ref()).await })
    }

    fn claim_parked(
        &self,
        by: Claimant,
        claim: u64,
        reason: Box<str>,
        wanted: u32,
        limit: Limit,
    ) -> StoreFuture<'_, Option<Claimed>> {
        let claims = Arc::clone(&self.claims);
        self.call(async move { claims.claim_parked(by, claim, &reason, wanted, limit).await.map(Some) })
    }

    fn recover(&self, by: Claimant, claim: u64) -> StoreFuture<'_, Vec<Leased>> {
        let deployment = Arc::clone(&self.deployment);
        let token = Token { incarnation: by.incarnation, claim };
        self.call(async move { recover(&deployment, token).await })
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> StoreFuture<'_, Renewal> {
        let deployment = Arc::clone(&self.deployment);
        self.call(async move { renew(&deployment, by, leases).await })
    }

    fn reap(&self, limit: u32) -> StoreFuture<'_, Reaped> {
        let batches = Arc::clone(&self.batches);
        self.call(async move { reap(&batches.transactions, limit).await })
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(UtcMillis, TimerId)>> {
        let deployment = Arc::clone(&self.deployment);
        self.call(async move { upcoming(&deployment, from, until, limit).await })
    }

    fn get(&self, at: Address) -> StoreFuture<'_, Option<Timer>> {
        let deployment = Arc::clone(&self.deployment);
        self.call(async move { find(&deployment, &at).await })
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> StoreFuture<'_, Page> {
        let deployment = Arc::clone(&self.deployment);
        self.call(async move { list(&deployment, &filter, cursor.as_ref(), limit).await })
    }

    fn counts(&self) -> StoreFuture<'_, Counts> {
        let deployment = Arc::clone(&self.deployment);
        self.call(async move { counts(&deployment).await })
    }

    fn horizon(&self) -> StoreFuture<'_, Horizon> {
        let deployment = Arc::clone(&self.deployment);
        self.call(async move { horizon(&deployment).await })
    }

    fn check(&self) -> StoreFuture<'_, Vec<Fault>> {
        let deployment = Arc::clone(&self.deployment);
        self.call(async move { check(&deployment).await })
    }

    fn export<'a>(&'a self, mut each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> StoreFuture<'a, ()> {
        let deployment = Arc::clone(&self.deployment);
        let (to, mut timers) = mpsc::channel(AHEAD);
        let exported = self.call(async move { export(&deployment, to).await });
        Box::pin(async move {
            while let Some(timer) = timers.recv().await {
                if !each(&timer) {
                    return Ok(());
                }
            }
            exported.await
        })
    }

    fn import(&self, timers: Vec<Timer>) -> StoreFuture<'_, ()> {
        let batches = Arc::clone(&self.batches);
        self.call(async move { import(&batches.transactions, timers).await })
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> StoreFuture<'_, Reasons> {
        let (deployment, owner) = (Arc::clone(&self.deployment), self.node.incarnation);
        self.call(async move { reasons(&deployment, owner, after, limit).await })
    }

    fn put_back(&self, reason: Box<str>, limit: u32) -> StoreFuture<'_, u32> {
        let (batches, owner) = (Arc::clone(&self.batches), self.node.incarnation);
        self.call(async move { batches.put_back(&reason, limit, owner).await })
    }

    fn lists_parked_by_due(&self) -> bool {
        true
    }

    fn upkeep_fault(&self) -> Option<StoreError> {
        self.node.upkeep_fault()
    }

    fn leave(&self) -> StoreFuture<'_, ()> {
        let node = Arc::clone(&self.node);
        self.call(async move { node.leave().await })
    }

    fn nodes(&self) -> StoreFuture<'_, Option<Nodes>> {
        let node = Arc::clone(&self.node);
        self.call(async move { nodes(&node).await.map(Some) })
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.deployment.alarm.subscribe(wake);
    }
}
