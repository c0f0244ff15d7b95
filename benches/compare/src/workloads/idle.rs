//! Timers are pending, and none is due. The figure is the cost of the threads that wait for them.

use super::pairs::Pairs;
use super::{HOUR, LONG};
use crate::case::Case;
use crate::contestants::OneShots;
use crate::process::{cpu_time, sleeps_of_other_threads};
use crate::results::{Column, Figures};
use crate::roster::fire;
use crate::scale::Scale;
use crate::workload::{Family, Workload};
use std::thread;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "idle",
    operation: "timers an hour ahead, and nothing to do",
    family: Family::Memory,
    about: "Checked as in `pair`.",
    reading: "A thread that sleeps until the next deadline does not wake before it. Netty and kestrel-timer \
        tick even if no timer is due.",
    cases,
    columns: |_| {
        vec![Column::new("cpu_ms", "CPU", "ms"), Column::new("switches", "threads went to sleep", "times")]
    },
    rounds: |_, _| 1,
    entrants: || fire!(turn),
};

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(100_000, 10_000, 100);
    let time_ms = scale.pick(10_000, 100, 20);
    let name = format!("{} pending, {} s", thousands(timers), time_ms as f64 / 1e3);
    vec![Case { timers, time_ms, settle_ms: time_ms / 10, ..Case::named(name) }]
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let mut pairs = Pairs::<C>::new(1, HOUR + LONG.start..HOUR + LONG.end);
    pairs.fill(case.timers, case.settle());
    let (cpu, sleeps) = (cpu_time(), sleeps_of_other_threads());
    thread::sleep(case.time());
    let (cpu_then, sleeps_then) = (cpu_time(), sleeps_of_other_threads());
    pairs.check();
    let spent = cpu.zip(cpu_then).map(|(before, after)| (after - before).as_secs_f64() * 1e3);
    let slept = sleeps.zip(sleeps_then).map(|(before, after)| after as f64 - before as f64);
    Figures::default().number("cpu_ms", spent).number("switches", slept)
}
