//! Tests the low-water mark: through ends and crashes of the server, and beside transactions that are open for an hour.

use super::server::open;
use super::session::{Psql, await_idle};
use crate::PostgresStore;
use serde_json::Value;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Limit, TimerStore};
use tourbillon_fault::{Postgres, eventually};

/// A client of the function `claim` that does not notice the end of a connection, like a client behind a pooler.
struct Client<'s> {
    server: &'s Postgres,
    owned: String,
    due: i64,
    id: String,
    seen: Option<String>,
    number: u32,
}

impl<'s> Client<'s> {
    fn new(server: &'s Postgres) -> Self {
        let _node = server.sql(SIGN);
        let id = "00000000-0000-0000-0000-000000000000".into();
        Self { server, owned: String::new(), due: -1, id, seen: None, number: 0 }
    }

    /// Claims, and returns the number of timers.
    fn claim(&mut self) -> usize {
        self.number += 1;
        let Self { owned, due, id, number, .. } = self;
        let seen = self.seen.as_ref().map_or("NULL".into(), |seen| format!("'{seen}'"));
        let answer = self.server.sql(&format!(
            "SELECT coalesce(head, '') FROM tourbillon.claim(NULL, 7, 7, {number}, 300000, 100, 1000000, '{owned}',
                 {due}, '{id}', {seen}, '{{}}')"
        ));
        let (head, _) = answer.split_once('\n').unwrap_or((&answer, ""));
        let head: Value = serde_json::from_str(head).unwrap();
        let text = |name: &str| head[name].as_str().unwrap().to_owned();
        (self.owned, self.id, self.seen) = (text("owned"), text("mark_id"), Some(text("seen")));
        self.due = head["mark_due"].as_i64().unwrap();
        self.server
            .sql(&format!("SELECT count(*) FROM tourbillon.lease WHERE claim = {number}"))
            .parse()
            .unwrap()
    }
}

fn schedule(server: &Postgres, count: u32) {
    let sql = format!("SELECT count(tourbillon.schedule('mail')) FROM generate_series(1, {count})");
    let _ids = server.sql(&sql);
}

fn leases(server: &Postgres) -> String {
    server.sql("SELECT count(*) FROM tourbillon.lease")
}

const SIGN: &str = "SELECT tourbillon.sign(NULL, 7, 'node', '1', 1000000)";
const LIFETIME: &str = "SELECT id FROM tourbillon.lifetime";

/// Ends the server after a claim that is not on the disk yet, and starts the server again. Returns the number of leases
/// that the server has then, the number of timers that a claim with the earlier low-water mark finds, and whether the
/// lifetime is the same.
fn end_after_claim(end: fn(&mut Postgres)) -> (usize, usize, bool) {
    // The server's writer of the log sleeps, so no lease gets to the disk by chance.
    let settings = ["fsync=on", "wal_writer_delay=10s", "wal_writer_flush_after=1GB", "autovacuum=off"];
    let Some(mut server) = Postgres::start(&settings) else { return (0, 0, false) };
    let store = open(&server);
    drop(store);
    schedule(&server, 20);
    let mut client = Client::new(&server);
    assert_eq!(client.claim(), 20);
    let lifetime = server.sql(LIFETIME);
    let Client { owned, due, id, seen, number, .. } = client;
    end(&mut server);
    server.run();
    let kept = leases(&server).parse().unwrap();
    schedule(&server, 3);
    // A sign of life is not on the disk either, so the server may have lost the node. The node has the same shards and
    // epochs again, which do not show the loss.
    let _node = server.sql(SIGN);
    let mut client = Client { server: &server, owned, due, id, seen, number };
    let found = client.claim();
    assert_eq!(client.claim(), 0, "once");
    (kept, found, server.sql(LIFETIME) == lifetime)
}

#[test]
fn a_mark_from_before_a_crash_passes_no_timer_whose_lease_is_lost() {
    if Postgres::start(&[]).is_none() {
        return;
    }
    for end in [Postgres::kill, Postgres::stop] {
        let (kept, found, is_same) = end_after_claim(end);
        assert_eq!((kept + found, is_same), (23, false), "{kept} leases survived");
        assert_eq!(kept, 0, "the claim was on the disk, so the test shows nothing");
    }
}

