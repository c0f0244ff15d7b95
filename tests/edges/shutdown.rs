//! The end of an engine: the timers that it returns, the threads that it waits for, the calls that it refuses
//! afterwards.

use crate::support::{
    Gate, HOUR, MS, assert_settled, lock, payloads, recording, wait_until, within_patience,
};
use crate::{at, every_dispatch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use tourbillon::{Builder, Cancel, Engine, Fired, Handle, Refusal, Timestamp, Unfired};

#[test]
fn a_shutdown_returns_what_had_not_fired() {
    let (mut engine, log) = recording(Builder::new().shards(2));
    engine.handle().schedule(MS, 1).unwrap();
    engine.advance(MS);
    let in_wheel = engine.handle().schedule(HOUR, 2).unwrap();
    engine.turn();
    engine.handle().use_shard(1);
    let in_lane = engine.handle().schedule_at(Timestamp::MAX, 3).unwrap();
    let mut unfired = engine.handle().shutdown();
    unfired.sort_unstable_by_key(|timer| timer.payload);
    assert_eq!(
        unfired,
        [
            Unfired { id: in_wheel, deadline: at(HOUR + MS), payload: 2 },
            Unfired { id: in_lane, deadline: Timestamp::MAX, payload: 3 }
        ]
    );
    assert!(engine.handle().is_shut_down());
    engine.advance(2 * HOUR);
    assert_eq!(payloads(&log.take()), [1]);
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_shutdown_waits_for_running_handlers() {
    within_patience(|| {
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, flag) = (gate.clone(), Arc::clone(&ended));
        let engine = Engine::new(move |timer: Fired<'_, ()>| {
            at_gate.pass();
            let error = timer.engine().schedule(MS, ()).unwrap_err();
            assert_eq!(error.kind, Refusal::ShutDown);
            assert_eq!(timer.engine().cancel(timer.id()), Cancel::Running);
            flag.store(true, Ordering::SeqCst);
        })
        .unwrap();
        engine.handle().schedule(MS, ()).unwrap();
        gate.await_arrival();
        thread::scope(|scope| {
            let shutdowns =
                [scope.spawn(|| engine.handle().shutdown()), scope.spawn(|| engine.handle().shutdown())];
            wait_until("it has begun", || engine.handle().is_shut_down());
            thread::sleep(20 * MS);
            assert!(shutdowns.iter().all(|shutdown| !shutdown.is_finished()));
            gate.open();
            assert!(shutdowns.into_iter().all(|shutdown| shutdown.join().unwrap().is_empty()));
            assert!(ended.load(Ordering::SeqCst));
        });
        assert_eq!(engine.handle().stats().total.panics, 0);
    });
}

#[test]
fn shutdowns_that_race_return_each_timer_once() {
    let engine = Builder::new().shards(2).start(|_: Fired<'_, u64>| {}).unwrap();
    engine.handle().schedule_batch((0..10_000).map(|n| (HOUR, n))).unwrap();
    let mut unfired: Vec<u64> = thread::scope(|scope| {
        let shutdowns: Vec<_> = (0..3).map(|_| scope.spawn(|| engine.handle().shutdown())).collect();
        shutdowns
            .into_iter()
            .flat_map(|shutdown| shutdown.join().unwrap())
            .map(|timer| timer.payload)
            .collect()
    });
    unfired.sort_unstable();
    assert_eq!(unfired, (0..10_000).collect::<Vec<u64>>());
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_shutdown_from_inside_a_handler_neither_waits_nor_panics() {
    for builder in every_dispatch() {
        within_patience(move || {
            let (sender, unfired) = mpsc::channel();
            let engine = builder
                .start(move |timer: Fired<'_, u64>| {
                    let engine = timer.engine();
                    let unfired = engine.shutdown().len();
                    let refused = engine.schedule(MS, 1).is_err();
                    sender.send((unfired, refused, engine.shutdown().len())).unwrap();
                })
                .unwrap();
            engine.handle().schedule_batch((0..100).map(|n| (HOUR, n))).unwrap();
            engine.handle().schedule(MS, 0).unwrap();
            assert_eq!(unfired.recv().unwrap(), (100, true, 0));
            assert!(engine.handle().shutdown().is_empty());
            let stats = engine.handle().stats();
            assert_eq!((stats.fired, stats.returned, stats.total.panics), (1, 100, 0));
            assert_settled(&stats);
        });
    }
}

#[test]
fn a_driven_engine_may_be_shut_down_by_its_handler() {
    let mut engine = Builder::new()
        .shards(2)
        .driven(|timer: Fired<'_, u64>| assert_eq!(timer.engine().shutdown().len(), 99))
        .unwrap();
    for n in 0..100 {
        engine.handle().schedule(MS, n).unwrap();
    }
    engine.advance(HOUR);
    let stats = engine.handle().stats();
    assert_eq!((stats.fired, stats.returned, stats.total.panics), (1, 99, 0));
    assert_settled(&stats);
}

#[test]
fn dropping_the_engine_inside_a_handler_ends_it() {
    for builder in every_dispatch() {
        within_patience(move || {
            let engine = Arc::new(Mutex::new(None::<Engine<Arc<()>>>));
            let (owner, (sender, done)) = (Arc::clone(&engine), mpsc::channel());
            let built = builder.start(move |_: Fired<'_, Arc<()>>| {
                let engine = lock(&owner).take();
                let had_it = engine.is_some();
                drop(engine);
                sender.send(had_it).unwrap();
            });
            let payload = Arc::new(());
            {
                let mut engine = lock(&engine);
                let engine = engine.insert(built.unwrap());
                engine.handle().schedule(HOUR, Arc::clone(&payload)).unwrap();
                engine.handle().schedule(MS, Arc::clone(&payload)).unwrap();
            }
            assert_eq!(done.recv(), Ok(true));
            wait_until("all payloads are dropped", || Arc::strong_count(&payload) == 1);
            assert!(lock(&engine).is_none());
        });
    }
}

#[test]
fn dropping_the_engine_leaves_handles_that_refuse() {
    let engine = Engine::new(|_: Fired<'_, u64>| {}).unwrap();
    let handle = Handle::clone(engine.handle());
    let id = engine.handle().schedule(HOUR, 1).unwrap();
    drop(engine);
    assert!(handle.is_shut_down());
    assert_eq!(handle.schedule(MS, 2).unwrap_err().payload, 2);
    handle.use_shard(1);
    assert_eq!(handle.schedule(MS, 3).unwrap_err().payload, 3);
    assert_eq!(handle.cancel(id), Cancel::Gone);
    assert_settled(&handle.stats());
}
