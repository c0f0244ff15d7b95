//! Full lanes of a shard that a loop turns.

use crate::support::Log;
use crate::{at, elsewhere, settle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tourbillon::extend::{Base, Due};
use tourbillon::{Builder, Engine, Fired, ManualClock, Refusal};

#[test]
fn a_full_lane_of_the_loops_own_thread_is_drained_by_that_thread() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(1).unwrap();
    let log: Log<u64> = Log::new();
    let sink = log.clone();
    let engine = shards
        .engine()
        .lane_capacity(64)
        .start(move |timer: Fired<'_, u64>| sink.push(timer.payload))
        .unwrap();
    settle(&mut loops[0], at(0));
    for n in 0..1_000 {
        engine.handle().schedule_at(at(5), n).unwrap();
    }
    settle(&mut loops[0], at(5));
    assert_eq!(log.len(), 1_000);
}

/// A thread that leads no loop schedules many more timers than its lane (its queue to a shard) holds. The loops' own
/// thread also schedules more timers than its lane holds.
#[test]
fn a_full_lane_waits_for_no_loop_that_does_not_turn() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(2).unwrap();
    let engine_of = |log: &Log<u64>| {
        let sink = log.clone();
        let engine = shards.engine().lane_capacity(64);
        engine.start(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap()
    };
    let log = Log::new();
    let engine = engine_of(&log);
    let fill = |engine: &Engine<u64>, shard: usize| {
        (0..500).for_each(|n| assert!(engine.handle().on(shard).schedule_at(at(5), n).is_ok()));
    };
    // No loop has turned yet.
    elsewhere(|| fill(&engine, 0));
    loops.iter_mut().for_each(|shard| settle(shard, at(1)));
    // Both loops run on this thread, and neither has seen the second engine yet.
    let late = engine_of(&log);
    for shard in 0..2 {
        fill(&engine, shard);
        fill(&late, shard);
    }
    elsewhere(|| fill(&late, 1));
    drop(loops.pop());
    fill(&engine, 1);
    elsewhere(|| fill(&engine, 1));
    let mut second = shards.take_loop(1).unwrap();
    settle(&mut loops[0], at(5));
    settle(&mut second, at(5));
    assert_eq!(log.len(), 8 * 500);
}

/// A layer calls `await_room` to wait for room in a full lane. On a loop's own thread this call makes the room itself.
#[test]
fn a_layer_gets_room_in_a_full_lane_of_the_loops_own_thread() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(1).unwrap();
    let (engine, base) = Base::start(shards.engine().lane_capacity(64), |_: Due<'_, u64>| {}).unwrap();
    settle(&mut loops[0], at(0));
    for n in 0..1_000 {
        let mut rounds = 0;
        while let Err(error) = base.handle().try_schedule_at(at(5), n) {
            assert_eq!(error.kind, Refusal::LaneFull);
            assert!(base.await_room(&mut rounds), "timer {n} was refused");
        }
    }
    settle(&mut loops[0], at(5));
    assert_eq!(engine.handle().stats().fired, 1_000);
    drop(engine);
    assert!(!base.await_room(&mut 0));
}

/// A lane fills up inside a turn (a pass of its loop) of its own loop. No thread can make room during the turn, so the
/// lane refuses.
#[test]
fn a_lane_that_fills_up_inside_of_its_loops_turn_refuses() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(1).unwrap();
    let refused = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&refused);
    let engine = shards
        .engine()
        .lane_capacity(64)
        .start(move |timer: Fired<'_, u64>| {
            let timers = timer.engine();
            let full = (0..200).filter(|n| timers.schedule_at(at(9), *n).is_err()).count();
            count.fetch_add(full as u64, Ordering::SeqCst);
        })
        .unwrap();
    engine.handle().schedule_at(at(1), 0).unwrap();
    settle(&mut loops[0], at(1));
    let refused = refused.load(Ordering::SeqCst);
    assert!((1..200).contains(&refused), "{refused} of 200 timers, and a lane for some 64");
}
