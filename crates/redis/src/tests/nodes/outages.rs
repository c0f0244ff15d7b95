//! Tests clocks that differ, servers that stall or die, and connections that are cut.

use super::{ALL, LEASE, NEVER, Runner, SLACK, builder, by, ids, is_divided, nodes, open, place, takeovers};
use crate::layout::{Layout, Part};
use crate::link::{Answer, Call, Connect, Ear, Link, Pause, Reply, Session};
use crate::node::LONGEST_POLL;
use crate::tests::plain;
use crate::{POLL, RedisStore};
use core::any::Any;
use pollster::block_on;
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, Refusal, Token};
use tourbillon_durable::store::{Durability, Op, Outcome, Renewal, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_fault::{Cluster, Fate, Proxy, Server, eventually};

/// A link with separate connections for calls and for the subscription to messages.
struct Ways {
    calls: Arc<Session>,
    hints: Arc<Session>,
}

impl Link for Ways {
    fn run(&self, call: Call) -> Answer<'_, Reply> {
        self.calls.run(call)
    }

    fn attempt(&self) -> u64 {
        self.calls.attempt()
    }

    fn wait(&self, time: Duration) -> Pause {
        self.calls.wait(time)
    }

    fn listen(&self, beside: &[u8], channels: &[Vec<u8>], ear: Ear) -> Option<Box<dyn Any + Send>> {
        self.hints.listen(beside, channels, ear)
    }
}

/// A link that adds a number of milliseconds to the time in each answer, so that the server's clock seems to be ahead
/// or behind.
struct Skewed(Arc<Session>, i64);

impl Link for Skewed {
    fn run(&self, call: Call) -> Answer<'_, Reply> {
        let answer = self.0.run(call);
        Box::pin(async move {
            let (mut answer, witness) = answer.await?;
            if let Value::Array(values) = &mut answer
                && let Some(Value::Int(now)) = values.first_mut()
            {
                *now += self.1;
            }
            Ok((answer, witness))
        })
    }

    fn attempt(&self) -> u64 {
        self.0.attempt()
    }
}

/// T-07: the server's clock decides which node owns a shard, which timers are due and which leases have ended.
#[test]
fn the_clocks_of_nodes_decide_nothing() {
    let Some(server) = Server::start(&[]) else { return };
    let link = plain::Plain::to(server.port());
    let stores = [30_000, -30_000].map(|skew| {
        let link = Arc::new(Skewed(link.session(), skew));
        // There are no threads, so that only the test looks at shards.
        block_on(builder(4).poll(None).open_on(link)).unwrap()
    });
    let [ahead, behind] = &stores;
    assert!(ahead.now() - behind.now() > Duration::from_secs(50), "the clocks differ");
    let server_now = open(builder(4), &server).now();
    let _owner = block_on(ahead.claim(by(1, LEASE), 1, ALL, None)).unwrap();
    assert!(is_divided(&[ahead]));
    // This timer is due for the store whose clock is ahead, but not for the server.
    place(ahead, 1, server_now + Duration::from_secs(20));
    // This timer is due for the server, but not for the store whose clock is behind.
    place(ahead, 2, UtcMillis::from_millis(server_now.as_millis() - 1_000));
    let leased = block_on(ahead.claim(by(1, LEASE), 2, ALL, None)).unwrap().leased;
    assert_eq!(ids(&leased), [2], "no timer is early");
    assert_eq!(block_on(ahead.reap(10)).unwrap().returned, []);
    for claim in 1..=3 {
        // For this store, whose clock is behind, the last signs are in the future. It must still not take the owner's
        // shards.
        let leased = block_on(behind.claim(by(2, LEASE), claim, ALL, None)).unwrap().leased;
        assert_eq!(leased, []);
    }
    assert_eq!(block_on(behind.reap(10)).unwrap().returned, []);
    assert_eq!((takeovers(ahead), takeovers(behind)), (0, 0));
}

