//! Tasks during the end of their engine, and after it.

use crate::support::{Gate, HOUR, Log, MS, lock, wait_until, within_patience};
use crate::{SECOND, clones, driven, every, holds, logged, ms, token};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tourbillon::{Builder, Refusal};
use tourbillon_tasks::{RepeatErrorKind, Run, Stopped, TaskEngine};

#[test]
fn one_shots_come_back_and_can_be_called() {
    let (mut tasks, log) = (driven(), Log::new());
    for number in 1..=3 {
        let sink = log.clone();
        tasks.handle().after(MS * number, move || sink.push(number)).unwrap();
    }
    tasks.advance(MS);
    let mut unfired = tasks.handle().shutdown();
    unfired.sort_by_key(|timer| timer.deadline);
    assert_eq!(unfired.iter().map(|timer| timer.deadline).collect::<Vec<_>>(), [ms(2), ms(3)]);
    assert_eq!(log.take(), [1]);
    unfired.into_iter().for_each(|timer| (timer.payload)());
    assert_eq!(log.take(), [2, 3]);
    assert!(tasks.handle().shutdown().is_empty());
    assert_eq!((tasks.handle().stats().fired, tasks.handle().stats().returned), (1, 2));
}

#[test]
fn repeating_tasks_have_ended_and_their_closures_are_gone() {
    let (mut tasks, kept) = (driven(), token());
    let start = |held: Arc<()>| move |_: &Run| holds(&held);
    let in_turn = tasks.handle().repeat(every(10), start(Arc::clone(&kept))).unwrap();
    let beside = tasks.handle().repeat_in_parallel(every(10), start(Arc::clone(&kept))).unwrap();
    drop(tasks.handle().repeat(every(10), start(Arc::clone(&kept))).unwrap());
    tasks.advance(15 * MS);
    assert_eq!(clones(&kept), 3);
    assert!(tasks.handle().shutdown().is_empty());
    assert_eq!((clones(&kept), tasks.handle().repeating().len()), (0, 0));
    for task in [&in_turn, &beside] {
        assert_eq!((task.has_ended(), task.next(), task.report().runs), (true, None, 1));
        assert_eq!((task.stop(), task.stop_and_wait()), (Stopped::Gone, Stopped::Gone));
    }
    tasks.advance(SECOND);
    assert_eq!((in_turn.report().runs, tasks.handle().stats().owned.alive), (1, 2));
    drop((in_turn, beside));
    assert_eq!(tasks.handle().stats().owned.alive, 0);
}

/// Dropping the engine drops all closures, even the closures of tasks whose handle was dropped.
#[test]
fn dropping_the_engine_drops_all_closures() {
    let kept = token();
    let tasks = TaskEngine::new().unwrap();
    let start = |held: Arc<()>| move || holds(&held);
    tasks.handle().after(HOUR, start(Arc::clone(&kept))).unwrap();
    drop(tasks.handle().every(HOUR, start(Arc::clone(&kept))).unwrap());
    let task = tasks.handle().every(HOUR, start(Arc::clone(&kept))).unwrap();
    // This closure has a handle of its engine. They form a cycle until the engine ends.
    let (inside, held) = (tasks.handle().clone(), Arc::clone(&kept));
    drop(tasks.handle().every(HOUR, move || holds(&(&held, &inside))).unwrap());
    let (inside, held) = (tasks.handle().clone(), Arc::clone(&kept));
    tasks.handle().after(HOUR, move || holds(&(&held, &inside))).unwrap();
    assert_eq!(clones(&kept), 5);
    drop(tasks);
    assert_eq!((clones(&kept), task.has_ended(), task.stop()), (0, true, Stopped::Gone));
}

#[test]
fn a_shutdown_waits_for_a_run_and_begins_no_other() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(2)).unwrap();
        let (gate, runs, ended) =
            (Gate::new(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (at_gate, count, end) = (gate.clone(), Arc::clone(&runs), Arc::clone(&ended));
        let kept = token();
        let held = Arc::clone(&kept);
        let run = move || {
            count.fetch_add(1, Ordering::SeqCst);
            at_gate.pass();
            thread::sleep(10 * MS);
            end.store(true, Ordering::SeqCst);
            holds(&held);
        };
        let task = tasks.handle().every(MS, run).unwrap();
        gate.await_arrival();
        thread::scope(|scope| {
            let shutdown = scope.spawn(|| tasks.handle().shutdown().len());
            wait_until("it is being shut down", || tasks.handle().is_shut_down());
            gate.open();
            assert_eq!(shutdown.join().unwrap(), 0);
        });
        assert!(ended.load(Ordering::SeqCst) && task.has_ended());
        assert_eq!((runs.load(Ordering::SeqCst), task.stop_and_wait(), clones(&kept)), (1, Stopped::Gone, 0));
        assert_eq!(task.report().panics, 0);
    });
}

