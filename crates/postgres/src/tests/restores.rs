//! Tests restores, each of which is one transaction.

use super::server::{connect, open};
use super::session::{Psql, await_idle, await_sessions};
use crate::{Connect, PostgresStore, Restoration};
use pollster::block_on;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{StoreErrorKind, TimerStore as _};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Postgres, Proxy, eventually};

/// Returns timers with keys, of which each third is parked.
fn timers(count: u128) -> Vec<Timer> {
    let timer = |number: u128| {
        let due = UtcMillis::from_millis(4_000_000_000_000);
        let mut timer = Timer::new(TimerId::from_u128(number + 1), "mail", due);
        timer.key = Some(format!("key {number}").into());
        timer.labels = vec!["a".into(), "b\"".into()];
        if number.is_multiple_of(3) {
            timer.state = tourbillon_durable::state::State::Parked("why".into());
        }
        timer
    };
    (0..count).map(timer).collect()
}

fn begin(store: &PostgresStore) -> Restoration {
    block_on(store.begin_restore()).unwrap().expect("the deployment is empty")
}

fn count(server: &Postgres) -> String {
    server.sql("SELECT count(*) FROM tourbillon.timer")
}

#[test]
fn a_restore_is_seen_as_a_whole_or_not_at_all() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    assert!(block_on(store.replace_document("kept", 0, Some(b"k"))).unwrap().is_some());
    let restore = begin(&store);
    for portion in timers(2_500).chunks(1_000) {
        block_on(restore.import(portion.to_vec())).unwrap();
        assert_eq!(count(&server), "0");
    }
    block_on(restore.set_document("namespaces", b"n".to_vec())).unwrap();
    assert_eq!(block_on(restore.document("namespaces")).unwrap().unwrap(), b"n");
    assert_eq!(block_on(restore.document("kept")).unwrap().unwrap(), b"k");
    assert_eq!(block_on(store.document("namespaces")).unwrap(), None);
    // A caller's creation with a key of the backup waits, and finds the restored timer.
    thread::scope(|scope| {
        let caller =
            scope.spawn(|| server.try_sql("postgres", "SELECT tourbillon.schedule('x', key => 'key 7')"));
        await_sessions(&server, "wait_event_type = 'Lock'", 1);
        block_on(restore.commit()).unwrap();
        assert!(caller.join().unwrap().unwrap_err().contains("23505"));
    });
    assert_eq!(count(&server), "2500");
    let counts = block_on(store.counts()).unwrap();
    assert_eq!((counts.of(Phase::Pending), counts.of(Phase::Parked)), (1_666, 834));
    assert_eq!(block_on(store.document("namespaces")).unwrap().unwrap().value, b"n");
    assert_eq!(block_on(store.check()).unwrap(), []);
    let mut stored = Vec::new();
    let keep = |timer: &Timer| {
        stored.push(timer.clone());
        true
    };
    block_on(store.export(Box::new(keep))).unwrap();
    assert_eq!(stored, timers(2_500));
    assert!(block_on(store.begin_restore()).unwrap().is_none(), "the deployment has timers");
}

#[test]
fn a_restore_that_is_given_up_killed_or_impossible_leaves_nothing() {
    let Some(mut server) = Postgres::start(&["fsync=on"]) else { return };
    let store = open(&server);
    let restore = begin(&store);
    block_on(restore.import(timers(100))).unwrap();
    drop(restore);
    eventually("the transaction is rolled back", || {
        server.sql("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'") == "0"
    });
    let restore = begin(&store);
    block_on(restore.import(timers(100))).unwrap();
    let again = block_on(restore.import(timers(1))).unwrap_err();
    assert!(again.to_string().contains("is stored already"), "{again}");
    drop(restore);
    let restore = begin(&store);
    block_on(restore.import(timers(100))).unwrap();
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state LIKE 'idle in%'";
    eventually("a session is ended", || server.sql(ended) == "1");
    let error = block_on(restore.commit()).unwrap_err();
    assert_ne!(error.kind(), StoreErrorKind::Unknown, "{error}");
    let restore = begin(&store);
    block_on(restore.import(timers(100))).unwrap();
    server.kill();
    server.run();
    assert!(block_on(restore.commit()).is_err());
    assert_eq!(count(&server), "0");
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.document"), "0");
    let restore = begin(&store);
    block_on(restore.import(timers(100))).unwrap();
    block_on(restore.commit()).unwrap();
    assert_eq!(count(&server), "100");
}

