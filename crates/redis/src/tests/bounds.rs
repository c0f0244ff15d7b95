//! Tests that the work of each call is bounded, for any number of shards and timers.

use super::plain;
use crate::RedisStore;
use crate::layout::{LANES, PERIOD, lane_of};
use pollster::block_on;
use std::collections::BTreeMap;
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Claimant, Durability, IfPresent, Limit, Op, TimerStore};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_fault::Server;

const HOUR: Duration = Duration::from_secs(3_600);
const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(60) };
const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };

/// Opens a store without a background thread, and returns the clock that the test advances.
fn open(server: &Server, shards: u16) -> (RedisStore, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(1_000 * 24 * HOUR);
    let builder = RedisStore::builder("d").shards(shards).poll(None).on_clock(clock.clone());
    (plain::open(builder, server.port()).unwrap(), clock)
}

fn place(store: &RedisStore, timers: Vec<Timer>) {
    let ops = timers.into_iter().map(|timer| Op::Place(Box::new(timer), IfPresent::Reject)).collect();
    drop(block_on(store.apply(ops, Durability::Volatile)).unwrap());
}

/// Returns an endless iterator over ids that belong to the shard `shard`.
fn ids_in(store: &RedisStore, shard: u16) -> impl Iterator<Item = TimerId> + '_ {
    let layout = &store.deployment.layout;
    (1..).map(TimerId::from_u128).filter(move |id| layout.shard_of_id(*id) == shard)
}

fn output(server: &Server) -> u64 {
    server.info("total_net_output_bytes").unwrap().parse().unwrap()
}

#[test]
fn a_reap_reads_about_as_many_leases_as_it_ends() {
    const EACH: usize = 20;
    let Some(server) = Server::start(&[]) else { return };
    let (store, clock) = open(&server, 64);
    let due = store.now();
    for shard in 0..64 {
        let timer = |id| Timer { payload: Payload(vec![7; 2_000].into()), ..Timer::new(id, "kind", due) };
        place(&store, ids_in(&store, shard).take(EACH).map(timer).collect());
    }
    let leased = block_on(store.claim(BY, 1, ALL, None)).unwrap().leased.len();
    assert_eq!(leased, 64 * EACH);
    clock.advance(2 * BY.lease);
    let before = output(&server);
    let reaped = block_on(store.reap(64)).unwrap();
    let read = (output(&server) - before) / 2_000;
    assert_eq!(reaped.returned.len(), 64);
    assert!(reaped.next.is_some_and(|next| next <= store.now()), "there are others: {:?}", reaped.next);
    assert!(read <= 3 * 64, "{read} records were read");
    let mut ended = 64;
    while ended < leased {
        let reaped = block_on(store.reap(100)).unwrap();
        assert!(!reaped.returned.is_empty(), "the rest is not ended");
        ended += reaped.returned.len();
    }
    assert_eq!(ended, leased);
    assert_eq!(block_on(store.reap(100)).unwrap().next, None);
    assert_eq!(block_on(store.check()).unwrap(), []);
}

/// Tests that leases without timers, which are faults, do not delay the end of leases that follow them.
#[test]
fn leases_without_timers_hold_up_no_reap() {
    let Some(server) = Server::start(&[]) else { return };
    let (store, clock) = open(&server, 64);
    let id = ids_in(&store, 3).next().unwrap();
    place(&store, vec![Timer::new(id, "kind", store.now())]);
    assert_eq!(block_on(store.claim(BY, 1, ALL, None)).unwrap().leased.len(), 1);
    let key = store.deployment.layout.key(3, crate::layout::Part::Leases);
    let key = String::from_utf8(key).unwrap();
    for nth in 0..200 {
        server.command(&["ZADD", &key, "1", &format!("{nth:016}")]);
    }
    clock.advance(2 * BY.lease);
    assert_eq!(block_on(store.reap(64)).unwrap().returned, [id]);
}

#[test]
fn a_horizon_looks_at_a_bounded_number_of_slices() {
    const SLICES: u64 = 200;
    let Some(server) = Server::start(&[]) else { return };
    let (store, _clock) = open(&server, 1_024);
    let start = store.now();
    let at = |nth: u64| UtcMillis::from_millis(start.as_millis() + nth * PERIOD);
    let timer = |(nth, id)| Timer::new(id, "kind", at(nth));
    place(&store, (1..=SLICES).zip(ids_in(&store, 5)).map(timer).collect());
    let before = output(&server);
    let horizon = block_on(store.horizon()).unwrap();
    let read = output(&server) - before;
    assert!(read < 100 * 1_024, "{read} bytes");
    assert_eq!(horizon.placed() + horizon.unplaced, SLICES, "{horizon:?}");
    assert!(horizon.unplaced > SLICES / 2, "{horizon:?}");
    let days = horizon.spans.iter().find(|span| span.within == Some(24 * HOUR)).unwrap();
    assert!(days.is_exact, "the first slices are all counted: {horizon:?}");
    let month = horizon.spans.iter().find(|span| span.within == Some(30 * 24 * HOUR)).unwrap();
    assert!(!month.is_exact, "{horizon:?}");
}

/// Tests a shard that has timers in all lanes of its first period, in a deployment with so many shards that each shard
/// lists only the slices of one period.
#[test]
fn a_horizon_of_many_shards_counts_a_period_with_all_lanes() {
    let Some(server) = Server::start(&[]) else { return };
    let (store, _clock) = open(&server, 1_024);
    let mut lanes = BTreeMap::new();
    for number in 0.. {
        let namespace = format!("n{number}");
        lanes.entry(lane_of(&namespace)).or_insert(namespace);
        if lanes.len() as u64 == LANES {
            break;
        }
    }
    let timer = |(namespace, id): (String, _)| Timer {
        namespace: namespace.into(),
        ..Timer::new(id, "kind", store.now())
    };
    place(&store, lanes.into_values().zip(ids_in(&store, 5)).map(timer).collect());
    let horizon = block_on(store.horizon()).unwrap();
    assert_eq!((horizon.placed(), horizon.unplaced), (LANES, 0), "{horizon:?}");
}
