//! Faults of the small wheels of Go, which tasks and keys must not have. The table has a row for each fault with its
//! test.
//!
//! The wheels: L xiaoxuxiansheng/timewheel (its local one), O ouqiang/timewheel, N nosixtools/timewheel, K
//! lk668/timewheel, G HDT3213/godis, T RussellLuo/timingwheel, A antlabs/timer.
//!
//! | row | fault | test |
//! |---|---|---|
//! | L1, L2, T3 | the slot is computed by the caller, while the wheel turns: a race, and a revolution late | [`what_is_scheduled_while_the_wheel_turns_is_on_time`] |
//! | L3 | a moment that has passed kills the wheel, or is a revolution late | [`a_moment_that_has_passed_runs_next_and_the_wheel_lives`] |
//! | L4, O2, T9, A8 | delays are rounded down: early | [`nothing_runs_early_whatever_the_phase`] |
//! | L5, O7, N7, K8, G6, T10 | after a stop calls hang, and a second stop panics | [`after_a_stop_every_call_answers`] |
//! | L6 | ticks that were dropped are never made up for | [`ticks_that_were_slept_through_are_made_up_for`] |
//! | L7 | a goroutine for each task | [`tasks_run_on_the_engines_threads_and_on_no_other_thread`] |
//! | O1, K2, G1, A4 | a tick or an interval below a second, or below the tick: division by zero, or never again | [`short_ticks_work_and_shorter_periods_are_refused`] |
//! | N1 | O1 and O2 | both |
//! | O3, G5 | a second task of a key hides the first, which cannot be removed | [`a_key_has_one_entry_and_the_newest_is_cancelled`] |
//! | O4, G5 | of several matches in a slot only the first is removed | [`all_tasks_of_a_slot_are_removed`] |
//! | O5, N7, K8 | a panic in a job kills the process | [`a_job_that_panics_costs_only_itself`] |
//! | O6 | an unhashable key kills the process | cannot be said: the compiler refuses it; nearest: [`a_key_whose_hash_panics_costs_its_call`] |
//! | N2, T11 | a periodic task is removed while the wheel re-adds it: lost | [`a_stop_between_two_runs_holds`] |
//! | N3, G4 | the rest of a removed entry removes the new entry of its key | [`an_old_generation_does_not_end_the_new_one`] |
//! | N4 | two adds of one key both succeed; a remove right after an add finds nothing | [`of_two_adds_one_succeeds_and_is_found_at_once`] |
//! | N5, K4 | two tasks whose period is a slot or a revolution: an endless loop in one tick | [`tasks_of_one_slot_whose_period_is_a_revolution_do_not_loop`] |
//! | N6, K3 | a period of one revolution: runs at every second revolution, or the first run a revolution early | [`a_period_of_a_revolution_is_one`] |
//! | K1 | a job fires between a remove's look and its deed: the process dies | [`a_cancel_that_races_with_firing_has_one_outcome`] |
//! | K5 | a task that is created anew takes up its phase half a period late | [`a_task_that_is_created_anew_keeps_its_phase`] |
//! | K6 | N times are N + 1 | [`n_times_are_n`] |
//! | K7 | the flag that it runs is not synchronised | cannot be said of memory: there is none; nearest: [`of_several_shutdowns_one_gets_what_is_pending`] |
//! | G2, A3 | an add between turning and scanning lands in the list that is about to be run: early, or a revolution late | as L1 |
//! | G3 | a scan changes the list under a read lock | [`lookers_do_not_disturb_what_fires`] |
//! | T1, T2 | a flush waits for itself, and all are asleep | [`a_hundred_thousand_that_reschedule_themselves_do_not_deadlock`] |
//! | T4 | a timer that is not in a bucket: nil | [`what_is_not_armed_can_be_asked_and_stopped`] |
//! | T5 | after a stop the tasks stay in memory | [`a_stop_lets_go_of_what_was_pending`] |
//! | T6, A6 | no reset, or one that is not to be relied upon | [`everything_can_be_moved`] |
//! | T7, A7 | a stop while its timer is moved between wheels says no, and it fires | [`a_cancel_on_the_way_down_the_wheels_holds`] |
//! | T8 | the wall clock is set | [`a_clock_that_is_set_makes_nothing_early_or_lost`] |
//! | A1 | stopping a timer that has fired, or stopping twice, removes a stranger | [`stopping_what_has_ended_touches_no_stranger`] |
//! | A2 | the stop waits for pending timers | [`a_shutdown_does_not_wait_for_what_is_pending`] |
//! | A5 | a documented call is a stub that ends in nil | as T4 |
//! | A9 | 64-bit atomics on 32 bits | cannot be said here: `core`'s types are aligned, or do not exist, which the compiler checks |
//!
//! The rows R of the wheel that is kept in Redis are of tasks that survive their process, which these do not.

