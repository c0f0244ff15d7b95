//! Tests claims beside open transactions of callers: late commits, rollbacks, held locks and held snapshots.

use super::server::{open, opened};
use super::session::{Psql, await_idle, await_sessions};
use crate::PostgresStore;
use std::time::{Duration, Instant};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Claimant, Limit, TimerStore};
use tourbillon_fault::{Postgres, eventually};

/// Claims as a runtime does. Returns the keys of the claimed timers, in order.
fn claim(store: &PostgresStore) -> Vec<String> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let claimed =
        pollster::block_on(store.claim(by, number, Limit { timers: 100, bytes: u64::MAX }, None)).unwrap();
    claimed.leased.into_iter().map(|leased| leased.timer.key.unwrap_or_default().into()).collect()
}

fn schedule(key: &str) -> String {
    format!("SELECT tourbillon.schedule('mail', key => '{key}');")
}

#[test]
fn a_timer_that_is_committed_late_is_found_by_the_second_look() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    // If a transaction was open before the first claim, the low-water marks start again at its end. Here both
    // transactions begin after the first claim.
    assert_eq!(claim(&store), [""; 0]);
    let (mut late, mut back) = (Psql::new(&server), Psql::new(&server));
    late.send(&format!("BEGIN; {}", schedule("late")));
    back.send(&format!("BEGIN; {}", schedule("back")));
    await_idle(&server, 2);
    // The low-water mark passes the due moments of both timers.
    for round in 0..5 {
        let key = format!("round {round}");
        let _id = server.sql(&schedule(&key));
        assert_eq!(claim(&store), [key]);
    }
    back.send("ROLLBACK;");
    await_idle(&server, 1);
    assert_eq!(claim(&store), [""; 0]);
    late.send("COMMIT;");
    await_idle(&server, 0);
    assert_eq!(claim(&store), ["late"]);
    assert_eq!(claim(&store), [""; 0], "once");
}

#[test]
fn a_transaction_that_holds_a_due_timer_delays_this_timer_alone() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    for key in ["kept", "gone", "other"] {
        let _id = server.sql(&schedule(key));
    }
    let (mut kept, mut gone) = (Psql::new(&server), Psql::new(&server));
    kept.send("BEGIN; SELECT tourbillon.cancel('kept');");
    gone.send("BEGIN; SELECT tourbillon.cancel('gone');");
    await_idle(&server, 2);
    assert_eq!(claim(&store), ["other"]);
    let begin = Instant::now();
    assert_eq!(claim(&store), [""; 0]);
    assert!(begin.elapsed() < Duration::from_secs(5), "a claim waits for nobody");
    kept.send("ROLLBACK;");
    gone.send("COMMIT;");
    await_idle(&server, 0);
    assert_eq!(claim(&store), ["kept"]);
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// An open snapshot keeps the dead rows of all timers that have ended. The claims read neither the index entries of
/// these rows nor those of timers that are due in a day.
#[test]
fn a_held_snapshot_holds_up_no_claim() {
    const ROUNDS: u64 = 20;
    let Some(server) = Postgres::start(&["autovacuum=off", "track_counts=on"]) else { return };
    let store = open(&server);
    // The session keeps the plans of these claims, which were made while the table was empty.
    for _ in 0..8 {
        assert_eq!(claim(&store), [""; 0]);
        let _number = server.sql("SELECT pg_current_xact_id()");
    }
    let _far = server
        .sql("SELECT count(tourbillon.schedule('mail', delay => '1 day')) FROM generate_series(1, 5000)");
    let mut held = Psql::new(&server);
    held.send("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tourbillon.timer;");
    await_idle(&server, 1);
    for round in 0..ROUNDS {
        let keys = "SELECT count(tourbillon.schedule('mail', key => 'r' || n)) FROM generate_series(1, 50) n";
        let _made = server.sql(keys);
        assert_eq!(claim(&store).len(), 50, "round {round}");
        let _ended = server.sql(
            "SELECT count(tourbillon.done(l.id, lpad(to_hex(l.incarnation), 16, '0')
            || lpad(to_hex(l.claim), 16, '0'))) FROM tourbillon.lease l",
        );
    }
    assert_eq!(pollster::block_on(store.counts()).unwrap().of(Phase::Pending), 5_000);
    // A session reports the number of its reads at its end. The claims alone read this index.
    drop(store);
    await_sessions(&server, "application_name = 'tourbillon'", 0);
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'timer_due'";
    let read: u64 = server.sql(read).parse().unwrap();
    assert!((50 * ROUNDS..150 * ROUNDS).contains(&read), "{read} entries of the index");
    held.send("COMMIT;");
}

