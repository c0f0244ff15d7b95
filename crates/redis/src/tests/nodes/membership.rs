//! Tests nodes that start, stop, die and come back, and the shards that each node owns.

use super::{
    ALL, LEASE, NEVER, Runner, SLACK, builder, by, ids, is_divided, nodes, open, place, shares, takeovers,
};
use crate::layout::{Layout, Part};
use crate::link::Connect;
use crate::tests::plain;
use crate::{POLL, RedisStore};
use pollster::block_on;
use redis::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, Refusal, Token};
use tourbillon_durable::store::{Durability, Op, Outcome, StoreErrorKind, TimerStore};
use tourbillon_fault::{Cluster, Server, eventually, eventually_some};

#[test]
fn a_store_that_only_places_timers_is_no_node_and_the_first_claim_makes_one() {
    let Some(server) = Server::start(&[]) else { return };
    let (store, other) = (open(builder(8).node("rack 1"), &server), open(builder(8), &server));
    place(&store, 1, store.now());
    assert_eq!((nodes(&store).nodes, shares(&store)), (vec![], BTreeMap::from([(None, 8)])));
    eventually("the timer is due", || {
        !block_on(store.claim(by(1, LEASE), 1, ALL, None)).unwrap().leased.is_empty()
    });
    let seen = nodes(&store);
    let [node] = &seen.nodes[..] else { panic!("{seen:?}") };
    assert_eq!((&*node.name, node.is_live, node.is_this), ("rack 1", true, true));
    assert_eq!(&*node.version, env!("CARGO_PKG_VERSION"));
    // The node took `since` from its estimate of the server's clock.
    assert!(node.since - node.seen < Duration::from_secs(1) && node.seen <= seen.now, "{seen:?}");
    let owner = Some(node.incarnation);
    assert!(seen.shards.iter().all(|shard| shard.owner == owner && shard.epoch == 1 && shard.takeovers == 0));
    assert!(seen.shards.iter().all(|shard| shard.polled.is_some()));
    // Another process sees the same node and shards. It does not see when the owner looked at the shards.
    let there = nodes(&other);
    assert!(!there.nodes[0].is_this && there.shards.iter().all(|shard| shard.polled.is_none()));
    let kind = |builder| plain::open(builder, server.port()).map(drop).unwrap_err().kind();
    assert_eq!(kind(builder(8).node("a\0b")), StoreErrorKind::Limit);
    assert_eq!(kind(builder(8).ttl(Duration::ZERO)), StoreErrorKind::Limit);
}

/// Imitates a node of a later version of the program, whose record has unknown parts and which sends unknown messages.
#[test]
fn a_node_of_a_later_version_has_its_share_of_the_shards() {
    let Some(server) = Server::start(&[]) else { return };
    let ttl = Duration::from_secs(3);
    let runner = Runner::start(open(builder(32).ttl(ttl), &server));
    eventually("the node has all shards", || is_divided(&[&runner.store]));
    let sign = || {
        let now = nodes(&runner.store).now.as_millis();
        let about = format!("later\0{}\0{now}\0{}\0more\0yet more", "99.0.0-rc.1", ttl.as_millis());
        server.command(&["HSET", "tb:{d}:about", "77", &about]);
        server.command(&["ZADD", "tb:{d}:nodes", &now.to_string(), "77"]);
        server.command(&["PUBLISH", "tb:{d}:hints", "nodes"]);
        server.command(&["PUBLISH", "tb:{d}:hints", "a hint of another kind 5"]);
    };
    let share = || shares(&runner.store).get(&Some(runner.store.node.incarnation)).copied();
    eventually("the node leaves the other its share", || {
        sign();
        share().is_some_and(|own| own < 32)
    });
    let seen = nodes(&runner.store).nodes;
    let later = seen.iter().find(|node| node.incarnation == 77).unwrap();
    assert_eq!((&*later.name, &*later.version, later.is_live), ("later", "99.0.0-rc.1", true));
    place(&runner.store, 1, UtcMillis::from_millis(5));
    // The other node dies without a message.
    eventually("the node has all shards again", || share() == Some(32));
    eventually("the timer is delivered", || runner.has_seen(1));
}

