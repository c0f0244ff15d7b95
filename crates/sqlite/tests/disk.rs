//! Tests a disk that is full and stays full: a small file system in memory, in a namespace of its own. Where the system
//! does not permit that, the tests say so and do nothing. Also tests a file that is removed, and a file with several
//! names.
#![expect(clippy::print_stdout, reason = "a skipped test says so")]
#![cfg(target_os = "linux")]

use pollster::block_on;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, Shares, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_sqlite::SqliteStore;

/// The environment variable with the folder of the small file system. The parent sets the variable for the child.
const FOLDER: &str = "TOURBILLON_DISK_FOLDER";
const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(3_600) };
const START: u64 = 1_800_000_000_000;

/// Runs a test of this file as a child whose folder is a file system of `size` bytes. Returns the folder if this is the
/// child, and `None` once the child has ended well.
fn on_small_disk(test: &str, size: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size={size} tmpfs \"$0\"");
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(folder.path());
        command.arg(std::env::current_exe().unwrap()).arg(test).env(FOLDER, folder.path()).status()
    };
    if !run(&mount).is_ok_and(|status| status.success()) {
        println!("skipped: the system permits no file system of the test's own");
        return None;
    }
    let status = run(&format!("{mount} && exec \"$1\" --exact \"$2\" --nocapture")).unwrap();
    assert!(status.success(), "{status}");
    None
}

fn open(folder: &Path, keep_free: u64) -> (SqliteStore, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos(START * 1_000_000));
    let builder = SqliteStore::builder().clock(clock.clone()).keep_free(keep_free);
    (builder.open(folder.join("shop.db")).unwrap(), clock)
}

fn create(store: &SqliteStore, n: u128) -> Result<(), StoreError> {
    let timer = Timer {
        payload: Payload(vec![7; 4_000].into()),
        ..Timer::new(TimerId::from_u128(n << 64 | n), "job", UtcMillis::from_millis(START))
    };
    let op = Op::Place(Box::new(timer), IfPresent::Reject);
    block_on(store.apply(vec![op], Durability::PowerLoss)).map(drop)
}

/// Fills the file system to its last byte by a file of another program.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let mut length = 1 << 20;
    while length > 0 {
        if file.write_all(&vec![1; length]).is_err() {
            length /= 2;
        }
    }
}

#[test]
fn a_disk_that_stays_full_loses_nothing_and_takes_changes_again_once_there_is_room() {
    let name = "a_disk_that_stays_full_loses_nothing_and_takes_changes_again_once_there_is_room";
    let Some(folder) = on_small_disk(name, "16m") else { return };
    let (store, clock) = open(&folder, 0);
    clock.advance(Duration::from_millis(1));
    let mut stored = 0;
    for n in 1..=100 {
        create(&store, n).unwrap();
        stored += 1;
    }
    let ballast = folder.join("ballast");
    fill(&ballast);
    let mut refused = 0;
    for n in 1_000..1_300 {
        match create(&store, n) {
            Ok(()) => stored += 1,
            Err(error) => {
                assert!(matches!(error.kind(), StoreErrorKind::Full | StoreErrorKind::Io), "{error}");
                assert!(error.is_transient());
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "the disk was never full");
    // Reads go on, and the acknowledged timers are there.
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), stored);
    assert!(block_on(store.get(TimerId::from_u128(1 << 64 | 1).into())).unwrap().is_some());
    drop(store);
    // The store opens on the full disk, too, or says that it is full.
    let reopened = SqliteStore::builder().clock(clock.clone()).open(folder.join("shop.db")).map(drop);
    if let Err(error) = reopened {
        assert!(matches!(error.kind(), StoreErrorKind::Full | StoreErrorKind::Io), "{error}");
    }
    std::fs::remove_file(&ballast).unwrap();
    let (store, _) = open(&folder, 0);
    create(&store, 5_000).unwrap();
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), stored + 1);
    assert_eq!(block_on(store.check()).unwrap(), []);
}

#[test]
fn deliveries_end_on_a_full_disk_and_nothing_new_is_stored() {
    let name = "deliveries_end_on_a_full_disk_and_nothing_new_is_stored";
    let Some(folder) = on_small_disk(name, "100m") else { return };
    let (store, clock) = open(&folder, 64 << 20);
    assert!(folder.join("shop.db-reserve").exists());
    clock.advance(Duration::from_millis(1));
    for n in 1..=200 {
        create(&store, n).unwrap();
    }
    fill(&folder.join("ballast"));
    std::thread::sleep(Duration::from_millis(20));
    let refused = create(&store, 1_000).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Full);
    assert!(store.refuses_new().is_some());
    for claim in 1..=20 {
        let limit = Limit { timers: 10, bytes: u64::MAX };
        let claimed = block_on(store.claim(BY, claim, limit, None)).unwrap();
        assert_eq!(claimed.leased.len(), 10);
        let ends = claimed.leased.iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
        let ended = block_on(store.apply(ends, Durability::PowerLoss)).unwrap();
        assert!(ended.iter().all(|outcome| matches!(outcome, Outcome::Ended { .. })));
        assert!(create(&store, 1_000 + u128::from(claim)).is_err());
    }
    std::fs::remove_file(folder.join("ballast")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    create(&store, 2_000).unwrap();
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), 1);
    assert_eq!(block_on(store.check()).unwrap(), []);
}

/// Tests that a store refuses claims as well as operations once one of its files was removed, because their effects
/// would be lost.
#[test]
fn a_store_whose_file_was_removed_takes_no_change_until_it_is_back() {
    for name in ["shop.db", "shop.db-wal", "shop.db-shm"] {
        removed(name);
    }
}

fn removed(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (store, clock) = open(folder.path(), 0);
    clock.advance(Duration::from_millis(1));
    create(&store, 1).unwrap();
    let [there, elsewhere] = [name, "other"].map(|name| folder.path().join(name));
    let limit = Limit { timers: 1, bytes: u64::MAX };
    let claim = |number| block_on(store.claim(BY, number, limit, None)).map(|claimed| claimed.leased.len());
    std::fs::rename(&there, &elsewhere).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let in_turn = block_on(store.claim(BY, 1, limit, Some(Shares::default()))).map(drop);
    let import = block_on(store.import(Vec::new()));
    for refused in [create(&store, 2), claim(2).map(drop), in_turn, import] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Io);
        assert!(error.to_string().contains(&format!("/{name} was removed or replaced")), "{error}");
    }
    std::fs::rename(&elsewhere, &there).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    create(&store, 2).unwrap();
    assert_eq!(claim(3).unwrap(), 1);
}

/// Tests that a database has one log, whatever link leads to it. SQLite would have a log for each hard link, so a
/// database with hard links is refused.
#[test]
fn a_database_is_opened_by_its_one_path() {
    use tourbillon_durable::store::StoreErrorKind::{Limit, Locked};
    let folder = tempfile::tempdir().unwrap();
    let [path, link, hard] = ["shop.db", "link.db", "hard.db"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("shop.db", &link).unwrap();
    let store = SqliteStore::open(&link).unwrap();
    assert!(path.exists() && folder.path().join("shop.db-owner").exists());
    create(&store, 1).unwrap();
    for name in [&path, &link] {
        assert_eq!(SqliteStore::open(name).map(drop).unwrap_err().kind(), Locked);
    }
    store.close().unwrap();
    std::fs::hard_link(&path, &hard).unwrap();
    for name in [&path, &link, &hard] {
        assert_eq!(SqliteStore::open(name).map(drop).unwrap_err().kind(), Limit);
    }
    std::fs::remove_file(&hard).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), 1);
}