#[test]
fn two_nodes_divide_the_shards_and_claim_each_timer_once() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (one, other) = (opened(&server, Duration::from_secs(2)), opened(&server, Duration::from_secs(2)));
    assert_eq!((claim(&one).len(), claim(&other).len()), (0, 0));
    // At its next sign of life, a node releases the shards that now belong to the other node.
    eventually("both nodes have shards", || {
        let _claims = (claim(&one), claim(&other));
        let nodes = pollster::block_on(one.nodes()).unwrap().unwrap();
        let owned_by = |store: &PostgresStore| {
            nodes.shards.iter().filter(|shard| shard.owner == Some(store.incarnation())).count()
        };
        (owned_by(&one), owned_by(&other)) == (8, 8)
    });
    let keys = "SELECT count(tourbillon.schedule('mail', key => 'r' || n)) FROM generate_series(1, 200) n";
    let _made = server.sql(keys);
    let (mut all, begin) = (Vec::new(), Instant::now());
    while all.len() < 200 && begin.elapsed() < Duration::from_secs(20) {
        all.extend(claim(&one));
        all.extend(claim(&other));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 200);
    // The other node dies without leaving. After its `ttl`, this node takes its shards.
    drop(other);
    let _id = server
        .sql("SELECT count(tourbillon.schedule('mail', key => 's' || n)) FROM generate_series(1, 50) n");
    let mut after = Vec::new();
    eventually("the node has taken over", || {
        after.extend(claim(&one));
        after.len() == 50
    });
    let nodes = pollster::block_on(one.nodes()).unwrap().unwrap();
    assert_eq!(nodes.shards.iter().map(|shard| shard.takeovers).sum::<u64>(), 8);
}

/// The server ends a claim that waits for too long, and a caller's transaction that is idle for too long.
#[test]
fn timeouts_of_the_server_lose_no_timer() {
    let Some(server) = Postgres::start(&[]) else { return };
    drop(open(&server));
    let _set = server.sql("ALTER ROLE postgres SET statement_timeout = '2s'");
    let store = open(&server);
    let _id = server.sql(&schedule("kept"));
    assert_eq!(claim(&store), ["kept"]);
    let _id = server.sql(&schedule("late"));
    let mut holder = Psql::new(&server);
    holder.send("BEGIN; SELECT FROM tourbillon.node FOR UPDATE;");
    await_idle(&server, 1);
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let limit = Limit { timers: 100, bytes: u64::MAX };
    let error = pollster::block_on(store.claim(by, 1_000_000, limit, None)).unwrap_err();
    assert!(error.to_string().contains("57014") && error.is_transient(), "{error}");
    holder.send("COMMIT;");
    await_idle(&server, 0);
    let mut idle = Psql::new(&server);
    idle.send(
        "SET idle_in_transaction_session_timeout = '1s'; BEGIN; SELECT tourbillon.cancel('late');
         SELECT tourbillon.schedule('mail', key => 'never');",
    );
    await_idle(&server, 1);
    assert_eq!(claim(&store), [""; 0], "the caller holds the timer");
    await_idle(&server, 0);
    assert_eq!(claim(&store), ["late"]);
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}
