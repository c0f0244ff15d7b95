//! Tests of how much the server does: claims find their timers by indexes, also with statistics of empty tables, looks
//! pass over open transactions, a report of many ends takes few statements, and a horizon reads a bounded part of the
//! index.

use super::server::{connect, open};
use super::session::{Psql, await_idle, await_sessions};
use crate::PostgresStore;
use core::time::Duration;
use std::sync::mpsc::channel;
use std::thread::sleep;
use tourbillon_durable::store::{Claimant, Durability, Limit, Op, Outcome, TimerStore};
use tourbillon_fault::Postgres;

/// Stores many timers that are due in a day, after the statistics were made.
fn fill(server: &Postgres) {
    let _empty = server.sql("ANALYZE");
    let _many = server.sql(
        "INSERT INTO tourbillon.timer (id, due, created, shard, namespace, kind, payload)
         SELECT i, tourbillon.now_ms() + 86400000 + n, 0, tourbillon.shard_of(i), '', 'mail', ''
         FROM (SELECT tourbillon.fresh_id() i, n FROM generate_series(1, 50000) n) x",
    );
}

#[test]
fn a_claim_among_many_timers_walks_over_few_of_them() {
    let Some(server) = Postgres::start(&["autovacuum=off", "track_counts=on"]) else { return };
    let store = open(&server);
    fill(&server);
    let _many = server.sql(
        "SELECT tourbillon.sign(NULL, 7, 'node', '1', 1000000);
         SELECT count(tourbillon.schedule('mail')) FROM generate_series(1, 1000)",
    );
    let claims = (1..=8).map(|number| {
        format!(
            "SELECT count(*) FROM tourbillon.claim(NULL, 7, 7, {number}, 30000, 100, 1000000, '', -1,
                 '00000000-0000-0000-0000-000000000000', NULL, '{{}}');"
        )
    });
    let read = "SELECT sum(seq_tup_read) || ' ' || sum(idx_tup_fetch) FROM pg_stat_user_tables
                WHERE relname IN ('timer', 'lease')";
    let read = || {
        let _counted = server.sql("SELECT pg_stat_force_next_flush()");
        let text = server.sql(read);
        let (whole, by_index) = text.split_once(' ').unwrap();
        (whole.parse::<u64>().unwrap(), by_index.parse::<u64>().unwrap())
    };
    let before = read();
    let _counts = server.sql(&claims.collect::<String>());
    let after = read();
    assert_eq!(after.0, before.0, "no claim reads a whole table");
    let by_index = after.1 - before.1;
    assert!(by_index < 8 * 2_000, "8 claims of 100 timers read {by_index} rows");
    drop((store, connect(&server)));
}

/// An open transaction has created many timers. Claims and looks read the index of late timers only once the
/// transaction has ended.
#[test]
fn looks_beside_an_open_transaction_read_none_of_its_timers() {
    let Some(server) = Postgres::start(&["autovacuum=off", "track_counts=on"]) else { return };
    let store = open(&server);
    fill(&server);
    let _signed = server.sql("SELECT tourbillon.sign(NULL, 7, 'node', '1', 1000000), tourbillon.owned_by(7)");
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT count(tourbillon.schedule('mail')) FROM generate_series(1, 2000);");
    await_idle(&server, 1);
    let mark = "tourbillon.owned_by(7), tourbillon.now_ms(), 'ffffffff-ffff-ffff-ffff-ffffffffffff'";
    let peek = |seen: &str| {
        let peek =
            format!("tourbillon.peek(NULL, 7, {mark}, '{seen}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')");
        server.sql(&format!("SELECT pg_stat_force_next_flush(); SELECT is_same, has_late FROM {peek}"))
    };
    let claim = |number: u32, seen: &str| {
        let claim =
            format!("tourbillon.claim(NULL, 7, 7, {number}, 300000, 10, 1000000, {mark}, '{seen}', '{{}}')");
        server.sql(&format!("SELECT pg_stat_force_next_flush(); SELECT count(id) FROM {claim}"))
    };
    let read = || {
        let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'timer_xid'";
        server.sql(read).parse::<u64>().unwrap()
    };
    let before = read();
    let snapshot = || server.sql("SELECT pg_current_snapshot()");
    // No transaction has begun after the open transaction. So the snapshot does not list it.
    let seen = snapshot();
    assert!(seen.ends_with(':'), "{seen}");
    for _ in 0..5 {
        assert_eq!(peek(&seen).trim(), "t|f");
    }
    let _later = server.sql("SELECT pg_current_xact_id()");
    let seen = snapshot();
    assert!(!seen.ends_with(':'), "{seen}");
    for number in 1..=5 {
        assert_eq!((peek(&seen).trim(), claim(number, &seen).trim()), ("t|f", "0"));
    }
    assert_eq!(read(), before, "entries of the index");
    caller.send("COMMIT;");
    assert_eq!(caller.end().unwrap(), "2000");
    assert_eq!((peek(&seen).trim(), claim(6, &seen).trim()), ("t|t", "10"));
    assert!(read() >= before + 4_000, "{} entries of the index", read() - before);
    drop(store);
}

