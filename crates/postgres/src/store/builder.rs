//! Opens a deployment, or creates it.

use super::postgres_store::PostgresStore;
use crate::deployment::{Alarm, Deployment, Time};
use crate::link::{Connect, Failure, Pool};
use crate::node::Node;
use crate::schema;
use core::time::Duration;
use std::sync::Arc;
use tourbillon::Clock;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

/// The pause between two looks of a node for due timers that other processes have made.
pub const POLL: Duration = Duration::from_millis(250);

/// The time after its last sign of life at which a node counts as dead.
pub const TTL: Duration = Duration::from_secs(10);

/// Opens a [`PostgresStore`].
#[must_use]
pub struct PostgresBuilder {
    schema: Box<str>,
    node: Box<str>,
    ttl: Duration,
    poll: Option<Duration>,
    migrates: bool,
    clock: Option<Arc<dyn Clock>>,
}

impl core::fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PostgresBuilder").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PostgresBuilder {
    pub(super) fn new() -> Self {
        let (schema, node) = ("tourbillon".into(), "node".into());
        Self { schema, node, ttl: TTL, poll: Some(POLL), migrates: true, clock: None }
    }

    /// Sets the name of the schema: up to 63 small letters, digits and `_`, with a letter first. `tourbillon` by
    /// default. Each schema is a deployment of its own.
    pub fn schema(mut self, name: impl Into<Box<str>>) -> Self {
        self.schema = name.into();
        self
    }

    /// Sets the name of this process among the nodes.
    pub fn node(mut self, name: impl Into<Box<str>>) -> Self {
        self.node = name.into();
        self
    }

    /// Sets the time after its last sign of life at which this node counts as dead: [`TTL`] by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the pause between two looks for due timers that other processes have made: [`POLL`] by default. Without a
    /// pause the store never looks by itself, which is for tests.
    pub fn poll(mut self, pause: Option<Duration>) -> Self {
        self.poll = pause;
        self
    }

    /// Sets whether the opening creates the schema and runs migrations. It does so by default.
    pub fn migrate(mut self, migrates: bool) -> Self {
        self.migrates = migrates;
        self
    }

    /// Lets a clock of the caller decide what is due, in place of the server's. For tests.
    #[cfg(any(test, feature = "test-clock"))]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-clock")))]
    pub fn on_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Opens the deployment on this server. Creates it if it does not exist. The future can be polled without a runtime.
    ///
    /// Processes may open the same deployment at the same time: one of them creates it.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::NewerSchema`] if a later version has created the schema, and with
    /// [`StoreErrorKind::OlderSchema`] if an earlier version has, and [`migrate`](Self::migrate) is not set. Fails with
    /// [`StoreErrorKind::ReadOnly`] if the user lacks a right, or the server takes no writes. Fails with
    /// [`StoreErrorKind::Limit`] if the name of the schema is not valid, if the encoding of the database is not UTF-8,
    /// or if the deployment is on another kind of clock. Also fails if the server cannot be reached.
    pub async fn open(self, connect: &Connect) -> Result<PostgresStore, StoreError> {
        if !schema::is_name(&self.schema) {
            let message = "a schema has up to 63 small letters, digits and `_`, with a letter first";
            return Err(StoreError::new(StoreErrorKind::Limit, message));
        }
        let pool = Pool::new(connect.clone(), &self.schema)?;
        let is_test = self.clock.is_some();
        let opening = {
            let (pool, migrates) = (Arc::clone(&pool), self.migrates);
            async move {
                schema::prepare(&pool, migrates).await?;
                schema::agree_on_clock(&pool, is_test).await
            }
        };
        pool.spawn(opening).await?;
        let time = self.clock.clone().map_or_else(Time::server, Time::Test);
        let deployment = Arc::new(Deployment { pool: Arc::clone(&pool), time, alarm: Alarm::default() });
        // The lower half of a fresh id is random.
        let incarnation = TimerId::fresh().as_u128() & u128::from(u64::MAX);
        let incarnation = u64::try_from(incarnation).unwrap_or(1);
        let node = Node::new(Arc::clone(&deployment), incarnation, self.node.clone(), self.ttl);
        let learning = {
            let deployment = Arc::clone(&deployment);
            async move {
                let mut session = deployment.session().await?;
                let sent = crate::deployment::instant();
                let rows = session.read("SELECT tourbillon.now_ms()", &[]).await;
                let rows = rows.map_err(Failure::into_error)?;
                let now = crate::layout::moment(rows.first().map_or(0, |row| row.get(0)));
                deployment.time.learn(sent, now);
                Ok(())
            }
        };
        pool.spawn(learning).await?;
        let store = PostgresStore::assemble(deployment, Arc::new(node));
        if let Some(clock) = self.clock {
            let alarm = Arc::downgrade(&store.deployment);
            clock.subscribe(Box::new(move || {
                alarm.upgrade().inspect(|deployment| deployment.alarm.wake()).is_some()
            }));
        }
        if let Some(pause) = self.poll {
            store.start_upkeep(pause);
        }
        Ok(store)
    }
}
