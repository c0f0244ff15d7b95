//! Full lanes. The tests show when an arming waits for its shard, and when it does not.

use crate::SECOND;
use crate::support::{Gate, Log, MS, PATIENCE, payloads, recording, wait_until, within_patience};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{ArmError, Armed, Builder, Fired, Refusal, Timer};

#[test]
fn arming_waits_for_no_shard_where_that_would_be_for_itself() {
    // Without a turn in between, there are more armings than the lane holds, and each takes a ticket.
    let (mut engine, log) = recording(Builder::new().lane_capacity(64));
    let timers: Vec<_> = (0..1_024).map(|n| engine.handle().timer(n).unwrap()).collect();
    for timer in &timers {
        assert_eq!(timer.arm(SECOND), Ok(Armed::Pending), "an arming is refused for a full lane");
    }
    assert_eq!(
        engine.handle().schedule(SECOND, 0).unwrap_err().kind,
        Refusal::LaneFull,
        "the lane is not full, so the armings before prove nothing"
    );
    engine.advance(SECOND);
    assert_eq!(
        payloads(&log.take()),
        (0..1_024).collect::<Vec<u64>>(),
        "an arming that found the lane full was lost, or fired twice"
    );
    // The arming is inside a handler that runs on the shard's own thread.
    within_patience(|| {
        let place: Arc<OnceLock<Vec<Timer<u64>>>> = Arc::default();
        let (in_handler, (sender, fired)) = (Arc::downgrade(&place), mpsc::channel());
        let engine = Builder::new()
            .shards(1)
            .lane_capacity(64)
            .inline()
            .start(move |fired: Fired<'_, u64>| {
                if fired.timer().is_none() {
                    for timer in in_handler.upgrade().unwrap().get().unwrap() {
                        assert_eq!(
                            timer.arm(MS),
                            Ok(Armed::Pending),
                            "an arming on the shard's own thread is refused for a full lane"
                        );
                    }
                } else {
                    sender.send(fired.payload).unwrap();
                }
            })
            .unwrap();
        assert!(place.set((0..1_000).map(|n| engine.handle().timer(n).unwrap()).collect()).is_ok());
        engine.handle().schedule(MS, 0).unwrap();
        let mut payloads: Vec<u64> = (0..1_000).map(|_| fired.recv_timeout(PATIENCE).unwrap()).collect();
        payloads.sort_unstable();
        assert_eq!(
            payloads,
            (0..1_000).collect::<Vec<u64>>(),
            "an arming that found the lane full was lost, or fired twice"
        );
    });
}

#[test]
fn arming_waits_for_a_shard_that_is_behind_until_it_is_not_or_is_shut_down() {
    for shut_down in [false, true] {
        within_patience(move || {
            let (gate, log) = (Gate::new(), Log::new());
            let (at_gate, sink) = (gate.clone(), log.clone());
            let engine = Builder::new()
                .shards(1)
                .lane_capacity(64)
                .inline()
                .start(move |fired: Fired<'_, u64>| {
                    if fired.timer().is_none() {
                        at_gate.pass();
                    } else {
                        sink.push(fired.payload);
                    }
                })
                .unwrap();
            engine.handle().schedule(Duration::ZERO, 0).unwrap();
            gate.await_arrival();
            let timers: Vec<_> = (0..500).map(|n| engine.handle().timer(n).unwrap()).collect();
            let opened = AtomicBool::new(false);
            thread::scope(|scope| {
                let opener = scope.spawn(|| {
                    thread::sleep(20 * MS);
                    if shut_down {
                        // This arming waits for the handler, which waits for the gate.
                        scope.spawn(|| {
                            assert!(engine.handle().shutdown().is_empty(), "owned timers are returned")
                        });
                        wait_until("the shutdown has begun", || engine.handle().is_shut_down());
                    } else {
                        opened.store(true, Ordering::SeqCst);
                        gate.open();
                    }
                });
                let refused = timers.iter().find_map(|timer| timer.arm(MS).err());
                assert_eq!(
                    refused,
                    shut_down.then_some(ArmError::ShutDown),
                    "a waiting arming does not return the shutdown, or is refused without one"
                );
                assert!(shut_down || opened.load(Ordering::SeqCst), "it did not wait");
                opener.join().unwrap();
                gate.open();
            });
            if !shut_down {
                wait_until("all have fired", || log.len() == 500);
            }
        });
    }
}
