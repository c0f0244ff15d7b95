//! Maps whose entries expire, on the manual clock.

use crate::support::{Log, MS, wait_until, within_patience};
use crate::{SECOND, is_empty};
use std::sync::Arc;
use std::time::Duration;
use tourbillon::{Builder, Clock, Refusal};
use tourbillon_tasks::uses::{ExpiryMap, Lifetime};
use tourbillon_tasks::{DrivenTasks, TaskEngine};

const TTL: Duration = Duration::from_secs(60);

type Map = ExpiryMap<&'static str, u64>;
type Expirations = Log<(&'static str, u64)>;

fn driven() -> DrivenTasks {
    DrivenTasks::start(Builder::new().tick(MS)).unwrap()
}

fn recording(lifetime: Lifetime) -> (DrivenTasks, Map, Expirations) {
    let (tasks, expired) = (driven(), Log::new());
    let sink = expired.clone();
    let map = tasks.handle().expiry_map_with_listener(lifetime, move |key, value| sink.push((key, value)));
    (tasks, map, expired)
}

#[test]
fn an_entry_lives_for_the_maps_time_to_live() {
    let (mut tasks, map, expired) = recording(Lifetime::of(TTL));
    assert_eq!(map.insert("a", 1).unwrap(), None);
    tasks.advance(TTL - MS);
    assert_eq!((map.get("a"), map.read("a", |value| value + 1)), (Some(1), Some(2)));
    assert_eq!(
        (map.remaining("a"), map.contains("a"), map.keys(), map.len()),
        (Some(MS), true, vec!["a"], 1)
    );
    assert_eq!((map.get("b"), map.remaining("b"), map.remove("b")), (None, None, None));
    tasks.advance(MS);
    assert_eq!(expired.take(), [("a", 1)]);
    assert!(map.get("a").is_none() && map.is_empty() && is_empty(&tasks.handle().stats()));
}

#[test]
fn what_has_expired_is_not_returned_however_late_its_timer() {
    let (mut tasks, map, expired) = recording(Lifetime::of(TTL));
    map.insert("a", 1).unwrap();
    // The clock moves, and the engine does not turn. So its timers are late.
    tasks.clock().advance(TTL - MS);
    assert_eq!(map.get("a"), Some(1));
    tasks.clock().advance(MS);
    assert_eq!(
        (map.get("a"), map.read("a", |_| ()), map.remaining("a"), map.remove("a")),
        (None, None, None, None)
    );
    assert!(!map.contains("a") && !map.refresh("a") && map.keys().is_empty());
    map.retain(|_, _| unreachable!("it has expired"));
    assert_eq!((map.len(), expired.len()), (1, 0));
    tasks.turn();
    assert_eq!((map.len(), expired.take()), (0, vec![("a", 1)]));
}

#[test]
fn an_insert_over_what_has_expired_lets_it_expire() {
    let (mut tasks, map, expired) = recording(Lifetime::of(TTL));
    map.insert("a", 1).unwrap();
    tasks.clock().advance(TTL);
    assert_eq!((map.insert("a", 2).unwrap(), expired.take()), (None, vec![("a", 1)]));
    tasks.turn();
    assert_eq!((map.get("a"), expired.len()), (Some(2), 0));
    tasks.advance(TTL);
    assert_eq!((map.len(), expired.take()), (0, vec![("a", 2)]));
}

#[test]
fn an_insert_replaces_and_begins_anew() {
    let (mut tasks, map, expired) = recording(Lifetime::of(TTL));
    map.insert("a", 1).unwrap();
    tasks.advance(TTL / 2);
    assert_eq!(map.insert("a", 2).unwrap(), Some(1));
    assert_eq!((map.remaining("a"), map.len(), tasks.handle().stats().owned.alive), (Some(TTL), 1, 1));
    tasks.advance(TTL - MS);
    assert_eq!((map.get("a"), expired.len()), (Some(2), 0));
    tasks.advance(MS);
    assert_eq!(expired.take(), [("a", 2)]);
}

#[test]
fn an_entry_may_have_a_time_to_live_of_its_own() {
    let (mut tasks, map, expired) = recording(Lifetime::of(TTL));
    map.insert_for("short", 1, SECOND).unwrap();
    map.insert("usual", 2).unwrap();
    tasks.advance(SECOND / 2);
    assert!(map.refresh("short"));
    assert_eq!(map.remaining("short"), Some(SECOND));
    tasks.advance(SECOND);
    assert_eq!(expired.take(), [("short", 1)]);
    // An entry that is replaced with a shorter time to live expires earlier.
    assert_eq!(map.insert_for("usual", 3, SECOND).unwrap(), Some(2));
    tasks.advance(SECOND);
    assert_eq!(expired.take(), [("usual", 3)]);
}

#[test]
fn accesses_refresh_if_they_are_to() {
    let (mut tasks, map, expired) = recording(Lifetime::of(TTL).refreshed_on_access());
    for key in ["got", "read", "looked at"] {
        map.insert(key, 1).unwrap();
    }
    for _ in 0..3 {
        tasks.advance(TTL - MS);
        assert!(map.get("got").is_some() && map.read("read", |_| ()).is_some());
        let _ = (map.contains("looked at"), map.remaining("looked at"), map.keys().len());
    }
    assert_eq!((expired.take(), map.remaining("got")), (vec![("looked at", 1)], Some(TTL)));
    tasks.advance(TTL);
    assert_eq!(expired.take_sorted(), [("got", 1), ("read", 1)]);
}

#[test]
fn accesses_refresh_nothing_otherwise() {
    let (mut tasks, map, expired) = recording(Lifetime::of(TTL));
    map.insert("a", 1).unwrap();
    tasks.advance(TTL / 2);
    assert!(map.get("a").is_some());
    assert_eq!(map.remaining("a"), Some(TTL / 2));
    assert!(map.refresh("a") && !map.refresh("b"));
    assert_eq!(map.remaining("a"), Some(TTL));
    tasks.advance(TTL - MS);
    assert_eq!((map.get("a"), expired.len()), (Some(1), 0));
}

#[test]
fn of_what_is_taken_out_the_listener_does_not_hear() {
    let (mut tasks, map, expired) = recording(Lifetime::of(TTL));
    for (key, value) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        map.insert(key, value).unwrap();
    }
    assert_eq!(map.remove("a"), Some(1));
    map.retain(|_, value| value % 2 == 0);
    let mut keys = map.keys();
    keys.sort_unstable();
    assert_eq!(keys, ["b", "d"]);
    map.clear();
    tasks.advance(TTL);
    assert!(map.is_empty() && expired.len() == 0 && is_empty(&tasks.handle().stats()));
}