#[test]
fn a_fast_stop_keeps_all_leases_and_the_lifetime() {
    if Postgres::start(&[]).is_none() {
        return;
    }
    let (kept, found, is_same) = end_after_claim(Postgres::shut_down);
    assert_eq!((kept, found, is_same), (20, 3, true));
}

#[test]
fn a_mark_of_the_primary_passes_no_timer_on_the_replica_that_takes_over() {
    let Some(mut primary) = Postgres::start(&["wal_writer_delay=10s", "autovacuum=off"]) else { return };
    drop(open(&primary));
    schedule(&primary, 20);
    let replica = primary.replica();
    // The replica gets the log of a claim only once the log is on the disk of the primary.
    let mut client = Client::new(&primary);
    assert_eq!(client.claim(), 20);
    // The primary gives numbers to transactions. The replica will give the same numbers again.
    for _ in 0..30 {
        let _number = primary.sql("SELECT pg_current_xact_id()");
    }
    client.claim();
    let Client { owned, due, id, seen, number, .. } = client;
    let owner = "SELECT string_agg(number || ':' || epoch, ',' ORDER BY number) FROM tourbillon.shard";
    let epochs = primary.sql(owner);
    primary.kill();
    replica.promote();
    // On the replica the node has the same shards and epochs. So they do not show that the server is another.
    let mut client = Client { server: &replica, owned, due, id, seen, number };
    let _node = replica.sql(SIGN);
    assert_eq!(replica.sql(owner), epochs);
    let kept: usize = leases(&replica).parse().unwrap();
    schedule(&replica, 3);
    assert_eq!(kept + client.claim(), 23);
}

fn claim(store: &PostgresStore) -> Vec<String> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(86_400) };
    let claimed =
        pollster::block_on(store.claim(by, number, Limit { timers: 100, bytes: u64::MAX }, None)).unwrap();
    claimed.leased.into_iter().map(|leased| leased.timer.key.unwrap_or_default().into()).collect()
}

/// Opens a store whose server counts its time from an offset that the test moves.
fn open_with_shift(server: &Postgres) -> std::sync::Arc<PostgresStore> {
    let store = open(server);
    let _shift = server.sql(
        "CREATE TABLE public.shift (ms bigint); INSERT INTO public.shift VALUES (0);
         CREATE OR REPLACE FUNCTION tourbillon.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
         $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + (SELECT ms FROM public.shift) $$",
    );
    store
}

fn set_minute(server: &Postgres, minute: u32) {
    let _set = server.sql(&format!("UPDATE public.shift SET ms = {minute} * 60000"));
}

/// Begins the transaction that creates the far timer. With it, `open` transactions are open.
fn begin_far(server: &Postgres, open: usize) -> Psql {
    let mut far = Psql::new(server);
    far.send("BEGIN; SELECT tourbillon.schedule('mail', key => 'far', delay => '65 minutes');");
    await_idle(server, open);
    far
}

/// Lets the low-water mark pass the due moment of the timer `far` at minute 80, before the commit of the timer.
fn pass(server: &Postgres, store: &PostgresStore) {
    assert_eq!(
        server.sql("SELECT count(*) FROM tourbillon.timer WHERE xid IS NULL"),
        "0",
        "it is not committed"
    );
    set_minute(server, 80);
    let _id = server.sql("SELECT tourbillon.schedule('mail', key => 'now')");
    assert_eq!(claim(store), ["now"]);
}

/// Checks that claims find the timer `far` after its transaction has ended.
fn is_found(server: &Postgres, store: &PostgresStore) {
    assert_eq!(
        server.sql("SELECT count(*) FROM tourbillon.timer WHERE xid IS NULL"),
        "1",
        "it has no number"
    );
    let found: Vec<String> = (0..3).flat_map(|_| claim(store)).collect();
    assert_eq!(found, ["far"]);
}

/// Commits the far timer's transaction after the mark has passed the timer. The timer is found.
fn commit_late(server: &Postgres, store: &PostgresStore, mut far: Psql) {
    pass(server, store);
    far.send("COMMIT;");
    await_idle(server, 0);
    is_found(server, store);
}

/// A call reads the time, waits for a lock for an hour, and then writes a row with the number of its transaction.
#[test]
fn a_row_has_a_number_if_it_is_due_within_an_hour_of_its_writing() {
    let Some(server) = Postgres::start(&[]) else { return };
    drop(open(&server));
    let numbers = "SELECT tourbillon.xid_for(n + 59 * 60000, n - 3600000) IS NULL,
                       tourbillon.xid_for(n + 61 * 60000, n - 3600000) IS NULL FROM tourbillon.now_ms() n";
    assert_eq!(server.sql(numbers), "f|t");
}

