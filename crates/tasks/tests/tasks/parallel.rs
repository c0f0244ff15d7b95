//! Repeating tasks whose runs may overlap.

use crate::support::{Gate, HOUR, Log, MS, lock, wait_until, within_patience};
use crate::{SECOND, Seen, clones, counts, driven, every, holds, millis, ms, seen, stall, token};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Clock, Job, ManualClock, Timestamp};
use tourbillon_tasks::{DrivenTasks, First, Missed, Repeat, Run, Stopped, TaskEngine};

/// Each run waits for another run of the same task. If runs did not overlap, they would wait for ever.
#[test]
fn runs_that_outlast_their_period_overlap() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(3)).unwrap();
        let (barrier, runs) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU64::new(0)));
        let (at_barrier, count) = (Arc::clone(&barrier), Arc::clone(&runs));
        let run = move |_: &Run| {
            at_barrier.wait();
            count.fetch_add(1, Ordering::SeqCst);
        };
        let task = tasks.handle().repeat_in_parallel(every(5).times(8), run).unwrap();
        wait_until("all have met", || runs.load(Ordering::SeqCst) == 8);
        wait_until("the last has ended", || task.stop() == Stopped::Gone);
        assert_eq!(task.report().runs, 8);
        // The engine counts timers: the task's, and a one-shot for each run.
        let stats = tasks.handle().stats();
        assert_eq!((stats.owned.fired, stats.fired, stats.total.fired), (8, 8, 16));
    });
}

/// Each instant has its run, so the report counts no overlapped or skipped instant.
#[test]
fn each_instant_has_its_run_however_long_they_take() {
    within_patience(|| {
        let clock = ManualClock::new();
        let tasks = TaskEngine::start(Builder::new().clock(clock.clone()).shards(1).workers(4)).unwrap();
        let (gate, log) = (Gate::new(), Log::new());
        let (at_gate, sink) = (gate.clone(), log.clone());
        let run = move |run: &Run| {
            sink.push((run.number, run.scheduled));
            at_gate.pass();
        };
        let task = tasks.handle().repeat_in_parallel(every(10), run).unwrap();
        for runs in 1..=3 {
            clock.advance(10 * MS);
            wait_until("it has begun", || log.len() as u64 == runs);
            assert_eq!(task.next(), Some(ms(10 * (runs + 1))));
        }
        assert_eq!((task.stop(), task.has_ended(), task.next()), (Stopped::Running, true, None));
        gate.open();
        let _ = task.stop_and_wait();
        assert_eq!(log.take_sorted(), [(1, ms(10)), (2, ms(20)), (3, ms(30))]);
        assert_eq!(counts(&task), [3, 0, 0, 0]);
    });
}

#[test]
fn stop_and_wait_waits_for_all_of_them() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(4)).unwrap();
        let (gate, under_way, kept) = (Gate::new(), Arc::new(AtomicUsize::new(0)), token());
        let (at_gate, count, held) = (gate.clone(), Arc::clone(&under_way), Arc::clone(&kept));
        let run = move |_: &Run| {
            let runs = count.fetch_add(1, Ordering::SeqCst);
            at_gate.pass();
            // The runs end one after the other.
            thread::sleep(5 * MS * u32::try_from(runs).unwrap());
            count.fetch_sub(1, Ordering::SeqCst);
            holds(&held);
        };
        let task = tasks.handle().repeat_in_parallel(every(2), run).unwrap();
        gate.await_arrivals(3);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| task.stop_and_wait());
            wait_until("it is stopped", || task.has_ended());
            assert_eq!(task.stop(), Stopped::Running);
            gate.open();
            assert_ne!(waiter.join().unwrap(), Stopped::Running);
        });
        assert_eq!((under_way.load(Ordering::SeqCst), task.stop()), (0, Stopped::Gone));
        assert_eq!(clones(&kept), 0);
    });
}

/// If the engine has no free slot, the thread that fires the task's timer makes the run itself.
#[test]
fn without_room_for_another_run_it_is_made_in_place() {
    let mut tasks = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    let log = Log::new();
    let sink = log.clone();
    let task =
        tasks.handle().repeat_in_parallel(every(10).times(3), move |run| sink.push(Seen::of(run))).unwrap();
    assert!(tasks.handle().after(MS, || {}).is_err(), "there is a slot left");
    tasks.advance(SECOND);
    assert_eq!(log.take(), [seen(1, 10, 0, 0), seen(2, 20, 0, 0), seen(3, 30, 0, 0)]);
    assert_eq!((counts(&task), task.report().panics, task.has_ended()), ([3, 0, 0, 0], 0, true));
    assert_eq!((task.stop(), tasks.handle().repeating().len()), (Stopped::Gone, 0));
}