#[test]
fn values_go_when_they_expire_and_with_the_map() {
    let mut tasks = driven();
    let map = tasks.handle().expiry_map(Lifetime::of(TTL));
    let (first, second) = (Arc::new(()), Arc::new(()));
    map.insert(1, Arc::clone(&first)).unwrap();
    tasks.advance(TTL);
    assert_eq!(Arc::strong_count(&first), 1);
    map.insert(2, Arc::clone(&second)).unwrap();
    let clone = map.clone();
    drop(map);
    assert_eq!(Arc::strong_count(&second), 2);
    drop(clone);
    assert_eq!(Arc::strong_count(&second), 1);
    assert!(is_empty(&tasks.handle().stats()));
}

#[test]
fn a_million_refreshes_post_one_ticket() {
    let (mut tasks, map, _) = recording(Lifetime::of(TTL).refreshed_on_access());
    map.insert("a", 1).unwrap();
    for round in 0..1_000_000 {
        assert!(map.get("a").is_some());
        if round % 100_000 == 0 {
            tasks.advance(SECOND);
        }
    }
    assert_eq!((tasks.handle().stats().owned.posted, map.remaining("a")), (1, Some(TTL)));
}

#[test]
fn times_to_live_may_be_nothing_or_for_ever() {
    let (mut tasks, map, expired) = recording(Lifetime::of(Duration::MAX));
    map.insert("for ever", 1).unwrap();
    map.insert_for("never", 2, Duration::ZERO).unwrap();
    assert_eq!((map.get("never"), map.get("for ever")), (None, Some(1)));
    tasks.advance(MS);
    assert_eq!(expired.take(), [("never", 2)]);
    tasks.advance(Duration::from_secs(100 * 365 * 86_400));
    assert!(map.refresh("for ever") && map.contains("for ever"));
}

