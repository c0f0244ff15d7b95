//! The instants at which a repeating task runs if nothing is late.

use crate::support::{HOUR, Log, MS};
use crate::{SECOND, Seen, clones, counts, driven, every, holds, lasting, logged, millis, ms, seen, token};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tourbillon::{Builder, Timestamp};
use tourbillon_tasks::{DrivenTasks, First, Repeat};

/// Starts a plan at 3 ms, and returns the instants of its runs up to 100 ms, in milliseconds.
fn runs(plan: Repeat) -> Vec<u64> {
    let mut tasks = driven();
    tasks.advance(3 * MS);
    let (task, log) = logged(tasks.handle(), plan);
    tasks.advance_to(ms(100));
    let seen = log.take();
    assert_eq!(counts(&task), [seen.len() as u64, 0, 0, 0]);
    assert!(seen.iter().zip(1..).all(|(seen, number)| (seen.number, seen.missed) == (number, 0)));
    seen.iter().map(|seen| seen.scheduled).collect()
}

#[test]
fn the_first_run_is_when_the_plan_says() {
    assert_eq!(runs(every(40)), [43, 83]);
    assert_eq!(runs(every(40).first(First::AfterPeriod)), [43, 83]);
    assert_eq!(runs(every(40).first(First::AtOnce)), [3, 43, 83]);
    assert_eq!(runs(every(40).first(First::After(7 * MS))), [10, 50, 90]);
    assert_eq!(runs(every(40).first(First::After(Duration::ZERO))), [3, 43, 83]);
    assert!(runs(every(40).first(First::After(Duration::MAX))).is_empty());
    // The second `first` overrides the first.
    assert_eq!(runs(every(40).first(First::AtOnce).first(First::AfterPeriod)), [43, 83]);
}

/// A plan that keeps step with a moment runs at whole periods before and after that moment.
#[test]
fn in_step_is_at_whole_periods_before_and_after_the_moment() {
    let since = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
    let in_step = |time| runs(every(40).first(First::InStepWith(time)));
    assert_eq!(in_step(since(0)), [40, 80]);
    assert_eq!(in_step(since(5)), [5, 45, 85]);
    assert_eq!(in_step(since(40_005)), [5, 45, 85]);
    // If the origin is exactly now, the first run is a period later.
    assert_eq!(in_step(since(3)), [43, 83]);
    assert_eq!(in_step(since(4_003)), [43, 83]);
    assert_eq!(in_step(SystemTime::UNIX_EPOCH - 35 * MS), [5, 45, 85]);
}

#[test]
fn it_runs_exactly_as_often_as_said() {
    assert_eq!(runs(every(10).times(3)), [13, 23, 33]);
    assert_eq!(runs(every(10).first(First::AtOnce).times(1)), [3]);
    assert_eq!(runs(Repeat::pausing(10 * MS).times(2)), [13, 23]);
    assert_eq!(runs(every(10).times(u64::MAX)).len(), 9);
}

#[test]
fn after_its_last_run_it_has_ended_and_its_closure_is_gone() {
    let (mut tasks, kept) = (driven(), token());
    let held = Arc::clone(&kept);
    let task = tasks.handle().repeat(every(10).times(2), move |_| holds(&held)).unwrap();
    tasks.advance(15 * MS);
    assert_eq!((clones(&kept), task.has_ended(), tasks.handle().repeating().len()), (1, false, 1));
    tasks.advance(5 * MS);
    assert_eq!((clones(&kept), task.has_ended(), tasks.handle().repeating().len()), (0, true, 0));
    assert_eq!((task.next(), tasks.next_expiry()), (None, None));
    tasks.advance(SECOND);
    assert_eq!((counts(&task), tasks.handle().stats().total.panics), ([2, 0, 0, 0], 0));
    drop(task);
    assert_eq!(tasks.handle().stats().owned.alive, 0);
}

