//! Stops, cancels and shutdowns.

use crate::support::{HOUR, MS, Rng, wait_until, within_patience};
use crate::{SECOND, at, every, keys, seconds};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tourbillon::{ArmError, Builder, Cancel, Disarm, Refusal};
use tourbillon_tasks::keyed::DueKey;
use tourbillon_tasks::{DrivenTasks, First, Repeat, RepeatErrorKind, Stopped, TaskEngine};

#[test]
fn after_a_stop_every_call_answers() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1)).unwrap();
        let (keyed, _log) = keys(tasks.handle());
        keyed.schedule(1, HOUR, 10).unwrap();
        let (task, timer) =
            (tasks.handle().every(HOUR, || {}).unwrap(), tasks.handle().timer(|| {}).unwrap());
        timer.arm(HOUR).unwrap();
        let id = tasks.handle().after(HOUR, || {}).unwrap();
        assert_eq!(tasks.handle().shutdown().len(), 1);
        assert_eq!((tasks.handle().shutdown().len(), tasks.handle().is_shut_down()), (0, true));
        assert_eq!(tasks.handle().after(MS, || {}).unwrap_err().kind, Refusal::ShutDown);
        assert_eq!(
            tasks.handle().every(MS, || {}).unwrap_err().kind,
            RepeatErrorKind::Refused(Refusal::ShutDown)
        );
        assert!(keyed.schedule(2, MS, 20).is_err() && keyed.reschedule(&1, MS).is_err());
        assert_eq!((keyed.cancel(&1), keyed.cancel(&1)), (Some(10), None));
        assert_eq!(
            (tasks.handle().cancel(id), tasks.handle().cancel_and_wait(id)),
            (Cancel::Gone, Cancel::Gone)
        );
        assert_eq!((task.stop(), task.stop_and_wait()), (Stopped::Gone, Stopped::Gone));
        assert_eq!((timer.arm(MS), timer.disarm_and_wait()), (Err(ArmError::ShutDown), Disarm::Idle));
        let handle = tasks.handle().clone();
        drop(tasks);
        assert!(handle.shutdown().is_empty());
    });
}

#[test]
fn all_tasks_of_a_slot_are_removed() {
    let mut tasks = seconds();
    let (keyed, log) = keys(tasks.handle());
    let started: Vec<_> = (0..100).map(|_| tasks.handle().every(10 * SECOND, || {}).unwrap()).collect();
    for key in 0..100 {
        keyed.schedule(key, 10 * SECOND, key).unwrap();
    }
    tasks.turn();
    assert!((0..100).all(|key| keyed.cancel(&key) == Some(key)));
    assert!(started.iter().all(|task| task.stop() == Stopped::Stopped));
    tasks.advance(100 * SECOND);
    assert_eq!((log.len(), tasks.handle().repeating().len(), tasks.handle().stats().owned.fired), (0, 0, 0));
}

