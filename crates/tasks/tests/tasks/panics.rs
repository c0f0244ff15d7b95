//! Tasks that panic. The panic is reported and counted, and other tasks are not affected.

use crate::support::{Log, MS, lock, wait_until, within_patience};
use crate::{SECOND, clones, counts, driven, every, holds, logged, token};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use tourbillon::{Builder, Cancel};
use tourbillon_tasks::keyed::Keyed;
use tourbillon_tasks::uses::{
    Connection, DelayQueue, ExpiryMap, IdleBatch, IdleTimeouts, Lifetime, RateLimiter, Receiver,
};
use tourbillon_tasks::{
    DrivenTasks, Missed, NamedTasks, OnPanic, Repeat, Run, Stopped, Task, TaskEngine, TaskTimer, Tasks,
};

/// Makes a threadless engine, and a log of the panics that reached the engine's hook.
fn heard() -> (DrivenTasks, Log<u64>) {
    let log = Log::new();
    let sink = log.clone();
    let hook = move |panic: &(dyn std::any::Any + Send)| sink.push(*panic.downcast_ref().expect("ours"));
    (DrivenTasks::start(Builder::new().on_panic(hook)).unwrap(), log)
}

/// Panics in each run with an even number, without a message.
fn panics_evenly(run: &Run) {
    if run.number.is_multiple_of(2) {
        std::panic::resume_unwind(Box::new(run.number));
    }
}

#[test]
fn one_that_panics_goes_on_unless_said() {
    for plan in [every(10), every(10).on_panic(OnPanic::GoOn)] {
        let (mut tasks, log) = heard();
        let task = tasks.handle().repeat(plan.clone(), panics_evenly).unwrap();
        let beside = tasks.handle().repeat_in_parallel(plan, panics_evenly).unwrap();
        let (calm, runs) = logged(tasks.handle(), every(10));
        tasks.advance(55 * MS);
        assert_eq!(log.take_sorted(), [2, 2, 4, 4]);
        for task in [&task, &beside] {
            assert_eq!((counts(task), task.report().panics, task.has_ended()), ([5, 0, 0, 0], 2, false));
        }
        assert_eq!((runs.len(), calm.report().panics, tasks.handle().stats().total.panics), (5, 0, 4));
    }
}

#[test]
fn one_that_panics_stops_if_said() {
    let (mut tasks, log) = heard();
    let plan = every(10).on_panic(OnPanic::Stop).missed(Missed::Burst);
    let kept = token();
    let (held, too) = (Arc::clone(&kept), Arc::clone(&kept));
    let task = tasks.handle().repeat(plan.clone(), move |run| {
        holds(&held);
        panics_evenly(run);
    });
    let beside = tasks.handle().repeat_in_parallel(plan, move |run| {
        holds(&too);
        panics_evenly(run);
    });
    tasks.advance(SECOND);
    assert_eq!(log.take_sorted(), [2, 2]);
    for task in [task.unwrap(), beside.unwrap()] {
        assert_eq!((task.report().runs, task.report().panics, task.has_ended()), (2, 1, true));
        assert_eq!((task.stop(), task.next()), (Stopped::Gone, None));
    }
    assert_eq!((clones(&kept), tasks.handle().repeating().len()), (0, 0));
    assert_eq!((tasks.handle().stats().total.panics, tasks.handle().stats().owned.alive), (2, 0));
}

#[test]
fn runs_that_panic_are_runs() {
    let (mut tasks, log) = heard();
    let task = tasks
        .handle()
        .repeat(every(10).times(3), |run| std::panic::resume_unwind(Box::new(run.number)))
        .unwrap();
    tasks.advance(SECOND);
    assert_eq!((log.take(), task.report().runs, task.report().panics), (vec![1, 2, 3], 3, 3));
    assert!(task.has_ended());
}

#[test]
fn one_shots_that_panic_cost_only_themselves() {
    let (mut tasks, log) = heard();
    let runs = Log::new();
    for number in 0..100_u64 {
        let sink = runs.clone();
        let run = move || {
            sink.push(number);
            if number.is_multiple_of(10) {
                std::panic::resume_unwind(Box::new(number));
            }
        };
        tasks.handle().after(MS, run).unwrap();
    }
    tasks.advance(MS);
    assert_eq!((runs.len(), log.take_sorted()), (100, (0..10).map(|ten| ten * 10).collect::<Vec<_>>()));
    assert_eq!(
        (tasks.handle().stats().fired, tasks.handle().stats().total.panics, tasks.handle().stats().pending),
        (100, 10, 0)
    );
}

#[test]
fn timers_whose_closures_panic_are_armed_again() {
    let (mut tasks, log) = heard();
    let timer = tasks.handle().timer(|| std::panic::resume_unwind(Box::new(7_u64))).unwrap();
    for _ in 0..3 {
        timer.arm(MS).unwrap();
        tasks.advance(MS);
    }
    assert_eq!((log.take(), tasks.handle().stats().owned.fired), (vec![7, 7, 7], 3));
}

/// A value whose drop panics.
struct Splinter(u64);

impl Drop for Splinter {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(self.0));
    }
}

