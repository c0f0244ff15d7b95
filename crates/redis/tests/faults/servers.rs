//! F-17, F-18, F-22: servers that refuse for a time, failovers, and cuts.

use crate::common::*;
use crate::crashes::behind;
use std::thread;
use std::time::Duration;
use tourbillon_durable::state::Refusal;
use tourbillon_durable::store::{Op, Outcome, StoreErrorKind, TimerStore};
use tourbillon_fault::{Fate, Proxy, Server, Watched, eventually};
use tourbillon_redis::{Connect, RedisStore, SyncPolicy};

#[test]
fn scripts_that_the_server_has_forgotten_are_sent_again() {
    let Some(server) = Server::start(&[]) else { return };
    let store = open(builder().shards(2), &server.url());
    for number in 1..=5 {
        server.command(&["SCRIPT", "FLUSH"]);
        place(&store, timer(number, store.now()));
        server.command(&["SCRIPT", "FLUSH"]);
        let leased = claim(&store, ONE, u64::try_from(number * 100).unwrap(), 1);
        server.command(&["SCRIPT", "FLUSH"]);
        end(&store, &leased);
    }
    is_whole(&store);
    assert_eq!(count(&store), 0);
}

#[test]
fn calls_wait_while_another_clients_script_holds_the_server_up() {
    let Some(server) = Server::start(&["--busy-reply-threshold", "10"]) else { return };
    let store = open(builder().shards(2), &server.url());
    place(&store, timer(1, store.now()));
    thread::scope(|scope| {
        let busy =
            scope.spawn(|| drop(server.try_query::<redis::Value>(&["EVAL", "while true do end", "0"])));
        eventually("the server is busy", || {
            let answer = server.try_query::<String>(&["GET", "a"]);
            answer.is_err_and(|error| error.code() == Some("BUSY"))
        });
        let placing = scope.spawn(|| place(&store, timer(2, store.now())));
        // During the script, a store without patience fails, and a call of the patient store waits.
        let impatient = single(&server.url()).patience(Duration::from_millis(200));
        let error = pollster::block_on(builder().shards(2).open(&impatient)).map(drop).unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        assert!(!placing.is_finished(), "a busy server has answered");
        until("the script ends", || {
            drop(server.try_query::<redis::Value>(&["SCRIPT", "KILL"]));
            busy.is_finished()
        });
        placing.join().unwrap();
    });
    assert_eq!(claim(&store, ONE, 1, 2).len(), 2);
}

#[test]
fn calls_wait_while_the_server_is_a_replica_or_loads_its_data() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always", "--key-load-delay", "500"];
    let (Some(mut server), Some(primary)) = (Server::start(&arguments), Server::start(&[])) else { return };
    let store = open(builder().shards(2), &server.url());
    let due = store.now() + DAY;
    (1..=20).for_each(|number| place(&store, timer(number, due)));
    server.kill();
    thread::scope(|scope| {
        let placing = scope.spawn(|| insist_place(&store, 21));
        server.restart();
        placing.join().unwrap();
    });
    assert_eq!(count(&store), 21);
    // The server becomes a replica of a server that stands still. It refuses changes, and keeps its data.
    primary.stop();
    server.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    thread::scope(|scope| {
        let placing = scope.spawn(|| insist_place(&store, 22));
        thread::sleep(Duration::from_millis(100));
        assert!(!placing.is_finished(), "a replica has accepted a change");
        server.command(&["REPLICAOF", "NO", "ONE"]);
        placing.join().unwrap();
    });
    assert_eq!(count(&store), 22);
    is_whole(&store);
}

fn insist_place(store: &RedisStore, number: u128) {
    until("a creation has no answer", || try_apply(store, placing(timer(number, store.now() + DAY))).is_ok());
}

/// Opens a store on the primary that the Sentinel of `watched` names.
fn watched(watched: &Watched, sync: SyncPolicy) -> RedisStore {
    let connect = Connect::sentinel([watched.sentinel.url()], Watched::NAME).unwrap();
    let connect = connect.patience(PATIENCE).response_timeout(Duration::from_secs(5)).sync(sync);
    // The primary counts the replica only after the replica's first sign, so the opening may have to be repeated.
    let mut store = None;
    until("the store is not opened", || {
        store = pollster::block_on(builder().shards(2).open(&connect)).ok();
        store.is_some()
    });
    store.unwrap()
}

/// Stops the replica and closes the replica's connection. So the replica does not get the changes that still wait in
/// the connection.
fn cut_off(watched: &Watched) {
    watched.second.stop();
    watched.first.command(&["CLIENT", "KILL", "TYPE", "replica"]);
}

/// Kills the primary and wakes the replica, which stood still. Waits until the replica takes over.
fn fail_over(watched: &mut Watched) {
    watched.down_after(Duration::from_millis(500));
    watched.first.kill();
    watched.second.go_on();
    eventually("the replica takes over", || watched.second.info("role").as_deref() == Some("master"));
}

