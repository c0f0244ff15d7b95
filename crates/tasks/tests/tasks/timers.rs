//! Owned timers that run a closure.

use crate::support::{Gate, HOUR, Log, MS, lock, within_patience};
use crate::{SECOND, clones, driven, holds, ms, token};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tourbillon::{ArmError, Armed, Builder, Disarm};
use tourbillon_tasks::{TaskEngine, TaskTimer};

#[test]
fn it_runs_each_time_that_it_was_armed_for() {
    let (mut tasks, log) = (driven(), Log::new());
    let (sink, inside) = (log.clone(), tasks.handle().clone());
    let timer = tasks.handle().timer(move || sink.push(inside.now())).unwrap();
    assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
    timer.arm(5 * MS).unwrap();
    timer.arm(20 * MS).unwrap();
    tasks.advance(10 * MS);
    timer.arm_at(ms(12)).unwrap();
    tasks.advance(10 * MS);
    timer.arm(5 * MS).unwrap();
    assert_eq!((timer.deadline(), timer.disarm_and_wait()), (Some(ms(25)), Disarm::Disarmed));
    tasks.advance(SECOND);
    timer.arm(MS).unwrap();
    tasks.advance(SECOND);
    assert_eq!(log.take(), [ms(12), ms(1_021)]);
}

#[test]
fn a_timer_arms_itself_from_its_closure() {
    let mut tasks = driven();
    let place = Arc::new(Mutex::new(None::<TaskTimer>));
    let (own, log) = (Arc::downgrade(&place), Log::new());
    let (sink, inside) = (log.clone(), tasks.handle().clone());
    let action = move || {
        sink.push(inside.now());
        if let Some(place) = own.upgrade() {
            assert_eq!(lock(&place).as_ref().expect("it is there").arm(10 * MS), Ok(Armed::Running));
        }
    };
    *lock(&place) = Some(tasks.handle().timer(action).unwrap());
    lock(&place).as_ref().expect("it is there").arm(10 * MS).unwrap();
    tasks.advance(35 * MS);
    drop(place);
    tasks.advance(SECOND);
    assert_eq!(log.take(), [ms(10), ms(20), ms(30)]);
    assert_eq!((tasks.handle().stats().owned.alive, tasks.handle().stats().total.panics), (0, 0));
}

#[test]
fn dropping_one_drops_its_closure_also_from_within() {
    let (mut tasks, kept) = (driven(), token());
    let held = Arc::clone(&kept);
    let timer = tasks.handle().timer(move || holds(&held)).unwrap();
    timer.arm(MS).unwrap();
    drop(timer);
    assert_eq!(clones(&kept), 0);
    let place = Arc::new(Mutex::new(None));
    let (own, held) = (Arc::clone(&place), Arc::clone(&kept));
    let timer = tasks.handle().timer(move || {
        drop(lock(&own).take());
        assert!(Arc::strong_count(&held) > 1, "dropped while it runs");
    });
    let timer = lock(&place).insert(timer.unwrap()).arm(MS);
    timer.unwrap();
    tasks.advance(SECOND);
    assert_eq!((clones(&kept), Arc::strong_count(&place)), (0, 1));
    assert_eq!((tasks.handle().stats().owned.alive, tasks.handle().stats().total.panics), (0, 0));
}

#[test]
fn disarm_and_wait_waits_for_the_closure() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(1)).unwrap();
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, end) = (gate.clone(), Arc::clone(&ended));
        let timer = tasks
            .handle()
            .timer(move || {
                at_gate.pass();
                thread::sleep(5 * MS);
                end.store(true, Ordering::SeqCst);
            })
            .unwrap();
        timer.arm(MS).unwrap();
        gate.await_arrival();
        assert_eq!(timer.disarm(), Disarm::Running);
        gate.open();
        assert_eq!(timer.disarm_and_wait(), Disarm::Idle);
        assert!(ended.load(Ordering::SeqCst));
    });
}

#[test]
fn after_a_shutdown_it_is_armed_no_more() {
    let (tasks, kept) = (driven(), token());
    let held = Arc::clone(&kept);
    let timer = tasks.handle().timer(move || holds(&held)).unwrap();
    timer.arm(HOUR).unwrap();
    assert!(tasks.handle().shutdown().is_empty());
    assert_eq!(timer.arm(MS), Err(ArmError::ShutDown));
    assert_eq!(timer.deadline(), None);
    drop(tasks);
    // Only the owner of the timer still has the closure.
    assert_eq!(clones(&kept), 1);
    drop(timer);
    assert_eq!(clones(&kept), 0);
}