#[test]
fn a_stop_releases_at_once_and_the_others_take_the_shards_without_a_takeover() {
    let Some(server) = Server::start(&[]) else { return };
    // With this `ttl`, no shard expires during the test.
    let open = |name: &str| Runner::start(open(builder(32).node(name).ttl(NEVER), &server));
    let (one, other) = (open("one"), open("other"));
    eventually("the shards are divided", || is_divided(&[&one.store, &other.store]));
    let begin = Instant::now();
    block_on(one.store.leave()).unwrap();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(1) + SLACK, "{took:?}");
    let (left, _) = one.kill();
    let gone = left.node.incarnation;
    assert!(!nodes(&other.store).nodes.iter().any(|node| node.incarnation == gone), "the node is not listed");
    eventually("the other takes all", || is_divided(&[&other.store]));
    assert_eq!(takeovers(&other.store), 0);
    // A second `leave` has no effect, and a claim enters again.
    block_on(left.leave()).unwrap();
    let _claimed = block_on(left.claim(by(1, LEASE), 99, ALL, None)).unwrap();
    assert_eq!(nodes(&left).nodes.len(), 2);
}

#[test]
fn a_killed_node_is_taken_over_when_its_time_is_over_and_the_takeovers_are_counted() {
    let Some(server) = Server::start(&[]) else { return };
    let ttl = Duration::from_secs(3);
    let start = || Runner::start(open(builder(32).ttl(ttl), &server));
    let (one, other) = (start(), start());
    eventually("the shards are divided", || is_divided(&[&one.store, &other.store]));
    let before = takeovers(&other.store);
    let begin = Instant::now();
    drop(one.kill());
    eventually("the other takes all", || is_divided(&[&other.store]));
    let took = begin.elapsed();
    assert!(took < ttl + POLL + SLACK, "{took:?}");
    let seen = nodes(&other.store);
    assert!(takeovers(&other.store) > before);
    assert!(seen.shards.iter().any(|shard| shard.taken_over.is_some()));
    let dead = seen.nodes.iter().find(|node| !node.is_this).unwrap();
    assert!(!dead.is_live, "a dead node stays listed: {dead:?}");
    place(&other.store, 5, other.store.now());
    eventually("a timer is delivered", || other.has_seen(5));
}

/// Returns the channel through which other nodes see that this store's node is connected.
fn own_channel(store: &RedisStore) -> String {
    let nodes = &store.node;
    String::from_utf8(nodes.channel_of(nodes.incarnation)).unwrap()
}

/// Waits until each of two nodes has seen that the other node is connected.
fn see_each_other([one, other]: [&Runner; 2]) {
    let sees =
        |by: &Runner, node: &Runner| by.store.node.state().sights.contains_key(&node.store.node.incarnation);
    eventually("each has seen the other", || sees(one, other) && sees(other, one));
}

/// Kills the node `one`, and waits until the node `other` has taken the shards of `one`.
fn kill_beside(one: Runner, other: &Runner) {
    let before = takeovers(&other.store);
    drop(one.kill());
    let begin = Instant::now();
    eventually("the other takes all", || is_divided(&[&other.store]));
    let took = begin.elapsed();
    eprintln!("the shards of a node without a connection were taken after {took:.2?}");
    assert!(took < Duration::from_secs(2) + SLACK, "{took:?}");
    assert!(takeovers(&other.store) > before);
}

/// Tests dead nodes with a `ttl` that does not end during the test, so that only the end of its connection shows that a
/// node is dead.
#[test]
fn a_node_whose_connection_ends_is_replaced_at_once_and_one_that_connects_again_is_a_node_again() {
    let Some(server) = Server::start(&[]) else { return };
    let connect = Connect::single(&server.url()).unwrap();
    let start = || {
        let store = block_on(builder(32).ttl(NEVER / 2).open(&connect)).unwrap();
        Runner::start(Arc::new(store))
    };
    let (one, other) = (start(), start());
    eventually("the shards are divided", || is_divided(&[&one.store, &other.store]));
    see_each_other([&one, &other]);
    // All subscriptions end, and begin again. A node that is declared dead before that is live again with its next sign
    // of life.
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    thread::sleep(Duration::from_secs(2));
    eventually("the shards are divided again", || is_divided(&[&one.store, &other.store]));
    see_each_other([&one, &other]);
    let gone = own_channel(&one.store);
    kill_beside(one, &other);
    let numbers: Vec<Value> = server.query(&["PUBSUB", "NUMSUB", &gone]);
    assert_eq!(numbers.last(), Some(&Value::Int(0)));
    assert!(nodes(&other.store).nodes.iter().any(|node| !node.is_live), "a dead node stays listed");
    place(&other.store, 5, other.store.now());
    eventually("a timer is delivered", || other.has_seen(5));
}

