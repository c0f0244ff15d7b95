//! Stopping a task: from outside, from its own closure, and during a run.

use crate::support::{Gate, HOUR, Log, MS, Rng, lock, wait_until, within_patience};
use crate::{SECOND, clones, counts, driven, every, holds, logged, ms, seen, token};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Clock, Job, ManualClock};
use tourbillon_tasks::{First, Overlap, Repeat, Stopped, Task, TaskEngine};

const MICRO: Duration = Duration::from_micros(1);

fn one_worker() -> TaskEngine {
    TaskEngine::start(Builder::new().shards(1).unpinned().workers(1)).unwrap()
}

#[test]
fn one_that_is_stopped_at_rest_runs_no_more_and_its_closure_is_gone() {
    let (mut tasks, kept, log) = (driven(), token(), Log::new());
    let (held, sink) = (Arc::clone(&kept), log.clone());
    let task = tasks
        .handle()
        .repeat(every(10), move |_| {
            holds(&held);
            sink.push(());
        })
        .unwrap();
    tasks.advance(25 * MS);
    assert_eq!(task.stop(), Stopped::Stopped);
    assert_eq!((clones(&kept), task.has_ended(), task.next()), (0, true, None));
    assert_eq!(
        (task.stop(), task.stop_and_wait(), task.clone().stop()),
        (Stopped::Gone, Stopped::Gone, Stopped::Gone)
    );
    tasks.advance(SECOND);
    assert_eq!((log.len(), counts(&task), tasks.handle().stats().pending), (2, [2, 0, 0, 0], 0));
    drop(task);
    assert_eq!(tasks.handle().stats().owned.alive, 0);
}

#[test]
fn one_that_is_stopped_before_its_first_run_has_none() {
    let mut tasks = driven();
    let (task, log) = logged(tasks.handle(), every(10).first(First::AtOnce));
    assert_eq!(task.stop_and_wait(), Stopped::Stopped);
    tasks.advance(SECOND);
    assert_eq!((log.len(), counts(&task)), (0, [0; 4]));
}

#[test]
fn one_that_has_ended_by_itself_is_gone() {
    let mut tasks = driven();
    let (task, _) = logged(tasks.handle(), every(10).times(1));
    tasks.advance(10 * MS);
    assert_eq!((task.stop(), task.stop_and_wait()), (Stopped::Gone, Stopped::Gone));
}

#[test]
fn dropping_every_handle_lets_it_go_on() {
    let mut tasks = driven();
    let (task, log) = logged(tasks.handle(), every(10).times(3));
    drop((task.clone(), task));
    tasks.advance(SECOND);
    assert_eq!(log.take(), [seen(1, 10, 0, 0), seen(2, 20, 0, 0), seen(3, 30, 0, 0)]);
    assert_eq!(tasks.handle().stats().owned.alive, 0);
}

#[test]
fn a_run_may_be_the_last_by_its_own_word() {
    let (mut tasks, kept) = (driven(), token());
    let (held, clock) = (Arc::clone(&kept), tasks.clock().clone());
    // The run outlasts its period, so that a next run would be queued.
    let run = move |run: &tourbillon_tasks::Run| {
        holds(&held);
        clock.advance(25 * MS);
        if run.number == 2 {
            run.stop();
            run.stop();
        }
    };
    let task = tasks.handle().repeat(every(10).overlap(Overlap::QueueOne), run).unwrap();
    tasks.advance(SECOND);
    assert_eq!((task.report().runs, task.has_ended(), task.next(), clones(&kept)), (2, true, None, 0));
    assert_eq!((task.stop(), tasks.handle().repeating().len()), (Stopped::Gone, 0));
}

