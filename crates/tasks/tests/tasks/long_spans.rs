//! A hundred years on a manual clock. Each run is at its instant. The work depends on the number of runs, not on the
//! time between them.

use crate::support::{Log, MS};
use crate::{SECOND, counts, driven, token};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tourbillon::{Cancel, Clock, Timestamp};
use tourbillon_tasks::{DrivenTasks, First, Missed, Repeat};

const DAY: Duration = Duration::from_secs(86_400);
/// A year of the Julian calendar.
const YEAR: Duration = Duration::from_secs(31_557_600);

fn at(since_origin: Duration) -> Timestamp {
    Timestamp::ZERO + since_origin
}

/// Returns the number of turns (passes of its loop) that the shard makes during `walk`.
fn turns(tasks: &mut DrivenTasks, walk: impl FnOnce(&mut DrivenTasks)) -> u64 {
    let before = tasks.handle().stats().total.turns;
    walk(tasks);
    tasks.handle().stats().total.turns - before
}

#[test]
fn one_shots_a_hundred_years_ahead_are_held_cancelled_and_run() {
    let (mut tasks, kept, log) = (driven(), token(), Log::new());
    let held = Arc::clone(&kept);
    let cancelled = tasks.handle().after(100 * YEAR, move || drop(held)).unwrap();
    let (sink, clock) = (log.clone(), tasks.clock().clone());
    tasks.handle().after(100 * YEAR, move || sink.push(clock.now())).unwrap();
    let spent = turns(&mut tasks, |tasks| {
        tasks.advance(50 * YEAR);
        assert_eq!(tasks.handle().deadline(cancelled), Some(at(100 * YEAR)));
        assert_eq!(tasks.handle().cancel(cancelled), Cancel::Cancelled(()));
        assert_eq!(Arc::strong_count(&kept), 1);
        tasks.advance_to(at(100 * YEAR - MS));
        assert_eq!(log.len(), 0);
        tasks.advance(MS);
    });
    assert_eq!(log.take(), [at(100 * YEAR)]);
    // A timer moves down one level of the wheel at a time.
    assert!(spent < 60, "{spent} turns");
}

#[test]
fn periodic_tasks_run_for_a_hundred_years_at_their_instants() {
    let mut tasks = driven();
    let mut started = Vec::new();
    // The periods are a day, 30.4 days, and a period that is not a whole number of ticks.
    let periods = [DAY, Duration::from_secs(2_626_560), DAY * 7 + Duration::from_nanos(123_456_789)];
    for period in periods {
        for missed in [Missed::Burst, Missed::Delay, Missed::Skip] {
            let (runs, inside) = (Arc::new(AtomicU64::new(0)), tasks.handle().clone());
            let count = Arc::clone(&runs);
            let plan = Repeat::every(period).first(First::After(period)).missed(missed);
            let task = tasks.handle().repeat(plan, move |run| {
                let number = count.fetch_add(1, Ordering::Relaxed) + 1;
                assert_eq!((run.number, run.missed), (number, 0));
                assert_eq!(run.scheduled, at(period * u32::try_from(number).unwrap()));
                assert_eq!((run.scheduled + run.lateness, run.lateness < MS), (inside.now(), true));
            });
            started.push((period, task.unwrap()));
        }
    }
    let mut runs = 0;
    let spent = turns(&mut tasks, |tasks| tasks.advance(100 * YEAR));
    for (period, task) in started {
        let expected = u64::try_from(100 * YEAR.as_nanos() / period.as_nanos()).unwrap();
        assert_eq!((counts(&task), task.report().panics), ([expected, 0, 0, 0], 0), "every {period:?}");
        runs += expected;
    }
    assert!(runs > 120_000);
    assert!(spent < 4 * runs, "{spent} turns for {runs} runs");
}

/// The engine has only one task, so all turns of the shard are for that task.
#[test]
fn a_monthly_task_alone_takes_a_few_turns_for_each_run() {
    let mut tasks = driven();
    let task = tasks.handle().every(Duration::from_secs(2_626_560), || {}).unwrap();
    let spent = turns(&mut tasks, |tasks| tasks.advance(100 * YEAR));
    let runs = task.report().runs;
    assert_eq!(runs, 1_201);
    assert!(spent < 12 * runs, "{spent} turns for {runs} runs");
}

#[test]
fn one_that_repeats_every_hundred_years_is_stopped_in_between() {
    let mut tasks = driven();
    let task = tasks.handle().every(100 * YEAR, || {}).unwrap();
    tasks.advance(250 * YEAR);
    assert_eq!((task.report().runs, task.next()), (2, Some(at(300 * YEAR))));
    let _ = task.stop();
    tasks.advance(300 * YEAR);
    assert_eq!(task.report().runs, 2);
    // The next instants of these tasks are after the end of time, so they never run.
    let (never, forever) = (
        tasks.handle().every(100 * YEAR, || {}).unwrap(),
        tasks.handle().every(Duration::MAX, || {}).unwrap(),
    );
    tasks.advance(SECOND);
    assert_eq!((never.next(), forever.next()), (Some(Timestamp::MAX), Some(Timestamp::MAX)));
    assert_eq!((never.report().runs, forever.report().runs), (0, 0));
}