/// Tests that a dead node is noticed in a cluster, whose servers know only their own connections. The same must hold
/// after the deployment's slot has moved, and after a replica has taken over.
#[test]
fn in_a_cluster_a_node_whose_connection_ends_is_replaced_at_once_and_no_other_when_slots_move() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let connect = Connect::cluster(cluster.urls()).unwrap();
    let start = || {
        let store = block_on(builder(32).ttl(NEVER / 2).open(&connect)).unwrap();
        Runner::start(Arc::new(store))
    };
    let settle = |one: &Runner, other: &Runner| {
        eventually("the shards are divided", || is_divided(&[&one.store, &other.store]));
        see_each_other([one, other]);
    };
    let (one, other) = (start(), start());
    settle(&one, &other);
    kill_beside(one, &other);
    let one = start();
    settle(&one, &other);

    let slot = cluster.slot(&String::from_utf8(Layout::deployment("d")).unwrap());
    let from = cluster.owner(0, slot).unwrap();
    let to = (from + 1) % 3;
    let before = takeovers(&other.store);
    let are_at = |node: usize| {
        [&one, &other].iter().all(|runner| {
            let answer: Vec<Value> =
                cluster.nodes[node].query(&["PUBSUB", "NUMSUB", &own_channel(&runner.store)]);
            answer.last() == Some(&Value::Int(1))
        })
    };
    assert!(are_at(from), "the nodes have their connections at the primary of the deployment");
    cluster.begin_move(slot, from, to);
    cluster.move_all_keys(slot, from, to);
    cluster.finish_move(slot, from, to);
    eventually("the nodes have their connections at the new primary", || are_at(to));
    settle(&one, &other);
    let replica = to + 3;
    cluster.take_over(replica, None);
    eventually("the nodes have their connections at the replica that took over", || are_at(replica));
    settle(&one, &other);
    assert_eq!(takeovers(&other.store), before, "no node was taken for dead");
    kill_beside(one, &other);
    place(&other.store, 5, other.store.now());
    eventually("a timer is delivered", || other.has_seen(5));
}

/// F-20: two nodes have the same name, and the epoch of a shard goes back.
#[test]
fn nodes_of_one_name_are_two_and_tokens_hold_when_the_epoch_steps_back() {
    let Some(server) = Server::start(&[]) else { return };
    let stores = [(); 2].map(|()| open(builder(1).node("same").poll(None).ttl(NEVER), &server));
    let [one, other] = &stores;
    let claim = |store: &RedisStore, incarnation, number| {
        block_on(store.claim(by(incarnation, LEASE), number, ALL, None)).unwrap().leased
    };
    for number in 1..=4 {
        place(one, number, UtcMillis::from_millis(5));
    }
    let first = claim(one, 1, 1);
    assert_eq!(ids(&first), [1, 2, 3, 4]);
    assert_eq!(claim(other, 2, 1), [], "the shard is the other node's, or every timer leased");
    let seen = nodes(one);
    assert_eq!(seen.nodes.len(), 2);
    assert_ne!(seen.nodes[0].incarnation, seen.nodes[1].incarnation);
    assert_eq!((&*seen.nodes[0].name, &*seen.nodes[1].name), ("same", "same"));
    // The other node now owns the shard in an epoch that `one` had, as after a failover that lost the takeover by
    // `one`.
    let meta = String::from_utf8(Layout::new("d", 1).key(0, Part::Meta)).unwrap();
    let wanted = [one, other].map(|store| store.node.state().shards.is_wanted(0));
    for (store, incarnation, number) in [(other, 2, 2_u64), (one, 1, 2)] {
        let owner = String::from_utf8(store.node.id.clone()).unwrap();
        server.command(&["HSET", &meta, "owner", &owner, "epoch", "1"]);
        place(store, 10 + u128::from(number) + u128::from(incarnation), UtcMillis::from_millis(6));
        // Both nodes now regard themselves as the owner, as a paused node may.
        store.node.state().shards.want_all();
        let leased = claim(store, incarnation, number);
        assert_eq!(leased.len(), 1, "what is leased is leased by one node: {leased:?}");
        assert_eq!(nodes(one).shards[0].epoch, 1);
        // If a node mistakes another node's lease for its own, it cannot end the lease.
        let wrong = Token { incarnation, claim: number };
        let ack =
            |token| block_on(store.apply(vec![Op::Ack(first[0].timer.id, token)], Durability::PowerLoss));
        assert_eq!(ack(wrong).unwrap(), [Outcome::Refused(Refusal::Stale)]);
    }
    assert!(wanted.iter().filter(|is_wanted| **is_wanted).count() >= 1);
    let ends = first.iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
    let outcomes = block_on(one.apply(ends, Durability::PowerLoss)).unwrap();
    let is_done = |outcome: &Outcome| matches!(outcome, Outcome::Ended { phase: Phase::Done, .. });
    assert!(outcomes.iter().all(is_done), "{outcomes:?}");
    assert_eq!(block_on(one.check()).unwrap(), []);
}