/// A task is stopped after a run, before its timer is armed for the next run.
#[test]
fn a_stop_between_two_runs_holds() {
    within_patience(|| {
        let tick = Duration::from_micros(20);
        let tasks = TaskEngine::start(Builder::new().tick(tick).shards(1).unpinned().workers(2)).unwrap();
        let mut rng = Rng::new(2);
        for _ in 0..300 {
            let (stopped, after, runs) = (
                Arc::new(AtomicBool::new(false)),
                Arc::new(AtomicBool::new(false)),
                Arc::new(AtomicU64::new(0)),
            );
            let (is_stopped, is_after, count) = (Arc::clone(&stopped), Arc::clone(&after), Arc::clone(&runs));
            let run = move || {
                is_after.fetch_or(is_stopped.load(Ordering::SeqCst), Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
            };
            let task = tasks.handle().every(tick, run).unwrap();
            wait_until("it runs", || runs.load(Ordering::SeqCst) > 2);
            (0..rng.below(2_000)).for_each(|_| std::hint::spin_loop());
            let _ = task.stop_and_wait();
            stopped.store(true, Ordering::SeqCst);
            assert!(!after.load(Ordering::SeqCst));
            assert_eq!(
                (task.next(), task.stop(), task.report().runs),
                (None, Stopped::Gone, runs.load(Ordering::SeqCst))
            );
        }
        assert!(tasks.handle().repeating().is_empty());
    });
}

/// A key is cancelled while it fires. Either the cancel or the job has the value.
#[test]
fn a_cancel_that_races_with_firing_has_one_outcome() {
    within_patience(|| {
        let tick = Duration::from_micros(20);
        let tasks = TaskEngine::start(Builder::new().tick(tick).shards(1).unpinned().workers(2)).unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ran);
        let keyed = tasks.handle().keyed(move |_: DueKey<'_, u64, ()>| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let (mut rng, mut cancelled) = (Rng::new(3), 0);
        for key in 0..20_000 {
            keyed.schedule(key % 7, rng.nanos_below(2 * tick), ()).unwrap();
            (0..rng.below(3_000)).for_each(|_| std::hint::spin_loop());
            cancelled += u64::from(keyed.cancel(&(key % 7)).is_some());
        }
        wait_until("the rest has run", || ran.load(Ordering::SeqCst) + cancelled == 20_000);
        assert!(keyed.is_empty() && cancelled > 0 && cancelled < 20_000, "{cancelled} cancelled");
        wait_until("nothing is pending", || tasks.handle().stats().pending == 0);
        assert_eq!(ran.load(Ordering::SeqCst) + cancelled, 20_000);
    });
}

#[test]
fn of_several_shutdowns_one_gets_what_is_pending() {
    within_patience(|| {
        for _ in 0..20 {
            let tasks = TaskEngine::start(Builder::new().shards(2).workers(1)).unwrap();
            for _ in 0..50 {
                tasks.handle().after(HOUR, || {}).unwrap();
                tasks.handle().every(HOUR, || {}).unwrap();
            }
            let returned = thread::scope(|scope| {
                let calls = [0; 3].map(|_| {
                    scope.spawn(|| {
                        let unfired = tasks.handle().shutdown().len();
                        assert!(tasks.handle().is_shut_down() && tasks.handle().after(MS, || {}).is_err());
                        unfired
                    })
                });
                calls.map(|call| call.join().unwrap())
            });
            assert_eq!(returned.iter().sum::<usize>(), 50, "{returned:?}");
            assert!(tasks.handle().repeating().is_empty());
        }
    });
}

#[test]
fn what_is_not_armed_can_be_asked_and_stopped() {
    let mut tasks = seconds();
    let timer = tasks.handle().timer(|| {}).unwrap();
    assert_eq!(
        (timer.deadline(), timer.disarm(), timer.disarm_and_wait()),
        (None, Disarm::Idle, Disarm::Idle)
    );
    let (keyed, _log) = keys(tasks.handle());
    assert_eq!((keyed.cancel(&1), keyed.deadline(&1), keyed.remaining(&1)), (None, None, None));
    assert!(!keyed.contains(&1) && keyed.reschedule(&1, SECOND).is_err() && keyed.drain().is_empty());
    // Every plan that can be expressed gives a task that can be queried and stopped.
    for plan in [every(5), Repeat::pausing(5 * SECOND), every(5).spread_by(1), every(5).first(First::AtOnce)]
    {
        let task = tasks.handle().repeat(plan, |_| {}).unwrap();
        assert!(task.next().is_some() && !task.has_ended());
        assert_eq!((task.stop(), task.next()), (Stopped::Stopped, None));
    }
    let id = tasks.handle().after(SECOND, || {}).unwrap();
    tasks.advance(SECOND);
    assert_eq!((tasks.handle().cancel(id), tasks.handle().deadline(id)), (Cancel::Gone, None));
}

#[test]
fn a_stop_lets_go_of_what_was_pending() {
    let kept = Arc::new(());
    let tasks = TaskEngine::start(Builder::new().shards(1)).unwrap();
    let keyed = tasks.handle().keyed(|_: DueKey<'_, u64, Arc<()>>| {});
    for key in 0..100 {
        let (held, also) = (Arc::clone(&kept), Arc::clone(&kept));
        tasks.handle().after(HOUR, move || drop(held)).unwrap();
        tasks.handle().every(HOUR, move || assert!(Arc::strong_count(&also) > 0)).unwrap();
        keyed.schedule(key, HOUR, Arc::clone(&kept)).unwrap();
    }
    assert_eq!(Arc::strong_count(&kept), 301);
    let handle = tasks.handle().clone();
    drop(tasks);
    // After the stop, the user can still take the entries of the map.
    assert_eq!((Arc::strong_count(&kept), keyed.drain().len(), handle.repeating().len()), (101, 100, 0));
    assert_eq!(Arc::strong_count(&kept), 1);
}

/// Timers are so far away that they move down several wheels. At each moment on their way, some of the timers are
/// cancelled, or their tasks are stopped.
#[test]
fn a_cancel_on_the_way_down_the_wheels_holds() {
    let mut tasks = DrivenTasks::new().unwrap();
    let (keyed, log) = keys(tasks.handle());
    let runs = Arc::new(AtomicU64::new(0));
    let mut started = Vec::new();
    for key in 0..6_000 {
        let delay = Duration::from_millis(4_000 + key % 400);
        keyed.schedule(key, delay, key).unwrap();
        if key % 6 == 0 {
            let count = Arc::clone(&runs);
            let run = move |_: &tourbillon_tasks::Run| _ = count.fetch_add(1, Ordering::Relaxed);
            let plan = Repeat::every(HOUR).first(First::After(delay));
            started.push((key, tasks.handle().repeat(plan, run).unwrap()));
        }
    }
    let (mut rng, mut cancelled, mut stopped) = (Rng::new(7), HashSet::new(), 0);
    tasks.advance(3_900 * MS);
    for _ in 0..500 {
        tasks.advance(MS);
        for _ in 0..5 {
            let key = rng.below(6_000);
            if keyed.cancel(&key).is_some() {
                assert!(cancelled.insert(key));
            }
        }
        let (key, task) = started.swap_remove(rng.index(started.len()));
        let is_due = tasks.handle().now() >= at(Duration::from_millis(4_000 + key % 400));
        assert_eq!((task.stop(), task.report().runs), (Stopped::Stopped, u64::from(is_due)));
        stopped += u64::from(!is_due);
    }
    tasks.advance(SECOND);
    let fired: HashSet<u64> = log.take().into_iter().collect();
    assert!(fired.is_disjoint(&cancelled) && cancelled.len() > 300 && stopped > 100);
    assert_eq!((fired.len() + cancelled.len(), keyed.len()), (6_000, 0));
    assert_eq!(runs.load(Ordering::Relaxed), 1_000 - stopped);
}

/// A timer's slot is used again at once. An id of the old timer does not find the new timer.
#[test]
fn stopping_what_has_ended_touches_no_stranger() {
    let mut tasks = DrivenTasks::start(Builder::new().tick(SECOND).capacity(8)).unwrap();
    let (keyed, log) = keys(tasks.handle());
    let mut old_ids = Vec::new();
    let mut old_tasks = Vec::new();
    for round in 0..50 {
        let id = tasks.handle().after(SECOND, || {}).unwrap();
        if round % 2 == 0 {
            assert_eq!(tasks.handle().cancel(id), Cancel::Cancelled(()));
        }
        old_ids.push(id);
        let task = tasks.handle().repeat(every(1).times(1), |_| {}).unwrap();
        keyed.schedule(1, SECOND, 1).unwrap();
        tasks.advance(SECOND);
        old_tasks.push(task);
        old_tasks.truncate(2);
    }
    assert_eq!((log.take().len(), keyed.len()), (50, 0));
    keyed.schedule(2, SECOND, 2).unwrap();
    let stranger = tasks.handle().after(SECOND, || {}).unwrap();
    let task = tasks.handle().every(SECOND, || {}).unwrap();
    for &id in old_ids.iter().chain(&old_ids) {
        assert_eq!((tasks.handle().cancel(id), tasks.handle().deadline(id)), (Cancel::Gone, None));
    }
    assert!(old_tasks.iter().chain(&old_tasks).all(|task| task.stop() == Stopped::Gone));
    assert_eq!(
        (keyed.cancel(&1), tasks.handle().deadline(stranger)),
        (None, Some(tasks.handle().now() + SECOND))
    );
    tasks.advance(SECOND);
    assert_eq!((log.take(), tasks.handle().cancel(stranger), task.report().runs), (vec![2], Cancel::Gone, 1));
}

#[test]
fn a_shutdown_does_not_wait_for_what_is_pending() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1)).unwrap();
        for _ in 0..1_000 {
            tasks.handle().after(HOUR, || {}).unwrap();
        }
        let task = tasks.handle().every(HOUR, || {}).unwrap();
        assert_eq!(task.stop_and_wait(), Stopped::Stopped);
        assert_eq!((tasks.handle().shutdown().len(), task.stop()), (1_000, Stopped::Gone));
    });
}
