//! Tests that the sweep removes only redirects that lead nowhere. Each script names the keys of one shard.

use super::acting::{Act, Acting};
use super::pairs::{DAY, Names, SHARDS, names, now};
use super::plain::Plain;
use crate::RedisStore;
use crate::layout::{Part, REDIRECT_HASHES, Shard, slot_of};
use crate::link::Link;
use crate::upkeep::AFTER;
use redis::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, StoreError, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Server, eventually};

const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(60) };

/// A deployment, and the node that sweeps it.
struct World {
    plain: Plain,
    name: String,
    clock: ManualClock,
    node: RedisStore,
    names: Names,
}

impl World {
    fn new(server: &Server, number: u32, poll: Option<Duration>) -> Arc<Self> {
        let (plain, clock) = (Plain::to(server.port()), ManualClock::new());
        clock.advance(DAY);
        let name = format!("sweep{number}");
        let builder = RedisStore::builder(&*name).shards(SHARDS).poll(poll).on_clock(clock.clone());
        let node = now(builder.split().open_on(plain.session())).unwrap();
        let claimed = now(node.claim(BY, 1, Limit { timers: 1, bytes: 1 }, None)).unwrap();
        assert_eq!(claimed.leased, []);
        let names = names(false);
        Arc::new(Self { plain, name, clock, node, names })
    }

    /// Opens the deployment as another process would. Returns the store, and the link that the test can disturb.
    fn other(&self) -> (RedisStore, Arc<Acting>) {
        let link = Acting::new(self.plain.session());
        let builder = RedisStore::builder(&*self.name).shards(SHARDS).poll(None).on_clock(self.clock.clone());
        (now(builder.split().open_on(Arc::clone(&link) as Arc<dyn Link>)).unwrap(), link)
    }

    fn place(&self) -> Op {
        let far = UtcMillis::from_millis(1_000) + 300 * DAY;
        let timer = Timer { key: Some(self.names.key.into()), ..Timer::new(self.names.id, "kind", far) };
        Op::Place(Box::new(timer), IfPresent::Reject)
    }

    /// Sweeps all shards once. Each shard has fewer redirects than one step reads.
    fn round(&self) {
        (0..SHARDS).for_each(|_| now(self.node.upkeep.sweep.sweep_redirects()).unwrap());
    }

    /// Returns the number of stored redirects.
    fn redirects(&self) -> usize {
        let Value::Array(hashes) = self.plain.ask(&["KEYS", &format!("tb:{{{}:*:h:*", self.name)]) else {
            panic!("no keys")
        };
        hashes.len()
    }

    /// Checks the deployment, and returns the number of its timers.
    fn timers(&self) -> usize {
        assert_eq!(now(self.node.check()).unwrap(), []);
        let counts = now(self.node.counts()).unwrap();
        usize::try_from(counts.by_namespace.values().sum::<u64>()).unwrap()
    }
}

fn apply(store: &RedisStore, op: Op) -> Result<Outcome, StoreError> {
    now(store.apply(vec![op], Durability::PowerLoss)).map(|mut outcomes| outcomes.remove(0))
}

/// Tests a creation or an end of a timer that stops at any of its steps. The sweep removes the redirect if no timer is
/// stored, and keeps it otherwise.
#[test]
fn what_a_creation_or_an_end_has_left_is_removed_and_nothing_else() {
    let Some(server) = Server::start(&[]) else { return };
    let (mut number, mut left) = (0, 0);
    for ends in [false, true] {
        for nth in 1.. {
            number += 1;
            let world = World::new(&server, number, None);
            let (other, link) = world.other();
            if ends {
                assert!(matches!(apply(&other, world.place()), Ok(Outcome::Created(_))));
            }
            link.at("", nth, Act::Stop);
            let op = if ends { Op::Cancel(world.names.id.into(), None) } else { world.place() };
            let _answer = apply(&other, op);
            let is_over = link.is_waiting();
            let (redirects, timers) = (world.redirects(), world.timers());
            left += redirects - timers;
            world.round();
            world.clock.advance(AFTER - Duration::from_millis(1));
            world.round();
            assert_eq!(world.redirects(), redirects, "a creation may be under way: {ends}, call {nth}");
            world.clock.advance(Duration::from_millis(1));
            world.round();
            assert_eq!((world.redirects(), world.timers()), (timers, timers), "{ends}, call {nth}");
            // The id is free again.
            let again = apply(&world.node, world.place()).unwrap();
            let wanted = if timers == 0 { Outcome::Created } else { Outcome::Repeated };
            assert_eq!(again, wanted(world.names.id));
            assert_eq!((world.redirects(), world.timers()), (1, 1));
            if is_over {
                break;
            }
        }
    }
    assert!(left >= 2, "only {left} redirects were left, by a creation and by an end");
}

