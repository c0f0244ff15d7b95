//! Handlers that arm again, block, panic, or drop the engine.

use crate::MICRO;
use crate::support::{
    Gate, Log, MS, PATIENCE, assert_settled, lock, payloads, recording, wait_until, within_patience,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Cancel, Engine, Fired, Handle, Job};

/// Guards against fault P16 of other engines: a timer that re-armed itself in its own callback with zero delay was a
/// busy loop.
#[test]
fn a_timer_that_rearms_itself_without_delay_starves_nobody() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .tick(MICRO)
        .shards(1)
        .inline()
        .start(move |timer: Fired<'_, u64>| match timer.payload {
            0 => drop(timer.engine().schedule(Duration::ZERO, 0)),
            other => sink.push(other),
        })
        .unwrap();
    for _ in 0..10 {
        engine.handle().schedule(Duration::ZERO, 0).unwrap();
    }
    engine.handle().schedule(5 * MS, 1).unwrap();
    wait_until("the other timer has fired", || log.len() == 1);
    // Other timers were refused when their handlers scheduled them again.
    assert!(engine.handle().shutdown().len() <= 10);
    assert_settled(&engine.handle().stats());
}

/// Guards against fault P16 of other engines: a timer that re-armed itself in its own callback with zero delay was a
/// busy loop. Guards against fault R19 of other engines: a timer was put back into the slot that was being drained: an
/// endless loop.
#[test]
fn a_timer_that_rearms_itself_for_the_tick_being_fired_comes_once_a_tick() {
    let mut engine = Builder::new()
        .driven(|timer: Fired<'_, u64>| {
            timer.engine().schedule_at(timer.deadline, timer.payload).unwrap();
        })
        .unwrap();
    engine.handle().schedule(MS, 0).unwrap();
    engine.advance(10 * MS);
    assert_eq!(engine.handle().stats().fired, 10);
}

/// Guards against fault P17 of other engines: a callback cancelled itself, or dropped its engine.
#[test]
fn a_handler_may_drop_the_engine() {
    within_patience(|| {
        let engine = Arc::new(Mutex::new(None::<Engine<u64>>));
        let (owner, (sender, done)) = (Arc::clone(&engine), mpsc::channel());
        let built = Engine::new(move |_| {
            drop(lock(&owner).take());
            sender.send(()).unwrap();
        });
        *lock(&engine) = Some(built.unwrap());
        let handle = lock(&engine).as_ref().unwrap().handle().clone();
        handle.schedule(MS, 0).unwrap();
        done.recv().unwrap();
        assert!(handle.is_shut_down());
    });
}

/// Guards against fault P19 of other engines: a panic in a callback ended the wheel's thread, or left the wheel locked.
/// Guards against fault R21 of other engines: panicking user code took the timer thread along; a drop inside a drop
/// aborted.
#[test]
fn a_panicking_handler_costs_nobody_else_anything() {
    for builder in [Builder::new().workers(2), Builder::new().inline()] {
        let log = Log::new();
        let (sink, (sender, panics)) = (log.clone(), mpsc::channel());
        let engine = builder
            .on_panic(move |panic| sender.send(panic.is::<String>()).unwrap())
            .start(move |timer: Fired<'_, u64>| {
                assert!(!timer.payload.is_multiple_of(3), "payload {}", timer.payload);
                sink.push(timer.payload);
            })
            .unwrap();
        for payload in 0..99 {
            engine.handle().schedule(MS, payload).unwrap();
        }
        wait_until("all others have fired", || log.len() == 66);
        assert!((0..33).all(|_| panics.recv_timeout(PATIENCE) == Ok(true)));
        wait_until("all panics are counted", || engine.handle().stats().total.panics == 33);
        engine.handle().schedule(MS, 100).unwrap();
        wait_until("the engine goes on", || log.len() == 67);
    }
}