/// F-19: nodes come and go. The test of takeovers covers killed nodes.
#[test]
fn shards_are_divided_anew_and_each_timer_is_delivered_once() {
    let Some(server) = Server::start(&[]) else { return };
    let start = || Runner::start(open(builder(32).ttl(Duration::from_secs(60)), &server));
    let mut runners = vec![start(), start(), start()];
    let divided = |runners: &[Runner]| {
        let stores: Vec<&RedisStore> = runners.iter().map(|runner| &*runner.store).collect();
        let begin = Instant::now();
        eventually("the shards are divided", || is_divided(&stores));
        assert!(begin.elapsed() < Duration::from_secs(15) + SLACK, "{:?}", begin.elapsed());
    };
    divided(&runners);
    let (far, next, stops) = (open(builder(32), &server), AtomicU64::new(0), AtomicBool::new(false));
    let mut seen = Vec::new();
    thread::scope(|scope| {
        let _load = scope.spawn(|| {
            while !stops.load(Ordering::Relaxed) {
                let id = u128::from(next.fetch_add(1, Ordering::Relaxed)) + 1;
                place(&far, id, far.now() + Duration::from_millis(u64::try_from(id % 300).unwrap()));
            }
        });
        let leaving = runners.remove(0);
        let (store, deliveries) = leaving.kill();
        block_on(store.leave()).unwrap();
        seen.push(deliveries);
        divided(&runners);
        runners.push(start());
        divided(&runners);
        stops.store(true, Ordering::Relaxed);
    });
    seen.extend(runners.iter().map(|runner| Arc::clone(&runner.seen)));
    let last = next.load(Ordering::Relaxed);
    let delivered = || {
        let mut all: Vec<u128> = Vec::new();
        seen.iter().for_each(|deliveries| all.extend(deliveries.lock().unwrap().iter().map(|(id, _)| *id)));
        all.sort_unstable();
        all
    };
    eventually("all are delivered", || delivered().len() as u64 >= last);
    assert_eq!(delivered(), (1..=u128::from(last)).collect::<Vec<_>>(), "each once");
    assert_eq!(takeovers(&far), 0);
}

#[test]
fn a_node_whose_handlers_are_all_busy_steps_back_until_it_claims_again() {
    let Some(server) = Server::start(&[]) else { return };
    // On a slow machine the idle node may own all shards before the busy node steps back. Then the test starts again.
    assert!((0..5).any(|_| steps_back_and_enters_again(&server)), "the busy one owned no shard, five times");
}

/// Lets a busy node give up its shards until it claims again. Returns false if it loses its shards before.
fn steps_back_and_enters_again(server: &Server) -> bool {
    server.command(&["FLUSHALL"]);
    // Under load, a node with a short time would lose its shards before it steps back.
    let ttl = Duration::from_secs(2);
    let busy = open(builder(4).ttl(ttl), server);
    let _claimed = block_on(busy.claim(by(1, LEASE), 1, ALL, None)).unwrap();
    let idle = open(builder(4).ttl(ttl), server);
    for id in 1..=40 {
        place(&idle, id, idle.now());
    }
    let idle = Runner::start(idle);
    // The busy node steps back only if it owns a shard with a due timer, so the test places timers until it does.
    let mut placed = 40;
    let stepped_back = eventually_some("the busy one has stepped back, or owns no shard", || {
        placed += 1;
        place(&idle.store, placed, idle.store.now());
        let all = nodes(&idle.store);
        let this = all.nodes.iter().find(|node| node.is_this).map(|node| node.incarnation);
        let owns_all = this.is_some() && all.shards.iter().all(|shard| shard.owner == this);
        match all.nodes.len() {
            1 => Some(true),
            _ if owns_all => Some(false),
            _ => None,
        }
    });
    if !stepped_back {
        return false;
    }
    eventually("the other delivers all", || (1..=placed).all(|id| idle.has_seen(id)));
    let _claimed = block_on(busy.claim(by(1, LEASE), 2, ALL, None)).unwrap();
    assert_eq!(nodes(&idle.store).nodes.len(), 2, "a claim enters again");
    true
}

#[test]
fn a_shard_of_another_deployment_closes_the_store() {
    let Some(server) = Server::start(&[]) else { return };
    let store = open(builder(4).poll(None), &server);
    let _claimed = block_on(store.claim(by(1, LEASE), 1, ALL, None)).unwrap();
    let meta = String::from_utf8(Layout::new("d", 4).key(2, Part::Meta)).unwrap();
    server.command(&["HSET", &meta, "id", "another"]);
    let error = block_on(store.claim(by(1, LEASE), 2, ALL, None)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Closed, "{error}");
    assert_eq!(block_on(store.counts()).unwrap_err().kind(), StoreErrorKind::Closed);
    block_on(store.leave()).unwrap();
}
