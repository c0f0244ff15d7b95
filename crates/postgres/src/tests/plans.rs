//! Tests of how much the server does: claims find their timers by indexes, also with statistics of empty tables, and a
//! report of many ends takes few statements.

use super::server::{connect, open};
use core::time::Duration;
use tourbillon_durable::store::{Claimant, Durability, Limit, Op, Outcome, TimerStore};
use tourbillon_fault::Postgres;

#[test]
fn a_claim_among_many_timers_walks_over_few_of_them() {
    let Some(server) = Postgres::start(&["autovacuum=off", "track_counts=on"]) else { return };
    let store = open(&server);
    let _empty = server.sql("ANALYZE");
    let _many = server.sql(
        "INSERT INTO tourbillon.timer (id, due, created, shard, namespace, kind, payload)
         SELECT i, tourbillon.now_ms() + 86400000 + n, 0, tourbillon.shard_of(i), '', 'mail', ''
         FROM (SELECT tourbillon.fresh_id() i, n FROM generate_series(1, 50000) n) x;
         SELECT tourbillon.sign(NULL, 7, 'node', '1', 1000000);
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
    assert!(by_index < 8 * 5_000, "8 claims of 100 timers read {by_index} rows");
    drop((store, connect(&server)));
}

/// One of ten deliveries has failed. The failed ones do not make the others wait for a statement each.
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
    let leased = pollster::block_on(store.claim(by, 1, limit)).unwrap().leased;
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
    // Two for each of the 20 that are pending again, and some for all.
    assert!((4..=60).contains(&calls), "{calls} statements for 200 ends");
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "20");
}
