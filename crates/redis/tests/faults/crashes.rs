//! F-13 to F-16: processes that are killed or stand still, replies that are lost, and servers that come back.

use crate::common::*;
use std::thread;
use std::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Failure, Phase, Refusal};
use tourbillon_durable::store::{Limit, Op, Outcome, StoreErrorKind, TimerStore};
use tourbillon_fault::{Fate, Proxy, Server};
use tourbillon_redis::{Connect, RedisStore};

/// The time for which a dead process keeps its shards.
const TTL: Duration = Duration::from_secs(2);

/// Opens a store behind a proxy of its server. The store waits at most a second for each reply.
pub(crate) fn behind(proxy: &Proxy) -> RedisStore {
    let connect = Connect::single(&proxy.url()).unwrap().patience(PATIENCE);
    let connect = connect.response_timeout(Duration::from_secs(1));
    let mut store = None;
    until("the store is not opened", || {
        store = pollster::block_on(builder().shards(2).ttl(TTL).open(&connect)).ok();
        store.is_some()
    });
    store.unwrap()
}

/// Repeats an operation until an answer arrives, and returns its outcome.
fn insist(store: &RedisStore, op: &Op) -> Outcome {
    let mut outcome = None;
    until("an operation has no answer", || {
        outcome = try_apply(store, op.clone()).ok();
        outcome.is_some()
    });
    outcome.unwrap()
}

/// Makes the server load the script whose changes need no further memory.
fn load_script(store: &RedisStore) {
    place(store, timer(90, store.now() + DAY));
    let cancelled = try_apply(store, Op::Cancel(id(90).into(), None));
    assert!(matches!(cancelled, Ok(Outcome::Cancelled(_))), "{cancelled:?}");
}

/// Sends an operation whose reply is lost. Before that, the proxy lets `before` replies pass.
fn lose(proxy: &Proxy, store: &RedisStore, op: &Op, before: usize) {
    // The operation must be sent over a connection that works.
    until("no connection", || pollster::block_on(store.counts()).is_ok());
    proxy.lose_after(before);
    assert_eq!(try_apply(store, op.clone()).unwrap_err().kind(), StoreErrorKind::Unknown);
}

#[test]
fn a_process_that_dies_before_its_end_has_reached_the_server_leaves_the_timer_to_others() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let (dying, other) = (behind(&proxy), open(builder().shards(2).ttl(TTL), &server.url()));
    let lease = Duration::from_secs(2);
    load_script(&other);
    let by = |incarnation| tourbillon_durable::store::Claimant { incarnation, lease };
    (1..=2).for_each(|number| place(&other, timer(number, other.now())));
    let claimed = claim(&dying, by(1), 1, 2);
    // The first end arrives and its reply is lost. The second end does not arrive.
    lose(&proxy, &dying, &Op::Ack(claimed[0].timer.id, claimed[0].token), 0);
    // The second end needs a working connection.
    until("no connection", || pollster::block_on(dying.counts()).is_ok());
    proxy.doom(Fate::Silence);
    proxy.greet(Fate::Refuse);
    let second = &claimed[1];
    assert!(try_apply(&dying, Op::Ack(second.timer.id, second.token)).is_err());
    drop(dying);
    let again = claim(&other, by(2), 1, 1);
    assert_eq!(ids(&again), [second.timer.id]);
    assert_eq!(again[0].timer.deliveries, 2);
    end(&other, &again);
    nothing(&other, by(2), 100);
    is_whole(&other);
}

#[test]
fn a_claim_whose_reply_is_lost_is_recovered_at_once_and_not_after_a_lease() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let (store, other) = (behind(&proxy), open(builder(), &server.url()));
    (1..=5).for_each(|number| place(&other, timer(number, other.now())));
    end(&store, &claim(&store, ONE, 1, 5));
    // A second before the server's estimated time, all of these timers are surely due.
    let due = UtcMillis::from_millis(other.now().as_millis() - 1_000);
    (11..=15).for_each(|number| place(&other, timer(number, due)));
    // This claim takes no timer, but the store learns the slices (sets of pending timers) from its answer.
    assert_eq!(now(store.claim(ONE, 999, Limit { timers: 0, ..ALL }, None)).leased, []);
    proxy.doom(Fate::LoseReplies);
    assert_eq!(kind(store.claim(ONE, 1_000, ALL, None)), StoreErrorKind::Unknown);
    let mut recovered = Vec::new();
    until("the claim is not recovered", || {
        recovered = pollster::block_on(store.recover(ONE, 1_000)).unwrap_or_default();
        !recovered.is_empty()
    });
    let mut all = ids(&recovered);
    all.sort_unstable();
    assert_eq!(all, (11..=15).map(id).collect::<Vec<_>>());
    // The timers come from the claim whose reply was lost: none was claimed again.
    assert!(recovered.iter().all(|leased| leased.timer.deliveries == 1));
    end(&store, &recovered);
    is_whole(&other);
}

