//! Closures that run once.

use crate::support::{Gate, HOUR, Log, MS, assert_settled, wait_until, within_patience};
use crate::{SECOND, clones, driven, holds, ms, token};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Cancel, Clock, Refusal, RescheduleError, Timestamp};
use tourbillon_tasks::{Call, DrivenTasks, TaskEngine, Tasks};

/// Makes a closure that logs the moment at which it runs.
fn note(log: &Log<Timestamp>, tasks: &DrivenTasks) -> impl FnOnce() + Send + 'static {
    let (log, clock) = (log.clone(), tasks.clock().clone());
    move || log.push(clock.now())
}

#[test]
fn it_runs_once_and_not_before_its_moment() {
    let (mut tasks, log) = (driven(), Log::new());
    tasks.handle().after(5 * MS, note(&log, &tasks)).unwrap();
    tasks.handle().at(ms(7), note(&log, &tasks)).unwrap();
    tasks.handle().after(7 * MS + Duration::from_nanos(1), note(&log, &tasks)).unwrap();
    tasks.advance(5 * MS - Duration::from_nanos(1));
    assert_eq!(log.len(), 0);
    tasks.advance(SECOND);
    assert_eq!(log.take(), [ms(5), ms(7), ms(8)]);
    assert_settled(&tasks.handle().stats());
}

#[test]
fn for_a_moment_that_has_passed_it_runs_with_the_next_turn() {
    let (mut tasks, log) = (driven(), Log::new());
    tasks.advance(SECOND);
    tasks.handle().at(Timestamp::ZERO, note(&log, &tasks)).unwrap();
    tasks.handle().at(ms(999), note(&log, &tasks)).unwrap();
    tasks.turn();
    assert_eq!(log.take(), [ms(1_000); 2]);
}

#[test]
fn a_cancelled_one_is_dropped_and_does_not_run() {
    let (mut tasks, kept) = (driven(), token());
    let held = Arc::clone(&kept);
    let id = tasks.handle().after(MS, move || assert_eq!(Arc::strong_count(&held), 0, "it ran")).unwrap();
    assert_eq!(tasks.handle().deadline(id), Some(ms(1)));
    assert_eq!(clones(&kept), 1);
    assert_eq!(tasks.handle().cancel(id), Cancel::Cancelled(()));
    assert_eq!(clones(&kept), 0);
    assert_eq!((tasks.handle().cancel(id), tasks.handle().deadline(id)), (Cancel::Gone, None));
    tasks.advance(SECOND);
    let stats = tasks.handle().stats();
    assert_eq!((stats.fired, stats.total.panics), (0, 0));
}

#[test]
fn what_it_holds_goes_as_soon_as_it_has_run() {
    let (mut tasks, kept) = (driven(), token());
    let held = Arc::clone(&kept);
    tasks.handle().after(MS, move || drop(held)).unwrap();
    let held = Arc::clone(&kept);
    // This closure does not consume the token that it holds.
    tasks.handle().after(2 * MS, move || holds(&held)).unwrap();
    tasks.advance(MS);
    assert_eq!(clones(&kept), 1);
    tasks.advance(MS);
    assert_eq!((clones(&kept), tasks.handle().stats().total.panics), (0, 0));
}

#[test]
fn one_that_was_moved_runs_at_the_new_moment_alone() {
    let (mut tasks, log) = (driven(), Log::new());
    let first = tasks.handle().after(5 * MS, note(&log, &tasks)).unwrap();
    let later = tasks.handle().reschedule(first, 20 * MS).unwrap();
    assert!(matches!(tasks.handle().reschedule(first, MS), Err(RescheduleError::Gone)));
    assert_eq!((tasks.handle().cancel(first), tasks.handle().deadline(later)), (Cancel::Gone, Some(ms(20))));
    tasks.advance(10 * MS);
    assert_eq!(log.len(), 0);
    let earlier = tasks.handle().reschedule(later, MS).unwrap();
    tasks.advance(SECOND);
    assert_eq!(log.take(), [ms(11)]);
    assert!(matches!(tasks.handle().reschedule(earlier, MS), Err(RescheduleError::Gone)));
}