#[test]
fn without_a_wait_a_failover_loses_what_the_replica_did_not_have() {
    let Some(mut servers) = Watched::start(&[]) else { return };
    let store = watched(&servers, SyncPolicy::None);
    let due = store.now() + DAY;
    (1..=10).for_each(|number| place(&store, timer(number, due)));
    assert!(matches!(apply(&store, Op::Cancel(id(10).into(), None)), Outcome::Cancelled(_)));
    // A connected replica gets changes only after its first sign. So the test waits until it has all changes.
    eventually("the replica has all", || {
        let has = servers.second.info("slave_repl_offset");
        has.is_some() && has == servers.first.info("master_repl_offset")
    });
    cut_off(&servers);
    (11..=15).for_each(|number| place(&store, timer(number, due)));
    assert!(matches!(apply(&store, Op::Cancel(id(9).into(), None)), Outcome::Cancelled(_)));
    fail_over(&mut servers);
    // Exactly five creations and one cancel are lost.
    until("the store goes on", || pollster::block_on(store.counts()).is_ok());
    assert_eq!(count(&store), 9);
    assert!(now(store.get(id(9).into())).is_some(), "the cancel is lost");
    is_whole(&store);
}

#[test]
fn with_a_wait_nothing_that_was_acknowledged_is_lost() {
    let Some(mut servers) = Watched::start(&[]) else { return };
    let store = watched(&servers, SyncPolicy::Wait { replicas: 1, timeout: Duration::from_millis(200) });
    let due = store.now() + DAY;
    let mut acknowledged = Vec::new();
    for number in 1..=10 {
        until("a creation has no answer", || try_apply(&store, placing(timer(number, due))).is_ok());
        acknowledged.push(number);
    }
    cut_off(&servers);
    for number in 11..=13 {
        let unknown = try_apply(&store, placing(timer(number, due))).unwrap_err();
        assert_eq!(unknown.kind(), StoreErrorKind::Unknown, "no replica has it");
    }
    fail_over(&mut servers);
    // The new primary has no replica, so this store waits for no replica.
    let store = watched(&servers, SyncPolicy::None);
    for number in acknowledged {
        assert!(now(store.get(id(number).into())).is_some(), "{number} is lost");
    }
    // The creations that had no answer are repeated.
    (11..=13).for_each(|number| drop(apply(&store, placing(timer(number, due)))));
    assert_eq!(count(&store), 13);
    is_whole(&store);
}

#[test]
fn a_cut_with_deliveries_in_flight_loses_and_steals_nothing_within_the_lease() {
    let Some(on) = Manual::start() else { return };
    let proxy = Proxy::start(on.server.address());
    let connect = Connect::single(&proxy.url()).unwrap().patience(Duration::from_millis(500));
    let connect = connect.response_timeout(PATIENCE);
    let store = now(builder().shards(2).test_clock(on.clock.clone()).open(&connect));
    let other = on.open(2);
    (1..=4).for_each(|number| place(&other, timer(number, other.now())));
    let claimed = claim(&store, ONE, 1, 4);
    for half_leases in [1, 4] {
        proxy.greet(Fate::Refuse);
        proxy.cut();
        on.clock.advance(half_leases * LEASE / 2);
        assert!(try_apply(&store, Op::Ack(claimed[0].timer.id, claimed[0].token)).is_err());
        proxy.greet(Fate::Pass);
        until("the store goes on", || pollster::block_on(store.counts()).is_ok());
        if half_leases == 1 {
            nothing(&other, OTHER, 1);
            // These ends come late, but before their leases are over.
            end(&store, &claimed[..2]);
        }
    }
    // After the lease, another process claims the two timers that have not ended.
    let again = claim(&other, OTHER, 100, 2);
    let late = &claimed[2];
    assert_eq!(apply(&store, Op::Ack(late.timer.id, late.token)), Outcome::Refused(Refusal::Stale));
    end(&other, &again);
    is_whole(&other);
    is_empty(&on.server);
}

#[test]
fn requests_that_do_not_arrive_have_no_effect_and_may_be_repeated() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let (store, other) = (behind(&proxy), open(builder(), &server.url()));
    let op = placing(timer(1, other.now() + DAY));
    until("no connection", || pollster::block_on(store.counts()).is_ok());
    proxy.doom(Fate::LoseRequests);
    assert_eq!(try_apply(&store, op.clone()).unwrap_err().kind(), StoreErrorKind::Unknown);
    assert_eq!(count(&other), 0);
    until("a creation has no answer", || try_apply(&store, op.clone()).is_ok());
    assert_eq!(count(&other), 1);
    is_whole(&other);
}

#[test]
fn delays_and_resets_lose_nothing_and_double_nothing() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    proxy.delay(Duration::from_millis(20));
    let store = open(builder().shards(2), &proxy.url());
    let due = store.now() + DAY;
    for number in 1..=30 {
        if number % 5 == 0 {
            proxy.cut();
        }
        until("a creation has no answer", || try_apply(&store, placing(timer(number, due))).is_ok());
    }
    let other = open(builder(), &server.url());
    assert_eq!(count(&other), 30);
    is_whole(&other);
}
