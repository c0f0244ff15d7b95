//! The end of an engine races with threads that schedule, and with a second end. Afterwards each payload has one owner.
//!
//! `TOURBILLON_ROUNDS=1000 cargo test --release --test shutdown` is the long run.

mod support;

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use support::{Gate, HOUR, MS, Rng, assert_settled, wait_until, within_patience};
use tourbillon::{Builder, Engine, Fired, Handle, Unfired};

/// The number of timers in a batch. The engine ends while the batch is being scheduled.
const BATCH: usize = 20_000;
const FAR: Duration = Duration::from_secs(1_000);

fn rounds() -> u64 {
    match env::var("TOURBILLON_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("TOURBILLON_ROUNDS is a number of rounds"),
        Err(_) => 300,
    }
}

/// Schedules a batch of timers while `end` ends the engine after a random moment. `end` returns the number of payloads
/// that came back. Returns the number of lost payloads, which neither the scheduling thread nor `end` got back.
fn lost_in_a_round(round: u64, end: impl FnOnce(Engine<usize>) -> usize) -> usize {
    let engine =
        Builder::new().shards(1).workers(1).start(|_: Fired<'_, usize>| panic!("it is far")).unwrap();
    let (handle, watch) = (Handle::clone(engine.handle()), Handle::clone(engine.handle()));
    let begins = Arc::new(AtomicBool::new(false));
    let has_begun = Arc::clone(&begins);
    let scheduler = thread::spawn(move || {
        let batch: Vec<_> = (0..BATCH).map(|n| (FAR, n)).collect();
        begins.store(true, Ordering::SeqCst);
        match handle.schedule_batch(batch) {
            Ok(_) => 0,
            Err(error) => error.refused.len(),
        }
    });
    while !has_begun.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let begin = std::time::Instant::now();
    let moment = Rng::new(round).nanos_below(MS);
    while begin.elapsed() < moment {
        std::hint::spin_loop();
    }
    let returned = end(engine);
    let refused = scheduler.join().unwrap();
    assert_settled(&watch.stats());
    BATCH - returned - refused
}

fn count(unfired: &[Unfired<usize>]) -> usize {
    unfired.len()
}

#[test]
fn a_batch_against_a_shutdown_and_the_drop_right_after_it_loses_nothing() {
    let lost: usize = (0..rounds())
        .map(|round| {
            lost_in_a_round(round, |engine| {
                let unfired = engine.handle().shutdown();
                drop(engine);
                count(&unfired)
            })
        })
        .sum();
    assert_eq!(lost, 0, "payloads lost");
}

#[test]
fn a_batch_against_two_shutdowns_loses_nothing_and_the_second_returns_nothing() {
    let lost: usize = (0..rounds())
        .map(|round| {
            lost_in_a_round(round, |engine| {
                let unfired = engine.handle().shutdown();
                assert_eq!(count(&engine.handle().shutdown()), 0);
                count(&unfired)
            })
        })
        .sum();
    assert_eq!(lost, 0, "payloads lost");
}

#[test]
fn two_shutdowns_at_once_return_when_the_first_has_evicted() {
    for _ in 0..rounds() {
        let engine = Builder::new().shards(1).workers(1).start(|_: Fired<'_, usize>| {}).unwrap();
        engine.handle().schedule_batch((0..2_000).map(|n| (FAR, n))).unwrap();
        let returned: usize = thread::scope(|scope| {
            let calls = [(); 2].map(|()| {
                scope.spawn(|| {
                    let unfired = engine.handle().shutdown();
                    assert_settled(&engine.handle().stats());
                    count(&unfired)
                })
            });
            calls.into_iter().map(|call| call.join().unwrap()).sum()
        });
        assert_eq!(returned, 2_000);
    }
}

/// The first shutdown waits for a handler, which also shuts the engine down. The handler's shutdown does not wait for
/// the first shutdown. Nor does it take the first shutdown's timers.
#[test]
fn a_shutdown_inside_a_handler_takes_nothing_from_the_one_that_waits_for_it() {
    within_patience(|| {
        let (gate, inside) = (Gate::new(), Arc::new(AtomicUsize::new(usize::MAX)));
        let (at_gate, got_inside) = (gate.clone(), Arc::clone(&inside));
        let engine = Builder::new()
            .shards(1)
            .workers(1)
            .start(move |timer: Fired<'_, usize>| {
                at_gate.pass();
                got_inside.store(count(&timer.engine().shutdown()), Ordering::SeqCst);
            })
            .unwrap();
        engine.handle().schedule(MS, 0).unwrap();
        engine.handle().schedule_batch((1..=10).map(|n| (HOUR, n))).unwrap();
        gate.await_arrival();
        thread::scope(|scope| {
            let first = scope.spawn(|| engine.handle().shutdown());
            wait_until("it has begun", || engine.handle().is_shut_down());
            gate.open();
            assert_eq!(count(&first.join().unwrap()), 10);
        });
        assert_eq!(inside.load(Ordering::SeqCst), 0);
        assert_settled(&engine.handle().stats());
    });
}
