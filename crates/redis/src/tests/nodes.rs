//! Nodes on one server: who serves which shard, and what becomes of timers when a node, a clock or the server fails.

use super::plain;
use crate::RedisBuilder;
use crate::layout::{Layout, Part};
use crate::link::{Answer, Connect, Ear, Link, Pause, Session};
use crate::node::LONGEST_POLL;
use crate::script::Script;
use crate::script::Words;
use crate::{POLL, RedisStore};
use core::any::Any;
use pollster::block_on;
use redis::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, Refusal, Token};
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Leased, Limit, Nodes, Op, Outcome, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Cluster, Fate, Proxy, Server, eventually};

const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };
const LEASE: Duration = Duration::from_secs(60);
/// What never happens in a test.
const NEVER: Duration = Duration::from_secs(3_600);
/// What a busy machine may add to a time.
const SLACK: Duration = Duration::from_secs(10);

fn builder(shards: u16) -> RedisBuilder {
    RedisStore::builder("d").shards(shards)
}

fn open(builder: RedisBuilder, server: &Server) -> Arc<RedisStore> {
    Arc::new(plain::open(builder, server.port()).unwrap())
}

fn nodes(store: &RedisStore) -> Nodes {
    block_on(store.nodes()).unwrap().unwrap()
}

/// The numbers of shards by owner.
fn shares(store: &RedisStore) -> BTreeMap<Option<u64>, usize> {
    let mut shares = BTreeMap::new();
    nodes(store).shards.iter().for_each(|shard| *shares.entry(shard.owner).or_default() += 1);
    shares
}

/// Whether these stores own all shards, and each of them some.
fn is_divided(stores: &[&RedisStore]) -> bool {
    let owners: Vec<u64> = stores.iter().map(|store| store.node.incarnation).collect();
    let shares = shares(stores[0]);
    shares.len() == owners.len() && owners.iter().all(|owner| shares.contains_key(&Some(*owner)))
}

fn takeovers(store: &RedisStore) -> u64 {
    nodes(store).shards.iter().map(|shard| shard.takeovers).sum()
}

fn by(incarnation: u64, lease: Duration) -> Claimant {
    Claimant { incarnation, lease }
}

fn place(store: &RedisStore, id: u128, due: UtcMillis) {
    let op = Op::Place(Box::new(Timer::new(TimerId::from_u128(id), "kind", due)), IfPresent::Reject);
    // An answer that was lost is repeated under the same id.
    eventually("a creation is answered", || {
        let outcome = block_on(store.apply(vec![op.clone()], Durability::PowerLoss));
        matches!(outcome.as_deref(), Ok([Outcome::Created(_) | Outcome::Repeated(_)]))
    });
}

fn ids(leased: &[Leased]) -> Vec<u128> {
    leased.iter().map(|leased| leased.timer.id.as_u128()).collect()
}

type Seen = Arc<Mutex<Vec<(u128, Duration)>>>;

/// What a runtime does, without handlers: it claims when it is woken or a timer is due, and ends what it claims.
struct Runner {
    store: Arc<RedisStore>,
    /// The timers that were delivered, and how late.
    seen: Seen,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    fn start(store: Arc<RedisStore>) -> Self {
        Self::start_with(store, LEASE)
    }