#[path = "../../../tests/support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};
use support::{HOUR, Log, MS, Rng, assert_settled, lock, wait_until, within_patience};
use tourbillon::{ArmError, BuildError, Builder, Cancel, Clock, Disarm, ManualClock, Refusal, Timestamp};
use tourbillon_tasks::keyed::{DueKey, Keyed, Placed};
use tourbillon_tasks::{
    DrivenTasks, First, IfPresent, Missed, OnPanic, Repeat, RepeatErrorKind, Stopped, TaskEngine, Tasks,
};

const SECOND: Duration = Duration::from_secs(1);

fn at(since_origin: Duration) -> Timestamp {
    Timestamp::ZERO + since_origin
}

/// A threadless engine with ticks of a second, as the wheels have them.
fn seconds() -> DrivenTasks {
    DrivenTasks::start(Builder::new().tick(SECOND)).unwrap()
}

/// Starts a task that logs when it runs, in seconds.
fn logged(tasks: &Tasks, plan: Repeat) -> Log<u64> {
    let (log, inside) = (Log::new(), tasks.clone());
    let sink = log.clone();
    tasks.repeat(plan, move |_| sink.push((inside.now() - Timestamp::ZERO).as_secs())).unwrap();
    log
}

fn every(seconds: u64) -> Repeat {
    Repeat::every(Duration::from_secs(seconds))
}

