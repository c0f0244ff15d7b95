//! Schedule + cancel without end, with deadlines an hour ahead. The figure is the memory that cancelled timers leave.

use super::pairs::Pairs;
use super::start::Limit;
use super::{HOUR, LONG};
use crate::case::Case;
use crate::contestants::OneShots;
use crate::process::{peak_resident, resident};
use crate::results::{Column, Figures};
use crate::roster::schedule_and_cancel;
use crate::scale::Scale;
use crate::workload::{Family, Workload};
use std::time::Duration;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "storm",
    operation: "schedule and cancel timers an hour ahead from one thread; what memory that leaves",
    family: Family::Memory,
    about: "Checked as in `pair`.",
    reading: "hierarchical_hash_wheel_timer and kestrel-timer keep cancelled timers until they are due.",
    cases,
    columns,
    rounds: |_, _| 1,
    entrants: || schedule_and_cancel!(turn),
};

/// The number of equal parts into which the pairs are divided. The memory is read for the first time after the first
/// part.
const WARM_UP: usize = 100;
const MEGABYTE: f64 = 1e6;

fn cases(scale: Scale) -> Vec<Case> {
    let pairs = scale.pick(100_000_000, 500_000, 5_000);
    let time_ms = scale.pick(12_000, 100, 100);
    let name = format!("{} pairs, at most {} s", thousands(pairs), time_ms as f64 / 1e3);
    vec![Case { operations: pairs, time_ms, ..Case::named(name) }]
}

fn columns(_: &Case) -> Vec<Column> {
    vec![
        Column::new("pairs", "pairs done", ""),
        Column::new("grown", "resident more at the end", "MB"),
        Column::new("peak", "resident more at most", "MB"),
    ]
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let mut pairs = Pairs::<C>::new(1, HOUR + LONG.start..HOUR + LONG.end);
    let limit = |part| Limit { operations: case.operations / part, time: case.time() };
    pairs.run(1, limit(WARM_UP));
    let before = resident();
    let (_, count) = pairs.run(1, limit(1));
    pairs.service.settle(Duration::from_millis(50));
    let more = |now: Option<u64>| Some((now? as f64 - before? as f64) / MEGABYTE);
    pairs.check();
    Figures::default()
        .number("pairs", count as f64)
        .number("grown", more(resident()))
        .number("peak", more(peak_resident()))
}