/// The engine has no free slot for another run. Then the worker that fires the task's timer makes the run, even if
/// another worker is free.
#[test]
fn without_room_for_another_run_it_is_made_by_the_worker_of_the_task() {
    within_patience(|| {
        let builder = Builder::new().capacity(1).shards(1).workers(2);
        let tasks = TaskEngine::start(builder).unwrap();
        let runs = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&runs);
        let run = move |run: &Run| {
            count.fetch_add(1, Ordering::SeqCst);
            if run.number == 2 {
                std::panic::resume_unwind(Box::new(run.number));
            }
        };
        let task = tasks.handle().repeat_in_parallel(every(1).times(3).missed(Missed::Burst), run).unwrap();
        assert!(tasks.handle().after(MS, || {}).is_err(), "there is a slot left");
        wait_until("all are made", || runs.load(Ordering::SeqCst) == 3);
        assert_ne!(task.stop_and_wait(), Stopped::Running);
        assert_eq!((task.report().runs, task.report().panics), (3, 1));
        wait_until("the engine has counted it", || tasks.handle().stats().total.panics == 1);
    });
}

#[test]
fn a_run_made_in_place_that_panics_is_counted_once() {
    let mut tasks = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    let task = tasks
        .handle()
        .repeat_in_parallel(every(10).times(2), |run| std::panic::resume_unwind(Box::new(run.number)))
        .unwrap();
    tasks.advance(SECOND);
    assert_eq!((task.report().runs, task.report().panics, tasks.handle().stats().total.panics), (2, 2, 2));
}

/// The lateness that a run reports is true, no matter where the run was made.
#[test]
fn a_run_says_when_it_began() {
    for capacity in [1, 100] {
        let mut tasks = DrivenTasks::start(Builder::new().capacity(capacity)).unwrap();
        let (log, clock) = (Log::new(), tasks.clock().clone());
        let sink = log.clone();
        let run = move |run: &Run| {
            assert_eq!(run.scheduled + run.lateness, clock.now(), "capacity {capacity}");
            sink.push(millis(run.scheduled - Timestamp::ZERO));
        };
        let task = tasks.handle().repeat_in_parallel(every(10), run).unwrap();
        tasks.advance(25 * MS);
        stall(&mut tasks, 20 * MS);
        tasks.advance(20 * MS);
        assert_eq!(task.report().panics, 0);
        assert_eq!(log.take(), [10, 20, 30, 50, 60]);
    }
}

#[test]
fn what_was_missed_is_dealt_with_as_in_turn() {
    let run = |missed: Missed| {
        let mut tasks = driven();
        let log = Log::new();
        let sink = log.clone();
        let plan = every(10).missed(missed);
        let task = tasks
            .handle()
            .repeat_in_parallel(plan, move |run| {
                sink.push((run.number, millis(run.scheduled - Timestamp::ZERO), run.missed))
            })
            .unwrap();
        stall(&mut tasks, 45 * MS);
        for _ in 0..10 {
            tasks.turn();
        }
        let next = task.next();
        tasks.advance_to(ms(69));
        (log.take(), next, counts(&task))
    };
    let skipped = vec![(1, 10, 3), (2, 50, 0), (3, 60, 0)];
    assert_eq!(run(Missed::Skip), (skipped, Some(ms(50)), [3, 3, 0, 3]));
    assert_eq!(run(Missed::Delay), (vec![(1, 10, 3), (2, 55, 0), (3, 65, 0)], Some(ms(55)), [3, 3, 0, 3]));
    let burst = vec![(1, 10, 3), (2, 20, 0), (3, 30, 0), (4, 40, 0), (5, 50, 0), (6, 60, 0)];
    assert_eq!(run(Missed::Burst), (burst, Some(ms(50)), [6, 3, 0, 0]));
}