/// Keys whose jobs log.
fn keys(tasks: &Tasks) -> (Keyed<u64, u64>, Log<u64>) {
    let log = Log::new();
    let sink = log.clone();
    (tasks.keyed(move |due: DueKey<'_, u64, u64>| sink.push(due.value)), log)
}

/// Three threads schedule for within two revolutions while a fourth turns the wheel. Each closure knows when it is due;
/// in the end the clock stands at the last deadline, and everything has run.
#[test]
fn what_is_scheduled_while_the_wheel_turns_is_on_time() {
    within_patience(|| {
        let clock = ManualClock::new();
        let tasks =
            TaskEngine::start(Builder::new().clock(clock.clone()).shards(2).unpinned().workers(2)).unwrap();
        let (early, ran, over) =
            (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
        let last = AtomicU64::new(0);
        let keyed = {
            let (early, ran, inside) = (Arc::clone(&early), Arc::clone(&ran), tasks.handle().clone());
            tasks.handle().keyed(move |due: DueKey<'_, u64, ()>| {
                early.fetch_add(u64::from(inside.now() < due.deadline), Ordering::Relaxed);
                ran.fetch_add(1, Ordering::Relaxed);
            })
        };
        thread::scope(|scope| {
            let schedulers: Vec<_> = (0..3)
                .map(|seed| {
                    let (tasks, clock, keyed, early, ran, last) =
                        (&tasks, &clock, &keyed, &early, &ran, &last);
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed);
                        for n in 0..20_000 {
                            // On the edges of slots and revolutions: those are where the others fail.
                            let ticks = [0, 1, 63, 64, 65, 127, 128, rng.below(130)][rng.index(8)];
                            let deadline = clock.now() + Duration::from_millis(ticks);
                            last.fetch_max(deadline.as_nanos(), Ordering::Relaxed);
                            if n % 2 == 0 {
                                let placed = keyed.schedule_at(IfPresent::Reject, n * 3 + seed, deadline, ());
                                assert_eq!(placed.unwrap(), Placed::New);
                            } else {
                                let (early, ran, clock) = (Arc::clone(early), Arc::clone(ran), clock.clone());
                                let run = move || {
                                    early.fetch_add(u64::from(clock.now() < deadline), Ordering::Relaxed);
                                    ran.fetch_add(1, Ordering::Relaxed);
                                };
                                tasks.handle().at(deadline, run).unwrap();
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    clock.advance(MS);
                    thread::yield_now();
                }
            });
            schedulers.into_iter().for_each(|scheduler| scheduler.join().unwrap());
            over.store(true, Ordering::Relaxed);
        });
        clock.set(clock.now().max(Timestamp::from_nanos(last.load(Ordering::Relaxed))));
        wait_until("all have run", || ran.load(Ordering::Relaxed) == 60_000);
        assert_eq!((early.load(Ordering::Relaxed), keyed.len()), (0, 0));
    });
}

#[test]
fn a_moment_that_has_passed_runs_next_and_the_wheel_lives() {
    let mut tasks = seconds();
    tasks.advance(100 * SECOND);
    let (keyed, log) = keys(tasks.handle());
    for (key, deadline) in
        [(1, Timestamp::ZERO), (2, at(36 * SECOND)), (3, at(99 * SECOND)), (4, at(100 * SECOND))]
    {
        let placed = keyed.schedule_at(IfPresent::Replace, key, deadline, key);
        assert_eq!(placed.unwrap(), Placed::New);
    }
    tasks.turn();
    assert_eq!(log.take_sorted(), [1, 2, 3, 4]);
    keyed.schedule(5, SECOND, 5).unwrap();
    let repeats = logged(tasks.handle(), every(10).first(First::After(Duration::ZERO)));
    tasks.advance(20 * SECOND);
    assert_eq!((log.take(), repeats.take()), (vec![5], vec![100, 110, 120]));
}

/// Delays that are not whole seconds, at every tenth of a second of the phase.
#[test]
fn nothing_runs_early_whatever_the_phase() {
    let mut tasks = seconds();
    let log = Log::new();
    let mut scheduled = 0;
    for _ in 0..100 {
        tasks.advance(100 * MS);
        for delay in [1, 100, 900, 999, 1_001, 1_100, 1_900, 63_999, 64_001] {
            let (deadline, clock, sink) =
                (tasks.handle().now() + Duration::from_millis(delay), tasks.clock().clone(), log.clone());
            tasks
                .handle()
                .at(deadline, move || sink.push((clock.now() >= deadline, clock.now() < deadline + SECOND)))
                .unwrap();
            scheduled += 1;
        }
    }
    let repeats = Log::new();
    let sink = repeats.clone();
    let run = move |run: &tourbillon_tasks::Run| sink.push(run.lateness < SECOND);
    let period = Duration::from_millis(1_900);
    tasks.handle().repeat(Repeat::every(period).times(50), run).unwrap();
    tasks.advance(200 * SECOND);
    assert_eq!(log.take(), vec![(true, true); scheduled]);
    assert_eq!(repeats.take(), vec![true; 50]);
}

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
fn ticks_that_were_slept_through_are_made_up_for() {
    let mut tasks = seconds();
    let (keyed, log) = keys(tasks.handle());
    for key in 0..200 {
        keyed.schedule(key, SECOND * u32::try_from(key + 1).unwrap(), key).unwrap();
    }
    let skips = logged(tasks.handle(), every(10));
    let bursts = logged(tasks.handle(), every(10).missed(Missed::Burst));
    tasks.clock().advance(105 * SECOND);
    (0..20).for_each(|_| tasks.turn());
    assert_eq!(log.take_sorted(), (0..105).collect::<Vec<u64>>());
    assert_eq!((skips.take(), bursts.take()), (vec![105], vec![105; 10]));
    tasks.advance(15 * SECOND);
    assert_eq!((skips.take(), bursts.take(), log.len()), (vec![110, 120], vec![110, 120], 15));
}

#[test]
fn tasks_run_on_the_engines_threads_and_on_no_other_thread() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(2)).unwrap();
        let (threads, ran) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(AtomicU64::new(0)));
        let note = || {
            let (threads, ran) = (Arc::clone(&threads), Arc::clone(&ran));
            move || {
                lock(&threads).insert(thread::current().id());
                ran.fetch_add(1, Ordering::Relaxed);
            }
        };
        for n in 0..1_000_u32 {
            tasks.handle().after(MS * (n % 5), note()).unwrap();
            if n % 10 == 0 {
                let run = note();
                tasks.handle().repeat(Repeat::every(MS).times(3), move |_| run()).unwrap();
                let run = note();
                tasks.handle().repeat_in_parallel(Repeat::every(MS).times(3), move |_| run()).unwrap();
            }
        }
        wait_until("all have run", || ran.load(Ordering::Relaxed) == 1_600);
        // A thread for the shard and one for each worker.
        assert!(lock(&threads).len() <= 3, "{} threads", lock(&threads).len());
    });
}

