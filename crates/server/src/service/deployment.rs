//! Checks, repairs and opens the deployment of a service in Redis or PostgreSQL.

use super::open_error::OpenError;
use crate::settings::{PostgresSettings, RedisSettings};
use crate::state::{ClusterStore, Copies, NamespaceStorage};
use core::time::Duration;
use pollster::block_on;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_postgres::{PostgresBuilder, PostgresStore};
use tourbillon_redis::{Mended, RedisBuilder, RedisStore, Report};
use tracing::error;

/// The least time for which a mend waits for a node that puts its copy of the namespaces back. A node reads the
/// namespaces once a second.
const PUT_BACK: Duration = Duration::from_secs(4);

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

/// Makes the shards whose data the Redis servers have lost accept timers again. With `is_anew`, recreates the
/// deployment without timers instead, after the servers have lost all of its data.
pub(crate) fn mend(redis: &RedisSettings, is_anew: bool) -> Result<Mended, StoreError> {
    match is_anew {
        true => block_on(builder(redis).make_anew(&redis.connect)),
        false => block_on(builder(redis).mend(&redis.connect)),
    }
}

/// Fails if a restore into this deployment has begun and not ended. A restore into PostgreSQL is one transaction, so
/// this never fails there.
pub(super) fn refuse_note(store: &dyn ClusterStore, deployment: &str) -> Result<(), OpenError> {
    match block_on(store.document(RESTORING)).map_err(OpenError::Store)? {
        Some(_) => Err(OpenError::HalfRestoredDeployment(deployment.into())),
        None => Ok(()),
    }
}

/// What a mend has found and done with the namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MendedNamespaces {
    /// The document of the namespaces exists, or was created for a new deployment, or a restore will create it.
    Kept,
    /// The document was lost. A running node has put its copy into the store.
    PutBack,
    /// The document was lost, and no node has put a copy into the store. There are no namespaces now. A copy that comes
    /// later is added.
    Lost,
}

/// The time for which a mend waits for the copy of a node.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// For this time the mend waits, whether nodes run or not. A node that runs may not have reported to the store yet,
    /// because the store has lost its list of nodes.
    least: Duration,
    /// For this time the mend waits while a node runs.
    most: Duration,
}

impl Wait {
    /// Returns the wait of a mend beside nodes that report to the store within `ttl`.
    fn of(ttl: Duration) -> Self {
        Self { least: PUT_BACK.max(ttl), most: 3 * PUT_BACK.max(ttl) }
    }

    fn is_over(self, store: &dyn ClusterStore, begun: Instant) -> bool {
        let is_live = || {
            let nodes = block_on(store.nodes()).ok().flatten().unwrap_or_default().nodes;
            nodes.iter().any(|node| node.is_live && !node.is_this)
        };
        begun.elapsed() >= self.most || begun.elapsed() >= self.least && !is_live()
    }
}

/// Makes the document of the namespaces of a deployment on Redis again if the servers have lost it, and waits until a
/// node that runs has put its copy into it.
pub(crate) fn mend_namespaces(redis: &RedisSettings) -> io::Result<MendedNamespaces> {
    let store: Arc<dyn ClusterStore> = Arc::new(open_store(redis).map_err(io::Error::other)?);
    put_back_namespaces(&store, Wait::of(redis.ttl))
}

/// Makes the document of the namespaces in PostgreSQL again, as [`mend_namespaces`] does on Redis. Fails if the schema
/// does not exist, or if no service may use it.
pub(crate) fn mend_namespaces_in_postgres(postgres: &PostgresSettings) -> io::Result<MendedNamespaces> {
    let store: Arc<dyn ClusterStore> = Arc::new(open_postgres(postgres, false).map_err(io::Error::other)?);
    put_back_namespaces(&store, Wait::of(postgres.ttl))
}

