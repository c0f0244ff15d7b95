//! `cancel_and_wait`, from outside and from handlers.

use crate::support::{Gate, HOUR, MS, lock, within_patience};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use tourbillon::{Builder, Cancel, Engine, Fired, RescheduleError};

#[test]
fn cancel_and_wait_returns_when_the_handler_has_ended() {
    within_patience(|| {
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, flag) = (gate.clone(), Arc::clone(&ended));
        let engine = Engine::new(move |_: Fired<'_, ()>| {
            at_gate.pass();
            flag.store(true, Ordering::Relaxed);
        })
        .unwrap();
        let id = engine.handle().schedule(MS, ()).unwrap();
        gate.await_arrival();
        assert_eq!(engine.handle().cancel(id), Cancel::Running);
        assert_eq!(engine.handle().remaining(id), None);
        assert!(matches!(engine.handle().reschedule(id, MS), Err(RescheduleError::Running)));
        thread::scope(|scope| {
            let waits = || {
                let outcome = engine.handle().cancel_and_wait(id);
                (outcome, ended.load(Ordering::Relaxed))
            };
            let waiters = [scope.spawn(waits), scope.spawn(waits)];
            thread::sleep(20 * MS);
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            gate.open();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), (Cancel::Gone, true));
            }
        });
        let id = engine.handle().schedule(HOUR, ()).unwrap();
        assert_eq!(engine.handle().cancel_and_wait(id), Cancel::Cancelled(()));
        assert_eq!(engine.handle().cancel_and_wait(id), Cancel::Gone);
    });
}

#[test]
fn handlers_that_cancel_and_wait_for_each_other_do_not_deadlock() {
    within_patience(|| {
        let ids = Arc::new(Mutex::new(Vec::new()));
        let (both, (sender, outcomes)) = (Arc::clone(&ids), mpsc::channel());
        let meeting = std::sync::Barrier::new(2);
        let engine = Builder::new()
            .workers(2)
            .start(move |timer: Fired<'_, usize>| {
                meeting.wait();
                let other = lock(&both)[1 - timer.payload];
                sender.send(timer.engine().cancel_and_wait(other)).unwrap();
                meeting.wait();
            })
            .unwrap();
        // Each timer has its own shard, so that each handler has a worker.
        {
            let mut ids = lock(&ids);
            for shard in 0..2 {
                engine.handle().use_shard(shard);
                ids.push(engine.handle().schedule(MS, shard).unwrap());
            }
        }
        assert_eq!(outcomes.into_iter().take(2).collect::<Vec<_>>(), [Cancel::Running, Cancel::Running]);
    });
}