/// A closure has a handle of its own task. This cycle of references ends when the task ends.
#[test]
fn a_task_stops_itself_by_its_handle() {
    for waits in [false, true] {
        let (mut tasks, kept, log) = (driven(), token(), Log::new());
        let own = Arc::new(OnceLock::<Task>::new());
        let (task, held, sink) = (Arc::clone(&own), Arc::clone(&kept), log.clone());
        let run = move || {
            let task = task.get().expect("it was started");
            assert_eq!((task.next(), task.has_ended()), (None, false));
            let outcome = if waits { task.stop_and_wait() } else { task.stop() };
            sink.push((outcome, task.stop(), Arc::strong_count(&held)));
        };
        own.set(tasks.handle().every(10 * MS, run).unwrap()).unwrap();
        tasks.advance(SECOND);
        assert_eq!(log.take(), [(Stopped::Running, Stopped::Running, 2)]);
        assert_eq!((clones(&kept), Arc::strong_count(&own)), (0, 1));
        assert_eq!(own.get().unwrap().stop(), Stopped::Gone);
        drop(own);
        assert_eq!((tasks.handle().stats().owned.alive, tasks.handle().stats().total.panics), (0, 0));
    }
}

#[test]
fn one_that_is_stopped_while_it_runs_ends_with_that_run() {
    within_patience(|| {
        let (tasks, gate, kept) = (one_worker(), Gate::new(), token());
        let (at_gate, held) = (gate.clone(), Arc::clone(&kept));
        let run = move || {
            at_gate.pass();
            holds(&held);
        };
        let task = tasks.handle().repeat(every(1).first(First::AtOnce), move |_| run()).unwrap();
        gate.await_arrival();
        assert_eq!((task.next(), task.has_ended()), (None, false));
        assert_eq!(task.stop(), Stopped::Running);
        assert_eq!((task.stop(), task.has_ended(), clones(&kept)), (Stopped::Running, true, 1));
        gate.open();
        let _ = task.stop_and_wait();
        assert_eq!(task.stop_and_wait(), Stopped::Gone);
        wait_until("its closure is gone", || clones(&kept) == 0);
        assert_eq!((task.report().runs, task.report().panics), (1, 0));
    });
}

/// Several threads wait by `stop_and_wait` for a run. Afterwards all threads see the run's effects.
#[test]
fn stop_and_wait_waits_until_the_run_has_ended() {
    within_patience(|| {
        let (tasks, gate, ended) = (one_worker(), Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, end) = (gate.clone(), Arc::clone(&ended));
        let run = move || {
            at_gate.pass();
            thread::sleep(10 * MS);
            end.store(true, Ordering::SeqCst);
        };
        let task = tasks.handle().every(MS, run).unwrap();
        gate.await_arrival();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    assert_ne!(task.stop_and_wait(), Stopped::Running);
                    assert!(ended.load(Ordering::SeqCst), "it did not wait");
                });
            }
            thread::sleep(5 * MS);
            assert!(!ended.load(Ordering::SeqCst));
            gate.open();
        });
        assert_eq!(task.report().runs, 1);
    });
}

/// When `stop_and_wait` returns, the task's closure and the values that the closure held were dropped.
#[test]
fn what_a_closure_held_is_gone_when_stop_and_wait_returns() {
    struct SlowToGo(#[expect(dead_code, reason = "it is held")] Arc<()>);
    impl Drop for SlowToGo {
        fn drop(&mut self) {
            thread::sleep(20 * MS);
        }
    }
    within_patience(|| {
        for is_parallel in [false, true] {
            let (tasks, gate, kept) = (one_worker(), Gate::new(), token());
            let (at_gate, held) = (gate.clone(), SlowToGo(Arc::clone(&kept)));
            let run = move |_: &tourbillon_tasks::Run| {
                at_gate.pass();
                holds(&held);
            };
            let task = if is_parallel {
                tasks.handle().repeat_in_parallel(every(1).times(1), run).unwrap()
            } else {
                tasks.handle().repeat(every(1), run).unwrap()
            };
            gate.await_arrival();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| task.stop_and_wait());
                wait_until("it is stopped", || task.has_ended());
                gate.open();
                assert_ne!(waiter.join().unwrap(), Stopped::Running);
            });
            assert_eq!(clones(&kept), 0, "parallel: {is_parallel}");
        }
    });
}

