//! `disarm_and_wait`. When it has returned, no handler runs. The result says whether the timer was armed.

use crate::support::{Gate, HOUR, Log, MS, Rng, wait_until, within_patience};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Disarm, Fired, Timer};

#[test]
fn disarm_and_wait_returns_when_the_handler_has_ended() {
    within_patience(|| {
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, sets) = (gate.clone(), Arc::clone(&ended));
        let engine = Builder::new()
            .workers(1)
            .start(move |_: Fired<'_, u64>| {
                at_gate.pass();
                thread::sleep(5 * MS);
                sets.store(true, Ordering::SeqCst);
            })
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        timer.arm(MS).unwrap();
        gate.await_arrival();
        thread::scope(|scope| {
            // Two threads wait for the handler.
            let another = scope.spawn(|| (timer.disarm_and_wait(), ended.load(Ordering::SeqCst)));
            scope.spawn(|| {
                thread::sleep(10 * MS);
                gate.open();
            });
            assert_eq!(
                timer.disarm_and_wait(),
                Disarm::Idle,
                "nothing was armed again, and the disarm returns otherwise"
            );
            assert!(ended.load(Ordering::SeqCst), "it returned while the handler ran");
            assert_eq!(
                another.join().unwrap(),
                (Disarm::Idle, true),
                "the second disarm returned while the handler ran"
            );
        });
        assert_eq!(timer.disarm_and_wait(), Disarm::Idle, "the timer is not at rest afterwards");
    });
}

/// A timer is armed again while its handler runs, and is then disarmed. The disarm waits for the handler. The disarm
/// still returns that it has taken an arming away.
#[test]
fn disarm_and_wait_tells_whether_the_timer_was_armed_again_during_the_run() {
    within_patience(|| {
        for was_armed_again in [false, true] {
            let (gate, log) = (Gate::new(), Log::new());
            let (at_gate, sink) = (gate.clone(), log.clone());
            let engine = Builder::new()
                .workers(1)
                .start(move |fired: Fired<'_, u64>| {
                    if was_armed_again {
                        fired.timer().unwrap().arm(HOUR).unwrap();
                    }
                    at_gate.pass();
                    sink.push(fired.payload);
                })
                .unwrap();
            let timer = engine.handle().timer(7).unwrap();
            timer.arm(MS).unwrap();
            gate.await_arrival();
            assert_eq!(
                timer.is_armed(),
                was_armed_again,
                "the handler did not arm its timer, or it is armed without"
            );
            let outcome = thread::scope(|scope| {
                let waits = scope.spawn(|| (timer.disarm_and_wait(), log.len()));
                if was_armed_again {
                    wait_until("it is disarmed", || !timer.is_armed());
                } else {
                    thread::sleep(5 * MS);
                }
                gate.open();
                waits.join().unwrap()
            });
            let expected = if was_armed_again { Disarm::Disarmed } else { Disarm::Idle };
            assert_eq!(
                outcome,
                (expected, 1),
                "the disarm does not return by the arming alone, or did not wait for the run"
            );
            assert!(!timer.is_armed(), "it is armed after the disarm");
        }
    });
}

#[test]
fn no_handler_runs_after_disarm_and_wait_has_returned() {
    // A timer arms itself at once, and is stopped at any moment. After `disarm_and_wait`, its handler does not run.
    // After a second stop, its handler does not come again.
    within_patience(|| {
        let (inside, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (in_handler, is_stopped) = (Arc::clone(&inside), Arc::clone(&stopped));
        let engine = Builder::new()
            .tick(Duration::from_micros(100))
            .workers(2)
            .start(move |fired: Fired<'_, u64>| {
                in_handler.fetch_add(1, Ordering::SeqCst);
                if !is_stopped.load(Ordering::SeqCst) {
                    fired.timer().unwrap().arm(Duration::ZERO).unwrap();
                }
                in_handler.fetch_sub(1, Ordering::SeqCst);
            })
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        let mut rng = Rng::new(9);
        for _ in 0..300 {
            stopped.store(false, Ordering::SeqCst);
            timer.arm(Duration::ZERO).unwrap();
            thread::sleep(rng.nanos_below(MS / 2));
            stopped.store(true, Ordering::SeqCst);
            // The handler that ran may have armed the timer just before.
            assert_ne!(
                timer.disarm_and_wait(),
                Disarm::Running,
                "outside of a handler it returned without waiting"
            );
            assert_ne!(
                timer.disarm_and_wait(),
                Disarm::Running,
                "outside of a handler it returned without waiting"
            );
            assert_eq!(inside.load(Ordering::SeqCst), 0, "a handler runs after the return");
            let fired = engine.handle().stats().owned.fired;
            assert!(!timer.is_armed(), "the timer is armed after it was stopped twice");
            thread::sleep(MS / 4);
            assert_eq!(
                (inside.load(Ordering::SeqCst), engine.handle().stats().owned.fired),
                (0, fired),
                "a handler ran after the return"
            );
        }
        assert!(engine.handle().stats().owned.fired > 0, "no handler ever ran, so that nothing was shown");
        assert_eq!(engine.handle().stats().total.panics, 0, "a handler panicked");
    });
}

#[test]
fn disarm_and_wait_does_not_wait_inside_a_handler() {
    // A handler disarms its own timer, and another timer. The other timer's handler runs at the same time, and waits
    // for the first timer.
    for builder in [Builder::new().workers(2), Builder::new().workers(4)] {
        within_patience(move || {
            let place: Arc<OnceLock<[Timer<usize>; 2]>> = Arc::default();
            let (in_handler, meet) = (Arc::downgrade(&place), Barrier::new(2));
            let (sender, answers) = mpsc::channel();
            let engine = builder
                .shards(1)
                .start(move |fired: Fired<'_, usize>| {
                    let place = in_handler.upgrade().unwrap();
                    let timers = place.get().unwrap();
                    meet.wait();
                    let own = timers[fired.payload].disarm_and_wait();
                    let other = timers[1 - fired.payload].disarm_and_wait();
                    meet.wait();
                    sender.send((own, other)).unwrap();
                })
                .unwrap();
            assert!(place.set([0, 1].map(|n| engine.handle().timer(n).unwrap())).is_ok());
            for timer in place.get().unwrap() {
                timer.arm(MS).unwrap();
            }
            for _ in 0..2 {
                assert_eq!(
                    answers.recv().unwrap(),
                    (Disarm::Running, Disarm::Running),
                    "a disarm inside a handler does not return that the handlers run"
                );
            }
        });
    }
}