#[test]
fn short_ticks_work_and_shorter_periods_are_refused() {
    let mut tasks = DrivenTasks::start(Builder::new().tick(100 * MS)).unwrap();
    let log = Log::new();
    let (sink, other) = (log.clone(), log.clone());
    tasks.handle().repeat(Repeat::every(100 * MS).times(5), move |run| sink.push(run.scheduled)).unwrap();
    tasks.handle().after(900 * MS, move || other.push(Timestamp::MAX)).unwrap();
    tasks.advance(SECOND);
    let expected: Vec<_> = (1..=5).map(|run| at(run * 100 * MS)).chain([Timestamp::MAX]).collect();
    assert_eq!(log.take(), expected);
    for period in [Duration::from_nanos(1), 10 * MS, 99 * MS] {
        let kind = RepeatErrorKind::BelowTick { period, tick: 100 * MS };
        assert_eq!(tasks.handle().every(period, || {}).unwrap_err().kind, kind);
    }
    assert_eq!(tasks.handle().every(Duration::ZERO, || {}).unwrap_err().kind, RepeatErrorKind::ZeroPeriod);
    let build = TaskEngine::start(Builder::new().tick(Duration::ZERO));
    assert!(matches!(build.unwrap_err(), BuildError::OutOfBounds { option: "tick", .. }));
}

#[test]
fn a_key_has_one_entry_and_the_newest_is_cancelled() {
    let mut tasks = seconds();
    let (keyed, log) = keys(tasks.handle());
    assert_eq!(keyed.schedule(7, 10 * SECOND, 1).unwrap(), None);
    // Into another slot, into the same slot, and cancelled.
    assert_eq!(keyed.schedule(7, 20 * SECOND, 2).unwrap(), Some(1));
    assert_eq!(keyed.schedule(7, 20 * SECOND, 3).unwrap(), Some(2));
    assert_eq!((keyed.len(), keyed.cancel(&7)), (1, Some(3)));
    tasks.advance(100 * SECOND);
    assert_eq!((log.len(), keyed.len()), (0, 0));
    assert_settled(&tasks.handle().stats());
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

#[test]
fn a_job_that_panics_costs_only_itself() {
    let mut tasks = seconds();
    let log = Log::new();
    let (sink, also, third) = (log.clone(), log.clone(), log.clone());
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, u64>| {
        if due.value == 1 {
            resume_unwind(Box::new("a job"));
        }
        sink.push(due.value);
    });
    keyed.schedule(1, SECOND, 1).unwrap();
    keyed.schedule(2, SECOND, 2).unwrap();
    tasks.handle().after(SECOND, || resume_unwind(Box::new("once"))).unwrap();
    tasks.handle().after(SECOND, move || also.push(3)).unwrap();
    let ends = tasks
        .handle()
        .repeat(every(1).on_panic(OnPanic::Stop), |_| resume_unwind(Box::new("again")))
        .unwrap();
    tasks.handle().repeat(every(1).times(2), move |run| third.push(3 + run.number)).unwrap();
    tasks.advance(2 * SECOND);
    assert_eq!(log.take_sorted(), [2, 3, 4, 5]);
    assert_eq!((tasks.handle().stats().total.panics, ends.has_ended()), (3, true));
}