/// The period is not a whole number of ticks. Run `n` is planned for `n` periods after the start. The run begins at the
/// end of the tick that contains that moment.
#[test]
fn a_fixed_rate_does_not_drift_over_a_million_runs() {
    const PERIOD: u64 = 1_000_001;
    let mut tasks = driven();
    let (runs, late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (count, lateness, inside) = (Arc::clone(&runs), Arc::clone(&late), tasks.handle().clone());
    let task = tasks
        .handle()
        .repeat(Repeat::every(Duration::from_nanos(PERIOD)), move |run| {
            assert_eq!(run.scheduled, Timestamp::from_nanos(run.number * PERIOD));
            assert_eq!(run.scheduled + run.lateness, inside.now());
            assert_eq!(count.fetch_add(1, Ordering::Relaxed) + 1, run.number);
            let late = u64::try_from(run.lateness.as_nanos()).expect("short");
            lateness.fetch_max(late, Ordering::Relaxed);
        })
        .unwrap();
    tasks.advance(Duration::from_nanos(PERIOD * 1_000_000) + MS);
    assert_eq!(runs.load(Ordering::Relaxed), 1_000_000);
    assert!(late.load(Ordering::Relaxed) < 1_000_000, "more than a tick");
    assert_eq!((counts(&task)[1..].to_vec(), task.report().panics), (vec![0; 3], 0));
}

#[test]
fn a_pause_is_from_the_end_of_a_run() {
    let mut tasks = driven();
    let (task, log) = lasting(&tasks, Repeat::pausing(10 * MS), |number| number * 5);
    tasks.advance_to(ms(60));
    // These runs end at 15, 35 and 60.
    assert_eq!(log.take(), [seen(1, 10, 0, 0), seen(2, 25, 0, 0), seen(3, 45, 0, 0)]);
    assert_eq!((task.next(), counts(&task)), (Some(ms(70)), [3, 0, 0, 0]));
}

#[test]
fn two_tasks_of_one_plan_are_two() {
    let mut tasks = driven();
    let plan = every(10).times(2);
    let (first, second) = (logged(tasks.handle(), plan.clone()), logged(tasks.handle(), plan));
    let _ = first.0.stop();
    tasks.advance(SECOND);
    assert_eq!((first.1.len(), second.1.len()), (0, 2));
}

/// Ten thousand keys are spread over a period of ten thousand ticks. Each tick has about one run, and never many runs.
#[test]
fn tasks_that_are_spread_do_not_fire_in_one_tick() {
    let mut tasks = driven();
    let log = Log::new();
    for key in 0..10_000 {
        let sink = log.clone();
        let plan = Repeat::every(10 * SECOND).spread_by(("session", key));
        tasks
            .handle()
            .repeat(plan, move |run| sink.push(millis(run.scheduled - Timestamp::ZERO + run.lateness)))
            .unwrap();
    }
    tasks.advance(10 * SECOND);
    let mut ticks = HashMap::new();
    for tick in log.take() {
        *ticks.entry(tick).or_insert(0_u32) += 1;
    }
    assert_eq!(ticks.values().sum::<u32>(), 10_000);
    assert!(ticks.values().all(|&runs| runs <= 10), "{:?}", ticks.values().max());
    assert!(ticks.len() > 5_000, "{} ticks of 10,000", ticks.len());
}

/// Returns the instants at which a plan runs, in milliseconds since 1970. The engine starts at `begin` by the wall
/// clock.
fn on_the_wall(plan: &Repeat, begin: Duration) -> Vec<u128> {
    let mut tasks = DrivenTasks::start_at(Builder::new(), SystemTime::UNIX_EPOCH + begin).unwrap();
    let (_task, log) = logged(tasks.handle(), plan.clone());
    tasks.advance(HOUR);
    log.take().into_iter().map(|seen: Seen| begin.as_millis() + u128::from(seen.scheduled)).collect()
}

/// A task that keeps step with a moment has the same phase after a restart, at any time of the wall clock.
#[test]
fn a_restart_keeps_the_phase() {
    let creation = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + 123 * MS;
    for plan in [
        Repeat::every(60 * SECOND).spread_by("clean-up"),
        Repeat::every(60 * SECOND).spread_by(17_u64),
        Repeat::every(60 * SECOND).first(First::InStepWith(creation)),
    ] {
        let phases: Vec<u128> = [0, 1_700_000_000_000, 1_700_000_012_345, 1_800_000_059_999]
            .map(|begin| {
                let begin = Duration::from_millis(begin);
                let runs = on_the_wall(&plan, begin);
                assert!(runs[0] > begin.as_millis() && runs[0] <= begin.as_millis() + 60_000);
                assert!(runs.windows(2).all(|pair| pair[1] - pair[0] == 60_000));
                runs[0] % 60_000
            })
            .to_vec();
        // Phases are exact to the nanosecond, and ticks are not. So a run may be logged for the millisecond before.
        assert!(phases.iter().all(|phase| phase.abs_diff(phases[0]) <= 1), "{phases:?}");
    }
    assert_eq!(on_the_wall(&every(60_000).first(First::InStepWith(creation)), Duration::ZERO)[0], 20_123);
}

/// Ten thousand tasks of one period were created one after the other. After a restart of the program, all tasks start
/// at once. Each task keeps the phase of its creation.
#[test]
fn a_restart_does_not_bunch_tasks_that_keep_step_with_their_creation() {
    let mut tasks =
        DrivenTasks::start_at(Builder::new(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000))
            .unwrap();
    let log = Log::new();
    for created in 0..10_000 {
        let sink = log.clone();
        let creation = SystemTime::UNIX_EPOCH + Duration::from_millis(created);
        let plan = Repeat::every(10 * SECOND).first(First::InStepWith(creation));
        tasks.handle().repeat(plan, move |run| sink.push(millis(run.scheduled - Timestamp::ZERO))).unwrap();
    }
    tasks.advance(10 * SECOND);
    assert_eq!(log.take_sorted(), (1..=10_000).collect::<Vec<u64>>());
}

#[test]
fn tasks_that_have_not_ended_are_listed() {
    let mut tasks = driven();
    assert!(tasks.handle().repeating().is_empty());
    drop(tasks.handle().every(10 * MS, || {}).unwrap());
    let (ends, _) = logged(tasks.handle(), every(10).times(1));
    let (stops, _) = logged(tasks.handle(), every(10));
    assert_eq!(tasks.handle().repeating().len(), 3);
    let _ = stops.stop();
    assert_eq!(tasks.handle().repeating().len(), 2);
    tasks.advance(10 * MS);
    assert!(ends.has_ended());
    // Only the list refers to this task.
    let rest = tasks.handle().repeating();
    assert_eq!(rest.iter().map(counts).collect::<Vec<_>>(), [[1, 0, 0, 0]]);
    let _ = rest[0].stop();
    assert!(tasks.handle().repeating().is_empty());
    tasks.advance(SECOND);
    assert_eq!(counts(&rest[0])[0], 1);
}

/// During its last run, a task is not listed any more by `Tasks::repeating`.
#[test]
fn one_in_its_last_run_is_not_listed() {
    let mut tasks = driven();
    let (inside, log) = (tasks.handle().clone(), Log::new());
    let sink = log.clone();
    let run = move |_: &_| {
        let listed = inside.repeating();
        sink.push((listed.len(), listed.iter().any(|task| task.has_ended())));
    };
    tasks.handle().repeat(every(10).times(2), run).unwrap();
    tasks.advance(SECOND);
    assert_eq!(log.take(), [(1, false), (0, false)]);
}

/// A hundred thousand tasks run at the same time. After their end, no timer or memory of them is left.
#[test]
fn a_hundred_thousand_tasks_leave_nothing_behind() {
    const TASKS: u64 = 100_000;
    let (mut tasks, kept, runs) = (driven(), token(), Arc::new(AtomicU64::new(0)));
    let mut handles = Vec::new();
    for number in 0..TASKS {
        let (held, count) = (Arc::clone(&kept), Arc::clone(&runs));
        let run = move |_: &_| {
            count.fetch_add(1, Ordering::Relaxed);
            holds(&held);
        };
        let plan = Repeat::every(SECOND).spread_by(number).times(2 + number % 2);
        handles.push(tasks.handle().repeat(plan, run).unwrap());
        if number % 4 == 0 {
            // These tasks go on without a handle.
            handles.pop();
        }
    }
    assert_eq!((clones(&kept), tasks.handle().repeating().len()), (100_000, 100_000));
    assert_eq!(tasks.handle().stats().owned.alive, TASKS);
    tasks.advance(2 * SECOND);
    assert_eq!(clones(&kept), 50_000);
    tasks.advance(2 * SECOND);
    assert_eq!(runs.load(Ordering::Relaxed), TASKS / 2 * 5);
    assert_eq!((clones(&kept), tasks.handle().repeating().len()), (0, 0));
    assert!(handles.iter().all(|task| task.has_ended()));
    drop(handles);
    tasks.advance(2 * SECOND);
    let stats = tasks.handle().stats();
    assert_eq!((stats.owned.alive, stats.pending, stats.total.tickets, stats.total.panics), (0, 0, 0, 0));
}
