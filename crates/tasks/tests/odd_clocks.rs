//! Tasks on the clock of a machine that was suspended: it jumps on by an hour.

#[path = "../../../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{HOUR, Log, MS, wait_until};
use tourbillon::{Builder, Clock, SystemClock, Timestamp};
use tourbillon_tasks::{Missed, Repeat, Task, TaskEngine};

/// The system's clock, set forward by this number of nanoseconds.
struct Ahead(Arc<AtomicU64>);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock::new().now() + Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

const PERIOD: Duration = Duration::from_secs(600);

/// Starts a task with a period of ten minutes, and suspends the simulated machine for an hour. Returns the engine, the
/// task, the instants of the task's runs, and the moment of the task's start.
fn suspended(missed: Missed) -> (TaskEngine, Task, Log<Timestamp>, Timestamp) {
    let ahead = Arc::new(AtomicU64::new(0));
    let clock = Ahead(Arc::clone(&ahead));
    let builder = Builder::new().clock(clock).shards(2).workers(1).unpinned();
    let tasks = TaskEngine::start(builder).unwrap();
    let log = Log::new();
    let sink = log.clone();
    let task = tasks
        .handle()
        .repeat(Repeat::every(PERIOD).missed(missed), move |run| sink.push(run.scheduled))
        .unwrap();
    let start = task.next().unwrap() - PERIOD;
    // The shards sleep until the task is due, and a jump of the user's clock does not wake them. So this timer wakes
    // them.
    tasks.handle().after(20 * MS, || {}).unwrap();
    ahead.store(u64::try_from(HOUR.as_nanos()).unwrap(), Ordering::SeqCst);
    wait_until("it runs", || task.report().runs > 0);
    (tasks, task, log, start)
}

#[test]
fn a_task_that_skips_runs_once_after_a_suspend_and_stays_in_step() {
    let (_tasks, task, log, start) = suspended(Missed::Skip);
    wait_until("the next is known", || task.next() == Some(start + 7 * PERIOD));
    assert_eq!((task.report().runs, task.report().missed, task.report().skipped), (1, 5, 5));
    assert_eq!(log.len(), 1);
}

#[test]
fn a_task_that_delays_runs_once_after_a_suspend_and_a_period_later() {
    let (_tasks, task, log, start) = suspended(Missed::Delay);
    wait_until("the next is known", || task.next() > Some(start + 7 * PERIOD));
    assert!(task.next() < Some(start + 8 * PERIOD));
    assert_eq!((task.report().runs, task.report().missed, log.len()), (1, 5, 1));
}

#[test]
fn a_task_that_bursts_makes_up_for_a_suspend_and_stays_in_step() {
    let (_tasks, task, log, start) = suspended(Missed::Burst);
    wait_until("it has caught up", || task.next() == Some(start + 7 * PERIOD) && log.len() == 6);
    assert_eq!((task.report().runs, task.report().skipped), (6, 0));
    let instants: Vec<Timestamp> = (1..=6).map(|n| start + n * PERIOD).collect();
    // A run's instant is computed from its lateness, which the fast clock measures.
    for (seen, instant) in log.take().into_iter().zip(instants) {
        assert!(seen.max(instant) - seen.min(instant) < MS, "{seen} for {instant}");
    }
}