#[test]
fn a_listener_that_panics_costs_nobody_else_anything() {
    let mut tasks = driven();
    let map = tasks.handle().expiry_map_with_listener(Lifetime::of(TTL), |_: u64, value: u64| {
        assert!(value.is_multiple_of(2), "an odd value")
    });
    (0..10).for_each(|n| _ = map.insert(n, n).unwrap());
    tasks.advance(TTL);
    assert_eq!((map.len(), tasks.handle().stats().total.panics), (0, 5));
    assert!(is_empty(&tasks.handle().stats()));
}

#[test]
fn a_clock_that_steps_back_lets_live_what_it_let_live() {
    let (mut tasks, map, expired) = recording(Lifetime::of(TTL));
    tasks.advance(TTL);
    map.insert("a", 1).unwrap();
    let now = tasks.clock().now();
    tasks.clock().set(tourbillon::Timestamp::ZERO);
    assert!(map.refresh("a"));
    assert_eq!(map.remaining("a"), Some(2 * TTL));
    tasks.clock().set(now);
    tasks.advance(TTL - MS);
    assert_eq!((map.get("a"), expired.len()), (Some(1), 0));
    tasks.advance(MS);
    assert_eq!(expired.take(), [("a", 1)]);
}

// --- Full, and shut down ---

#[test]
fn a_full_engine_refuses_and_gives_key_and_value_back() {
    let tasks = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    let map = tasks.handle().expiry_map(Lifetime::of(TTL));
    let mut count = 0;
    let refused = loop {
        match map.insert(count, count) {
            Ok(_) => count += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused.kind, refused.payload), (Refusal::EngineFull, (count, count)));
    // An entry that exists is replaced without another timer.
    assert_eq!((map.insert(0, 7).unwrap(), map.len()), (Some(0), count));
}

#[test]
fn a_lane_that_is_full_refuses_nothing() {
    let mut tasks = DrivenTasks::start(Builder::new().lane_capacity(64)).unwrap();
    let map = tasks.handle().expiry_map(Lifetime::of(TTL));
    (0..1_000).for_each(|n| assert_eq!(map.insert(n, n).unwrap(), None));
    (0..1_000).for_each(|n| assert_eq!(map.insert_for(n, n, SECOND).unwrap(), Some(n)));
    tasks.advance(SECOND);
    assert!(map.is_empty());
}

#[test]
fn handlers_on_the_shard_and_lanes_that_are_full_wait_for_nobody() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().shards(1).unpinned().tick(MS).inline().lane_capacity(64))
                .unwrap();
        let map = tasks.handle().expiry_map(Lifetime::of(MS).refreshed_on_access());
        for n in 0..20_000 {
            let _ = (map.insert(n % 10, n).unwrap(), map.get(&(n % 7)));
        }
        wait_until("all have expired", || map.is_empty());
    });
}

#[test]
fn after_a_shutdown_entries_can_be_read_until_their_deadlines() {
    let (tasks, map, expired) = recording(Lifetime::of(TTL).refreshed_on_access());
    map.insert("a", 1).unwrap();
    map.insert("b", 2).unwrap();
    assert!(tasks.handle().shutdown().is_empty());
    let refused = map.insert("c", 3).unwrap_err();
    assert_eq!((refused.kind, refused.payload), (Refusal::ShutDown, ("c", 3)));
    assert_eq!(map.insert("a", 4).unwrap_err().payload, ("a", 4));
    tasks.clock().advance(TTL - MS);
    assert_eq!((map.get("a"), map.refresh("a"), map.remaining("a")), (Some(1), false, Some(MS)));
    assert_eq!(map.remove("b"), Some(2));
    tasks.clock().advance(MS);
    assert_eq!((map.get("a"), map.len(), expired.len()), (None, 1, 0));
    map.clear();
    assert!(map.is_empty());
}