#[test]
fn closures_give_their_engine_more_to_do() {
    fn again(tasks: &Tasks, log: &Log<Timestamp>, left: u64) {
        let (next, sink) = (tasks.clone(), log.clone());
        let run = move || {
            sink.push(next.now());
            if left > 1 {
                again(&next, &sink, left - 1);
            }
        };
        tasks.after(10 * MS, run).unwrap();
    }
    let (mut tasks, log) = (driven(), Log::new());
    again(tasks.handle(), &log, 3);
    tasks.advance(SECOND);
    assert_eq!(log.take(), [ms(10), ms(20), ms(30)]);
}

/// The lane (a thread's queue to a shard) is full, the engine is full, or the engine has ended. In each case the error
/// returns the closure, and the test can call the closure.
#[test]
fn a_refused_one_comes_back_and_can_be_called() {
    fn refuse(tasks: &Tasks, kind: Refusal) {
        let log = Log::new();
        let sink = log.clone();
        let error = tasks.after(HOUR, move || sink.push("called")).unwrap_err();
        assert_eq!(error.kind, kind);
        let call: Call = error.payload;
        assert_eq!(log.len(), 0);
        call();
        assert_eq!(log.take(), ["called"]);
    }
    let lane = DrivenTasks::start(Builder::new().lane_capacity(64)).unwrap();
    while lane.handle().after(HOUR, || {}).is_ok() {}
    refuse(lane.handle(), Refusal::LaneFull);
    let capacity = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    capacity.handle().after(HOUR, || {}).unwrap();
    refuse(capacity.handle(), Refusal::EngineFull);
    let gone = driven();
    assert!(gone.handle().shutdown().is_empty());
    refuse(gone.handle(), Refusal::ShutDown);
}

#[test]
fn one_that_runs_is_not_cancelled_but_can_be_waited_for() {
    let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
    let tasks = TaskEngine::start(Builder::new().shards(1).workers(1)).unwrap();
    let (at_gate, end) = (gate.clone(), Arc::clone(&ended));
    let run = move || {
        at_gate.pass();
        thread::sleep(5 * MS);
        end.store(true, Ordering::SeqCst);
    };
    let id = tasks.handle().after(MS, run).unwrap();
    gate.await_arrival();
    assert_eq!(tasks.handle().cancel(id), Cancel::Running);
    gate.open();
    assert_eq!(tasks.handle().cancel_and_wait(id), Cancel::Gone);
    assert!(ended.load(Ordering::SeqCst));
}

#[test]
fn one_that_waits_for_itself_does_not_wait() {
    within_patience(|| {
        let tasks = TaskEngine::new().unwrap();
        let (log, id) = (Log::new(), Arc::new(OnceLock::new()));
        let (sink, own_id, inside) = (log.clone(), Arc::clone(&id), tasks.handle().clone());
        let run = move || sink.push(inside.cancel_and_wait(*own_id.wait()));
        id.set(tasks.handle().after(MS, run).unwrap()).unwrap();
        wait_until("it ran", || log.len() == 1);
        assert_eq!(log.take(), [Cancel::Running]);
    });
}

/// The calls of handles whose engine has gone are refused, and no call hangs.
#[test]
fn a_handle_outlives_its_engine() {
    let kept = token();
    let held = Arc::clone(&kept);
    let (handle, id) = {
        let tasks = TaskEngine::new().unwrap();
        let id = tasks.handle().after(HOUR, move || drop(held)).unwrap();
        (tasks.handle().clone(), id)
    };
    assert_eq!(clones(&kept), 0);
    assert!(handle.is_shut_down());
    assert_eq!((handle.cancel(id), handle.cancel_and_wait(id)), (Cancel::Gone, Cancel::Gone));
    assert_eq!(handle.deadline(id), None);
    assert!(matches!(handle.reschedule(id, MS), Err(RescheduleError::Gone)));
    assert_eq!(handle.after(MS, || {}).unwrap_err().kind, Refusal::ShutDown);
    assert!(handle.shutdown().is_empty() && handle.repeating().is_empty());
}
