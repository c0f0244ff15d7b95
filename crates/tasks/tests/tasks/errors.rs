//! Plans that cannot be started. Each error returns the closure.

use crate::support::{Log, MS};
use crate::{clones, driven, every, holds, token};
use std::sync::Arc;
use std::time::Duration;
use tourbillon::{Builder, Refusal};
use tourbillon_tasks::{DrivenTasks, First, Repeat, RepeatErrorKind, Tasks};

/// Checks that `repeat` and `repeat_in_parallel` refuse a plan with `kind`. Then calls the returned closure.
fn refuse(tasks: &Tasks, plan: &Repeat, kind: &RepeatErrorKind) {
    let log = Log::new();
    let sink = log.clone();
    let error = tasks.repeat(plan.clone(), move |_| sink.push(1)).unwrap_err();
    assert_eq!(&error.kind, kind);
    let mut task = error.task;
    // The returned closure has its original type: it takes a run.
    let mut probe = driven();
    let _probed = probe.handle().repeat(every(1).times(1), move |run| task(run)).unwrap();
    let sink = log.clone();
    let error = tasks.repeat_in_parallel(plan.clone(), move |_| sink.push(2)).unwrap_err();
    assert_eq!((&error.kind, error.to_string()), (kind, kind.to_string()));
    let task = error.task;
    let _probed_too = probe.handle().repeat(every(2).times(1), move |run| task(run)).unwrap();
    probe.advance(2 * MS);
    assert_eq!(log.take(), [1, 2]);
    assert!(tasks.repeating().is_empty());
}

#[test]
fn a_period_of_zero_is_refused() {
    let tasks = driven();
    refuse(tasks.handle(), &Repeat::every(Duration::ZERO), &RepeatErrorKind::ZeroPeriod);
    refuse(tasks.handle(), &Repeat::pausing(Duration::ZERO), &RepeatErrorKind::ZeroPeriod);
    refuse(tasks.handle(), &Repeat::every(Duration::ZERO).first(First::AtOnce), &RepeatErrorKind::ZeroPeriod);
    refuse(tasks.handle(), &Repeat::every(Duration::ZERO).spread_by(1), &RepeatErrorKind::ZeroPeriod);
    let error = tasks.handle().every(Duration::ZERO, || {}).unwrap_err();
    assert_eq!(error.to_string(), "the period is zero");
}

#[test]
fn a_period_below_the_tick_is_refused_and_one_of_a_tick_is_not() {
    let tasks = DrivenTasks::start(Builder::new().tick(10 * MS)).unwrap();
    let period = 10 * MS - Duration::from_nanos(1);
    let kind = RepeatErrorKind::BelowTick { period, tick: 10 * MS };
    refuse(tasks.handle(), &Repeat::every(period), &kind);
    refuse(tasks.handle(), &Repeat::pausing(period), &kind);
    assert_eq!(kind.to_string(), "the period of 9.999999ms is shorter than the engine's tick of 10ms");
    tasks.handle().every(10 * MS, || {}).unwrap();
}

#[test]
fn no_runs_at_all_are_refused() {
    refuse(driven().handle(), &every(10).times(0), &RepeatErrorKind::NoRuns);
}

#[test]
fn a_full_engine_refuses_and_takes_it_again_when_there_is_room() {
    let tasks = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    let first = tasks.handle().every(MS, || {}).unwrap();
    let plan = every(1);
    let log = Log::new();
    let sink = log.clone();
    let full = RepeatErrorKind::Refused(Refusal::EngineFull);
    let error = tasks.handle().repeat(plan.clone(), move |_| sink.push(())).unwrap_err();
    assert_eq!(error.kind, full);
    assert_eq!(tasks.handle().timer(|| {}).unwrap_err().kind, Refusal::EngineFull);
    let _ = first.stop();
    drop(first);
    let mut tasks = tasks;
    let _second = tasks.handle().repeat(plan, error.task).unwrap();
    tasks.advance(3 * MS);
    assert_eq!(log.len(), 3);
}

#[test]
fn an_engine_that_was_shut_down_refuses() {
    let tasks = driven();
    drop(tasks.handle().shutdown());
    refuse(tasks.handle(), &every(10), &RepeatErrorKind::Refused(Refusal::ShutDown));
    let kept = token();
    let held = Arc::clone(&kept);
    let error = tasks.handle().timer(move || holds(&held)).unwrap_err();
    (error.payload)();
    drop(error);
    assert_eq!(clones(&kept), 0);
}

#[cfg(feature = "calendar")]
#[test]
fn a_calendar_without_a_further_instant_is_refused() {
    use tourbillon_tasks::calendar::Calendar;
    let tasks = driven();
    let past = Calendar::once("1969-12-31T23:59:59Z".parse().unwrap());
    refuse(tasks.handle(), &Repeat::on(past), &RepeatErrorKind::NeverFires);
    // The calendar's only instant is the start of the engine's clock. It is not after the start.
    let now = Calendar::once("1970-01-01T00:00:00Z".parse().unwrap());
    refuse(tasks.handle(), &Repeat::on(now), &RepeatErrorKind::NeverFires);
}