#[test]
fn a_long_transaction_that_is_the_oldest_for_a_short_time_loses_no_timer() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open_with_shift(&server);
    assert_eq!(claim(&store), [""; 0]);
    let mut oldest = Psql::new(&server);
    oldest.send("BEGIN; SELECT pg_current_xact_id();");
    await_idle(&server, 1);
    let far = begin_far(&server, 2);
    assert_eq!(claim(&store), [""; 0]);
    set_minute(&server, 40);
    oldest.send("COMMIT;");
    await_idle(&server, 1);
    assert_eq!(claim(&store), [""; 0]);
    commit_late(&server, &store, far);
}

#[test]
fn a_node_that_starts_during_a_long_transaction_loses_no_timer_of_it() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open_with_shift(&server);
    let far = begin_far(&server, 1);
    // The node claims only now, so it sees the transaction for less than an hour.
    set_minute(&server, 70);
    assert_eq!(claim(&store), [""; 0]);
    commit_late(&server, &store, far);
}

#[test]
fn a_node_that_has_not_looked_for_an_hour_loses_no_timer() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open_with_shift(&server);
    assert_eq!(claim(&store), [""; 0]);
    let far = begin_far(&server, 1);
    commit_late(&server, &store, far);
}

/// A snapshot lists an open transaction only after a later transaction has ended. Earlier looks do not show it.
#[test]
fn a_transaction_that_a_look_does_not_list_yet_loses_no_timer() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open_with_shift(&server);
    assert_eq!(claim(&store), [""; 0]);
    // Between the claims, an hour passes without a look, as on a machine that is suspended. The transaction that sets
    // the clock has begun before the far one, so its end does not make a snapshot list the far one.
    let mut clock = Psql::new(&server);
    clock.send("BEGIN; UPDATE public.shift SET ms = 70 * 60000;");
    await_idle(&server, 1);
    let far = begin_far(&server, 2);
    clock.send("COMMIT;");
    await_idle(&server, 1);
    assert_eq!(claim(&store), [""; 0]);
    commit_late(&server, &store, far);
}

/// A creation may wait for another transaction with the same key for more than an hour. Then its timer is due when it
/// is stored, and the low-water mark has already passed the due moment.
#[test]
fn a_creation_that_waits_has_a_number_by_which_nodes_know_it() {
    let Some(server) = Postgres::start(&[]) else { return };
    drop(open(&server));
    let (mut first, mut second) = (Psql::new(&server), Psql::new(&server));
    first.send("BEGIN; SELECT tourbillon.schedule('mail', key => 'x', delay => '5 hours');");
    await_idle(&server, 1);
    second.send("SELECT tourbillon.schedule('mail', key => 'x', delay => '65 minutes');");
    let waits = "SELECT count(*), count(backend_xid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("the second creation waits", || server.sql(waits) != "0|0");
    let waiting = server.sql(waits);
    first.send("ROLLBACK;");
    await_idle(&server, 0);
    eventually("the timer is stored", || server.sql("SELECT count(*) FROM tourbillon.timer") == "1");
    assert_eq!(waiting, "1|1", "sessions that wait, and those of them that have numbers");
}

/// No timer is due, so the runtime makes no claim by itself. A look of the node notices the end of the transaction.
#[test]
fn the_end_of_a_long_transaction_wakes_the_runtime() {
    let Some(server) = Postgres::start(&[]) else { return };
    let builder = PostgresStore::builder().poll(Some(Duration::from_millis(20)));
    drop(open_with_shift(&server));
    let store = pollster::block_on(builder.open(&super::server::connect(&server))).unwrap();
    assert_eq!(claim(&store), [""; 0]);
    let mut far = begin_far(&server, 1);
    pass(&server, &store);
    std::thread::sleep(Duration::from_millis(300));
    let (sender, calls) = std::sync::mpsc::channel();
    store.subscribe(Box::new(move || _ = sender.send(())));
    std::thread::sleep(Duration::from_millis(300));
    while calls.try_recv().is_ok() {}
    far.send("COMMIT;");
    calls.recv_timeout(Duration::from_secs(10)).expect("the runtime is woken");
    is_found(&server, &store);
}