/// A late timer waits for a claim, because the node has no free place. The looks wake the runtime, but they do not read
/// the timers that were written since the late timer was found.
#[test]
fn looks_beside_a_late_timer_read_no_further_timers() {
    let Some(server) = Postgres::start(&["autovacuum=off", "track_counts=on"]) else { return };
    let builder = PostgresStore::builder().poll(Some(Duration::from_millis(250)));
    let store = pollster::block_on(builder.open(&connect(&server))).unwrap();
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let limit = Limit { timers: 100, bytes: u64::MAX };
    let claim = |number| pollster::block_on(store.claim(by, number, limit, None)).unwrap().leased.len();
    // After this claim the node notices the start of the caller's transaction.
    assert_eq!(claim(1), 0);
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT tourbillon.schedule('mail');");
    await_idle(&server, 1);
    assert_eq!(claim(2), 0);
    let (sender, calls) = channel();
    store.subscribe(Box::new(move || _ = sender.send(())));
    caller.send("COMMIT;");
    let _answer = caller.end().unwrap();
    calls.recv_timeout(Duration::from_secs(10)).expect("the late timer wakes the runtime");
    let _ids = server.sql(
        "SELECT count(tourbillon.schedule('mail', delay => '30 minutes')) FROM generate_series(1, 10000)",
    );
    let read = || {
        let read = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'timer'";
        server.sql(read).parse::<u64>().unwrap()
    };
    // The server updates its counts with a delay.
    sleep(Duration::from_secs(2));
    let before = read();
    while calls.try_recv().is_ok() {}
    sleep(Duration::from_secs(3));
    assert!(read() - before < 20_000, "{} entries of the index", read() - before);
    assert!(calls.try_recv().is_ok(), "the timer still waits");
    assert_eq!((claim(3), claim(4)), (1, 0));
    // The looks go on from the claim. The next late timer wakes the runtime, too.
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT tourbillon.schedule('mail');");
    await_idle(&server, 1);
    assert_eq!(claim(5), 0);
    sleep(Duration::from_millis(600));
    while calls.try_recv().is_ok() {}
    caller.send("COMMIT;");
    calls.recv_timeout(Duration::from_secs(10)).expect("the next late timer wakes the runtime");
    assert_eq!(claim(6), 1);
}

/// In a report, one of ten deliveries was released. The other deliveries are still ended by one statement.
#[test]
fn a_report_of_many_ends_takes_few_statements() {
    let settings = ["shared_preload_libraries=pg_stat_statements"];
    let Some(server) = Postgres::start(&settings) else { return };
    let store = open(&server);
    let _made = server.sql(
        "CREATE EXTENSION pg_stat_statements;
         SELECT count(tourbillon.schedule('mail')) FROM generate_series(1, 200)",
    );
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let limit = Limit { timers: 200, bytes: u64::MAX };
    let leased = pollster::block_on(store.claim(by, 1, limit, None)).unwrap().leased;
    assert_eq!(leased.len(), 200);
    let end = |(number, timer): (usize, &tourbillon_durable::store::Leased)| {
        let (id, token) = (timer.timer.id, timer.token);
        if number % 10 == 0 { Op::Release(id, token) } else { Op::Ack(id, token) }
    };
    let ends = leased.iter().enumerate().map(end).collect();
    let _reset = server.sql("SELECT pg_stat_statements_reset()");
    let outcomes = pollster::block_on(store.apply(ends, Durability::ProcessCrash)).unwrap();
    let calls = "SELECT sum(calls) FROM pg_stat_statements
                 WHERE toplevel AND query NOT LIKE '%pg_stat_statements%'
                     AND query ~ 'timer|lease|end_many|now_ms|BEGIN|COMMIT'";
    let calls: u64 = server.sql(calls).parse().unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Ended { .. })), "{outcomes:?}");
    // Two statements for each of the 20 timers that are pending again, and some for all timers together.
    assert!((4..=60).contains(&calls), "{calls} statements for 200 ends");
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "20");
}

/// Each of the lanes has many timers. The number of lanes does not matter, because one bound applies to all lanes
/// together.
#[test]
fn a_horizon_reads_a_bounded_number_of_entries_of_all_lanes_together() {
    const DAYS: u64 = 100_000;
    let Some(server) = Postgres::start(&["autovacuum=off", "track_counts=on"]) else { return };
    let store = open(&server);
    let insert = |count: u64, delay: &str| {
        format!(
            "INSERT INTO tourbillon.timer (id, due, created, shard, namespace, kind, payload)
             SELECT i, tourbillon.now_ms() + {delay}, 0, tourbillon.shard_of(i), 'space ' || n % 500, 'mail', ''
             FROM (SELECT tourbillon.fresh_id() i, n FROM generate_series(1, {count}) n) x;"
        )
    };
    let _leased = server.sql(&format!(
        "{} INSERT INTO tourbillon.lease SELECT t.id, t.due + 300000, 7, 7, t.namespace FROM tourbillon.timer t",
        insert(200, "0")
    ));
    let _pending = server.sql(&(insert(300, "30000") + &insert(DAYS, "2 * 86400000 + n")));
    assert_eq!(server.sql("SELECT count(DISTINCT lane) FROM tourbillon.timer"), "64");
    let read = "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'timer')
                    + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'timer')";
    let read = || server.sql(read).parse::<u64>().unwrap();
    // A session reports the number of its reads at its end.
    let others = "backend_type = 'client backend' AND pid <> pg_backend_pid()";
    await_sessions(&server, &format!("{others} AND application_name = 'psql'"), 0);
    let before = read();
    let horizon = pollster::block_on(store.horizon()).unwrap();
    drop(store);
    await_sessions(&server, others, 0);
    let entries = read() - before;
    assert!((10_001..=10_300).contains(&entries), "{entries} entries");
    let counts: Vec<_> = horizon.spans.iter().map(|span| (span.count, span.is_exact)).collect();
    assert_eq!(counts[..3], [(0, true), (300, true), (0, true)], "{horizon:?}");
    assert_eq!(counts[6], (9_701, false), "the timers of a week: {horizon:?}");
    assert!(counts[7..].iter().all(|count| *count == (0, false)), "{horizon:?}");
    assert_eq!(horizon.placed() + horizon.unplaced, 300 + DAYS);
}
