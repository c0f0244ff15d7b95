//! Tests reaps of expired leases beside transactions that hold timers or leases, and renewals beside a reap.

use super::server::open;
use super::session::{Psql, await_idle, await_sessions};
use crate::PostgresStore;
use std::thread;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Leased, Limit, TimerStore};
use tourbillon_fault::Postgres;

fn claim(store: &PostgresStore, number: u64, lease: Duration) -> Vec<Leased> {
    let (by, limit) = (Claimant { incarnation: 7, lease }, Limit { timers: 1_000, bytes: u64::MAX });
    pollster::block_on(store.claim(by, number, limit, None)).unwrap().leased
}

fn schedule(server: &Postgres, name: &str, count: u32) {
    let sql = format!("SELECT count(tourbillon.schedule('mail', key => '{name} ' || n))");
    let _ids = server.sql(&format!("{sql} FROM generate_series(1, {count}) n"));
}

/// Other transactions have locked the leases that expire first. The number of these leases is greater than the number
/// of leases that one transaction of a reap (search for expired leases) ends.
#[test]
fn a_reap_ends_the_leases_behind_those_that_others_hold() {
    let Some(server) = Postgres::start(&[]) else { return };
    let ways = [
        "SELECT count(tourbillon.cancel('held ' || n)) FROM generate_series(1, 250) n",
        "SELECT 1 FROM tourbillon.lease l JOIN tourbillon.timer t ON t.id = l.id WHERE t.key LIKE 'held%' FOR UPDATE OF l",
    ];
    let store = open(&server);
    for (number, way) in (1_u64..).zip(ways) {
        schedule(&server, "held", 250);
        assert_eq!(claim(&store, 10 * number, Duration::ZERO).len(), 250);
        thread::sleep(Duration::from_millis(2));
        schedule(&server, "free", 300);
        assert_eq!(claim(&store, 10 * number + 1, Duration::ZERO).len(), 300);
        let mut caller = Psql::new(&server);
        caller.send(&format!("BEGIN; {way};"));
        await_idle(&server, 1);
        let reap = || pollster::block_on(store.reap(1_000)).unwrap();
        assert_eq!(reap().returned.len(), 300, "{way}");
        assert_eq!(reap().returned.len(), 0, "{way}");
        caller.send("ROLLBACK;");
        await_idle(&server, 0);
        assert_eq!(reap().returned.len(), 250, "{way}");
        let _gone = server.sql("SELECT count(tourbillon.cancel(id => t.id)) FROM tourbillon.timer t");
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

#[test]
fn a_reap_among_many_timers_reads_those_with_leases_alone() {
    let Some(server) = Postgres::start(&["autovacuum=off", "track_counts=on"]) else { return };
    let store = open(&server);
    let _empty = server.sql("ANALYZE");
    schedule(&server, "free", 800);
    assert_eq!(claim(&store, 1, Duration::ZERO).len(), 800);
    let _many = server.sql(
        "INSERT INTO tourbillon.timer (id, due, created, shard, namespace, kind, payload)
         SELECT i, tourbillon.now_ms() + 86400000, 0, tourbillon.shard_of(i), '', 'mail', ''
         FROM (SELECT tourbillon.fresh_id() i FROM generate_series(1, 50000)) x",
    );
    let read = || {
        let read = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'timer'";
        server.sql(read).parse::<u64>().unwrap()
    };
    let before = read();
    assert_eq!(pollster::block_on(store.reap(1_000)).unwrap().returned.len(), 800);
    // The sessions of the store report their numbers when they end.
    drop(store);
    await_sessions(&server, "application_name = 'tourbillon'", 0);
    assert_eq!(read(), before, "no reap reads the whole table");
}

/// A reap (search for expired leases) of another node has locked the lease, and has not committed yet.
#[test]
fn a_renewal_counts_a_lease_as_lost_that_is_being_reaped() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    schedule(&server, "timer", 2);
    let leased = claim(&store, 1, Duration::from_secs(300));
    let leases: Vec<_> = leased.iter().map(|leased| (leased.timer.id, leased.token)).collect();
    let _over = server.sql(&format!("UPDATE tourbillon.lease SET until = 1 WHERE id = '{}'", leases[0].0));
    let mut reap = Psql::new(&server);
    reap.send("BEGIN; SELECT 1 FROM tourbillon.lease FOR UPDATE;");
    await_idle(&server, 1);
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let lost = pollster::block_on(store.renew(by, leases.clone())).unwrap().lost;
    assert_eq!(lost, [leases[0]], "the other lease is not over, so no reap has it");
    reap.send("ROLLBACK;");
    await_idle(&server, 0);
    assert_eq!(pollster::block_on(store.renew(by, leases)).unwrap().lost, [], "nobody has ended it");
}