#[cfg(feature = "calendar")]
mod by_the_calendar {
    use super::{DAY, YEAR, at, turns};
    use crate::support::Log;
    use crate::{counts, holds, stall};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, SystemTime};
    use tourbillon::Builder;
    use tourbillon_tasks::calendar::{Calendar, ShortMonth};
    use tourbillon_tasks::{DrivenTasks, Missed, Overlap, Repeat};

    /// The start of 2026, in UTC.
    const BEGIN: Duration = Duration::from_secs(1_767_225_600);

    fn in_2026() -> DrivenTasks {
        DrivenTasks::start_at(Builder::new(), SystemTime::UNIX_EPOCH + BEGIN).unwrap()
    }

    fn instant(since: Duration) -> jiff::Timestamp {
        jiff::Timestamp::from_nanosecond(i128::try_from((BEGIN + since).as_nanos()).unwrap()).unwrap()
    }

    #[test]
    fn calendars_are_walked_for_a_hundred_years() {
        let noon = jiff::civil::time(12, 0, 0, 0);
        let calendars = [
            Calendar::cron("0 3 1 * *", "Europe/Berlin").unwrap(),
            Calendar::cron("30 2 * * *", "America/New_York").unwrap(),
            Calendar::cron("0 0 29 2 *", "UTC").unwrap(),
            Calendar::monthly(31, ShortMonth::LastDay, noon, "Asia/Kolkata").unwrap(),
            Calendar::yearly(12, 24, ShortMonth::Skip, noon, "Australia/Sydney").unwrap(),
        ];
        for calendar in calendars {
            let mut tasks = in_2026();
            let (runs, inside) = (Arc::new(AtomicU64::new(0)), tasks.handle().clone());
            let count = Arc::clone(&runs);
            let end = instant(100 * YEAR);
            let all: Vec<_> = calendar.after(instant(Duration::ZERO)).take_while(|&run| run <= end).collect();
            let (came, mut expected) = (all.len() as u64, all.into_iter());
            let task = tasks.handle().repeat(Repeat::on(calendar.clone()), move |run| {
                assert_eq!(run.instant, expected.next());
                // In this test the engine's clock and the wall clock agree.
                let now = inside.now() - at(Duration::ZERO);
                assert_eq!((run.instant, run.lateness, run.missed), (Some(instant(now)), Duration::ZERO, 0));
                assert_eq!(run.scheduled, inside.now());
                count.fetch_add(1, Ordering::Relaxed);
            });
            let task = task.unwrap();
            let spent = turns(&mut tasks, |tasks| tasks.advance(100 * YEAR));
            assert!(came > 20, "{calendar}");
            assert_eq!((counts(&task), task.report().panics), ([came, 0, 0, 0], 0), "{calendar}");
            assert!(spent < 20 * came, "{calendar}: {spent} turns for {came} runs");
        }
    }

    #[test]
    fn a_calendar_that_ends_ends_its_task() {
        let mut tasks = in_2026();
        let once = Calendar::once("2100-01-01T00:00:00Z".parse().unwrap());
        let (log, kept) = (Log::new(), crate::token());
        let (sink, held) = (log.clone(), Arc::clone(&kept));
        let task = tasks.handle().repeat(Repeat::on(once), move |run| {
            holds(&held);
            sink.push(run.instant);
        });
        let task = task.unwrap();
        tasks.advance(100 * YEAR);
        assert_eq!(log.take(), ["2100-01-01T00:00:00Z".parse().ok()]);
        assert_eq!((task.has_ended(), crate::clones(&kept), tasks.handle().repeating().len()), (true, 0, 0));
    }

    /// Days pass in one stall of the engine. A daily task skips these days, or makes a run for each day.
    #[test]
    fn days_that_were_missed_are_counted() {
        let daily = Calendar::cron("@daily", "UTC").unwrap();
        let run = |missed: Missed| {
            let (mut tasks, log) = (in_2026(), Log::new());
            let sink = log.clone();
            let plan = Repeat::on(daily.clone()).missed(missed);
            let task = tasks
                .handle()
                .repeat(plan, move |run| {
                    sink.push((run.number, run.instant.map(|at| at.to_string()), run.missed))
                })
                .unwrap();
            stall(&mut tasks, DAY * 7 / 2);
            (0..5).for_each(|_| tasks.turn());
            let first = log.take();
            tasks.advance(DAY);
            (first, log.take(), counts(&task))
        };
        let day = |number, day: u32, missed| (number, Some(format!("2026-01-{day:02}T00:00:00Z")), missed);
        for missed in [Missed::Skip, Missed::Delay] {
            assert_eq!(run(missed), (vec![day(1, 2, 2)], vec![day(2, 5, 0)], [2, 2, 0, 2]));
        }
        let burst = vec![day(1, 2, 2), day(2, 3, 0), day(3, 4, 0)];
        assert_eq!(run(Missed::Burst), (burst, vec![day(4, 5, 0)], [4, 2, 0, 0]));
    }

    #[test]
    fn days_that_pass_while_it_runs_are_skipped_or_queued() {
        let daily = Calendar::cron("@daily", "UTC").unwrap();
        for (overlap, second) in
            [(Overlap::Skip, "2026-01-06T00:00:00Z"), (Overlap::QueueOne, "2026-01-05T00:00:00Z")]
        {
            let (mut tasks, log) = (in_2026(), Log::new());
            let (sink, clock) = (log.clone(), tasks.clock().clone());
            let plan = Repeat::on(daily.clone()).overlap(overlap).times(2);
            let task = tasks.handle().repeat(plan, move |run| {
                sink.push(run.instant.map(|at| at.to_string()));
                if run.number == 1 {
                    clock.advance(DAY * 7 / 2);
                }
            });
            tasks.advance(10 * DAY);
            assert_eq!(log.take(), [Some("2026-01-02T00:00:00Z".to_owned()), Some(second.to_owned())]);
            let skipped = if overlap == Overlap::Skip { 3 } else { 2 };
            assert_eq!(counts(&task.unwrap()), [2, 0, 3, skipped]);
        }
    }
}