    fn start_with(store: Arc<RedisStore>, lease: Duration) -> Self {
        let (seen, ends) = (Seen::default(), Arc::new(AtomicBool::new(false)));
        let (wake, woken) = channel();
        store.subscribe(Box::new(move || _ = wake.send(())));
        let thread = {
            let (store, seen, ends) = (Arc::clone(&store), Arc::clone(&seen), Arc::clone(&ends));
            let by = by(store.node.incarnation ^ 1, lease);
            thread::spawn(move || {
                let mut has_failed = false;
                for claim in 1.. {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    let claimed = block_on(store.claim(by, claim, ALL));
                    has_failed |= claimed.is_err();
                    let mut rest = match &claimed {
                        Ok(claimed) => claimed.next_due.map_or(NEVER, |due| due - store.now()),
                        Err(_) => Duration::from_millis(50),
                    };
                    if has_failed {
                        // What a lost answer has leased comes back at the end of the lease.
                        drop(block_on(store.reap(1_000)));
                        rest = rest.min(Duration::from_millis(500));
                    }
                    let (leased, now) = match claimed {
                        Ok(claimed) => (claimed.leased, claimed.now),
                        Err(_) => (block_on(store.recover(by, claim)).unwrap_or_default(), store.now()),
                    };
                    for Leased { timer, token } in leased {
                        seen.lock().unwrap().push((timer.id.as_u128(), now - timer.due));
                        eventually("an end is answered", || {
                            block_on(store.apply(vec![Op::Ack(timer.id, token)], Durability::PowerLoss))
                                .is_ok()
                        });
                    }
                    match woken.recv_timeout(rest) {
                        Ok(()) | Err(RecvTimeoutError::Timeout) => while woken.try_recv().is_ok() {},
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            })
        };
        Self { store, seen, ends, thread: Some(thread) }
    }

    /// Ends the claims, as a process that is killed does.
    fn kill(mut self) -> (Arc<RedisStore>, Seen) {
        self.ends.store(true, Ordering::Relaxed);
        self.store.deployment.alarm.wake();
        self.thread.take().unwrap().join().unwrap();
        (Arc::clone(&self.store), Arc::clone(&self.seen))
    }

    fn has_seen(&self, id: u128) -> bool {
        self.seen.lock().unwrap().iter().any(|(seen, _)| *seen == id)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.store.deployment.alarm.wake();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A store whose calls and whose hints take different ways.
struct Ways {
    calls: Arc<Session>,
    hints: Arc<Session>,
}

impl Link for Ways {
    fn run<'a>(&'a self, script: &'static Script, keys: Vec<Vec<u8>>, arguments: Words) -> Answer<'a, Value> {
        self.calls.run(script, keys, arguments)
    }

    fn wait(&self, time: Duration) -> Pause {
        self.calls.wait(time)
    }

    fn listen(&self, beside: &[u8], channels: &[Vec<u8>], ear: Ear) -> Option<Box<dyn Any + Send>> {
        self.hints.listen(beside, channels, ear)
    }
}

/// A link whose answers have another time: the store takes the server's clock for so much ahead or behind.
struct Skewed(Arc<Session>, i64);

impl Link for Skewed {
    fn run<'a>(&'a self, script: &'static Script, keys: Vec<Vec<u8>>, arguments: Words) -> Answer<'a, Value> {
        let answer = self.0.run(script, keys, arguments);
        Box::pin(async move {
            let mut answer = answer.await?;
            if let Value::Array(values) = &mut answer
                && let Some(Value::Int(now)) = values.first_mut()
            {
                *now += self.1;
            }
            Ok(answer)
        })
    }
}

#[test]
fn a_store_that_only_places_timers_is_no_node_and_the_first_claim_makes_one() {
    let Some(server) = Server::start(&[]) else { return };
    let (store, other) = (open(builder(8).node("rack 1"), &server), open(builder(8), &server));
    place(&store, 1, store.now());
    assert_eq!((nodes(&store).nodes, shares(&store)), (vec![], BTreeMap::from([(None, 8)])));
    eventually("the timer is due", || {
        !block_on(store.claim(by(1, LEASE), 1, ALL)).unwrap().leased.is_empty()
    });
    let seen = nodes(&store);
    let [node] = &seen.nodes[..] else { panic!("{seen:?}") };
    assert_eq!((&*node.name, node.is_live, node.is_this), ("rack 1", true, true));
    assert_eq!(&*node.version, env!("CARGO_PKG_VERSION"));
    // The beginning is by what the process knows of the server's clock.
    assert!(node.since - node.seen < Duration::from_secs(1) && node.seen <= seen.now, "{seen:?}");
    let owner = Some(node.incarnation);
    assert!(seen.shards.iter().all(|shard| shard.owner == owner && shard.epoch == 1 && shard.takeovers == 0));
    assert!(seen.shards.iter().all(|shard| shard.polled.is_some()));
    // Another process sees the same, but for what only the owner knows.
    let there = nodes(&other);
    assert!(!there.nodes[0].is_this && there.shards.iter().all(|shard| shard.polled.is_none()));
    let kind = |builder| plain::open(builder, server.port()).map(drop).unwrap_err().kind();
    assert_eq!(kind(builder(8).node("a\0b")), StoreErrorKind::Limit);
    assert_eq!(kind(builder(8).ttl(Duration::ZERO)), StoreErrorKind::Limit);
}

/// A node of another version of the program, as far as one version can play it: it says more of itself than is known
/// here, and sends hints that are not known.
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
    // The other one is gone, without a word.
    eventually("the node has all shards again", || share() == Some(32));
    eventually("the timer is delivered", || runner.has_seen(1));
}

#[test]
fn a_stop_releases_at_once_and_the_others_take_the_shards_without_a_takeover() {
    let Some(server) = Server::start(&[]) else { return };
    // No shard is taken because its time is over.
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
    // Leaving twice is leaving once, and a claim enters again.
    block_on(left.leave()).unwrap();
    let _claimed = block_on(left.claim(by(1, LEASE), 99, ALL)).unwrap();
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

/// The channel that tells that the node has its connection.
fn own_channel(store: &RedisStore) -> String {
    let nodes = &store.node;
    String::from_utf8(nodes.channel_of(nodes.incarnation)).unwrap()
}

/// Waits until each has seen the other with its connection.
fn see_each_other([one, other]: [&Runner; 2]) {
    let sees =
        |by: &Runner, node: &Runner| by.store.node.state().sights.contains_key(&node.store.node.incarnation);
    eventually("each has seen the other", || sees(one, other) && sees(other, one));
}

/// Kills a node, and waits until the other one has taken its shards.
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

/// The same in a cluster, whose servers know only of their own connections: before, after another primary has got the
/// slot of the deployment, and after a replica has taken over.
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

/// No time is over in this test: a node that dies is seen by its connection.
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
    // All subscriptions end, and are made again: a node that is buried meanwhile comes back.
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

/// F-20.
#[test]
fn nodes_of_one_name_are_two_and_tokens_hold_when_the_epoch_steps_back() {
    let Some(server) = Server::start(&[]) else { return };
    let stores = [(); 2].map(|()| open(builder(1).node("same").poll(None).ttl(NEVER), &server));
    let [one, other] = &stores;
    let claim = |store: &RedisStore, incarnation, number| {
        block_on(store.claim(by(incarnation, LEASE), number, ALL)).unwrap().leased
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
    // A failover lost what made `one` the owner: the shard is the other's, in the same epoch.
    let meta = String::from_utf8(Layout::new("d", 1).key(0, Part::Meta)).unwrap();
    let wanted = [one, other].map(|store| store.node.state().shards.is_wanted(0));
    for (store, incarnation, number) in [(other, 2, 2_u64), (one, 1, 2)] {
        let owner = String::from_utf8(store.node.id.clone()).unwrap();
        server.command(&["HSET", &meta, "owner", &owner, "epoch", "1"]);
        place(store, 10 + u128::from(number) + u128::from(incarnation), UtcMillis::from_millis(6));
        // Both believe that the shard is theirs, as the thread of a node that was paused may.
        store.node.state().shards.want_all();
        let leased = claim(store, incarnation, number);
        assert_eq!(leased.len(), 1, "what is leased is leased by one node: {leased:?}");
        assert_eq!(nodes(one).shards[0].epoch, 1);
        // A node that takes a lease for its own cannot end it with another token.
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

/// T-07: the server's clock decides who owns a shard, what is due and which leases have ended.
#[test]
fn the_clocks_of_nodes_decide_nothing() {
    let Some(server) = Server::start(&[]) else { return };
    let link = plain::Plain::to(server.port());
    let stores = [30_000, -30_000].map(|skew| {
        let link = Arc::new(Skewed(link.session(), skew));
        // Without a thread, so that the test alone decides who looks.
        block_on(builder(4).poll(None).open_on(link)).unwrap()
    });
    let [ahead, behind] = &stores;
    assert!(ahead.now() - behind.now() > Duration::from_secs(50), "the clocks differ");
    let server_now = open(builder(4), &server).now();
    let _owner = block_on(ahead.claim(by(1, LEASE), 1, ALL)).unwrap();
    assert!(is_divided(&[ahead]));
    // For the one that is ahead this is past, and for the server it is not.
    place(ahead, 1, server_now + Duration::from_secs(20));
    // For the server this is past, and for the one that is behind it is not.
    place(ahead, 2, UtcMillis::from_millis(server_now.as_millis() - 1_000));
    let leased = block_on(ahead.claim(by(1, LEASE), 2, ALL)).unwrap().leased;
    assert_eq!(ids(&leased), [2], "no timer is early");
    assert_eq!(block_on(ahead.reap(10)).unwrap().returned, []);
    for claim in 1..=3 {
        // What the one that is behind takes for signs of the future are signs of now.
        let leased = block_on(behind.claim(by(2, LEASE), claim, ALL)).unwrap().leased;
        assert_eq!(leased, []);
    }
    assert_eq!(block_on(behind.reap(10)).unwrap().returned, []);
    assert_eq!((takeovers(ahead), takeovers(behind)), (0, 0));
}

/// T-02: a server that is slow, and one that stands still, while timers are created and delivered.
#[test]
fn the_engine_goes_on_after_stalls_without_a_restart() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let limit = Duration::from_secs(1);
    let connect = Connect::single(&proxy.url()).unwrap().response_timeout(limit).patience(limit);
    let settings = || builder(32).ttl(Duration::from_secs(2));
    let stores = [(); 2].map(|()| Arc::new(block_on(settings().open(&connect)).unwrap()));
    let runners = stores.map(|store| Runner::start_with(store, Duration::from_secs(5)));
    let far = open(settings(), &server);
    let mut next = 0;
    let mut load = |count: u128| {
        for _ in 0..count {
            next += 1;
            place(&far, next, far.now() + Duration::from_millis(20));
        }
        next
    };
    let all_seen = |last| {
        eventually("every timer is delivered", || {
            (1..=last).all(|id| runners.iter().any(|runner| runner.has_seen(id)))
        });
    };
    all_seen(load(30));
    // Each way takes half of it.
    proxy.delay(Duration::from_millis(300));
    let _during = load(30);
    thread::sleep(Duration::from_secs(1));
    proxy.delay(Duration::ZERO);
    all_seen(load(10));
    // All that the nodes had is over by then, and so are their calls.
    server.stop();
    thread::sleep(Duration::from_secs(3));
    server.go_on();
    all_seen(load(30));
    eventually("both nodes serve again", || is_divided(&[&runners[0].store, &runners[1].store]));
    assert_eq!(block_on(far.check()).unwrap(), []);
}

#[test]
fn hints_bring_the_timers_of_others_long_before_a_poll() {
    let Some(server) = Server::start(&[]) else { return };
    let settings = || builder(32).poll(Some(NEVER)).ttl(NEVER);
    let owner = Runner::start(open(settings(), &server));
    eventually("the node hears", || owner.store.node.hears());
    eventually("the node owns all", || is_divided(&[&owner.store]));
    let other = open(builder(32).poll(None), &server);
    for id in 1..=20 {
        place(&other, id, other.now() + Duration::from_millis(50));
        eventually("a hint brings the timer", || owner.has_seen(id));
    }
    // A node that comes is noticed by its message: the next sign of life is a quarter of an hour away.
    let second = Runner::start(open(settings(), &server));
    eventually("the shards are divided", || is_divided(&[&owner.store, &second.store]));
}

/// T-01: the connection of the hints is cut, or half open. The poll is the guarantee.
#[test]
fn without_hints_no_timer_is_later_than_a_poll() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let calls = plain::Plain::to(server.port()).session();
    let hints = Arc::new(Session::open(&Connect::single(&proxy.url()).unwrap()).unwrap());
    let store = block_on(builder(8).open_on(Arc::new(Ways { calls, hints }))).unwrap();
    let runner = Runner::start(Arc::new(store));
    let other = open(builder(8).poll(None), &server);
    let mut id = 0;
    let mut lateness = |event: &str| {
        for _ in 0..5 {
            id += 1;
            place(&other, id, other.now() + Duration::from_millis(10));
            eventually(event, || runner.has_seen(id));
        }
        let seen = runner.seen.lock().unwrap();
        let late = seen.iter().rev().take(5).map(|(_, late)| *late).max().unwrap();
        assert!(late <= LONGEST_POLL + SLACK / 4, "{event}: {late:?}");
    };
    eventually("the node hears", || runner.store.node.hears());
    lateness("with hints");
    // The messages are lost, and nobody has noticed yet.
    proxy.doom(Fate::Silence);
    lateness("half open");
    proxy.greet(Fate::Refuse);
    proxy.cut();
    eventually("the node notices", || !runner.store.node.hears());
    assert_eq!(runner.store.node.pause(), POLL);
    lateness("cut");
    proxy.greet(Fate::Pass);
    eventually("the node hears again", || runner.store.node.hears());
    lateness("with hints again");
}

/// Two stores, the first of which has a timer leased and is cut off for a time. Calls `meanwhile` with the other one.
fn cut(time: Duration, lease: Duration, meanwhile: impl Fn(&RedisStore)) -> Option<CutOff> {
    let server = Server::start(&[])?;
    let proxy = Proxy::start(server.address());
    let limit = Duration::from_millis(500);
    let connect = Connect::single(&proxy.url()).unwrap().response_timeout(limit).patience(limit);
    let ttl = Duration::from_millis(500);
    let store = block_on(builder(2).poll(None).ttl(ttl).open(&connect)).unwrap();
    let other = open(builder(2).poll(None).ttl(ttl), &server);
    place(&store, 1, store.now());
    let mut leased = Vec::new();
    eventually("the timer is due", || {
        leased =
            block_on(store.claim(by(1, lease), 1, ALL)).map(|claimed| claimed.leased).unwrap_or_default();
        !leased.is_empty()
    });
    let (id, token) = (leased[0].timer.id, leased[0].token);
    proxy.doom(Fate::Silence);
    proxy.greet(Fate::Refuse);
    let begin = Instant::now();
    while begin.elapsed() < time {
        assert!(block_on(store.renew(by(1, lease), vec![(id, token)])).is_err(), "the way is cut");
        meanwhile(&other);
        thread::sleep(Duration::from_millis(50));
    }
    proxy.greet(Fate::Pass);
    eventually("the way is open", || block_on(store.get(id.into())).is_ok());
    Some(CutOff { store, other, id, token, _proxy: proxy, _server: server })
}

struct CutOff {
    store: RedisStore,
    other: Arc<RedisStore>,
    id: TimerId,
    token: Token,
    _proxy: Proxy,
    _server: Server,
}

fn ack(store: &RedisStore, id: TimerId, token: Token) -> Outcome {
    block_on(store.apply(vec![Op::Ack(id, token)], Durability::PowerLoss)).unwrap().remove(0)
}

/// T-09, for a cut that is shorter than a lease.
#[test]
fn a_cut_that_is_shorter_than_a_lease_loses_nothing_and_steals_nothing() {
    let meanwhile = |other: &RedisStore| {
        // The shards are the other's before long. The lease is not.
        assert_eq!(block_on(other.claim(by(2, LEASE), 1, ALL)).unwrap().leased, []);
        assert_eq!(block_on(other.reap(9)).unwrap().returned, []);
    };
    let Some(CutOff { store, other, id, token, _proxy, _server }) =
        cut(Duration::from_secs(2), LEASE, meanwhile)
    else {
        return;
    };
    let _claimed = block_on(other.claim(by(2, LEASE), 2, ALL)).unwrap();
    assert!(is_divided(&[&other]), "the shards are served meanwhile");
    assert_eq!(block_on(store.renew(by(1, LEASE), vec![(id, token)])).unwrap(), []);
    assert!(matches!(ack(&store, id, token), Outcome::Ended { phase: Phase::Done, .. }));
}

/// T-09, for a cut of two leases.
#[test]
fn after_a_cut_of_two_leases_the_timer_is_another_nodes_and_the_token_stale() {
    let lease = Duration::from_secs(1);
    let enter = |other: &RedisStore| drop(block_on(other.claim(by(2, lease), 1, ALL)).unwrap());
    let Some(CutOff { store, other, id, token, _proxy, _server }) = cut(2 * lease, lease, enter) else {
        return;
    };
    eventually("the lease is over", || block_on(other.reap(9)).unwrap().returned == [id]);
    let stolen = block_on(other.claim(by(2, LEASE), 2, ALL)).unwrap().leased;
    assert_eq!(ids(&stolen), [1], "the timer is delivered by another node");
    assert_eq!(block_on(store.renew(by(1, lease), vec![(id, token)])).unwrap(), [id], "the lease is lost");
    assert_eq!(ack(&store, id, token), Outcome::Refused(Refusal::Stale));
    assert!(matches!(ack(&other, id, stolen[0].token), Outcome::Ended { phase: Phase::Done, .. }));
}

/// F-19, without kills: those are in the test of takeovers.
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

/// Waits until two nodes have divided the shards, and have looked at all that a coming node makes them look at.
fn settle(runners: &[Runner; 2]) {
    eventually("the shards are divided", || is_divided(&[&runners[0].store, &runners[1].store]));
    eventually("both hear", || runners.iter().all(|runner| runner.store.node.hears()));
    thread::sleep(3 * LONGEST_POLL);
}

/// The number of commands that clients have sent, and of those that scripts have called.
fn commands(server: &Server) -> (u64, u64) {
    let (mut sent, mut called) = (0, 0);
    let text: String = server.query(&["INFO", "commandstats"]);
    for line in text.lines() {
        let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':')) else {
            continue;
        };
        let calls = rest.strip_prefix("calls=").and_then(|rest| rest.split_once(',')).map(|(calls, _)| calls);
        let calls: u64 = calls.and_then(|calls| calls.parse().ok()).unwrap_or_default();
        match name {
            "evalsha" | "eval" | "ping" | "publish" | "subscribe" | "script|load" => sent += calls,
            "info" | "hello" | "client|setinfo" => {}
            _ => called += calls,
        }
    }
    (sent, called)
}

#[test]
fn an_idle_shard_costs_at_most_one_command_a_second() {
    let Some(server) = Server::start(&[]) else { return };
    let runners = [(); 2].map(|()| Runner::start(open(builder(64), &server)));
    settle(&runners);
    let (before, begin) = (commands(&server), Instant::now());
    thread::sleep(Duration::from_secs(4));
    let (after, seconds) = (commands(&server), begin.elapsed().as_secs_f64());
    let per_shard = |after: u64, before: u64| (after - before) as f64 / 64.0 / seconds;
    let (sent, called) = (per_shard(after.0, before.0), per_shard(after.1, before.1));
    // Two nodes look every 1.25 s, and the server is asked every 2 s whether it is there.
    assert!(sent <= 0.2, "{sent} commands, and {called} within scripts");
    assert!(called <= 3.0, "{called} within scripts");
    assert!(sent > 0.01, "the shards are looked at");
}

#[test]
fn a_node_whose_handlers_are_all_busy_steps_back_until_it_claims_again() {
    let Some(server) = Server::start(&[]) else { return };
    let ttl = Duration::from_millis(500);
    let busy = open(builder(4).ttl(ttl), &server);
    let _claimed = block_on(busy.claim(by(1, LEASE), 1, ALL)).unwrap();
    let idle = open(builder(4).ttl(ttl), &server);
    for id in 1..=40 {
        place(&idle, id, idle.now());
    }
    let idle = Runner::start(idle);
    // The other node may have all shards by now, on a slow machine: the busy one must have timers that are due.
    let mut placed = 40;
    eventually("the busy one has stepped back", || {
        placed += 1;
        place(&idle.store, placed, idle.store.now());
        nodes(&idle.store).nodes.len() == 1
    });
    eventually("the other delivers all", || (1..=placed).all(|id| idle.has_seen(id)));
    let _claimed = block_on(busy.claim(by(1, LEASE), 2, ALL)).unwrap();
    assert_eq!(nodes(&idle.store).nodes.len(), 2, "a claim enters again");
}

#[test]
fn a_shard_of_another_deployment_closes_the_store() {
    let Some(server) = Server::start(&[]) else { return };
    let store = open(builder(4).poll(None), &server);
    let _claimed = block_on(store.claim(by(1, LEASE), 1, ALL)).unwrap();
    let meta = String::from_utf8(Layout::new("d", 4).key(2, Part::Meta)).unwrap();
    server.command(&["HSET", &meta, "id", "another"]);
    let error = block_on(store.claim(by(1, LEASE), 2, ALL)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Closed, "{error}");
    assert_eq!(block_on(store.counts()).unwrap_err().kind(), StoreErrorKind::Closed);
    block_on(store.leave()).unwrap();
}

#[test]
fn a_subscriber_that_panics_does_not_end_the_looks() {
    let Some(server) = Server::start(&[]) else { return };
    let store = open(builder(4), &server);
    let calls = Arc::new(AtomicU64::new(0));
    {
        let calls = Arc::clone(&calls);
        store.subscribe(Box::new(move || {
            calls.fetch_add(1, Ordering::Relaxed);
            panic!("the subscriber of a test");
        }));
    }
    // Its end is reported by a panic as well, which is this test's own.
    let claim = |number| {
        let call = || block_on(store.claim(by(1, LEASE), number, ALL));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(call))
    };
    drop(claim(1));
    let other = open(builder(4).poll(None), &server);
    for id in 1..=3 {
        let before = calls.load(Ordering::Relaxed);
        place(&other, id, other.now());
        eventually("the subscriber is called again", || calls.load(Ordering::Relaxed) > before);
        drop(claim(u64::try_from(id).unwrap() + 1));
    }
    eventually("the signs of life go on", || {
        let seen = nodes(&other);
        seen.nodes.iter().all(|node| node.seen > node.since)
    });
}

#[test]
fn what_a_dead_node_had_claimed_is_reaped_by_a_node_that_was_idle() {
    let Some(server) = Server::start(&[]) else { return };
    let ttl = Duration::from_secs(1);
    let dead = open(builder(4).ttl(ttl), &server);
    place(&dead, 1, dead.now());
    let lease = Duration::from_secs(2);
    eventually("the timer is claimed", || {
        !block_on(dead.claim(by(1, lease), 1, ALL)).unwrap().leased.is_empty()
    });
    let store = open(builder(4).ttl(ttl), &server);
    let (wake, woken) = channel();
    store.subscribe(Box::new(move || _ = wake.send(())));
    // What a runtime does: it claims when it is woken, and reaps when a claim's answer says so. No timer is pending,
    // and so nothing but the takeover can bring it to a reap.
    let mut claimed = block_on(store.claim(by(2, lease), 1, ALL)).unwrap();
    drop(dead);
    let begin = Instant::now();
    for claim in 2.. {
        assert_eq!(claimed.leased, []);
        if claimed.next_reap.is_some() {
            break;
        }
        assert!(begin.elapsed() < SLACK, "no claim says when the dead node's lease ends");
        woken.recv_timeout(SLACK).expect("the node is woken by what it takes over");
        while woken.try_recv().is_ok() {}
        claimed = block_on(store.claim(by(2, lease), claim, ALL)).unwrap();
    }
    let end = claimed.next_reap.unwrap();
    assert!(end <= store.now() + lease, "{end:?}");
    thread::sleep(end - store.now());
    let mut returned = Vec::new();
    eventually("the timer is given back", || {
        returned.extend(block_on(store.reap(10)).unwrap().returned);
        !returned.is_empty()
    });
    assert_eq!(returned, [TimerId::from_u128(1)]);
}

fn on_cluster(cluster: &Cluster) -> Arc<RedisStore> {
    let connect = Connect::cluster(cluster.urls()).unwrap();
    Arc::new(block_on(builder(16).open(&connect)).unwrap())
}

/// F-23, for the nodes: a primary is killed, and its replica takes over.
#[test]
#[ignore = "a minute: a cluster, one of whose primaries dies"]
fn a_dead_primary_makes_no_timer_of_other_shards_late() {
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let runner = Runner::start_with(on_cluster(&cluster), Duration::from_secs(5));
    let far = on_cluster(&cluster);
    eventually("the node owns all", || is_divided(&[&runner.store]));
    let layout = Layout::new("d", 16);
    let is_on_first = |id: u128| {
        let shard = layout.shard_of_id(TimerId::from_u128(id));
        let meta = String::from_utf8(layout.key(shard, Part::Meta)).unwrap();
        cluster.owner(1, cluster.slot(&meta)) == Some(0)
    };
    let (dead, living): (Vec<u128>, Vec<u128>) = (1..=200).partition(|id| is_on_first(*id));
    assert!(!dead.is_empty() && !living.is_empty());
    let start = far.now() + Duration::from_secs(5);
    for (nth, id) in (0..).zip(&living) {
        place(&far, *id, start + Duration::from_millis(100 * nth));
    }
    for id in &dead {
        place(&far, *id, start + Duration::from_secs(3));
    }
    cluster.node_timeout(Duration::from_secs(2));
    // Between two claims: what is claimed in the dead primary and not ended yet is not what this test is about.
    thread::sleep((start - far.now()).saturating_sub(Duration::from_secs(1)));
    cluster.nodes[0].kill();
    let all_seen = |ids: &[u128]| ids.iter().all(|id| runner.has_seen(*id));
    eventually("the others' timers are delivered", || all_seen(&living));
    let late = {
        let seen = runner.seen.lock().unwrap();
        seen.iter().filter(|(id, _)| living.contains(id)).map(|(_, late)| *late).max().unwrap()
    };
    assert!(late < Duration::from_secs(1) + SLACK / 4, "{late:?}");
    eventually("the replica's timers are delivered", || all_seen(&dead));
}

/// The commands of idle shards in a cluster, in which each shard has a script of its own.
#[test]
#[ignore = "half a minute: a cluster"]
fn an_idle_shard_of_a_cluster_costs_at_most_one_command_a_second() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let connect = Connect::cluster(cluster.urls()).unwrap();
    let start = || Runner::start(Arc::new(block_on(builder(64).open(&connect)).unwrap()));
    let runners = [start(), start()];
    settle(&runners);
    let count = || cluster.nodes[..3].iter().map(|node| commands(node).0).sum::<u64>();
    let (before, begin) = (count(), Instant::now());
    thread::sleep(Duration::from_secs(10));
    let sent = (count() - before) as f64 / 64.0 / begin.elapsed().as_secs_f64();
    assert!(sent <= 1.0, "{sent} commands");
    assert!(sent > 0.1, "the shards are looked at");
}
