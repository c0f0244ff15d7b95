//! Moments and periods: every run is on time, none is early, and none is lost.

use crate::support::{HOUR, Log, MS, Rng, wait_until, within_patience};
use crate::{SECOND, at, every, keys, logged, seconds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};
use tourbillon::{BuildError, Builder, Clock as _, ManualClock, Timestamp};
use tourbillon_tasks::keyed::{DueKey, Placed};
use tourbillon_tasks::{DrivenTasks, First, IfPresent, Missed, Repeat, RepeatErrorKind, TaskEngine};

/// Three threads schedule timers for the next two revolutions, while a fourth thread turns the wheel. Each closure
/// checks its deadline. In the end the clock stands at the last deadline, and all closures have run.
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
                            // These deadlines are on the edges of slots and revolutions, where the small wheels fail.
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

/// The ticks are seconds, but the delays are not whole seconds. The test starts delays at every tenth of a second.
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

/// The periods of the tasks are a tick, a revolution of each wheel, and periods that are a little shorter or longer.
/// Several tasks have each period.
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

/// A task with a period of 90 s was created 45 s ago. The same task is created again now, and runs after 45 s, not
/// after 90 s or 105 s.
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

/// The wall clock is set back by an hour, and then forward by an hour. The test schedules timers before the first step,
/// and between the two steps.
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
    // After a step forward, a run is late, and the following runs are in step.
    clock.set(at(4 * HOUR));
    tasks.turn();
    tasks.advance_to(at(5 * HOUR));
    assert_eq!(repeats.take(), [14_400, 16_200, 18_000]);
}