fn put_back_namespaces(store: &Arc<dyn ClusterStore>, wait: Wait) -> io::Result<MendedNamespaces> {
    if block_on(store.document(RESTORING)).map_err(io::Error::other)?.is_some() {
        return Ok(MendedNamespaces::Kept);
    }
    let storage = NamespaceStorage::Shared(Arc::clone(store));
    let (begun, mut has_waited) = (Instant::now(), false);
    loop {
        let (version, mut now) = block_on(storage.read())?;
        match now.copies {
            // The store may also lose the document again during the wait.
            _ if version == 0 => {
                now.copies = Copies::Awaited;
                // If a node has made the document in the meantime, the next turn finds it.
                has_waited |= block_on(storage.replace(0, &now))?.is_some();
            }
            Copies::Awaited if wait.is_over(&**store, begun) => {
                now.await_no_copy();
                if block_on(storage.replace(version, &now))?.is_some() {
                    return Ok(MendedNamespaces::Lost);
                }
            }
            Copies::Awaited => {
                has_waited = true;
                thread::sleep(PUT_BACK / 40);
            }
            Copies::Back if has_waited => return Ok(MendedNamespaces::PutBack),
            Copies::Back | Copies::Added => return Ok(MendedNamespaces::Kept),
        }
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
    block_on(postgres_builder(postgres).for_service(true).migrate(migrates).open(&postgres.connect))
}

/// Opens the schema in PostgreSQL for reads only. It may also be a schema of programs without the service.
pub(crate) fn inspect_postgres(postgres: &PostgresSettings) -> Result<PostgresStore, StoreError> {
    block_on(postgres_builder(postgres).for_any().migrate(false).open(&postgres.connect))
}

fn postgres_builder(postgres: &PostgresSettings) -> PostgresBuilder {
    PostgresStore::builder()
        .schema(postgres.schema.as_str())
        .node(postgres.node.as_str())
        .ttl(postgres.ttl)
        .listen(postgres.listens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Service;
    use crate::service::missing::refuse_lost;
    use crate::settings::{Settings, StorePlace};
    use crate::state::double::{self, Documents};
    use crate::state::{NAMESPACES, Namespace, Namespaces, StoredNamespaces};
    use core::sync::atomic::Ordering;
    use std::path::Path;
    use tourbillon_durable::store::{Call, Durability, IfPresent, Op, TimerStore};
    use tourbillon_durable::timer::{Timer, TimerId};
    use tourbillon_fault::Postgres;
    use tourbillon_redis::Connect;

    const WAIT: Wait = Wait { least: Duration::from_secs(3), most: Duration::from_secs(6) };

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

    /// Tests a node that starts while a restore begins: the restore stores timers after the node has looked for the
    /// note, and before the first claim of the node.
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
        // The restore makes the document.
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

    /// Fails if a node whose namespaces are those in `documents` may not start.
    fn may_start(
        documents: &Documents,
        store: &Arc<dyn ClusterStore>,
        folder: &Path,
    ) -> Result<(), OpenError> {
        let StorePlace::Redis(redis) = on_redis(folder).store else { panic!("no Redis") };
        let namespaces = Namespaces::open(NamespaceStorage::Shared(double::node(documents, 3))).unwrap();
        refuse_lost(&**store, &namespaces, &redis.deployment)
    }

    #[tokio::test]
    async fn a_start_on_redis_invents_no_namespaces_in_the_place_of_lost_ones() {
        let (folder, documents) = (tempfile::tempdir().unwrap(), Documents::default());
        let store: Arc<dyn ClusterStore> = double::node(&documents, 1);
        may_start(&documents, &store, folder.path()).unwrap();
        place(&*store).await;
        let refused = may_start(&documents, &store, folder.path()).unwrap_err().to_string();
        assert!(refused.contains("shop") && refused.contains("`tourbillond mend`"), "{refused}");
        documents.lock().unwrap().insert(RESTORING.to_owned(), (1, b"5 empty".to_vec()));
        let refused = may_start(&documents, &store, folder.path()).unwrap_err();
        assert!(matches!(refused, OpenError::HalfRestoredDeployment(_)), "{refused}");
        documents.lock().unwrap().remove(RESTORING);
        // People accept the loss.
        let mended = tokio::task::spawn_blocking({
            let store = Arc::clone(&store);
            move || put_back_namespaces(&store, WAIT).unwrap()
        });
        assert_eq!(mended.await.unwrap(), MendedNamespaces::Lost);
        may_start(&documents, &store, folder.path()).unwrap();
        let service = Service::open_on_double(on_redis(folder.path()), Arc::clone(&store)).unwrap();
        assert!(service.notices().iter().any(|notice| notice.contains("shop")), "{:?}", service.notices());
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    }

    /// An administrator has removed the row of the document, or has restored the other tables alone.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_start_in_postgres_invents_no_namespaces_in_the_place_of_lost_ones() {
        let Some(server) = Postgres::start(&[]) else { return };
        let folder = tempfile::tempdir().unwrap();
        let mut place = PostgresSettings::new(tourbillon_postgres::Connect::to(&server.url()).unwrap(), "s");
        place.ttl = Duration::from_secs(1);
        let starts = core::cell::Cell::new(0);
        let open = || {
            starts.set(starts.get() + 1);
            let mut settings = Settings::new(folder.path().join(starts.get().to_string()));
            settings.store = StorePlace::Postgres(place.clone());
            Service::open(settings)
        };
        let close = |service: Service| tokio::task::spawn_blocking(move || service.close(Duration::ZERO));
        let has_document = || server.sql("SELECT count(*) FROM s.document WHERE name = 'namespaces'") == "1";
        // The first start makes the document, and so does a start without timers after its loss.
        for _ in 0..2 {
            close(open().unwrap()).await.unwrap();
            assert!(has_document());
            let _lost = server.sql("DELETE FROM s.document");
        }
        let service = open().unwrap();
        // A client in SQL may name a namespace that nobody has made.
        let _id = server.sql("SELECT s.schedule_queue('q', namespace => 'shop', delay => '1 hour')");
        close(service).await.unwrap();
        close(open().unwrap()).await.unwrap();
        let _lost = server.sql("DELETE FROM s.document");
        let refused = open().map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::LostNamespaces { .. }), "{refused}");
        let refused = refused.to_string();
        assert!(refused.contains("deployment s ") && refused.contains("shop"), "{refused}");
        assert!(!has_document(), "a mend decides");
        // People accept the loss.
        let mended = {
            let place = place.clone();
            tokio::task::spawn_blocking(move || mend_namespaces_in_postgres(&place).unwrap())
        };
        assert_eq!(mended.await.unwrap(), MendedNamespaces::Lost);
        let service = open().unwrap();
        assert!(service.namespaces().get("shop").is_some());
        assert!(service.notices().iter().any(|notice| notice.contains("shop")), "{:?}", service.notices());
        close(service).await.unwrap();
    }

    #[tokio::test]
    async fn the_first_start_makes_the_document_whose_loss_a_later_node_notices() {
        let (folder, documents) = (tempfile::tempdir().unwrap(), Documents::default());
        let store: Arc<dyn ClusterStore> = double::node(&documents, 1);
        let service = Service::open_on_double(on_redis(folder.path()), Arc::clone(&store)).unwrap();
        assert!(documents.lock().unwrap().contains_key(NAMESPACES));
        assert_eq!(Service::unreadable_documents(&store, true), [""; 0]);
        service.namespace_admin().make("shop").await.unwrap();
        documents.lock().unwrap().clear();
        assert!(service.namespaces().renew().await.is_err());
        let unready = service.condition().readiness().await;
        assert!(unready.reasons.iter().any(|reason| reason.contains("tourbillond mend")), "{unready:?}");
        assert!(service.namespace_admin().make("other").await.is_err());
        let faults = Service::unreadable_documents(&store, true);
        assert!(faults.len() == 1 && faults[0].contains("lost"), "{faults:?}");
        let mended = tokio::task::spawn_blocking({
            let store = Arc::clone(&store);
            move || put_back_namespaces(&store, WAIT).unwrap()
        });
        assert_eq!(mended.await.unwrap(), MendedNamespaces::PutBack);
        assert!(service.condition().readiness().await.ok && service.namespaces().get("shop").is_some());
        service.namespace_admin().make("other").await.unwrap();
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    }

    /// Tests a node that systemd starts again and again, while people mend the deployment beside a node that runs.
    #[tokio::test]
    async fn a_start_beside_a_mend_waits_for_the_copy_of_a_node_that_runs() {
        let documents = Documents::default();
        let running = double::node(&documents, 1);
        let namespaces = || Namespaces::open(NamespaceStorage::Shared(Arc::clone(&running) as _)).unwrap();
        let node = namespaces();
        let mut limited = Namespace::default();
        limited.limits.paused = true;
        node.change(|stored| drop(stored.namespaces.insert("shop".into(), limited.clone()))).unwrap();
        documents.lock().unwrap().clear();
        let (folder, starting) = (tempfile::tempdir().unwrap(), double::node(&documents, 2));
        place(&*starting).await;
        let starting: Arc<dyn ClusterStore> = starting;
        may_start(&documents, &starting, folder.path()).unwrap_err();
        let mend = || {
            let store = Arc::clone(&starting);
            tokio::task::spawn_blocking(move || put_back_namespaces(&store, WAIT).unwrap())
        };
        let mended = mend();
        while !documents.lock().unwrap().contains_key(NAMESPACES) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let refused = may_start(&documents, &starting, folder.path()).unwrap_err();
        assert!(matches!(refused, OpenError::LostNamespaces { .. }), "{refused}");
        node.renew().await.unwrap();
        may_start(&documents, &starting, folder.path()).unwrap();
        let service = Service::open_on_double(on_redis(folder.path()), Arc::clone(&starting)).unwrap();
        assert!(service.namespaces().get("shop").unwrap().limits.paused);
        assert_eq!(mended.await.unwrap(), MendedNamespaces::PutBack);
        assert_eq!(mend().await.unwrap(), MendedNamespaces::Kept);
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
        // No node with a copy answers in time. A start then makes the namespace anew, and a late copy is added.
        documents.lock().unwrap().clear();
        assert_eq!(mend().await.unwrap(), MendedNamespaces::Lost);
        let service = Service::open_on_double(on_redis(folder.path()), Arc::clone(&starting)).unwrap();
        assert!(!service.namespaces().get("shop").unwrap().limits.paused);
        node.renew().await.unwrap();
        service.namespaces().renew().await.unwrap();
        assert!(service.namespaces().get("shop").unwrap().limits.paused);
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    }

    /// Begins a mend on a thread of its own, and waits until it has made the document.
    async fn mending(documents: &Documents, wait: Wait) -> tokio::task::JoinHandle<MendedNamespaces> {
        let store = double::node(documents, 2);
        store.hook().is_beside_node.store(true, Ordering::Relaxed);
        let store: Arc<dyn ClusterStore> = store;
        let mended = tokio::task::spawn_blocking(move || put_back_namespaces(&store, wait).unwrap());
        made(documents).await;
        mended
    }

    async fn made(documents: &Documents) {
        while !documents.lock().unwrap().contains_key(NAMESPACES) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The node reads the namespaces late: its connection was broken, for example.
    #[tokio::test]
    async fn a_mend_waits_for_the_copy_of_a_node_that_runs_also_if_the_document_is_lost_again() {
        let documents = Documents::default();
        let node = Namespaces::open(NamespaceStorage::Shared(double::node(&documents, 1))).unwrap();
        node.change(|stored| drop(stored.namespaces.insert("shop".into(), Namespace::default()))).unwrap();
        documents.lock().unwrap().clear();
        let wait = Wait { least: Duration::from_millis(200), most: Duration::from_secs(60) };
        let mended = mending(&documents, wait).await;
        documents.lock().unwrap().clear();
        made(&documents).await;
        tokio::time::sleep(5 * wait.least).await;
        assert!(!mended.is_finished());
        node.renew().await.unwrap();
        assert_eq!(mended.await.unwrap(), MendedNamespaces::PutBack);
        // A node that runs and has no copy ends the wait.
        documents.lock().unwrap().clear();
        let mended = mending(&documents, Wait { most: 2 * wait.least, ..wait }).await;
        assert_eq!(mended.await.unwrap(), MendedNamespaces::Lost);
        // A later loss finds the copies that nodes have of this document.
        node.renew().await.unwrap();
        documents.lock().unwrap().clear();
        let mended = mending(&documents, wait).await;
        node.renew().await.unwrap();
        assert_eq!(mended.await.unwrap(), MendedNamespaces::PutBack);
    }

    #[tokio::test]
    async fn a_mend_takes_no_document_that_a_start_has_made_for_the_copy_of_a_node() {
        let documents = Documents::default();
        let mended =
            mending(&documents, Wait { least: Duration::from_secs(60), most: Duration::from_secs(60) }).await;
        let starting = Namespaces::open(NamespaceStorage::Shared(double::node(&documents, 1))).unwrap();
        tokio::task::spawn_blocking(move || starting.make_document().unwrap()).await.unwrap();
        assert_eq!(mended.await.unwrap(), MendedNamespaces::Kept);
    }

    /// A mend was killed while it waited for a copy.
    #[tokio::test]
    async fn a_document_that_awaits_a_copy_is_mended_again_or_taken_by_a_start_without_timers() {
        let (folder, documents) = (tempfile::tempdir().unwrap(), Documents::default());
        let store: Arc<dyn ClusterStore> = double::node(&documents, 1);
        let storage = NamespaceStorage::Shared(Arc::clone(&store));
        let awaiting = StoredNamespaces { copies: Copies::Awaited, ..StoredNamespaces::default() };
        storage.replace(0, &awaiting).await.unwrap().unwrap();
        assert_eq!(Service::unreadable_documents(&store, true).len(), 1);
        let mended = tokio::task::spawn_blocking({
            let store = Arc::clone(&store);
            move || put_back_namespaces(&store, WAIT).unwrap()
        });
        assert_eq!(mended.await.unwrap(), MendedNamespaces::Lost);
        assert_eq!(Service::unreadable_documents(&store, true), [""; 0]);
        documents.lock().unwrap().clear();
        storage.replace(0, &awaiting).await.unwrap().unwrap();
        let service = Service::open_on_double(on_redis(folder.path()), Arc::clone(&store)).unwrap();
        assert_eq!(Service::unreadable_documents(&store, true), [""; 0]);
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    }

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