/// The closure of a task shuts its own engine down. The task repeats in turn, repeats in parallel, or is a one-shot.
/// The shutdown waits for no closure, and all tasks end.
#[test]
fn a_task_shuts_its_engine_down() {
    within_patience(|| {
        for way in 0..3 {
            let (tasks, kept, log) = (TaskEngine::new().unwrap(), token(), Log::new());
            let (inside, held, sink) = (tasks.handle().clone(), Arc::clone(&kept), log.clone());
            let close = move || {
                holds(&held);
                sink.push((inside.shutdown().len(), inside.repeating().len()));
            };
            tasks.handle().after(HOUR, || {}).unwrap();
            let bystander = tasks.handle().every(HOUR, || {}).unwrap();
            let task = match way {
                0 => Some(tasks.handle().every(MS, close).unwrap()),
                1 => Some(tasks.handle().repeat_in_parallel(every(1), move |_| close()).unwrap()),
                _ => {
                    tasks.handle().after(MS, close).unwrap();
                    None
                }
            };
            wait_until("it is shut down", || log.len() > 0);
            assert_eq!(log.take()[0], (1, 0), "way {way}");
            wait_until("its closure is gone", || clones(&kept) == 0);
            assert!(bystander.has_ended() && task.as_ref().is_none_or(|task| task.has_ended()));
            assert_eq!(task.map_or(Stopped::Gone, |task| task.stop_and_wait()), Stopped::Gone);
            drop(tasks);
        }
    });
}

/// A closure of an engine drops that engine.
#[test]
fn a_task_drops_its_engine() {
    within_patience(|| {
        let (place, kept) = (Arc::new(Mutex::new(None::<TaskEngine>)), token());
        let tasks = TaskEngine::new().unwrap();
        let (own, held) = (Arc::clone(&place), Arc::clone(&kept));
        let run = move || {
            holds(&held);
            drop(lock(&own).take());
        };
        let task = lock(&place).insert(tasks).handle().every(MS, run).unwrap();
        wait_until("it is gone", || clones(&kept) == 0);
        assert!(lock(&place).is_none());
        assert_eq!((task.has_ended(), task.report().runs), (true, 1));
    });
}

/// Threads start, stop and run tasks until a shutdown stops them. Each closure runs, comes back or is dropped. No task
/// is left that could run.
#[test]
fn starts_and_stops_race_with_a_shutdown() {
    within_patience(|| {
        for round in 0..25 {
            let kept = token();
            let tasks =
                TaskEngine::start(Builder::new().shards(2).unpinned().workers(2).lane_capacity(64)).unwrap();
            thread::scope(|scope| {
                let mut starters = Vec::new();
                for _ in 0..3 {
                    starters.push(scope.spawn(|| {
                        let mut started = Vec::new();
                        loop {
                            let held = Arc::clone(&kept);
                            let run = move |_: &Run| holds(&held);
                            let task = match started.len() % 2 {
                                0 => tasks.handle().repeat(every(1), run).map_err(|error| error.kind),
                                _ => tasks
                                    .handle()
                                    .repeat_in_parallel(every(1), run)
                                    .map_err(|error| error.kind),
                            };
                            match task {
                                Ok(task) if started.len() % 5 == 4 => {
                                    let _ = task.stop_and_wait();
                                    started.push(task);
                                }
                                Ok(task) => started.push(task),
                                Err(kind) => {
                                    let expected = RepeatErrorKind::Refused(Refusal::ShutDown);
                                    assert_eq!(kind, expected);
                                    return started;
                                }
                            }
                        }
                    }));
                }
                thread::sleep(MS * (round % 5));
                let unfired = tasks.handle().shutdown();
                assert!(unfired.is_empty());
                for task in starters.into_iter().flat_map(|starter| starter.join().unwrap()) {
                    assert!(task.has_ended(), "round {round}");
                    assert_eq!((task.stop_and_wait(), task.next()), (Stopped::Gone, None), "round {round}");
                }
            });
            assert_eq!((clones(&kept), tasks.handle().repeating().len()), (0, 0), "round {round}");
            assert_eq!(tasks.handle().stats().total.panics, 0);
        }
    });
}

#[test]
fn what_is_asked_of_an_engine_that_has_gone_is_answered() {
    let (task, handle) = {
        let tasks = driven();
        let (task, _) = logged(tasks.handle(), every(10));
        (task, tasks.handle().clone())
    };
    assert_eq!((task.next(), task.has_ended(), task.stop()), (None, true, Stopped::Gone));
    assert!(handle.repeating().is_empty() && handle.is_shut_down());
    let error = handle.every(MS, || {}).unwrap_err();
    assert_eq!(error.kind, RepeatErrorKind::Refused(Refusal::ShutDown));
    assert!(format!("{task:?} {handle:?}").contains("Task"));
}