#[test]
fn a_second_restore_and_an_open_transaction_with_a_timer_are_refused_soon() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let restore = begin(&store);
    let error = block_on(store.begin_restore()).unwrap_err();
    assert!(error.to_string().contains("is under way"), "{error}");
    drop(restore);
    let mut psql = Psql::new(&server);
    psql.send("BEGIN; SELECT tourbillon.schedule('x');");
    await_sessions(&server, "state = 'idle in transaction' AND query LIKE '%schedule%'", 1);
    let error = block_on(store.begin_restore()).unwrap_err();
    assert!(error.to_string().contains("is under way"), "{error}");
    psql.send("COMMIT;");
    let _id = psql.end().unwrap();
    assert!(block_on(store.begin_restore()).unwrap().is_none());
}

/// An import also writes into the table of the counts, which another transaction has locked. The error names the other
/// transaction as the reason, and not the backup.
#[test]
fn a_restore_that_another_transaction_stops_does_not_blame_its_backup() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let hold = "BEGIN; LOCK TABLE tourbillon.tally IN ACCESS EXCLUSIVE MODE;";
    let assert_stopped = |restore: Restoration, code: &str| {
        let error = block_on(restore.import(timers(10))).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Io, "{error}");
        let text = error.to_string();
        assert!(text.contains("another transaction is in the way") && text.contains(code), "{text}");
    };
    let restore = begin(&store);
    let mut psql = Psql::new(&server);
    psql.send(hold);
    await_idle(&server, 1);
    assert_stopped(restore, "55P03");
    psql.send("ROLLBACK;");
    let _ended = psql.end().unwrap();
    // Each of the two transactions waits for the other. The transaction that waits first searches for a deadlock before
    // there is one. So the restore's transaction finds the deadlock.
    let restore = begin(&store);
    let mut psql = Psql::new(&server);
    psql.send(&format!("SET deadlock_timeout = '10ms'; {hold} SELECT tourbillon.schedule('x');"));
    await_sessions(&server, "wait_event_type = 'Lock'", 1);
    thread::sleep(Duration::from_millis(500));
    assert_stopped(restore, "40P01");
    psql.send("ROLLBACK;");
    let _ended = psql.end().unwrap();
    assert_eq!(count(&server), "0");
    let restore = begin(&store);
    let twice = timers(1).into_iter().chain(timers(1)).collect();
    let error = block_on(restore.import(twice)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Limit, "{error}");
    drop(restore);
    let restore = begin(&store);
    block_on(restore.import(timers(10))).unwrap();
    block_on(restore.commit()).unwrap();
    assert_eq!(count(&server), "10");
}

/// The answer of the commit is lost. The restore finds the document that it has written last, so it is complete.
#[test]
fn a_restore_whose_last_answer_is_lost_knows_its_end() {
    let Some(server) = Postgres::start(&[]) else { return };
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
    let address = format!("postgresql://postgres@{}/postgres", proxy.address());
    let connect = Connect::to(&address).unwrap().response_timeout(Duration::from_secs(1));
    let store = block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap();
    let restore = begin(&store);
    block_on(restore.import(timers(10))).unwrap();
    // The first answer belongs to the write of this document, the second to the commit.
    proxy.lose_after(1);
    block_on(restore.commit()).unwrap();
    assert_eq!((proxy.lost_replies(), count(&server)), (1, "10".to_owned()));
}

/// A node starts during a restore, and claims before the commit. It finds the restored timers after the commit.
#[test]
fn a_node_that_starts_during_a_restore_claims_its_timers() {
    use tourbillon_durable::store::{Claimant, Limit};
    let Some(server) = Postgres::start(&[]) else { return };
    let (store, node) = (open(&server), block_on(PostgresStore::builder().open(&connect(&server))).unwrap());
    let restore = begin(&store);
    let due = |timer: Timer| Timer { due: UtcMillis::from_millis(1_000_000), ..timer };
    let portion = timers(200).into_iter().filter(|timer| timer.id.as_u128() % 3 != 1).map(due).collect();
    block_on(restore.import(portion)).unwrap();
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(60) };
    let claim = |number| {
        let limit = Limit { timers: 500, bytes: u64::MAX };
        block_on(node.claim(by, number, limit, None)).unwrap().leased.len()
    };
    assert_eq!(claim(1), 0);
    block_on(restore.commit()).unwrap();
    let mut claimed = 0;
    let mut number = 2;
    eventually("all are claimed", || {
        claimed += claim(number);
        number += 1;
        claimed == 133
    });
}
