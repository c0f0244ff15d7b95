//! Tests which calls share a transaction, and which changes are synced when. The tests read the log (WAL) itself, whose
//! frames say where a transaction ends.

use pollster::block_on;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::store::{Claimant, Durability, IfPresent, Limit, Op, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_sqlite::SqliteStore;
use tourbillon_sqlite::rusqlite::Connection;

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    (folder, path)
}

fn creation(n: u128) -> Op {
    Op::Place(Box::new(Timer::new(TimerId::from_u128(n), "job", UtcMillis::ZERO)), IfPresent::Reject)
}

/// Returns the number of transactions in the log. The log must not have been moved to the database yet.
fn commits(path: &Path) -> usize {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = std::fs::read(log).unwrap();
    let Some((header, frames)) = log.split_at_checked(32) else { return 0 };
    let page = u32::from_be_bytes(header[8..12].try_into().unwrap()) as usize;
    // The second number of a frame's header is zero, except in the last frame of a transaction.
    frames.chunks_exact(24 + page).filter(|frame| frame[4..8] != [0; 4]).count()
}

/// Returns the number of changes of the counter by which a store makes earlier changes durable.
fn syncs(connection: &Connection) -> i64 {
    let sql = "SELECT value FROM tourbillon_meta WHERE name = 'syncs'";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn callers_that_wait_at_the_same_time_share_a_transaction() {
    const CALLERS: u128 = 64;
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = commits(&path);
    let answers: Vec<_> =
        (1..=CALLERS).map(|n| store.apply(vec![creation(n)], Durability::PowerLoss)).collect();
    connection.execute_batch("ROLLBACK").unwrap();
    for answer in answers {
        block_on(answer).unwrap();
    }
    let made = commits(&path) - before;
    // The first call may have begun its transaction before the others came.
    assert!((1..=3).contains(&made), "{made} transactions for {CALLERS} calls");
}

#[test]
fn an_operation_that_fails_takes_back_only_itself() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let good = store.apply(vec![creation(1)], Durability::PowerLoss);
    // An import fails if a stored timer has the id of one of its timers.
    let stored = Timer::new(TimerId::from_u128(1), "job", UtcMillis::ZERO);
    let new = Timer::new(TimerId::from_u128(2), "job", UtcMillis::ZERO);
    let bad = store.import(vec![new, stored]);
    let other = store.apply(vec![creation(3)], Durability::PowerLoss);
    connection.execute_batch("ROLLBACK").unwrap();
    assert!(block_on(good).is_ok() && block_on(bad).is_err() && block_on(other).is_ok());
    let is_stored = |n| block_on(store.get(TimerId::from_u128(n).into())).unwrap().is_some();
    assert_eq!([is_stored(1), is_stored(2), is_stored(3)], [true, false, true]);
    assert_eq!(block_on(store.check()).unwrap(), []);
}

#[test]
fn changes_that_are_only_with_the_system_are_synced_soon_or_when_asked() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    let begin = syncs(&connection);
    block_on(store.apply(vec![creation(1)], Durability::PowerLoss)).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(syncs(&connection), begin, "the transaction was synced itself");
    block_on(store.apply(vec![creation(2)], Durability::ProcessCrash)).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while syncs(&connection) == begin {
        assert!(Instant::now() < until, "the change is not synced");
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = syncs(&connection);
    block_on(store.apply(vec![creation(3)], Durability::Volatile)).unwrap();
    block_on(store.apply(Vec::new(), Durability::PowerLoss)).unwrap();
    assert_eq!(syncs(&connection), before + 1, "a call without operations makes earlier changes durable");
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(syncs(&connection), before + 1, "an idle store syncs nothing");
}

#[test]
fn a_removal_at_most_once_is_synced_before_its_answer() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    let policy = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
    let timer = Timer { policy, ..Timer::new(TimerId::from_u128(1), "job", UtcMillis::ZERO) };
    let op = Op::Place(Box::new(timer), IfPresent::Reject);
    block_on(store.apply(vec![op], Durability::PowerLoss)).unwrap();
    let by = Claimant { incarnation: 5, lease: Duration::from_secs(30) };
    let claimed = block_on(store.claim(by, 1, Limit { timers: 1, bytes: u64::MAX }, None)).unwrap();
    let (id, token) = (claimed.leased[0].timer.id, claimed.leased[0].token);
    block_on(store.apply(Vec::new(), Durability::PowerLoss)).unwrap();
    let before = syncs(&connection);
    block_on(store.apply(vec![Op::Skip(id, token)], Durability::PowerLoss)).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(syncs(&connection), before, "the transaction was synced itself");
}