#[test]
fn a_key_whose_hash_panics_costs_its_call() {
    #[derive(Clone, PartialEq, Eq)]
    struct Unhashable(bool);
    impl Hash for Unhashable {
        fn hash<H: Hasher>(&self, _: &mut H) {
            if self.0 {
                resume_unwind(Box::new("no hash"));
            }
        }
    }
    let mut tasks = seconds();
    let log = Log::new();
    let sink = log.clone();
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, Unhashable, u64>| sink.push(due.value));
    keyed.schedule(Unhashable(false), SECOND, 1).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| keyed.schedule(Unhashable(true), SECOND, 2))).is_err());
    tasks.advance(SECOND);
    assert_eq!((log.take(), keyed.len(), tasks.handle().stats().pending), (vec![1], 0, 0));
}

/// In the gap between a run and the arming for the next run.
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

/// The old entry's ticket is still in the wheel, in another slot and in the same, and is looked at.
#[test]
fn an_old_generation_does_not_end_the_new_one() {
    let mut tasks = seconds();
    let (keyed, log) = keys(tasks.handle());
    keyed.schedule(7, 10 * SECOND, 1).unwrap();
    tasks.turn();
    assert_eq!(keyed.cancel(&7), Some(1));
    keyed.schedule(7, 30 * SECOND, 2).unwrap();
    keyed.schedule(8, 10 * SECOND, 3).unwrap();
    tasks.turn();
    assert_eq!(keyed.cancel(&8), Some(3));
    keyed.schedule(8, 10 * SECOND, 4).unwrap();
    tasks.advance(20 * SECOND);
    assert_eq!((log.take(), keyed.keys()), (vec![4], vec![7]));
    // It can be replaced, rejected and cancelled.
    assert!(keyed.schedule_at(IfPresent::Reject, 7, at(HOUR), 5).is_err());
    assert_eq!((keyed.schedule(7, SECOND, 6).unwrap(), keyed.cancel(&7)), (Some(2), Some(6)));
    tasks.advance(HOUR);
    assert_eq!((log.len(), keyed.len()), (0, 0));
}

#[test]
fn of_two_adds_one_succeeds_and_is_found_at_once() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(2).workers(1)).unwrap();
        let (keyed, _log) = keys(tasks.handle());
        for key in 0..500 {
            let deadline = tasks.handle().now() + HOUR;
            let adds = thread::scope(|scope| {
                let add = |value| {
                    let keyed = &keyed;
                    move || {
                        let is_new = keyed.schedule_at(IfPresent::Reject, key, deadline, value).is_ok();
                        // Whichever thread has added it, it is there.
                        assert!(keyed.contains(&key));
                        is_new
                    }
                };
                let other = scope.spawn(add(1));
                let own = add(0)();
                [own, other.join().unwrap()]
            });
            assert_eq!(adds.iter().filter(|&&is_new| is_new).count(), 1);
            assert_eq!(keyed.cancel(&key), Some(u64::from(adds[1])));
        }
    });
}