/// T-02: the server is slow for a time, and then does not answer at all, while timers are created and delivered.
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
    // Requests and replies are each delayed by half of this time.
    proxy.delay(Duration::from_millis(300));
    let _during = load(30);
    thread::sleep(Duration::from_secs(1));
    proxy.delay(Duration::ZERO);
    all_seen(load(10));
    // The stop is longer than the `ttl` of the nodes, and their calls fail.
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
    // Only a message can announce the new node: the next sign of life is a quarter of an hour away.
    let second = Runner::start(open(settings(), &server));
    eventually("the shards are divided", || is_divided(&[&owner.store, &second.store]));
}

/// T-01: the connection for messages is cut or half open. The polls of the shards still find every timer.
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
    // Messages are lost, and no node has noticed it yet.
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

/// Opens two stores, the first of which leases a timer and loses its connection for `time`. During this time, calls
/// `meanwhile` with the second store.
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
        leased = block_on(store.claim(by(1, lease), 1, ALL, None))
            .map(|claimed| claimed.leased)
            .unwrap_or_default();
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

/// T-09: the connection of a node is cut for less than the length of a lease.
#[test]
fn a_cut_that_is_shorter_than_a_lease_loses_nothing_and_steals_nothing() {
    let meanwhile = |other: &RedisStore| {
        // The other store soon gets the shards, but not the lease.
        assert_eq!(block_on(other.claim(by(2, LEASE), 1, ALL, None)).unwrap().leased, []);
        assert_eq!(block_on(other.reap(9)).unwrap().returned, []);
    };
    let Some(CutOff { store, other, id, token, _proxy, _server }) =
        cut(Duration::from_secs(2), LEASE, meanwhile)
    else {
        return;
    };
    let _claimed = block_on(other.claim(by(2, LEASE), 2, ALL, None)).unwrap();
    assert!(is_divided(&[&other]), "the shards are served meanwhile");
    assert_eq!(block_on(store.renew(by(1, LEASE), vec![(id, token)])).unwrap(), Renewal::default());
    assert!(matches!(ack(&store, id, token), Outcome::Ended { phase: Phase::Done, .. }));
}

/// T-09: the connection of a node is cut for twice the length of a lease.
#[test]
fn after_a_cut_of_two_leases_the_timer_is_another_nodes_and_the_token_stale() {
    let lease = Duration::from_secs(1);
    let enter = |other: &RedisStore| drop(block_on(other.claim(by(2, lease), 1, ALL, None)).unwrap());
    let Some(CutOff { store, other, id, token, _proxy, _server }) = cut(2 * lease, lease, enter) else {
        return;
    };
    eventually("the lease is over", || block_on(other.reap(9)).unwrap().returned == [id]);
    let stolen = block_on(other.claim(by(2, LEASE), 2, ALL, None)).unwrap().leased;
    assert_eq!(ids(&stolen), [1], "the timer is delivered by another node");
    let renewal = block_on(store.renew(by(1, lease), vec![(id, token)])).unwrap();
    assert_eq!(renewal.lost, [(id, token)], "the lease is lost");
    assert_eq!(ack(&store, id, token), Outcome::Refused(Refusal::Stale));
    assert!(matches!(ack(&other, id, stolen[0].token), Outcome::Ended { phase: Phase::Done, .. }));
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
    // A claim calls the subscriber as well, and a panic of the subscriber reaches the test.
    let claim = |number| {
        let call = || block_on(store.claim(by(1, LEASE), number, ALL, None));
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
        !block_on(dead.claim(by(1, lease), 1, ALL, None)).unwrap().leased.is_empty()
    });
    let store = open(builder(4).ttl(ttl), &server);
    let (wake, woken) = channel();
    store.subscribe(Box::new(move || _ = wake.send(())));
    // Like a runtime, the test claims when it is woken, and reaps when the answer to a claim says so. No timer is
    // pending, so only the takeover can lead to a reap.
    let mut claimed = block_on(store.claim(by(2, lease), 1, ALL, None)).unwrap();
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
        claimed = block_on(store.claim(by(2, lease), claim, ALL, None)).unwrap();
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

/// F-23: a primary of a cluster is killed, and its replica takes over.
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
    // The primary is killed between two claims. Another test covers timers of the killed primary that were claimed and
    // have not ended.
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
