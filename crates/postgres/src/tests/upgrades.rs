//! Tests upgrades of the schema beside stores that are open, transactions of callers, and other programs that upgrade.
//! A migration of the tests stands for that of a later version of this crate.

use super::server::{connect, open};
use super::session::{Psql, await_idle, await_sessions};
use crate::layout::SchemaName;
use crate::link::Pool;
use crate::schema::{MIGRATIONS, VERSION, prepare_by};
use crate::{Connect, PostgresStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Postgres;

/// The migration of the later version. It waits for all transactions that have touched timers, and further transactions
/// wait behind it.
const LATER: &[&str] = &["ALTER TABLE tourbillon.timer ADD COLUMN test_only int"];

/// Prepares the schema as the later version does when it opens a deployment.
fn upgrade(connect: &Connect, migrates: bool) -> Result<(), StoreError> {
    let pool = Pool::new(connect.clone(), SchemaName::default()).unwrap();
    let inside = Arc::clone(&pool);
    let migrations = [&MIGRATIONS[..], &[LATER]].concat();
    pollster::block_on(pool.spawn(async move { prepare_by(&inside, migrates, &migrations).await }))
}

/// Returns the number of the last migration, the number of all, and the number of columns that the upgrade has added.
fn found(server: &Postgres) -> String {
    server.sql(
        "SELECT max(m.number), count(*),
             (SELECT count(*) FROM information_schema.columns WHERE column_name = 'test_only')
         FROM tourbillon.migration m",
    )
}

const OLD: &str = "1|1|0";
const NEW: &str = "2|2|1";
const _: () = assert!(VERSION == 1, "the texts above have the numbers of the versions");

/// The condition of a session that waits for the table of timers in order to change it.
const ALTERS: &str = "wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE%'";

/// Claims as a runtime does. Returns the keys of the claimed timers.
fn claim(store: &PostgresStore) -> Vec<String> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let limit = Limit { timers: 100, bytes: u64::MAX };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let claimed = pollster::block_on(store.claim(by, number, limit, None)).unwrap();
    claimed.leased.into_iter().map(|leased| leased.timer.key.unwrap_or_default().into()).collect()
}

fn schedule(key: &str) -> String {
    format!("SELECT tourbillon.schedule('mail', key => '{key}');")
}

/// Stores a timer that is due now.
fn place(store: &PostgresStore, key: &str) {
    let timer = Timer { key: Some(key.into()), ..Timer::new(TimerId::fresh(), "mail", store.now()) };
    let ops = vec![Op::Place(Box::new(timer), IfPresent::Reject)];
    let outcomes = pollster::block_on(store.apply(ops, Durability::PowerLoss)).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Created(_)]), "{outcomes:?}");
}

#[test]
fn an_upgrade_waits_for_a_caller_runs_once_and_leaves_a_running_store_as_it_is() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (store, connect) = (open(&server), connect(&server));
    assert_eq!(claim(&store), [""; 0]);
    let (mut caller, mut other) = (Psql::new(&server), Psql::new(&server));
    caller.send(&format!("BEGIN; {}", schedule("fresh")));
    await_idle(&server, 1);
    let _id = server.sql(&schedule("before"));
    let claimed = thread::scope(|scope| {
        let claims = scope.spawn(|| {
            let (mut keys, begin) = (Vec::new(), Instant::now());
            while keys.len() < 5 && begin.elapsed() < Duration::from_secs(60) {
                keys.extend(claim(&store));
                thread::sleep(Duration::from_millis(5));
            }
            keys
        });
        let upgrades = [(); 2].map(|()| scope.spawn(|| upgrade(&connect, true)));
        await_sessions(&server, ALTERS, 1);
        await_sessions(&server, "wait_event_type = 'Lock' AND wait_event = 'advisory'", 1);
        assert!(upgrades.iter().all(|upgrade| !upgrade.is_finished()), "the caller's transaction is open");
        // Calls of the store and of callers wait behind the upgrade.
        let creation = scope.spawn(|| place(&store, "during"));
        other.send(&schedule("other"));
        await_sessions(&server, "application_name = 'psql' AND wait_event_type = 'Lock'", 1);
        caller.send("COMMIT;");
        for upgrade in upgrades {
            upgrade.join().unwrap().unwrap();
        }
        creation.join().unwrap();
        let _id = server.sql(&schedule("after"));
        claims.join().unwrap()
    });
    let mut keys = claimed;
    keys.sort();
    assert_eq!(keys, ["after", "before", "during", "fresh", "other"]);
    assert_eq!((claim(&store), found(&server)), (vec![], NEW.into()));

    // The older program that runs goes on. It does not start again.
    place(&store, "later");
    let ended = server.sql(
        "SELECT count(tourbillon.done(l.id, lpad(to_hex(l.incarnation), 16, '0') || lpad(to_hex(l.claim), 16, '0')))
         FROM tourbillon.lease l",
    );
    assert_eq!(ended, "5");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
    for migrates in [true, false] {
        let builder = PostgresStore::builder().poll(None).migrate(migrates);
        let error = pollster::block_on(builder.open(&connect)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NewerSchema, "{error}");
    }
    upgrade(&connect, false).unwrap();
    assert_eq!(found(&server), NEW);
}

#[test]
fn an_upgrade_that_gets_no_lock_in_time_fails_and_changes_nothing() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (store, connect) = (open(&server), connect(&server));
    let brief = connect.clone().response_timeout(Duration::from_secs(1));
    let error = upgrade(&brief, false).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OlderSchema, "{error}");
    assert_eq!(claim(&store), [""; 0]);
    let mut caller = Psql::new(&server);
    caller.send(&format!("BEGIN; {}", schedule("fresh")));
    await_idle(&server, 1);
    let _id = server.sql(&schedule("before"));
    let gives_up = || {
        let error = upgrade(&brief, true).unwrap_err();
        assert!(error.to_string().contains("55P03"), "the server has ended the wait: {error}");
        assert_eq!((error.kind(), error.is_transient()), (StoreErrorKind::Io, true), "{error}");
    };
    gives_up();
    // No session is left that waits for the table. So the calls of others go on.
    await_sessions(&server, "application_name = 'tourbillon' AND state <> 'idle'", 0);
    assert_eq!((claim(&store), found(&server)), (vec!["before".into()], OLD.into()));
    drop(open(&server));

    // A program that waits for the upgrade of another program gives up, too.
    thread::scope(|scope| {
        let patient = scope.spawn(|| upgrade(&connect, true));
        await_sessions(&server, ALTERS, 1);
        gives_up();
        caller.send("COMMIT;");
        patient.join().unwrap().unwrap();
    });
    upgrade(&brief, true).unwrap();
    assert_eq!((claim(&store), found(&server)), (vec!["fresh".into()], NEW.into()));
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}