/// Periods of a tick, of a revolution of each wheel and of the small wheels, and periods around them, several of each.
#[test]
fn tasks_of_one_slot_whose_period_is_a_revolution_do_not_loop() {
    let mut tasks = seconds();
    let periods = [1, 2, 59, 60, 61, 63, 64, 65, 255, 256, 257, 3_600, 4_095, 4_096, 4_097];
    let started: Vec<_> = periods
        .iter()
        .flat_map(|&period| [period; 3])
        .map(|period| (period, tasks.handle().repeat(every(period), |_| {}).unwrap()))
        .collect();
    tasks.advance(10_000 * SECOND);
    for (period, task) in started {
        assert_eq!((task.report().runs, task.report().missed), (10_000 / period, 0), "every {period}");
    }
}

#[test]
fn a_period_of_a_revolution_is_one() {
    for period in [60, 64, 256, 3_600, 4_096] {
        for phase in [0, 1, 59, 63] {
            let mut tasks = seconds();
            tasks.advance(SECOND * phase);
            let log = logged(tasks.handle(), every(period));
            tasks.advance(Duration::from_secs(3 * period));
            let expected: Vec<u64> = (1..=3).map(|run| u64::from(phase) + run * period).collect();
            assert_eq!(log.take(), expected, "every {period} from {phase}");
        }
    }
}

/// A cancel that comes as its key fires: one of them has the value.
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

/// A task of 90 s that was created 45 s ago runs after 45 s, not after 90 or 105.
#[test]
fn a_task_that_is_created_anew_keeps_its_phase() {
    let creation = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let build = DrivenTasks::start_at(Builder::new().tick(SECOND), creation + 45 * SECOND);
    let mut tasks = build.unwrap();
    let log = logged(tasks.handle(), every(90).first(First::InStepWith(creation)));
    tasks.advance(300 * SECOND);
    assert_eq!(log.take(), [45, 135, 225]);
}

#[test]
fn n_times_are_n() {
    for times in [1, 2, 3, 64] {
        let mut tasks = seconds();
        let in_turn = logged(tasks.handle(), every(2).times(times));
        let at_once = logged(tasks.handle(), every(2).times(times).first(First::AtOnce));
        let bursts = logged(tasks.handle(), every(2).times(times).missed(Missed::Burst));
        let beside = Log::new();
        let sink = beside.clone();
        tasks.handle().repeat_in_parallel(every(2).times(times), move |run| sink.push(run.number)).unwrap();
        tasks.clock().advance(5 * SECOND);
        tasks.advance(HOUR);
        let runs = [in_turn.len(), at_once.len(), bursts.len(), beside.len()];
        assert_eq!(runs, [usize::try_from(times).unwrap(); 4]);
        assert!(tasks.handle().repeating().is_empty());
    }
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

/// Threads that ask while it fires get an answer that was true, and no firing is lost.
#[test]
fn lookers_do_not_disturb_what_fires() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().tick(Duration::from_micros(50)).shards(1).workers(1)).unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ran);
        let keyed = tasks.handle().keyed(move |_: DueKey<'_, u64, ()>| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut key = 0;
                    while !over.load(Ordering::Relaxed) {
                        key = (key + 1) % 5_000;
                        assert!(keyed.remaining(&key).is_none_or(|remaining| remaining <= 20 * MS));
                        let _ = (keyed.contains(&key), keyed.deadline(&key));
                        if key == 0 {
                            assert!(keyed.keys().len() <= 5_000 && keyed.len() <= 5_000);
                        }
                    }
                });
            }
            let mut rng = Rng::new(4);
            for key in 0..5_000 {
                keyed.schedule(key, rng.nanos_below(20 * MS), ()).unwrap();
            }
            wait_until("all have run", || ran.load(Ordering::Relaxed) == 5_000);
            over.store(true, Ordering::Relaxed);
        });
        assert!(keyed.is_empty());
    });
}