/// A closure that stops another task of the same engine does not wait for that task.
#[test]
fn a_task_that_stops_another_does_not_wait_for_it() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(2)).unwrap();
        let (gate, log) = (Gate::new(), Log::new());
        let at_gate = gate.clone();
        let slow = tasks.handle().every(MS, move || at_gate.pass()).unwrap();
        gate.await_arrival();
        let (other, sink) = (slow.clone(), log.clone());
        tasks.handle().after(MS, move || sink.push(other.stop_and_wait())).unwrap();
        wait_until("it has tried", || log.len() == 1);
        assert_eq!(log.take(), [Stopped::Running]);
        gate.open();
        let _ = slow.stop_and_wait();
    });
}

/// A closure that runs inline on a shard does not wait for a task of another engine on this shard, whose run may need
/// the shard.
#[test]
fn a_task_on_the_shards_own_thread_waits_for_no_task_of_these_shards() {
    within_patience(|| {
        let shards = Builder::new().shards(1).start_shards().unwrap();
        let executor = |job: Job| drop(thread::spawn(|| job.run()));
        let elsewhere = TaskEngine::start(shards.engine().executor(executor)).unwrap();
        let inline = TaskEngine::start(shards.engine().inline()).unwrap();
        let (gate, log) = (Gate::new(), Log::new());
        let at_gate = gate.clone();
        let slow = elsewhere.handle().every(MS, move || at_gate.pass()).unwrap();
        gate.await_arrival();
        let (other, sink) = (slow.clone(), log.clone());
        inline.handle().after(MS, move || sink.push(other.stop_and_wait())).unwrap();
        wait_until("it has tried", || log.len() == 1);
        assert_eq!(log.take(), [Stopped::Running]);
        gate.open();
        let _ = slow.stop_and_wait();
    });
}

/// Several threads stop a task at the same time. Exactly one call returns `Stopped`.
#[test]
fn of_many_that_stop_a_resting_task_one_has_stopped_it() {
    let tasks = TaskEngine::new().unwrap();
    for _ in 0..200 {
        let task = tasks.handle().every(HOUR, || {}).unwrap();
        let stopped = thread::scope(|scope| {
            let calls = [0; 4].map(|_| scope.spawn(|| task.stop()));
            calls.into_iter().map(|call| call.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(stopped.iter().filter(|&&outcome| outcome == Stopped::Stopped).count(), 1, "{stopped:?}");
        assert_eq!(stopped.iter().filter(|&&outcome| outcome == Stopped::Gone).count(), 3, "{stopped:?}");
    }
}

/// Threads stop tasks at all moments between two instants. After `stop_and_wait` the task does not run any more, and
/// its report is true.
#[test]
fn stops_race_with_firing() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().tick(20 * MICRO).shards(1).unpinned().workers(2)).unwrap();
        let mut rng = Rng::new(1);
        let begin = Instant::now();
        let mut rounds = 0_u64;
        while rounds < 200 || begin.elapsed() < 600 * MS {
            rounds += 1;
            let (over, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
            let (is_over, count, kept) = (Arc::clone(&over), Arc::clone(&runs), token());
            let held = Arc::clone(&kept);
            let run = move |_: &tourbillon_tasks::Run| {
                assert!(!is_over.load(Ordering::SeqCst), "a run after the stop");
                count.fetch_add(1, Ordering::SeqCst);
                holds(&held);
            };
            let plan = Repeat::every(20 * MICRO).first(First::AtOnce);
            let task = match rounds % 2 {
                0 => tasks.handle().repeat(plan, run).unwrap(),
                _ => tasks.handle().repeat_in_parallel(plan, run).unwrap(),
            };
            for _ in 0..rng.below(20_000) {
                std::hint::spin_loop();
            }
            assert_ne!(task.stop_and_wait(), Stopped::Running);
            over.store(true, Ordering::SeqCst);
            assert_eq!(clones(&kept), 0, "round {rounds}");
            assert_eq!(task.stop(), Stopped::Gone);
            assert_eq!(task.report().runs, runs.load(Ordering::SeqCst), "round {rounds}");
        }
        wait_until("nothing of them is left", || tasks.handle().stats().owned.alive == 0);
        assert_eq!((tasks.handle().stats().total.panics, tasks.handle().repeating().len()), (0, 0));
    });
}

