//! Opens a deployment, or creates it.

use super::builder::PostgresBuilder;
use super::owner::agree_on_owner;
use super::postgres_store::PostgresStore;
use crate::deployment::Deployment;
use crate::layout::SchemaName;
use crate::link::{Connect, ConnectError, Failure, Pool};
use crate::node::Node;
use crate::schema;
use std::sync::Arc;
use tourbillon_durable::store::{Alarm, ServerTime, StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

impl PostgresBuilder {
    /// Opens the deployment on this server. Creates the deployment if it does not exist. Any executor can poll the
    /// future.
    ///
    /// Several processes may open the same deployment at the same time. One of them creates it.
    ///
    /// If the schema exists in this version, the opening succeeds on a server that takes no writes, such as a standby.
    /// The store can be read then. Its claims and changes fail until the server takes writes.
    ///
    /// # Errors
    ///
    /// | error | reason |
    /// |---|---|
    /// | [`StoreErrorKind::NewerSchema`] | a later version of this crate has created the schema |
    /// | [`StoreErrorKind::OlderSchema`] | an earlier version has created the schema, and [`migrate`](Self::migrate) is `false` |
    /// | [`StoreErrorKind::Closed`] | the schema does not exist, and [`migrate`](Self::migrate) is `false`; or the user, the password or the database is wrong |
    /// | [`StoreErrorKind::ReadOnly`] | the user lacks a right; row-level security may hide rows of the tables from the user or from their owner; or the schema must be created or migrated, and the server takes no writes |
    /// | [`StoreErrorKind::Limit`] | the name of the schema is not valid, the encoding of the database is not UTF-8, the settings of TLS contradict each other, the deployment uses another kind of clock, or [`for_service`](Self::for_service) does not fit its owner |
    /// | [`StoreErrorKind::Io`] | the server cannot be reached, or the file of a certificate cannot be used |
    pub async fn open(self, connect: &Connect) -> Result<PostgresStore, StoreError> {
        let Some(schema) = SchemaName::parse(&self.schema) else {
            return Err(StoreError::new(StoreErrorKind::Limit, SchemaName::RULE));
        };
        connect.check().map_err(|error| match error {
            ConnectError::Certificate(_) => StoreError::caused_by(StoreErrorKind::Io, error),
            error => StoreError::caused_by(StoreErrorKind::Limit, error),
        })?;
        let pool = Pool::new(connect.clone(), schema)?;
        let is_test = self.clock.is_some();
        let opening = {
            let (pool, migrates) = (Arc::clone(&pool), self.migrates);
            let owner = self.owner;
            async move {
                schema::prepare(&pool, migrates).await?;
                schema::agree_on_clock(&pool, is_test).await?;
                agree_on_owner(&pool, owner).await
            }
        };
        pool.spawn(opening).await?;
        let time = self.clock.clone().map_or_else(ServerTime::new, ServerTime::of_test);
        let deployment = Arc::new(Deployment { pool: Arc::clone(&pool), time, alarm: Alarm::default() });
        // The lower half of a fresh id is random.
        let incarnation = TimerId::fresh().as_u128() & u128::from(u64::MAX);
        let incarnation = u64::try_from(incarnation).unwrap_or(1);
        let listens = self.listens && self.poll.is_some();
        let node = Node::new(Arc::clone(&deployment), incarnation, self.node.clone(), self.ttl, listens);
        let learning = {
            let deployment = Arc::clone(&deployment);
            async move {
                let mut session = deployment.session().await?;
                let sent = ServerTime::moment();
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
            if self.listens {
                store.start_listening(connect.clone());
            }
        }
        Ok(store)
    }
}
