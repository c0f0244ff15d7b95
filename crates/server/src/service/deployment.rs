//! Checks, repairs and opens the deployment of a service in Redis or PostgreSQL.

use super::open_error::OpenError;
use crate::settings::{PostgresSettings, RedisSettings};
use pollster::block_on;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_postgres::PostgresStore;
use tourbillon_redis::{Mended, RedisBuilder, RedisStore, Report};
use tracing::error;

/// The name of the document in Redis that exists while a restore runs.
pub(super) const RESTORING: &str = "restoring";

fn builder(redis: &RedisSettings) -> RedisBuilder {
    let builder = RedisStore::builder(redis.deployment.as_str()).node(redis.node.as_str()).ttl(redis.ttl);
    match redis.shards {
        Some(shards) => builder.shards(shards),
        None => builder,
    }
}

/// Checks the Redis servers and the timers on them. Fails if the servers cannot be used.
pub(crate) fn checked(redis: &RedisSettings) -> Result<Report, OpenError> {
    let report = block_on(builder(redis).check(&redis.connect));
    // The check fails only if the settings cannot work. The kind `Limit` marks an error of the configuration, after
    // which systemd does not start the program again.
    let report =
        report.map_err(|error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Limit, error)))?;
    match report.is_refused() {
        // Silent servers may answer later, so systemd may start the program again.
        true if report.is_unanswered() => Err(OpenError::NoServers(report)),
        true => Err(OpenError::Servers(report)),
        false => Ok(report),
    }
}

/// Makes the lost shards of the deployment on Redis accept timers again. A shard is lost if its server has lost the
/// data of the shard. With `is_anew`, recreates an empty deployment instead, after the servers have lost all of its
/// data.
pub(crate) fn mend(redis: &RedisSettings, is_anew: bool) -> Result<Mended, StoreError> {
    match is_anew {
        true => block_on(builder(redis).make_anew(&redis.connect)),
        false => block_on(builder(redis).mend(&redis.connect)),
    }
}

/// Opens the deployment on Redis. Creates it if it does not exist.
pub(crate) fn open_store(redis: &RedisSettings) -> Result<RedisStore, StoreError> {
    let tell = |time| {
        error!(target: "set-back", "the data in Redis have gone back by {time:?}: the changes of this time are lost");
    };
    block_on(builder(redis).may_lose(redis.may_lose).on_set_back(tell).open(&redis.connect))
}

/// Opens the schema in PostgreSQL. With `migrates`, creates the schema or migrates it to this version.
pub(crate) fn open_postgres(
    postgres: &PostgresSettings,
    migrates: bool,
) -> Result<PostgresStore, StoreError> {
    let builder = PostgresStore::builder()
        .schema(postgres.schema.as_str())
        .node(postgres.node.as_str())
        .ttl(postgres.ttl)
        .listen(postgres.listens)
        .migrate(migrates);
    block_on(builder.open(&postgres.connect))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Service;
    use crate::settings::{Settings, StorePlace};
    use crate::state::double::{self, Documents};
    use crate::state::{NAMESPACES, Namespace, NamespaceStorage, Namespaces};
    use core::time::Duration;
    use std::path::Path;
    use std::sync::Arc;
    use tourbillon_durable::store::{Call, Durability, IfPresent, Op, TimerStore};
    use tourbillon_durable::timer::{Timer, TimerId};
    use tourbillon_redis::Connect;

    /// Stores a timer in the namespace `shop`, which does not exist.
    async fn place(store: &dyn TimerStore) {
        let at = store.now() + Duration::from_secs(3_600);
        let timer = Timer { namespace: "shop".into(), ..Timer::new(TimerId::fresh(), "of the backup", at) };
        let op = Op::Place(Box::new(timer), IfPresent::Reject);
        store.apply(vec![op], Durability::PowerLoss).await.unwrap();
    }

    fn on_redis(folder: &Path) -> Settings {
        let mut settings = Settings::new(folder);
        let connect = Connect::single("redis://127.0.0.1:1").unwrap();
        settings.store = StorePlace::Redis(RedisSettings::new(connect, "d"));
        settings
    }

    /// Tests a restore that has begun, and has stored timers, after the check for its note and before the first claim
    /// of the node.
    #[tokio::test]
    async fn a_node_that_finds_the_note_of_a_restore_after_it_has_begun_does_not_start_and_leaves_nothing() {
        let (folder, documents) = (tempfile::tempdir().unwrap(), Documents::default());
        let note = (1, b"5 empty".to_vec());
        documents.lock().unwrap().insert(RESTORING.to_owned(), note.clone());
        let store = double::node(&documents, 1);
        place(&*store).await;
        let opened = Service::open_on_double(on_redis(folder.path()), Arc::clone(&store) as _);
        assert!(matches!(opened, Err(OpenError::HalfRestoredDeployment(_))));
        assert_eq!(documents.lock().unwrap().get(RESTORING), Some(&note), "the restore goes on");
        // The restore would keep an empty namespace, and lose the limits and secrets of the backup.
        assert!(!documents.lock().unwrap().contains_key(NAMESPACES));
        drop(opened);
        for _ in 0..1_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if Arc::strong_count(&store) == 1 {
                return;
            }
        }
        panic!("{} handles of the store are left", Arc::strong_count(&store) - 1);
    }

    #[tokio::test]
    async fn a_start_on_redis_makes_a_namespace_that_has_timers_and_is_missing() {
        let (folder, documents) = (tempfile::tempdir().unwrap(), Documents::default());
        let store = double::node(&documents, 1);
        place(&*store).await;
        let service = Service::open_on_double(on_redis(folder.path()), Arc::clone(&store) as _).unwrap();
        assert!(service.namespaces().get("shop").is_some());
        assert!(service.notices().iter().any(|notice| notice.contains("shop")), "{:?}", service.notices());
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    }

    /// Tests a namespace that another node makes during the start, after the first read of the namespaces. Another node
    /// also makes timers in it, so the start counts them.
    #[tokio::test]
    async fn a_start_on_redis_takes_no_namespace_for_missing_that_another_node_has_just_made() {
        let (folder, documents) = (tempfile::tempdir().unwrap(), Documents::default());
        let store = double::node(&documents, 1);
        place(&*store).await;
        let other = Namespaces::open(NamespaceStorage::Shared(double::node(&documents, 2))).unwrap();
        let hook = move |call: Call<'_>| {
            if call == Call::Counts {
                let mut made = Namespace::default();
                made.limits.max_timers = Some(7);
                other.change(|stored| drop(stored.namespaces.insert("shop".into(), made.clone()))).unwrap();
            }
        };
        assert!(store.hook().before_call.set(Box::new(hook)).is_ok());
        let service = Service::open_on_double(on_redis(folder.path()), Arc::clone(&store) as _).unwrap();
        assert_eq!(service.namespaces().get("shop").unwrap().limits.max_timers, Some(7));
        assert!(service.notices().is_empty(), "{:?}", service.notices());
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    }
}
