//! Jobs that run and their values, and the ends of a map of keys.

use crate::support::{Gate, HOUR, Log, MS, assert_settled, wait_until, within_patience};
use crate::{SECOND, assert_empty, driven, logged, ms};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Refusal};
use tourbillon_tasks::keyed::{DueKey, KeyedErrorKind, MoveError, Placed};
use tourbillon_tasks::{IfPresent, TaskEngine};

#[test]
fn a_job_schedules_its_own_key_again() {
    let mut tasks = driven();
    let log = Log::new();
    let sink = log.clone();
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, String, u64>| {
        sink.push((due.deadline, due.lateness, due.value));
        assert!(!due.keyed.contains(&due.key));
        if due.value < 3 {
            let placed = due.keyed.schedule(due.key, 10 * MS, due.value + 1);
            assert_eq!(placed.unwrap(), None);
        }
    });
    keyed.schedule("a".to_owned(), 10 * MS, 1).unwrap();
    tasks.advance(35 * MS);
    assert_eq!(
        log.take(),
        [(ms(10), Duration::ZERO, 1), (ms(20), Duration::ZERO, 2), (ms(30), Duration::ZERO, 3)]
    );
    assert_eq!(tasks.handle().stats().total.panics, 0);
    assert_empty(&keyed, &mut tasks);
}

#[test]
fn a_job_that_panics_costs_its_own_value() {
    let mut tasks = driven();
    let values = Arc::new(());
    let log = Log::new();
    let sink = log.clone();
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, Arc<()>>| {
        sink.push(due.key);
        if due.key.is_multiple_of(2) {
            resume_unwind(Box::new(due.key));
        }
    });
    for key in 0..10 {
        keyed.schedule(key, MS, Arc::clone(&values)).unwrap();
    }
    tasks.advance(MS);
    assert_eq!((log.len(), tasks.handle().stats().total.panics, Arc::strong_count(&values)), (10, 5, 1));
    keyed.schedule(0, MS, Arc::clone(&values)).unwrap();
    tasks.advance(MS);
    assert_eq!(log.len(), 11);
    assert_empty(&keyed, &mut tasks);
}

/// The value of an entry is dropped as soon as the entry's job has run, or the entry was replaced or cancelled.
#[test]
fn values_are_dropped_when_they_are_done_with() {
    let mut tasks = driven();
    let values = Arc::new(());
    let keyed = tasks.handle().keyed(|_: DueKey<'_, u64, Arc<()>>| {});
    for key in 0..3 {
        keyed.schedule(key, MS, Arc::clone(&values)).unwrap();
    }
    drop(keyed.schedule(0, HOUR, Arc::clone(&values)).unwrap());
    drop(keyed.cancel(&1));
    assert_eq!(Arc::strong_count(&values), 1 + 2);
    tasks.advance(MS);
    assert_eq!(Arc::strong_count(&values), 1 + 1);
    drop(keyed.schedule_at(IfPresent::Keep, 0, ms(1), Arc::clone(&values)).unwrap());
    assert_eq!(Arc::strong_count(&values), 1 + 1);
    drop(keyed);
    assert_eq!((Arc::strong_count(&values), tasks.handle().stats().pending), (1, 0));
}

#[test]
fn values_need_not_be_shared() {
    let mut tasks = driven();
    let log = Log::new();
    let sink = log.clone();
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, Cell<u64>>| sink.push(due.value.get()));
    keyed.schedule(1, MS, Cell::new(17)).unwrap();
    let elsewhere = keyed.clone();
    thread::spawn(move || drop(elsewhere.schedule(2, HOUR, Cell::new(18)))).join().unwrap();
    assert_eq!(keyed.cancel(&2).map(Cell::into_inner), Some(18));
    tasks.advance(MS);
    assert_eq!(log.take(), [17]);
}

#[test]
fn with_the_last_clone_the_entries_go_and_no_job_runs() {
    let mut tasks = driven();
    let (keyed, log) = logged::<u64>(tasks.handle());
    let clone = keyed.clone();
    keyed.schedule(1, MS, 1).unwrap();
    clone.schedule(2, 2 * MS, 2).unwrap();
    drop(keyed);
    tasks.advance(MS);
    assert_eq!((log.len(), clone.keys()), (1, vec![2]));
    drop(clone);
    tasks.advance(SECOND);
    assert_eq!(log.len(), 1);
    assert_settled(&tasks.handle().stats());
    assert_eq!(tasks.handle().stats().cancelled, 1);
}

/// A running job has the last clone of its `Keyed`. When the job ends, the keys of the `Keyed` are dropped.
#[test]
fn the_last_clone_may_be_dropped_while_a_job_runs() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(1)).unwrap();
        let (gate, values) = (Gate::new(), Arc::new(()));
        let at_gate = gate.clone();
        let keyed = tasks.handle().keyed(move |_: DueKey<'_, u64, Arc<()>>| at_gate.pass());
        keyed.schedule(1, MS, Arc::clone(&values)).unwrap();
        keyed.schedule(2, HOUR, Arc::clone(&values)).unwrap();
        gate.await_arrival();
        drop(keyed);
        gate.open();
        wait_until("the values are gone", || Arc::strong_count(&values) == 1);
        wait_until("the timers are gone", || tasks.handle().stats().pending == 0);
        assert_eq!(tasks.handle().stats().fired, 1);
    });
}

#[test]
fn after_a_shutdown_the_entries_can_be_taken_and_none_be_made() {
    let mut tasks = driven();
    let (keyed, log) = logged::<u64>(tasks.handle());
    keyed.schedule(1, MS, 10).unwrap();
    keyed.schedule(2, HOUR, 20).unwrap();
    keyed.schedule(3, HOUR, 30).unwrap();
    tasks.advance(MS);
    assert!(tasks.handle().shutdown().is_empty(), "they come back by their keys");
    assert_eq!((keyed.len(), keyed.contains(&2), log.take().len()), (2, true, 1));
    let refused = KeyedErrorKind::Refused(Refusal::ShutDown);
    for key in [2, 4] {
        let error = keyed.schedule(key, MS, 99).unwrap_err();
        assert_eq!((error.kind, error.key, error.value), (refused, key, 99));
    }
    assert_eq!(keyed.schedule_at(IfPresent::Keep, 2, ms(1), 99).unwrap(), Placed::Kept(99));
    assert_eq!(keyed.reschedule(&2, MS), Err(MoveError::Refused(Refusal::ShutDown)));
    assert_eq!(keyed.cancel(&2), Some(20));
    assert_eq!((keyed.drain(), keyed.len()), (vec![(3, 30)], 0));
    tasks.advance(SECOND);
    drop(tasks);
    assert_eq!((log.len(), keyed.schedule(5, MS, 1).is_err(), keyed.is_empty()), (0, true, true));
}

#[test]
fn a_job_shuts_its_engine_down() {
    within_patience(|| {
        let tasks = TaskEngine::new().unwrap();
        let (inside, log) = (tasks.handle().clone(), Log::new());
        let sink = log.clone();
        let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, u64>| {
            let unfired = inside.shutdown().len();
            sink.push((unfired, due.keyed.schedule(due.key, MS, 1).is_err(), due.keyed.drain()));
        });
        // This entry is scheduled second, since the first job shuts the engine down.
        keyed.schedule(2, HOUR, 2).unwrap();
        keyed.schedule(1, MS, 1).unwrap();
        wait_until("it is shut down", || log.len() == 1);
        assert_eq!(log.take(), [(0, true, vec![(2, 2)])]);
    });
}