/// Tests a creation that pauses before its commit while the sweep goes on, for shorter or longer than a reservation
/// lasts.
#[test]
fn a_redirect_of_a_creation_under_way_stays_and_an_old_one_is_written_again() {
    let Some(server) = Server::start(&[]) else { return };
    for (number, pause) in (0..).zip([Duration::ZERO, AFTER / 4, AFTER, 2 * AFTER]) {
        let world = World::new(&server, number, None);
        let (other, link) = world.other();
        let seen = Arc::new(Mutex::new(None));
        let (swept, redirects) = (Arc::clone(&world), Arc::clone(&seen));
        let act = move || {
            swept.round();
            swept.clock.advance(pause);
            swept.round();
            *redirects.lock().unwrap() = Some(swept.redirects());
        };
        link.at("", 2, Act::First(Box::new(act)));
        assert_eq!(apply(&other, world.place()).unwrap(), Outcome::Created(world.names.id), "{pause:?}");
        assert_eq!(*seen.lock().unwrap(), Some(usize::from(pause < AFTER)), "{pause:?}");
        world.clock.advance(AFTER);
        world.round();
        world.round();
        assert_eq!((world.redirects(), world.timers()), (1, 1), "{pause:?}");
        assert!(now(world.node.get(world.names.id.into())).unwrap().is_some(), "{pause:?}: found by its id");
    }
}

/// Tests a failover that loses the redirect of a timer but not the timer.
#[test]
fn a_redirect_that_is_lost_is_named_by_the_check() {
    let Some(server) = Server::start(&[]) else { return };
    let world = World::new(&server, 0, None);
    assert_eq!(apply(&world.node, world.place()).unwrap(), Outcome::Created(world.names.id));
    assert_eq!((world.redirects(), world.timers()), (1, 1));
    let Value::Array(redirects) = world.plain.ask(&["KEYS", "tb:*:h:*"]) else { panic!("no keys") };
    let Value::BulkString(redirect) = &redirects[0] else { panic!("{redirects:?}") };
    let _removed = world.plain.ask(&["DEL", core::str::from_utf8(redirect).unwrap()]);
    let faults = now(world.node.check()).unwrap();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!((faults[0].table, faults[0].timer), ("homes", Some(world.names.id)), "{faults:?}");
}

#[test]
fn the_thread_of_a_node_sweeps() {
    let Some(server) = Server::start(&[]) else { return };
    let world = World::new(&server, 0, Some(Duration::from_millis(5)));
    let (other, link) = world.other();
    link.at("", 2, Act::Stop);
    assert!(apply(&other, world.place()).is_err());
    assert_eq!(world.redirects(), 1);
    // The clock goes on while the thread takes its steps.
    eventually("the redirect is removed", || {
        world.clock.advance(AFTER / 10);
        world.redirects() == 0
    });
}

/// Tests a node while the server of its first shard is away. The last shard has two redirects without timers, one
/// of which leads to the first shard.
#[test]
fn a_server_that_is_away_holds_up_the_sweep_of_its_own_redirects_only() {
    const LAST: Shard = SHARDS - 1;
    let Some(server) = Server::start(&[]) else { return };
    let world = World::new(&server, 0, None);
    let layout = &world.node.deployment.layout;
    let link = Acting::new(world.plain.session());
    let builder = RedisStore::builder(&*world.name).shards(SHARDS).poll(None).on_clock(world.clock.clone());
    now(world.node.leave()).unwrap();
    let node = now(builder.split().open_on(Arc::clone(&link) as _)).unwrap();
    let _owner = now(node.claim(BY, 2, Limit { timers: 1, bytes: 1 }, None)).unwrap();
    let mut ids = (1..).map(TimerId::from_u128).filter(|id| layout.shard_of_id(*id) == LAST);
    for home in [0, LAST - 1] {
        let mut keys = (0..).map(|n| format!("key {n}"));
        let key = keys.find(|key| layout.shard_of_key("", key) == home).unwrap();
        let (other, stops) = world.other();
        stops.at("", 2, Act::Stop);
        let timer =
            Timer { key: Some(key.into()), ..Timer::new(ids.next().unwrap(), "kind", UtcMillis::ZERO + DAY) };
        assert!(apply(&other, Op::Place(Box::new(timer), IfPresent::Reject)).is_err());
    }
    let redirects = || {
        let all = (0..REDIRECT_HASHES).map(|bucket| Part::Redirects(u8::try_from(bucket).unwrap()));
        let count =
            |part| match world.plain.ask(&["HLEN", &String::from_utf8(layout.key(LAST, part)).unwrap()]) {
                Value::Int(count) => count,
                answer => panic!("{answer:?}"),
            };
        all.map(count).sum::<i64>()
    };
    let round = || {
        for _ in 0..2 {
            (0..SHARDS).for_each(|_| drop(now(node.upkeep.sweep.sweep_redirects())));
            world.clock.advance(AFTER);
        }
    };
    assert_eq!(redirects(), 2);
    link.take_away(Some(slot_of(&layout.key(0, Part::Meta))));
    round();
    round();
    assert_eq!(redirects(), 1, "the redirect to the shard whose server is away stays");
    link.take_away(None);
    round();
    round();
    assert_eq!(redirects(), 0);
}