/// A pause has no instants that could be missed. So after a stall there is one run, not a run for each pause.
#[test]
fn a_pause_is_from_run_to_run_and_is_not_made_up_for() {
    let mut tasks = driven();
    let log = Log::new();
    let sink = log.clone();
    let task = tasks
        .handle()
        .repeat_in_parallel(Repeat::pausing(10 * MS), move |run| sink.push(run.number))
        .unwrap();
    stall(&mut tasks, SECOND);
    for _ in 0..100 {
        tasks.turn();
    }
    assert!(log.len() <= 1, "{} runs at once", log.len());
    assert_eq!(task.next(), Some(ms(1_010)));
    tasks.advance(25 * MS);
    assert_eq!(log.take(), [1, 2, 3]);
}

/// Each task has exactly the planned number of runs. The last run may begin while the previous run ends.
#[test]
fn the_last_run_is_made_while_the_one_before_it_ends() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().tick(Duration::from_micros(10)).shards(1).unpinned().workers(3))
                .unwrap();
        for round in 0..300 {
            let (runs, kept) = (Arc::new(AtomicU64::new(0)), token());
            let (count, held) = (Arc::clone(&runs), Arc::clone(&kept));
            let run = move |_: &Run| {
                count.fetch_add(1, Ordering::SeqCst);
                holds(&held);
            };
            let plan =
                Repeat::every(Duration::from_micros(10)).first(First::AtOnce).missed(Missed::Burst).times(20);
            let task = tasks.handle().repeat_in_parallel(plan, run).unwrap();
            wait_until("its last run has begun", || runs.load(Ordering::SeqCst) == 20);
            assert_ne!(task.stop_and_wait(), Stopped::Running);
            assert_eq!((runs.load(Ordering::SeqCst), task.report().runs), (20, 20), "round {round}");
            assert_eq!(clones(&kept), 0);
        }
        assert_eq!((tasks.handle().repeating().len(), tasks.handle().stats().total.panics), (0, 0));
    });
}

#[test]
fn one_run_says_that_it_is_the_last_while_others_are_under_way() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(4)).unwrap();
        let (gate, runs) = (Gate::new(), Arc::new(AtomicU64::new(0)));
        let (at_gate, count) = (gate.clone(), Arc::clone(&runs));
        let run = move |run: &Run| {
            count.fetch_add(1, Ordering::SeqCst);
            if run.number == 3 {
                run.stop();
            } else if run.number < 3 {
                at_gate.pass();
            }
        };
        let task = tasks.handle().repeat_in_parallel(every(5), run).unwrap();
        gate.await_arrivals(2);
        wait_until("the third has ended", || task.has_ended());
        assert_eq!((task.next(), task.stop()), (None, Stopped::Running));
        gate.open();
        let _ = task.stop_and_wait();
        assert_eq!(task.stop(), Stopped::Gone);
        assert_eq!(task.report().runs, runs.load(Ordering::SeqCst));
    });
}

/// A task engine whose executor keeps all jobs until the test runs them. So the test sees runs that wait for a worker.
struct ByHand {
    tasks: TaskEngine,
    clock: ManualClock,
    jobs: Arc<Mutex<Vec<Job>>>,
}

impl ByHand {
    fn new() -> Self {
        let (clock, jobs) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())));
        let queue = Arc::clone(&jobs);
        let executor = move |job: Job| lock(&queue).push(job);
        let builder = Builder::new().clock(clock.clone()).shards(1).unpinned().executor(executor);
        Self { tasks: TaskEngine::start(builder).unwrap(), clock, jobs }
    }

    /// Waits until the engine has passed a job to the executor.
    fn await_jobs(&self) {
        wait_until("there is a job", || !lock(&self.jobs).is_empty());
    }

    fn run_jobs(&self) {
        self.await_jobs();
        let jobs = std::mem::take(&mut *lock(&self.jobs));
        jobs.into_iter().for_each(Job::run);
    }
}

/// Returns a closure that counts its runs and holds a token.
fn counting(runs: &Arc<AtomicU64>, kept: &Arc<()>) -> impl Fn(&Run) + Send + Sync + 'static {
    let (count, held) = (Arc::clone(runs), Arc::clone(kept));
    move |_: &Run| {
        count.fetch_add(1, Ordering::SeqCst);
        holds(&held);
    }
}

