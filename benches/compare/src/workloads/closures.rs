//! Closures are scheduled and cancelled. The figure shows their cost beside that of an engine's payload.

use super::LONG;
use crate::case::Case;
use crate::common::{Chance, payload};
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime;
use tourbillon::{Cancel, Engine};
use tourbillon_book::figure::thousands;
use tourbillon_tasks::TaskEngine;

pub(super) const WORKLOAD: Workload = Workload {
    name: "closures",
    operation: "a closure of 16 bytes that is to run in 10 to 60 s, and its cancel, among others that stay (ns both)",
    family: Family::Tasks,
    about: "Rows beside the closures have the parts that a closure is made of: a payload of the engine, and \
        an allocation. tokio's task is aborted before it was polled, so its timer is never registered: that \
        is the least that the task can cost. Checked: the timers that stay are pending.",
    reading: "A closure costs an allocation more than an engine's payload; the payload is a pointer to the \
        closure.",
    cases,
    columns: |_| vec![Column::new("t1", "1 thread", "ns")],
    rounds: |scale, _| scale.pick(7, 1, 1),
    entrants,
};

fn entrants() -> Vec<Entrant> {
    vec![
        Entrant::here("engine, Handle: a payload", true, engine),
        Entrant::here("allocate and free 16 bytes", false, allocate),
        Entrant::here("TaskEngine, after and cancel", true, tasks),
        Entrant::here("tokio, spawn a sleep and abort it", false, tokio_tasks),
    ]
}

/// The number of different delays in the schedule + cancel pairs.
const DELAYS: usize = 1_024;

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(100_000, 10_000, 100);
    let operations = scale.pick(2_000_000, 100_000, 200);
    let settle_ms = scale.pick(300, 100, 5);
    let name = format!("{} pending", thousands(timers));
    vec![Case { timers, operations, settle_ms, ..Case::named(name) }]
}

/// Calls `fill` to schedule the timers that stay pending. Then measures `pair`, a schedule and a cancel.
fn time(case: &Case, mut fill: impl FnMut(u64, Duration), mut pair: impl FnMut(u64, Duration)) -> Figures {
    let mut chance = Chance::new(1);
    let mut delay = || Duration::from_nanos(chance.within(&LONG));
    (0..case.timers as u64).for_each(|number| fill(number, delay()));
    thread::sleep(case.settle());
    let delays: Vec<Duration> = (0..DELAYS).map(|_| delay()).collect();
    let start = Instant::now();
    for number in 0..case.operations {
        pair(number as u64, delays[number % DELAYS]);
    }
    Figures::default().number("t1", start.elapsed().as_secs_f64() * 1e9 / case.operations as f64)
}

fn engine(case: &Case) -> Figures {
    let engine = Engine::new(|_| {}).expect("the system gives us threads");
    let figures = time(
        case,
        |number, delay| {
            engine.handle().schedule(delay, payload(number)).expect("there is room");
        },
        |number, delay| {
            let id = engine.handle().schedule(delay, payload(number)).expect("there is room");
            assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(payload(number)));
        },
    );
    assert_eq!(engine.handle().stats().pending, case.timers as u64);
    figures
}

fn allocate(case: &Case) -> Figures {
    time(case, |_, _| {}, |number, _| drop(black_box(Box::new(payload(number)))))
}

/// Makes a closure that captures as many bytes as the engine's payload has.
fn closure(number: u64) -> impl FnOnce() + Send + 'static {
    let kept = payload(number);
    move || {
        black_box(kept);
    }
}

fn tasks(case: &Case) -> Figures {
    let tasks: TaskEngine = TaskEngine::new().expect("the system gives us threads");
    let figures = time(
        case,
        |number, delay| {
            tasks.handle().after(delay, closure(number)).expect("there is room");
        },
        |number, delay| {
            let id = tasks.handle().after(delay, closure(number)).expect("there is room");
            assert_eq!(tasks.handle().cancel(id), Cancel::Cancelled(()));
        },
    );
    assert_eq!(tasks.handle().stats().pending, case.timers as u64);
    figures
}

fn tokio_tasks(case: &Case) -> Figures {
    let mut builder = runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().expect("the system gives us a timer");
    let spawn = |number, delay| {
        let closure = closure(number);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            closure();
        })
    };
    let (figures, handles) = runtime.block_on(async {
        let mut handles = Vec::with_capacity(case.timers);
        let figures = time(
            case,
            |number, delay| handles.push(spawn(number, delay)),
            |number, delay| {
                // The task is never polled, so its timer is not even registered. This is the least that it can cost.
                spawn(number, delay).abort();
            },
        );
        (figures, handles)
    });
    assert_eq!(handles.iter().filter(|handle| !handle.is_finished()).count(), case.timers);
    figures
}