/// All in the slot that is being emptied, each of which puts itself into the next, from several workers.
#[test]
fn a_hundred_thousand_that_reschedule_themselves_do_not_deadlock() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().shards(1).unpinned().workers(2).lane_capacity(1_024)).unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ran);
        let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, u64>| {
            count.fetch_add(1, Ordering::Relaxed);
            if due.value > 0 {
                due.keyed.schedule(due.key, MS, due.value - 1).unwrap();
            }
        });
        let deadline = tasks.handle().now() + 20 * MS;
        for key in 0..33_334 {
            assert_eq!(keyed.schedule_at(IfPresent::Reject, key, deadline, 2).unwrap(), Placed::New);
        }
        wait_until("all have run", || ran.load(Ordering::Relaxed) == 3 * 33_334);
        assert!(keyed.is_empty());
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
    // Every plan that can be said gives a task that can be asked and stopped.
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
    // The user can still take the entries of the map.
    assert_eq!((Arc::strong_count(&kept), keyed.drain().len(), handle.repeating().len()), (101, 100, 0));
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn everything_can_be_moved() {
    let mut tasks = seconds();
    let (keyed, log) = keys(tasks.handle());
    let sink = log.clone();
    let mut id = tasks.handle().after(10 * SECOND, move || sink.push(100)).unwrap();
    let sink = log.clone();
    let timer = tasks.handle().timer(move || sink.push(200)).unwrap();
    timer.arm(10 * SECOND).unwrap();
    keyed.schedule(1, 10 * SECOND, 300).unwrap();
    let mut rng = Rng::new(6);
    for _ in 0..500 {
        let delay = SECOND * u32::try_from(2 + rng.below(200)).unwrap();
        id = tasks.handle().reschedule(id, delay).unwrap();
        timer.arm(delay).unwrap();
        keyed.reschedule(&1, delay).unwrap();
        tasks.advance(SECOND);
    }
    assert_eq!(log.len(), 0);
    id = tasks.handle().reschedule(id, 5 * SECOND).unwrap();
    timer.arm(5 * SECOND).unwrap();
    keyed.reschedule(&1, 5 * SECOND).unwrap();
    tasks.advance(4 * SECOND);
    assert_eq!(log.len(), 0);
    tasks.advance(SECOND);
    assert_eq!((log.take_sorted(), tasks.handle().cancel(id)), (vec![100, 200, 300], Cancel::Gone));
}

/// Deadlines far enough to go down several wheels; at each moment of the way some are cancelled, or their tasks
/// stopped.
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

/// Back by an hour, then forward by an hour, with timers that were scheduled before and between.
#[test]
fn a_clock_that_is_set_makes_nothing_early_or_lost() {
    let mut tasks = seconds();
    tasks.advance(2 * HOUR);
    let (log, clock) = (Log::new(), tasks.clock().clone());
    let note = |deadline: Timestamp| {
        let (sink, clock) = (log.clone(), clock.clone());
        tasks.handle().at(deadline, move || sink.push((deadline, clock.now() >= deadline))).unwrap();
    };
    let (before, between) = (at(2 * HOUR + 10 * SECOND), at(HOUR + 10 * SECOND));
    note(before);
    let repeats = logged(tasks.handle(), every(1_800));
    clock.set(at(HOUR));
    tasks.turn();
    let sink = log.clone();
    let inside = clock.clone();
    tasks.handle().at(between, move || sink.push((between, inside.now() >= between))).unwrap();
    tasks.advance_to(at(2 * HOUR + 5 * SECOND));
    assert!(log.take().iter().all(|&(deadline, is_due)| deadline == between && is_due));
    tasks.advance_to(at(2 * HOUR + 10 * SECOND));
    assert_eq!(log.take(), [(before, true)]);
    assert_eq!(repeats.len(), 0);
    // Forward: late, and then in step.
    clock.set(at(4 * HOUR));
    tasks.turn();
    tasks.advance_to(at(5 * HOUR));
    assert_eq!(repeats.take(), [14_400, 16_200, 18_000]);
}

/// A timer's slot is used again at once: a name of the old timer does not find the new timer.
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