/// Some runs wait for a worker when the engine ends. The engine does not make, count or await these runs.
#[test]
fn a_shutdown_drops_runs_that_have_not_begun() {
    within_patience(|| {
        let (engine, kept, runs) = (ByHand::new(), token(), Arc::new(AtomicU64::new(0)));
        let task = engine.tasks.handle().repeat_in_parallel(every(10), counting(&runs, &kept)).unwrap();
        engine.clock.advance(10 * MS);
        engine.run_jobs();
        engine.run_jobs();
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        engine.clock.advance(10 * MS);
        engine.run_jobs();
        // The second run waits for a worker.
        engine.await_jobs();
        assert_eq!((task.report().runs, task.next()), (2, Some(ms(30))));
        assert!(engine.tasks.handle().shutdown().is_empty());
        assert_eq!((clones(&kept), task.stop_and_wait()), (0, Stopped::Gone));
        engine.run_jobs();
        assert_eq!((runs.load(Ordering::SeqCst), task.report().runs), (1, 1));
    });
}

/// A run waits for a worker, and another thread stops the task before the run has begun.
#[test]
fn a_stop_keeps_a_run_that_is_on_its_way_from_beginning() {
    within_patience(|| {
        let (engine, kept, runs) = (ByHand::new(), token(), Arc::new(AtomicU64::new(0)));
        let task = engine.tasks.handle().repeat_in_parallel(every(10), counting(&runs, &kept)).unwrap();
        engine.clock.advance(10 * MS);
        engine.run_jobs();
        engine.await_jobs();
        assert_eq!((task.report().runs, task.stop(), task.has_ended()), (1, Stopped::Stopped, true));
        // The run does not keep the closure, and does not count any more.
        assert_eq!((task.report().runs, clones(&kept), task.stop()), (0, 0, Stopped::Gone));
        engine.run_jobs();
        assert_eq!((runs.load(Ordering::SeqCst), task.report().runs), (0, 0));
        assert_eq!((task.stop(), engine.tasks.handle().repeating().len()), (Stopped::Gone, 0));
        engine.clock.advance(SECOND);
        wait_until("nothing is pending", || engine.tasks.handle().stats().pending == 0);
    });
}

/// A run waits for a worker, and perhaps for the very thread that stops the task. The stop does not wait for this run.
#[test]
fn a_stop_that_waits_does_not_wait_for_a_run_that_is_on_its_way() {
    within_patience(|| {
        let (engine, kept, runs) = (ByHand::new(), token(), Arc::new(AtomicU64::new(0)));
        let task = engine.tasks.handle().repeat_in_parallel(every(10), counting(&runs, &kept)).unwrap();
        engine.clock.advance(10 * MS);
        engine.run_jobs();
        engine.await_jobs();
        assert_eq!((task.stop_and_wait(), clones(&kept), task.report().runs), (Stopped::Stopped, 0, 0));
        engine.run_jobs();
        assert_eq!((runs.load(Ordering::SeqCst), task.report().runs, task.stop()), (0, 0, Stopped::Gone));
    });
}

/// One run has begun, and the next run waits for a worker. The stop waits only for the run that has begun.
#[test]
fn a_stop_waits_for_the_run_that_has_begun_and_not_for_the_next() {
    within_patience(|| {
        let (engine, kept, gate) = (ByHand::new(), token(), Gate::new());
        let (held, at_gate, runs) = (Arc::clone(&kept), gate.clone(), Log::new());
        let sink = runs.clone();
        let run = move |run: &Run| {
            at_gate.pass();
            sink.push(run.number);
            holds(&held);
        };
        let task = engine.tasks.handle().repeat_in_parallel(every(10), run).unwrap();
        engine.clock.advance(10 * MS);
        engine.run_jobs();
        thread::scope(|scope| {
            scope.spawn(|| engine.run_jobs());
            gate.await_arrival();
            engine.clock.advance(10 * MS);
            engine.run_jobs();
            engine.await_jobs();
            assert_eq!(task.report().runs, 2);
            let waiter = scope.spawn(|| (task.stop_and_wait(), clones(&kept), task.report().runs));
            wait_until("it is stopped", || task.has_ended());
            thread::sleep(5 * MS);
            assert_eq!((waiter.is_finished(), task.stop()), (false, Stopped::Running));
            gate.open();
            assert_eq!(waiter.join().unwrap(), (Stopped::Stopped, 0, 1));
        });
        engine.run_jobs();
        assert_eq!((runs.take(), task.report().runs), (vec![1], 1));
    });
}

