//! Tests two processes on one database: a second store, and transactions of a process without a store.
#![cfg(unix)]

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tourbillon_durable::store::StoreErrorKind;
use tourbillon_durable::{Delivery, Durable, Kind, Spec};
use tourbillon_sqlite::{SqliteStore, Transactional, rusqlite::Connection};

#[derive(Debug, Serialize, Deserialize)]
struct Job(u64);

impl Kind for Job {
    const NAME: &'static str = "job";
}

/// The environment variable with the path of the database. The parent sets the variable for the child.
const PATH: &str = "TOURBILLON_SQLITE_PATH";
/// The environment variable that says what the child does: `own` opens a store, `create` creates timers.
const PART: &str = "TOURBILLON_SQLITE_PART";
const PATIENCE: Duration = Duration::from_secs(20);
const JOBS: u64 = 40;

fn start(path: &Path, part: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_process", "--nocapture"]).env(PATH, path).env(PART, part);
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Runs as the child. Does nothing unless the parent has set [`PATH`].
#[test]
fn child_process() {
    let Some(path) = std::env::var_os(PATH) else { return };
    match std::env::var(PART).unwrap().as_str() {
        "own" => {
            let _store = SqliteStore::open(&path).unwrap();
            std::fs::write(Path::new(&path).with_extension("opened"), "").unwrap();
            std::thread::sleep(PATIENCE);
        }
        "create" => {
            let timers = Transactional::default();
            let mut connection = Connection::open(&path).unwrap();
            connection.busy_timeout(PATIENCE).unwrap();
            for job in 0..JOBS {
                let transaction = connection.transaction().unwrap();
                timers.schedule(&transaction, Spec::new(Job(job))).unwrap();
                // Some transactions commit late, and some not at all.
                if job % 8 == 0 {
                    std::thread::sleep(Duration::from_millis(30));
                }
                if job % 4 == 1 { transaction.rollback() } else { transaction.commit() }.unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

fn waited_for(path: &Path) {
    let until = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < until, "{} does not come", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_second_store_is_refused_until_the_first_process_dies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let mut owner = start(&path, "own");
    waited_for(&path.with_extension("opened"));
    let refused = SqliteStore::open(&path).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Locked);
    assert!(refused.to_string().contains("shop.db"), "{refused}");
    // The same file under another name is the same database.
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(SqliteStore::open(&link).unwrap_err().kind(), StoreErrorKind::Locked);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| SqliteStore::builder().wait_for_owner().open(&path).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished(), "the second store waits");
        owner.kill().unwrap();
        owner.wait().unwrap();
        waits.join().unwrap().unwrap();
    });
    drop(SqliteStore::open(&path).unwrap());
}

#[test]
fn a_new_database_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let _store = SqliteStore::open(&path).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
    let missing = folder.path().join("missing/shop.db");
    assert!(SqliteStore::open(missing).is_err());
}

#[test]
fn the_timers_of_another_process_are_delivered_and_what_it_rolled_back_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let (sender, deliveries) = channel();
    let handler = move |Job(job): Job, _: Delivery| {
        sender.send(job).unwrap();
        async {}
    };
    let durable = Durable::builder(SqliteStore::open(&path).unwrap()).handler(handler).start().unwrap();
    let mut creator = start(&path, "create");
    let wanted: BTreeSet<u64> = (0..JOBS).filter(|job| job % 4 != 1).collect();
    let mut delivered = BTreeSet::new();
    while delivered.len() < wanted.len() {
        let job = deliveries.recv_timeout(PATIENCE).unwrap();
        assert!(delivered.insert(job), "job {job} comes twice");
    }
    assert_eq!(delivered, wanted);
    assert!(creator.wait().unwrap().success());
    std::thread::sleep(Duration::from_millis(100));
    assert!(deliveries.try_recv().is_err());
    assert_eq!(durable.handle().stats().leases_lost, 0);
}