/// Guards against fault P21 of other engines: blocked callbacks started threads without bound.
#[test]
fn blocked_handlers_hold_the_workers_and_no_more() {
    // Ten chunks come due while both workers are blocked. The statistics show the queue.
    let gate = Gate::new();
    let (at_gate, (running, most)) = (gate.clone(), (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0))));
    let peak = Arc::clone(&most);
    let engine = Builder::new()
        .shards(1)
        .workers(2)
        .start(move |_: Fired<'_, u64>| {
            peak.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            at_gate.pass();
            running.fetch_sub(1, Ordering::Relaxed);
        })
        .unwrap();
    engine.handle().schedule_batch((0..320).map(|n| (MS, n))).unwrap();
    gate.await_arrivals(2);
    wait_until("the queue shows", || engine.handle().stats().total.queued_chunks >= 8);
    gate.open();
    wait_until("all have fired", || engine.handle().stats().fired == 320);
    assert_eq!(most.load(Ordering::Relaxed), 2);
    assert_eq!(engine.handle().stats().total.queued_chunks, 0);
}

/// Guards against fault P21 of other engines: blocked callbacks started threads without bound.
#[test]
fn a_blocked_worker_is_not_sent_help_over_and_over() {
    // The only worker is blocked for many ticks. Jobs that are sent as help and never begin must not pile up.
    let (gate, sent) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (at_gate, count) = (gate.clone(), Arc::clone(&sent));
    let (jobs, queue) = mpsc::channel::<Job>();
    let worker = thread::spawn(move || queue.into_iter().for_each(Job::run));
    let engine = Builder::new()
        .shards(1)
        .executor(move |job| {
            count.fetch_add(1, Ordering::Relaxed);
            jobs.send(job).unwrap();
        })
        .start(move |_: Fired<'_, u64>| at_gate.pass())
        .unwrap();
    engine.handle().schedule_batch((0..32).map(|n| (MS, n))).unwrap();
    gate.await_arrival();
    thread::sleep(60 * MS);
    let sent = sent.load(Ordering::Relaxed);
    gate.open();
    wait_until("all have fired", || engine.handle().stats().fired == 32);
    drop(engine);
    worker.join().unwrap();
    assert!(sent <= 3, "{sent} jobs for one worker");
}

/// Guards against fault R20 of other engines: user code ran under a lock or a borrow.
#[test]
fn a_batch_may_use_the_engine_while_it_is_collected() {
    let (mut engine, log) = recording(Builder::new());
    let handle = Handle::clone(engine.handle());
    let ids = engine.handle().schedule_batch((0..10).map(|n| {
        let id = handle.schedule(MS, n + 100).unwrap();
        assert_eq!(handle.cancel(id), Cancel::Cancelled(n + 100));
        (MS, n)
    }));
    assert_eq!(ids.unwrap().len(), 10);
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), (0..10).collect::<Vec<u64>>());
}

/// Guards against fault R21 of other engines: panicking user code took the timer thread along; a drop inside a drop
/// aborted.
#[test]
fn a_panic_in_a_payloads_drop_and_in_the_hook_end_where_they_began() {
    struct Grenade(bool);
    impl Drop for Grenade {
        fn drop(&mut self) {
            assert!(!self.0, "a payload's drop");
        }
    }
    let mut engine = Builder::new()
        .on_panic(|_| panic!("a hook"))
        .driven(|timer: Fired<'_, Grenade>| drop(timer.payload))
        .unwrap();
    for n in 0..10 {
        engine.handle().schedule(MS, Grenade(n % 2 == 0)).unwrap();
    }
    engine.advance(MS);
    let stats = engine.handle().stats();
    assert_eq!((stats.fired, stats.total.panics), (10, 5));
    engine.handle().schedule(MS, Grenade(true)).unwrap();
    engine.handle().schedule(MS, Grenade(false)).unwrap();
    drop(engine);
}

/// Guards against fault R27 of other engines: the detector of stalls started a second driver.
#[test]
fn a_chunk_that_gets_help_fires_each_timer_once() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .shards(1)
        .workers(2)
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload.is_multiple_of(16) {
                thread::sleep(4 * MS);
            }
            sink.push(timer.payload);
        })
        .unwrap();
    engine.handle().schedule_batch((0..160).map(|n| (MS, n))).unwrap();
    wait_until("all have fired", || log.len() >= 160);
    assert!(engine.handle().shutdown().is_empty());
    assert_eq!(log.take_sorted(), (0..160).collect::<Vec<u64>>());
}
