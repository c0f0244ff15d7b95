//! Tests changes of timers in transactions of sqlx.

use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Claimant, Limit, Op, StoreErrorKind, TimerStore};
use tourbillon_durable::{Cancelled, Changed, Kind, Rejection, Spec};
use tourbillon_sqlite::{NotEnded, SqliteStore};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Job(u64);

impl Kind for Job {
    const NAME: &'static str = "job";
}

const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(30) };
const ALL: Limit = Limit { timers: 1_000, bytes: u64::MAX };

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    (folder, path)
}

fn store_on(path: &Path) -> (SqliteStore, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos(1_800_000_000_000_000_000));
    (SqliteStore::builder().clock(clock.clone()).open(path).unwrap(), clock)
}

async fn pool(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(20));
    SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap()
}

async fn pool_on_new(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    SqlitePoolOptions::new().connect_with(options).await.unwrap()
}

#[tokio::test]
async fn a_timer_is_stored_with_the_transaction_or_not_at_all() {
    let (_folder, path) = place();
    let (store, _clock) = store_on(&path);
    let timers = store.transactional();
    let pool = pool(&path).await;
    sqlx::query("CREATE TABLE orders (number INTEGER)").execute(&pool).await.unwrap();
    for commits in [false, true] {
        let mut transaction = pool.begin().await.unwrap();
        sqlx::query("INSERT INTO orders VALUES (17)").execute(&mut *transaction).await.unwrap();
        let spec = Spec::new(Job(17)).key("order 17").after(Duration::from_secs(60));
        timers.schedule_with_sqlx(&mut transaction, spec).await.unwrap();
        let again = timers.schedule_with_sqlx(&mut transaction, Spec::new(Job(18)).key("order 17")).await;
        let refused = again.unwrap_err();
        assert!(matches!(refused.reason, Rejection::KeyExists(_)));
        assert_eq!(refused.payload, Job(18));
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        let stored = store.get("order 17".into()).await.unwrap();
        assert_eq!(stored.is_some(), commits);
    }
    let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&pool).await.unwrap();
    assert_eq!(orders, 1);
    let mut transaction = pool.begin().await.unwrap();
    let moved = timers.move_to_with_sqlx(&mut transaction, "order 17", store.now()).await.unwrap();
    assert_eq!(moved, Changed::Changed);
    let cancelled = timers.cancel_with_sqlx(&mut transaction, "order 17").await.unwrap();
    assert!(matches!(cancelled, Cancelled::Cancelled(_)));
    transaction.commit().await.unwrap();
    assert_eq!(store.counts().await.unwrap().of(Phase::Pending), 0);
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test]
async fn an_end_happens_once_with_its_effect() {
    let (_folder, path) = place();
    let (store, clock) = store_on(&path);
    let timers = store.transactional();
    let pool = pool(&path).await;
    sqlx::query("CREATE TABLE effects (job INTEGER)").execute(&pool).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    timers.schedule_with_sqlx(&mut connection, Spec::new(Job(1))).await.unwrap();
    clock.advance(Duration::from_millis(1));
    let claimed = store.claim(BY, 1, ALL, None).await.unwrap();
    let (id, token) = (claimed.leased[0].timer.id, claimed.leased[0].token);
    for attempt in 0..2 {
        let mut transaction = pool.begin().await.unwrap();
        sqlx::query("INSERT INTO effects VALUES (1)").execute(&mut *transaction).await.unwrap();
        match timers.done_with_sqlx(&mut transaction, id, token).await {
            Ok(next) => {
                assert_eq!((attempt, next), (0, None));
                transaction.commit().await.unwrap();
            }
            Err(error) => {
                assert!(attempt == 1 && matches!(error, NotEnded::Lost(_)), "{error}");
                transaction.rollback().await.unwrap();
            }
        }
    }
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(&pool).await.unwrap();
    assert_eq!(effects, 1);
}

#[tokio::test]
async fn a_database_without_tables_is_refused() {
    let (_folder, path) = place();
    let mut connection = pool_on_new(&path).await.acquire().await.unwrap();
    let timers = tourbillon_sqlite::Transactional::default();
    let refused = timers.schedule_with_sqlx(&mut connection, Spec::new(Job(1))).await.unwrap_err();
    assert!(matches!(refused.reason, Rejection::Store(error) if error.kind() == StoreErrorKind::OlderSchema));
    assert_eq!(refused.payload, Job(1));
}

#[tokio::test]
async fn transactions_of_several_connections_wait_for_each_other() {
    let (_folder, path) = place();
    let (store, _clock) = store_on(&path);
    let timers = store.transactional();
    let pool = pool(&path).await;
    let create = async |worker: u64| {
        for job in 0..25 {
            let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
            let spec = Spec::new(Job(job)).key(format!("{worker}-{job}"));
            let op = spec.operation_of_kind(store.now(), &Default::default()).unwrap();
            let outcomes = timers.apply_with_sqlx(&mut transaction, vec![op]).await.unwrap();
            assert_eq!(outcomes.len(), 1);
            transaction.commit().await.unwrap();
            let own = Spec::new(Job(job)).operation_of_kind(store.now(), &Default::default()).unwrap();
            assert!(matches!(own, Op::Place(..)));
            store.apply(vec![own], Default::default()).await.unwrap();
        }
    };
    tokio::join!(create(1), create(2), create(3));
    assert_eq!(store.counts().await.unwrap().of(Phase::Pending), 150);
    assert_eq!(store.check().await.unwrap(), []);
}