#[test]
fn an_end_a_failure_and_a_cancel_whose_replies_are_lost_have_one_effect() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let (store, other) = (behind(&proxy), open(builder(), &server.url()));
    load_script(&other);
    (1..=2).for_each(|number| place(&other, timer(number, other.now())));
    let claimed = claim(&store, ONE, 1, 2);
    let (done, failed) = (&claimed[0], &claimed[1]);
    let ack = Op::Ack(done.timer.id, done.token);
    lose(&proxy, &store, &ack, 0);
    let again = insist(&store, &ack);
    assert!(!matches!(again, Outcome::Ended { .. }), "{again:?}");
    assert_eq!(now(other.get(done.timer.id.into())), None);
    let failure = Failure { retry_after: Some(DAY), ..Failure::default() };
    let fail = Op::Fail(failed.timer.id, failed.token, failure);
    lose(&proxy, &store, &fail, 0);
    assert_eq!(insist(&store, &fail), Outcome::Refused(Refusal::Stale));
    let stored = now(other.get(failed.timer.id.into())).unwrap();
    assert_eq!((stored.failures, stored.state.phase()), (1, Phase::Pending));
    let cancel = Op::Cancel(failed.timer.id.into(), None);
    // A cancel has two replies: the timer, and then that it was removed. The second reply is lost.
    lose(&proxy, &store, &cancel, 1);
    assert_eq!(insist(&store, &cancel), Outcome::NotFound);
    assert_eq!(count(&other), 0);
    is_whole(&other);
}

/// Kills the server and starts it again. Stores on the server stay open and go on.
fn die(server: &mut Server) {
    server.kill();
    server.restart();
}

#[test]
fn an_append_only_file_of_each_second_loses_no_more_than_the_last_seconds() {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "everysec"]) else {
        return;
    };
    let store = open(builder().shards(2), &server.url());
    let due = store.now() + DAY;
    (1..=20).for_each(|number| place(&store, timer(number, due)));
    // After this pause, the setting may no longer lose the first timers.
    thread::sleep(Duration::from_secs(3));
    (21..=25).for_each(|number| place(&store, timer(number, due)));
    die(&mut server);
    for number in 1..=20 {
        assert!(now(store.get(id(number).into())).is_some(), "{number} is lost");
    }
    // The creations are repeated. Lost timers are stored again, and timers that were kept stay.
    (21..=25).for_each(|number| drop(apply(&store, placing(timer(number, due)))));
    assert_eq!(count(&store), 25);
    is_whole(&store);
}

#[test]
fn a_snapshot_loses_what_came_after_it_and_the_store_goes_on() {
    let Some(mut server) = Server::start(&[]) else { return };
    let store = open(builder().shards(2), &server.url());
    let due = store.now() + DAY;
    (1..=20).for_each(|number| place(&store, timer(number, due)));
    server.command(&["SAVE"]);
    (21..=25).for_each(|number| place(&store, timer(number, due)));
    die(&mut server);
    assert_eq!(count(&store), 20);
    place(&store, timer(30, due));
    nothing(&store, ONE, 1);
    is_whole(&store);
}

#[test]
fn a_server_that_keeps_nothing_is_noticed() {
    let Some(mut server) = Server::start(&[]) else { return };
    let store = open(builder().shards(2), &server.url());
    place(&store, timer(1, store.now() + DAY));
    nothing(&store, ONE, 1);
    die(&mut server);
    assert_eq!(kind(store.claim(ONE, 10, ALL, None)), StoreErrorKind::Closed);
}
