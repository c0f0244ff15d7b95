//! Tests that claims find their timers by indexes, also with statistics of empty tables.

use super::server::{connect, open};
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