/// The last run of a task waits for a worker. The task has not ended: a stop prevents the run. Without a stop, the run
/// finds the closure, although the run before it has ended.
#[test]
fn a_task_whose_last_run_is_on_its_way_has_not_ended() {
    within_patience(|| {
        for is_stopped in [true, false] {
            let (engine, kept, runs) = (ByHand::new(), token(), Arc::new(AtomicU64::new(0)));
            let plan = every(10).times(2);
            let task = engine.tasks.handle().repeat_in_parallel(plan, counting(&runs, &kept)).unwrap();
            for _ in 0..2 {
                engine.clock.advance(10 * MS);
                engine.run_jobs();
                engine.await_jobs();
                if runs.load(Ordering::SeqCst) == 0 {
                    engine.run_jobs();
                }
            }
            assert_eq!((runs.load(Ordering::SeqCst), task.report().runs), (1, 2));
            assert_eq!((task.has_ended(), task.next(), clones(&kept)), (false, None, 1));
            assert_eq!(engine.tasks.handle().repeating().len(), 1);
            if is_stopped {
                assert_eq!((task.stop(), task.report().runs), (Stopped::Stopped, 1));
            }
            engine.run_jobs();
            let made = if is_stopped { 1 } else { 2 };
            assert_eq!((runs.load(Ordering::SeqCst), task.report().runs), (made, made));
            assert_eq!((task.stop(), task.has_ended(), clones(&kept)), (Stopped::Gone, true, 0));
        }
    });
}

/// An executor drops its jobs, and the engine ends. The last run, which waited for a worker, is given up.
#[test]
fn a_last_run_that_an_executor_drops_is_given_up() {
    within_patience(|| {
        let (engine, kept, runs) = (ByHand::new(), token(), Arc::new(AtomicU64::new(0)));
        let plan = every(10).times(1);
        let task = engine.tasks.handle().repeat_in_parallel(plan, counting(&runs, &kept)).unwrap();
        engine.clock.advance(10 * MS);
        engine.run_jobs();
        engine.await_jobs();
        assert_eq!((task.has_ended(), clones(&kept)), (false, 1));
        drop(std::mem::take(&mut *lock(&engine.jobs)));
        drop(engine.tasks.handle().shutdown());
        assert_eq!((task.stop_and_wait(), task.report().runs, clones(&kept)), (Stopped::Gone, 0, 0));
    });
}

/// The time for which a run waits for its worker is part of its lateness.
#[test]
fn a_run_that_waits_for_a_worker_is_late() {
    within_patience(|| {
        let (engine, log) = (ByHand::new(), Log::new());
        let sink = log.clone();
        let task =
            engine.tasks.handle().repeat_in_parallel(every(10), move |run| sink.push(Seen::of(run))).unwrap();
        engine.clock.advance(12 * MS);
        engine.run_jobs();
        engine.await_jobs();
        engine.clock.advance(5 * MS);
        engine.run_jobs();
        assert_eq!((log.take(), counts(&task)), (vec![seen(1, 10, 7, 0)], [1, 0, 0, 0]));
    });
}

/// The planned moment of a run lies in the present tick. The shard passes the run to a worker at once, and does not
/// wait for the end of the tick.
#[test]
fn a_run_does_not_wait_for_the_next_tick() {
    within_patience(|| {
        let clock = ManualClock::new();
        let builder = Builder::new().clock(clock.clone()).shards(1).workers(2).tick(HOUR);
        let tasks = TaskEngine::start(builder).unwrap();
        let (log, inside) = (Log::new(), tasks.handle().clone());
        let sink = log.clone();
        let _task =
            tasks.handle().repeat_in_parallel(Repeat::every(HOUR), move |_| sink.push(inside.now())).unwrap();
        clock.advance(HOUR + SECOND);
        wait_until("it has run", || log.len() == 1);
        assert_eq!(log.take(), [Timestamp::ZERO + HOUR + SECOND]);
    });
}

#[test]
fn many_in_parallel_on_few_workers_all_run() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(2).workers(2).lane_capacity(64)).unwrap();
        let runs = Arc::new(AtomicU64::new(0));
        let started: Vec<_> = (0..200)
            .map(|_| {
                let count = Arc::clone(&runs);
                let run = move |_: &Run| _ = count.fetch_add(1, Ordering::Relaxed);
                tasks.handle().repeat_in_parallel(every(2).times(5).missed(Missed::Burst), run).unwrap()
            })
            .collect();
        wait_until("all have run", || runs.load(Ordering::Relaxed) == 1_000);
        wait_until("and ended", || started.iter().all(|task| task.stop() == Stopped::Gone));
        assert!(started.iter().all(|task| task.report().runs == 5));
        assert_eq!(tasks.handle().repeating().len(), 0);
    });
}
