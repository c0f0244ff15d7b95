//! What an adversarial reading of this engine found, once mended.

mod support;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use support::{HOUR, MS, wait_until};
use tourbillon::{Builder, Cancel, ManualClock, RescheduleError, Timestamp};

fn counting(count: &Arc<AtomicU64>) -> impl Fn() + Send + Sync + 'static {
    let count = Arc::clone(count);
    move || {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_driven_turn_ends_however_many_timers_rearm_for_now() {
    let mut engine = Builder::new()
        .build_driven(|timer| drop(timer.engine().schedule(Duration::ZERO, timer.payload)))
        .unwrap();
    for timer in 0..40_000 {
        engine.schedule(Duration::ZERO, timer).unwrap();
    }
    engine.turn();
    assert_eq!(engine.stats().fired, 40_000);
    engine.turn();
    assert_eq!(engine.stats().fired, 80_000);
}

/// Cancels in two waves, so that the second comes while the first is being swept, or after.
#[test]
fn tickets_of_cancelled_timers_go_though_their_deadlines_are_far() {
    let engine = Builder::new().shards(1).inline().build(|_: tourbillon::Fired<'_, u64>| {}).unwrap();
    let ids: Vec<_> = (0..400_000).map(|timer| engine.schedule(HOUR, timer).unwrap()).collect();
    // A sleeping shard lets the last ones wait in their lane.
    wait_until("the shard has most of the tickets", || engine.stats().total.tickets > 300_000);
    for wave in ids.chunks(220_000) {
        for &id in wave {
            assert!(matches!(engine.cancel(id), Cancel::Cancelled(_)));
        }
        thread::sleep(2 * MS);
    }
    assert!(engine.is_empty());
    wait_until("the sweep", || engine.stats().total.tickets <= 65_536 + 4_096);
}

#[test]
fn a_full_lane_refuses_to_move_a_timer_and_leaves_it_as_it_was() {
    let mut engine =
        Builder::new().lane_capacity(64).build_driven(|_: tourbillon::Fired<'_, ()>| {}).unwrap();
    let mut id = engine.schedule(MS, ()).unwrap();
    let mut moves = 0;
    let error = loop {
        match engine.reschedule(id, 2 * MS) {
            Ok(moved) => id = moved,
            Err(error) => break error,
        }
        moves += 1;
        assert!(moves < 1_000, "the lane takes 64 tickets");
    };
    assert!(matches!(error, RescheduleError::LaneFull));
    engine.advance(2 * MS);
    assert_eq!(engine.stats().fired, 1);
}

#[test]
fn a_clock_at_its_end_does_not_keep_a_shard_awake() {
    let clock = ManualClock::new();
    let engine =
        Builder::new().shards(1).clock(clock.clone()).build(|_: tourbillon::Fired<'_, ()>| {}).unwrap();
    engine.schedule(Duration::MAX, ()).unwrap();
    clock.set(Timestamp::MAX);
    thread::sleep(20 * MS);
    let before = engine.stats().total.turns;
    thread::sleep(50 * MS);
    assert!(engine.stats().total.turns - before < 5, "the shard spins");
}

#[test]
fn handlers_that_take_their_time_get_all_workers() {
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&threads);
    let fired = Arc::new(AtomicU64::new(0));
    let fire = counting(&fired);
    let engine = Builder::new()
        .shards(1)
        .workers(8)
        .build(move |_| {
            seen.lock().unwrap().insert(thread::current().id());
            thread::sleep(MS / 2);
            fire();
        })
        .unwrap();
    let deadline = engine.now() + 5 * MS;
    for _ in 0..400 {
        engine.schedule_at(deadline, ()).unwrap();
    }
    wait_until("all have fired", || fired.load(Ordering::Relaxed) == 400);
    assert!(threads.lock().unwrap().len() > 4, "one handover stayed with few workers");
}

#[test]
fn a_second_shutdown_waits_for_the_first_and_gets_nothing_more() {
    let engine = Builder::new().build(|_: tourbillon::Fired<'_, u64>| {}).unwrap();
    for timer in 0..100 {
        engine.schedule(HOUR, timer).unwrap();
    }
    let returned: usize = thread::scope(|scope| {
        let calls = [0; 2].map(|_| scope.spawn(|| engine.shutdown().len()));
        calls.into_iter().map(|call| call.join().unwrap()).sum()
    });
    assert_eq!(returned, 100);
}

#[test]
fn a_large_payload_takes_memory_for_few() {
    let mut engine = Builder::new().capacity(4).build_driven(|_| {}).unwrap();
    let id = engine.schedule(MS, [7_u8; 1 << 16]).unwrap();
    assert!(matches!(engine.cancel(id), Cancel::Cancelled(payload) if payload[65_535] == 7));
    engine.schedule(MS, [0; 1 << 16]).unwrap();
    engine.advance(2 * MS);
    assert_eq!(engine.stats().fired, 1);
}