/// The drop of a task's closure may call the engine, because the engine holds no lock at that moment.
#[test]
fn a_closure_may_use_its_engine_while_it_is_dropped() {
    struct UsesItsEngine(Box<dyn Fn() + Send>);
    impl Drop for UsesItsEngine {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    within_patience(|| {
        let mut tasks = driven();
        let (log, own) = (Log::new(), Arc::new(Mutex::new(None::<Task>)));
        for ending in 0..4 {
            let (inside, sink, task) = (tasks.handle().clone(), log.clone(), Arc::clone(&own));
            let at_drop = UsesItsEngine(Box::new(move || {
                let own = lock(&task).clone();
                let stopped = own.map(|task| (task.stop(), task.stop_and_wait(), task.report().runs));
                let started = inside.every(HOUR, || {}).map(drop).is_ok();
                sink.push((stopped, started, inside.repeating().len() < 100));
            }));
            let run = move |run: &tourbillon_tasks::Run| {
                holds(&at_drop);
                if ending == 0 {
                    run.stop();
                }
            };
            let task = tasks.handle().repeat(every(10).times(if ending == 1 { 1 } else { 9 }), run).unwrap();
            *lock(&own) = Some(task.clone());
            tasks.advance(10 * MS);
            if ending == 2 {
                let _ = task.stop();
            }
            if ending == 3 {
                drop(tasks.handle().shutdown());
            }
            let seen = log.take();
            assert_eq!(seen.len(), 1, "ending {ending}");
            assert_eq!((seen[0].0.is_some(), seen[0].1), (true, ending < 3), "ending {ending}");
        }
    });
}

/// A thread starts a task and waits for room in its lane (its queue to the shard). At that time, a handler on the
/// shard's own thread lists the tasks and reads them.
#[test]
fn a_task_that_is_being_started_does_not_hold_up_those_who_look() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().shards(1).unpinned().inline().lane_capacity(64)).unwrap();
        let gate = Gate::new();
        let (at_gate, inside) = (gate.clone(), tasks.handle().clone());
        let done = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&done);
        tasks
            .handle()
            .after(MS, move || {
                at_gate.pass();
                assert!(inside.repeating().iter().all(|task| !task.has_ended() && task.report().runs == 0));
                is_done.store(true, Ordering::SeqCst);
            })
            .unwrap();
        gate.await_arrival();
        let starter = {
            let tasks = tasks.handle().clone();
            thread::spawn(move || (0..200).for_each(|_| drop(tasks.every(HOUR, || {}).unwrap())))
        };
        // The lane takes about 64 tickets. After that, the start of a task waits.
        wait_until("the lane is full", || tasks.handle().repeating().len() > 64);
        thread::sleep(5 * MS);
        gate.open();
        wait_until("the handler has looked", || done.load(Ordering::SeqCst));
        starter.join().unwrap();
        assert_eq!(tasks.handle().repeating().len(), 200);
    });
}

/// A task is stopped while the clock of its engine stands still. When the clock moves, the task does not run again.
#[test]
fn a_stopped_task_does_not_come_back_when_the_clock_moves() {
    let clock = ManualClock::new();
    let tasks = TaskEngine::start(Builder::new().clock(clock.clone()).shards(1).workers(1)).unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&runs);
    let task = tasks.handle().every(10 * MS, move || _ = count.fetch_add(1, Ordering::SeqCst)).unwrap();
    clock.advance(10 * MS);
    wait_until("it runs", || runs.load(Ordering::SeqCst) == 1 && task.next().is_some());
    assert_eq!(task.next(), Some(ms(20)));
    assert_eq!(task.stop_and_wait(), Stopped::Stopped);
    let behind = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&behind);
    tasks.handle().at(ms(500), move || shown.store(true, Ordering::SeqCst)).unwrap();
    clock.advance(HOUR);
    wait_until("what came after it ran", || behind.load(Ordering::SeqCst));
    assert_eq!((runs.load(Ordering::SeqCst), clock.now() > ms(500)), (1, true));
}
