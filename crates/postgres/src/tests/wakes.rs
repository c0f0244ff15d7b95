//! Tests the wake-ups of a store that listens, and of a node without shards.

use super::server::connect;
use super::session::{Psql, await_sessions};
use crate::PostgresStore;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Claimant, Claimed, Durability, IfPresent, Limit, Op, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Postgres;

/// The condition of the session that listens.
const EAR: &str = "query = 'LISTEN \"tourbillon\"'";

/// Opens a store in a schema. The store looks once a minute, and listens. Returns the store, and a channel that
/// receives a message for each call that wakes the runtime.
fn listening(server: &Postgres, schema: &str) -> (PostgresStore, Receiver<()>) {
    let builder = PostgresStore::builder().schema(schema).poll(Some(Duration::from_secs(60))).listen(true);
    let store = pollster::block_on(builder.open(&connect(server))).unwrap();
    assert_eq!(claim(&store, 1), 0);
    await_sessions(server, &format!("query = 'LISTEN \"{schema}\"'"), 1);
    let (sender, calls) = channel();
    store.subscribe(Box::new(move || _ = sender.send(())));
    (store, calls)
}

/// Claims, and returns the number of timers.
fn claim(store: &PostgresStore, number: u64) -> usize {
    claimed(store, number).leased.len()
}

fn claimed(store: &PostgresStore, number: u64) -> Claimed {
    let by = Claimant { incarnation: store.incarnation(), lease: Duration::from_secs(300) };
    let limit = Limit { timers: 10, bytes: u64::MAX };
    pollster::block_on(store.claim(by, number, limit, None)).unwrap()
}

/// Waits until no further call wakes the runtime.
fn calm(calls: &Receiver<()>) {
    while calls.recv_timeout(Duration::from_millis(300)).is_ok() {}
}

#[test]
fn a_store_that_listens_finds_a_timer_of_another_program_at_once() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (store, calls) = listening(&server, "tourbillon");
    calm(&calls);
    let _id = server.sql("SELECT tourbillon.schedule('mail')");
    calls.recv_timeout(Duration::from_secs(10)).expect("the runtime is woken");
    assert_eq!(claim(&store, 2), 1);
    calm(&calls);
    let _id = server.sql("SELECT tourbillon.schedule('mail', delay => '1 day', key => 'far')");
    calls.recv_timeout(Duration::from_millis(500)).expect_err("a far timer wakes nobody");
    assert_eq!(server.sql("SELECT tourbillon.move_to('far', delay => '0')"), "moved");
    calls.recv_timeout(Duration::from_secs(10)).expect("the runtime is woken");
}

/// Each schema has a channel of its own.
#[test]
fn stores_in_two_schemas_hear_of_their_own_timers_alone() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (one, calls) = listening(&server, "one");
    let (other, other_calls) = listening(&server, "user");
    calm(&calls);
    calm(&other_calls);
    let _id = server.sql("SELECT \"user\".schedule('mail')");
    other_calls.recv_timeout(Duration::from_secs(10)).expect("the runtime is woken");
    assert_eq!((claim(&one, 2), claim(&other, 2)), (0, 1));
    calm(&other_calls);
    calls.recv_timeout(Duration::from_millis(300)).expect_err("the timer is another deployment's");
    let _id = server.sql("SELECT one.schedule('mail')");
    calls.recv_timeout(Duration::from_secs(10)).expect("the runtime is woken");
}

#[test]
fn a_lost_connection_that_listens_is_replaced() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (_store, calls) = listening(&server, "tourbillon");
    let ended = format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {EAR}");
    assert_eq!(server.sql(&ended), "1");
    await_sessions(&server, EAR, 0);
    await_sessions(&server, EAR, 1);
    calm(&calls);
    let _id = server.sql("SELECT tourbillon.schedule('mail')");
    calls.recv_timeout(Duration::from_secs(10)).expect("the runtime is woken");
}

/// Another node owns all shards, and does not claim. So its timers stay due.
#[test]
fn a_node_without_shards_wakes_for_no_timer_of_the_others() {
    let Some(server) = Postgres::start(&[]) else { return };
    let builder = PostgresStore::builder().poll(Some(Duration::from_millis(20))).ttl(Duration::from_secs(1));
    let store = pollster::block_on(builder.open(&connect(&server))).unwrap();
    let _signed = server.sql("SELECT tourbillon.sign(NULL, 7, 'other', '1', 1000000)");
    let create = |delay: &str| {
        let many = format!(
            "SELECT count(tourbillon.schedule('mail', delay => '{delay}')) FROM generate_series(1, 1000)"
        );
        assert_eq!(server.sql(&many), "1000");
    };
    create("0");
    create("1 day");
    let (sender, calls) = channel();
    store.subscribe(Box::new(move || _ = sender.send(())));
    let Claimed { leased, next_due, .. } = claimed(&store, 1);
    assert_eq!((leased.len(), next_due), (0, None), "the runtime sleeps until it is woken");
    calm(&calls);
    create("0");
    create("1 second");
    let place = |due: UtcMillis| {
        let timer = Timer::new(TimerId::fresh(), "mail", due);
        Op::Place(Box::new(timer), IfPresent::Reject)
    };
    let ops = [vec![place(store.now())], vec![place(store.now()), place(UtcMillis::MAX)]];
    for ops in ops {
        let _created = pollster::block_on(store.apply(ops, Durability::Volatile)).unwrap();
    }
    calls.recv_timeout(Duration::from_secs(2)).expect_err("the timers are another node's");
    let _left = server.sql("SELECT tourbillon.leave(7)");
    calls.recv_timeout(Duration::from_secs(10)).expect("the shards are this node's now");
    assert_eq!(claim(&store, 2), 10);
    calm(&calls);
    // A timer that is due before all others.
    let _created =
        pollster::block_on(store.apply(vec![place(UtcMillis::ZERO)], Durability::Volatile)).unwrap();
    calls.recv_timeout(Duration::from_secs(10)).expect("the timer is this node's");
}

/// A transaction with a notification cannot be prepared. So callers notify only while a living node listens.
#[test]
fn only_living_nodes_that_listen_get_notifications() {
    let Some(server) = Postgres::start(&["max_prepared_transactions=4"]) else { return };
    // The session ends at the first statement that fails.
    let prepares_at = |level: &str, name: &str| {
        let mut caller = Psql::new(&server);
        caller.send(&format!("BEGIN ISOLATION LEVEL {level};"));
        caller.send(&format!("SELECT tourbillon.schedule('mail', key => '{name}');"));
        caller.send(&format!("PREPARE TRANSACTION '{name}'; ROLLBACK PREPARED '{name}'; SELECT 'prepared';"));
        caller.end().is_ok_and(|rows| rows.ends_with("prepared"))
    };
    let prepares = |name: &str| {
        let [first, second] = ["READ COMMITTED", "REPEATABLE READ"].map(|level| prepares_at(level, name));
        assert_eq!(first, second, "{name}: a transaction with one snapshot differs");
        first
    };
    let looks = PostgresStore::builder().node("looks");
    let looks = pollster::block_on(looks.open(&connect(&server))).unwrap();
    claim(&looks, 1);
    assert!(prepares("no node listens"));
    let (store, _calls) = listening(&server, "tourbillon");
    assert!(!prepares("a node listens"));
    pollster::block_on(store.leave()).unwrap();
    drop(store);
    assert!(prepares("the node has left"));
    let _dead = server.sql("SELECT tourbillon.sign(NULL, 7, 'dead', '1', 1, true), pg_sleep(0.1)");
    assert!(prepares("the node is dead"));
}
