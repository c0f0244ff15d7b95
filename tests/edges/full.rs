//! Full engines and full lanes: the payload comes back, or the caller waits where waiting can end.

use crate::at;
use crate::support::{
    Gate, HOUR, Log, MS, PATIENCE, assert_settled, payloads, recording, wait_until, within_patience,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Cancel, Engine, Fired, Refusal};

#[test]
fn a_full_engine_hands_the_payload_back_until_there_is_room() {
    let (mut engine, log) = recording(Builder::new().capacity(2));
    let id = engine.handle().schedule(MS, 0).unwrap();
    engine.handle().schedule(MS, 1).unwrap();
    let error = engine.handle().schedule(MS, 2).unwrap_err();
    assert_eq!((error.kind, error.payload), (Refusal::EngineFull, 2));
    assert_eq!(error.to_string(), "the engine's capacity of pending timers is used up");
    assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(0));
    let error = engine.handle().schedule_batch([(MS, 3), (MS, 4), (MS, 5)]).unwrap_err();
    assert_eq!((error.kind, error.scheduled.len()), (Refusal::EngineFull, 1));
    assert_eq!(error.refused, [(at(MS), 4), (at(MS), 5)]);
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), [1, 3]);
    engine.handle().schedule_batch([(MS, 6), (MS, 7)]).unwrap();
    assert_eq!(engine.handle().len(), 2);
}

#[test]
fn a_full_lane_of_a_driven_engine_hands_the_payload_back_until_the_next_turn() {
    let (mut engine, log) = recording(Builder::new().lane_capacity(64));
    let mut accepted = 0;
    let error = loop {
        match engine.handle().schedule(MS, accepted) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!((64..=128).contains(&accepted), "{accepted}");
    assert_eq!((error.kind, error.payload), (Refusal::LaneFull, accepted));
    assert_eq!(error.to_string(), "the lane to the shard is full");
    let error = engine.handle().schedule_batch([(MS, 1_000)]).unwrap_err();
    assert_eq!((error.kind, error.refused.len()), (Refusal::LaneFull, 1));
    engine.turn();
    engine.handle().schedule(MS, accepted).unwrap();
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), (0..=accepted).collect::<Vec<u64>>());
}

/// Makes an engine with one shard. This thread's lane (its queue to the shard) is full. The handler of timer 0 holds
/// the shard up until the gate opens. Also returns the number of timers in the lane.
fn with_full_lane() -> (Engine<u64>, Gate, Log<u64>, u64) {
    let (gate, log) = (Gate::new(), Log::new());
    let (at_gate, sink) = (gate.clone(), log.clone());
    let engine = Builder::new()
        .shards(1)
        .lane_capacity(64)
        .inline()
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload == 0 {
                at_gate.pass();
            }
            sink.push(timer.payload);
        })
        .unwrap();
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    gate.await_arrival();
    let mut accepted = 0;
    let error = loop {
        match engine.handle().try_schedule(MS, accepted + 1) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!((63..=128).contains(&accepted), "{accepted}");
    assert_eq!((error.kind, error.payload), (Refusal::LaneFull, accepted + 1));
    (engine, gate, log, accepted)
}

#[test]
fn schedule_waits_for_a_shard_that_is_behind() {
    within_patience(|| {
        let (engine, gate, log, accepted) = with_full_lane();
        let opened = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(20 * MS);
                opened.store(true, Ordering::SeqCst);
                gate.open();
            });
            engine.handle().schedule(MS, accepted + 1).unwrap();
            assert!(opened.load(Ordering::SeqCst), "it did not wait");
            engine.handle().schedule_batch([(MS, accepted + 2), (MS, accepted + 3)]).unwrap();
        });
        wait_until("all have fired", || log.len() as u64 == accepted + 4);
        assert_eq!(log.take_sorted(), (0..accepted + 4).collect::<Vec<u64>>());
    });
}

#[test]
fn waiting_for_room_leaves_the_callers_park_token() {
    within_patience(|| {
        let (engine, gate, _log, accepted) = with_full_lane();
        thread::current().unpark();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(20 * MS);
                gate.open();
            });
            engine.handle().schedule(MS, accepted + 1).unwrap();
            // The time is taken inside the scope, since the end of the scope also parks.
            let begin = std::time::Instant::now();
            thread::park_timeout(PATIENCE / 3);
            assert!(begin.elapsed() < PATIENCE / 3, "the wait for room took the token");
        });
    });
}

#[test]
fn a_shutdown_releases_those_who_wait_for_room() {
    within_patience(|| {
        let (engine, gate, log, accepted) = with_full_lane();
        thread::scope(|scope| {
            let shutdown = scope.spawn(|| {
                thread::sleep(10 * MS);
                engine.handle().shutdown()
            });
            let error = engine.handle().schedule(MS, 1_000).unwrap_err();
            assert_eq!((error.kind, error.payload), (Refusal::ShutDown, 1_000));
            let error = engine.handle().schedule_batch([(MS, 1_000)]).unwrap_err();
            assert_eq!((error.kind, error.refused.len()), (Refusal::ShutDown, 1));
            gate.open();
            assert_eq!(shutdown.join().unwrap().len() as u64, accepted);
        });
        assert_eq!(log.take(), [0]);
        assert_settled(&engine.handle().stats());
    });
}

#[test]
fn an_inline_handler_does_not_wait_for_its_own_shard() {
    within_patience(|| {
        let (sender, outcome) = mpsc::channel();
        let engine = Builder::new()
            .shards(1)
            .lane_capacity(64)
            .inline()
            .start(move |timer: Fired<'_, u64>| {
                let refused = (0..1_000).find_map(|n| timer.engine().schedule(HOUR, n).err());
                let batch = timer.engine().schedule_batch([(HOUR, 0)]);
                sender.send((refused.map(|error| error.kind), batch.map_err(|error| error.kind))).unwrap();
            })
            .unwrap();
        engine.handle().schedule(MS, 0).unwrap();
        let full = Refusal::LaneFull;
        assert_eq!(outcome.recv().unwrap(), (Some(full), Err(full)));
    });
}

#[test]
fn a_handler_on_a_worker_may_wait_for_room() {
    within_patience(|| {
        let (sender, outcome) = mpsc::channel();
        let engine = Builder::new()
            .shards(1)
            .workers(1)
            .lane_capacity(64)
            .start(move |timer: Fired<'_, u64>| {
                sender.send((0..10_000).all(|n| timer.engine().schedule(HOUR, n).is_ok())).unwrap();
            })
            .unwrap();
        engine.handle().schedule(MS, 0).unwrap();
        assert_eq!(outcome.recv(), Ok(true));
        assert_eq!(engine.handle().shutdown().len(), 10_000);
    });
}
