//! Closures that run once, repeatedly or by the calendar, and that are stopped, panic or are shut down. Most tests use
//! the threadless engine, whose time is exact. The others need threads.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod errors;
mod fast_clock;
mod full_shard;
mod long_spans;
mod on_a_loop;
mod once;
mod panics;
mod parallel;
mod policies;
mod repeat;
mod shutdown;
mod stops;
mod timers;

use std::sync::Arc;
use std::time::Duration;
use support::{Log, MS};
use tourbillon::Timestamp;
use tourbillon_tasks::{DrivenTasks, Repeat, Report, Run, Task, Tasks};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the moment `millis` milliseconds after the start of the clock.
fn ms(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("a short one")
}

/// A run as its closure saw the run. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    number: u64,
    scheduled: u64,
    lateness: u64,
    missed: u64,
}

impl Seen {
    fn of(run: &Run) -> Self {
        Self {
            number: run.number,
            scheduled: millis(run.scheduled - Timestamp::ZERO),
            lateness: millis(run.lateness),
            missed: run.missed,
        }
    }
}

const fn seen(number: u64, scheduled: u64, lateness: u64, missed: u64) -> Seen {
    Seen { number, scheduled, lateness, missed }
}

/// Returns the counts of a task's report: runs, missed, overlapped, skipped.
fn counts(task: &Task) -> [u64; 4] {
    let Report { runs, missed, overlapped, skipped, .. } = task.report();
    [runs, missed, overlapped, skipped]
}

fn driven() -> DrivenTasks {
    DrivenTasks::new().unwrap()
}

/// Starts a task that logs its runs.
fn logged(tasks: &Tasks, plan: Repeat) -> (Task, Log<Seen>) {
    let log = Log::new();
    let sink = log.clone();
    (tasks.repeat(plan, move |run| sink.push(Seen::of(run))).unwrap(), log)
}

/// Starts a task that logs its runs, as `logged` does. The run with number `n` lasts `lasts(n)` milliseconds.
fn lasting(
    tasks: &DrivenTasks,
    plan: Repeat,
    lasts: impl Fn(u64) -> u64 + Send + 'static,
) -> (Task, Log<Seen>) {
    let (log, clock) = (Log::new(), tasks.clock().clone());
    let sink = log.clone();
    let run = move |run: &Run| {
        sink.push(Seen::of(run));
        clock.advance(Duration::from_millis(lasts(run.number)));
    };
    (tasks.handle().repeat(plan, run).unwrap(), log)
}

/// Moves the clock by `by` without a turn (a pass of its loop) of the shard. Then makes a single turn.
fn stall(tasks: &mut DrivenTasks, by: Duration) {
    tasks.clock().advance(by);
    tasks.turn();
}

fn every(millis: u64) -> Repeat {
    Repeat::every(Duration::from_millis(millis))
}

/// Makes a token. A test counts the token's clones. So the test sees whether closures that hold clones were dropped.
fn token() -> Arc<()> {
    Arc::new(())
}

/// Returns the number of clones of the token, without the token itself.
fn clones(token: &Arc<()>) -> usize {
    Arc::strong_count(token) - 1
}

/// Does nothing. A closure that calls this function captures the argument, and so keeps it.
fn holds<T>(_: &T) {}

#[test]
fn a_task_says_what_it_is_about_to_do_and_has_done() {
    let mut tasks = driven();
    let (task, log) = logged(tasks.handle(), every(10));
    assert_eq!(task.next(), Some(ms(10)));
    assert_eq!(format!("{:?}", task.report()), format!("{:?}", Report::default()));
    tasks.advance(25 * MS);
    assert_eq!(log.take(), [seen(1, 10, 0, 0), seen(2, 20, 0, 0)]);
    assert_eq!((task.next(), task.has_ended(), task.report().runs), (Some(ms(30)), false, 2));
    assert!(format!("{task:?}").contains("runs: 2"));
}