/// The engine drops a closure, and the drop panics. The panic reaches the engine's hook, and the task has ended.
#[test]
fn a_closure_whose_drop_panics_has_ended_all_the_same() {
    let (mut tasks, log) = heard();
    let splinter = Splinter(1);
    let last = tasks.handle().repeat(every(10).times(1), move |_| holds(&splinter)).unwrap();
    let splinter = Splinter(2);
    let says = tasks.handle().repeat_in_parallel(every(10), move |run| {
        holds(&splinter);
        run.stop();
    });
    let splinter = Splinter(3);
    tasks.handle().after(10 * MS, move || holds(&splinter)).unwrap();
    let (_calm, runs) = logged(tasks.handle(), every(10));
    tasks.advance(100 * MS);
    assert_eq!((log.take_sorted(), runs.len()), (vec![1, 2, 3], 10));
    for task in [last, says.unwrap()] {
        assert_eq!((task.report().runs, task.report().panics, task.has_ended()), (1, 0, true));
        assert_eq!((task.stop_and_wait(), task.next()), (Stopped::Gone, None));
    }
    assert_eq!(tasks.handle().repeating().len(), 1);
    // A thread that stops a task, or cancels a closure, drops the closure itself. So that thread gets the panic.
    let splinter = Splinter(4);
    let task = tasks.handle().repeat(every(10), move |_| holds(&splinter)).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| task.stop())).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&4_u64));
    assert_eq!((task.stop(), tasks.handle().repeating().len()), (Stopped::Gone, 1));
    let splinter = Splinter(5);
    let id = tasks.handle().after(MS, move || holds(&splinter)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| tasks.handle().cancel(id))).is_err());
    assert_eq!(tasks.handle().cancel(id), Cancel::Gone);
}

/// A closure whose drop panics harms neither other closures nor the process.
#[test]
fn many_closures_whose_drops_panic_do_not_keep_an_engine_from_its_end() {
    for drops in [false, true] {
        let kept = token();
        let tasks = driven();
        let mut handles = Vec::new();
        for number in 0..20 {
            let (splinter, held) = ((number % 2 == 0).then(|| Splinter(number)), Arc::clone(&kept));
            let run = move |_: &Run| holds(&(&splinter, &held));
            handles.push(if number % 4 < 2 {
                tasks.handle().repeat(every(10), run).unwrap()
            } else {
                tasks.handle().repeat_in_parallel(every(10), run).unwrap()
            });
        }
        if drops {
            drop(tasks);
        } else {
            let held = Arc::clone(&kept);
            tasks.handle().after(MS, move || drop(held)).unwrap();
            let unfired = tasks.handle().shutdown();
            // The shutdown still returns the closure of the one-shot.
            assert_eq!(unfired.len(), 1);
            (unfired.into_iter().next().unwrap().payload)();
        }
        assert_eq!(clones(&kept), 0, "drops: {drops}");
        assert!(handles.iter().all(|task| task.has_ended() && task.stop() == Stopped::Gone));
    }
}

/// A run panics while a thread stops the task and waits for the run's end. The thread stops waiting.
#[test]
fn who_waits_for_a_run_that_panics_waits_no_longer() {
    within_patience(|| {
        for is_parallel in [false, true] {
            let heard = Arc::new(Mutex::new(0));
            let hears = Arc::clone(&heard);
            let tasks =
                TaskEngine::start(Builder::new().shards(1).workers(1).on_panic(move |_| *lock(&hears) += 1))
                    .unwrap();
            let gate = crate::support::Gate::new();
            let at_gate = gate.clone();
            let run = move |_: &Run| {
                at_gate.pass();
                std::panic::resume_unwind(Box::new(0_u64));
            };
            let plan = Repeat::every(MS).on_panic(OnPanic::Stop);
            let task = if is_parallel {
                tasks.handle().repeat_in_parallel(plan.times(1), run).unwrap()
            } else {
                tasks.handle().repeat(plan, run).unwrap()
            };
            gate.await_arrival();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| task.stop_and_wait());
                std::thread::sleep(2 * MS);
                gate.open();
                assert_ne!(waiter.join().unwrap(), Stopped::Running);
            });
            wait_until("the hook has heard", || *lock(&heard) == 1);
            assert_eq!((task.report().panics, task.report().runs), (1, 1));
        }
    });
}

/// If a task panics, the engine's panic hook gets the payload of the panic unchanged.
#[test]
fn the_hook_gets_what_the_task_panicked_with() {
    let log = Log::new();
    let sink = log.clone();
    let tasks = Builder::new().on_panic(move |panic| sink.push(panic.downcast_ref::<String>().cloned()));
    let mut tasks = DrivenTasks::start(tasks).unwrap();
    let _task = tasks
        .handle()
        .repeat(every(10).times(1), |run| {
            let word = format!("run {}", run.number);
            // `resume_unwind` prints no message.
            let hook = catch_unwind(move || std::panic::resume_unwind(Box::new(word))).unwrap_err();
            std::panic::resume_unwind(hook);
        })
        .unwrap();
    tasks.advance(SECOND);
    assert_eq!(log.take(), [Some("run 1".to_owned())]);
}

#[test]
fn handles_may_be_used_after_a_panic() {
    fn safe<T: UnwindSafe + RefUnwindSafe>() {}
    safe::<TaskEngine>();
    safe::<DrivenTasks>();
    safe::<Tasks>();
    safe::<Task>();
    safe::<TaskTimer>();
    safe::<NamedTasks<u64>>();
    safe::<Keyed<u64, Cell<u64>>>();
    safe::<ExpiryMap<u64, u64>>();
    safe::<IdleTimeouts<u64>>();
    safe::<Connection<u64>>();
    safe::<IdleBatch<u64>>();
    safe::<DelayQueue<Cell<u64>>>();
    safe::<Receiver<Cell<u64>>>();
    safe::<RateLimiter>();
    let tasks = driven();
    let map = tasks.handle().expiry_map(Lifetime::of(SECOND));
    map.insert(1, 1).unwrap();
    // The closure runs under the lock of a part of the map.
    let outcome = catch_unwind(|| map.read(&1, |_| std::panic::resume_unwind(Box::new(7_u64))));
    assert!(outcome.map(|_: Option<()>| ()).is_err());
    assert_eq!((map.insert(1, 2).unwrap(), map.get(&1)), (Some(1), Some(2)));
}
