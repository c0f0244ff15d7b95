//! The cost of a pair while more and more timers are pending, from the number that fits into a cache to gigabytes.

use super::LONG;
use super::pairs::Pairs;
use super::start::Limit;
use crate::case::Case;
use crate::contestants::OneShots;
use crate::results::{Column, Figures};
use crate::roster::schedule_and_cancel;
use crate::scale::Scale;
use crate::workload::{Family, Workload};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "growth",
    operation: "schedule a timer and cancel it from one thread, with ever more pending (ns a pair)",
    family: Family::Arming,
    about: "One process measures all numbers of pending timers: it adds timers from one number to the next. \
        Checked as in `pair`.",
    reading: "The cost of our pair does not depend on the number of pending timers, nor does that of the \
        other wheels. A balanced tree, which async-io has too, grows deeper with the number and leaves the \
        cache.",
    cases,
    columns,
    rounds: |scale, _| scale.pick(2, 1, 1),
    entrants: || schedule_and_cancel!(turn),
};

/// The time that is added to all delays, in nanoseconds. Ten million timers are armed in this time.
const MINUTE: u64 = 60_000_000_000;

fn cases(scale: Scale) -> Vec<Case> {
    let sizes: &[usize] = scale.pick(
        &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
        &[1_000, 10_000, 100_000, 500_000],
        &[100, 300],
    );
    vec![Case {
        sizes: sizes.into(),
        time_ms: scale.pick(150, 20, 1),
        settle_ms: scale.pick(50, 5, 1),
        ..Case::named("growth")
    }]
}

fn columns(case: &Case) -> Vec<Column> {
    let column = |&size| Column::new(key(size), format!("{} pending", thousands(size)), "ns");
    case.sizes.iter().map(column).collect()
}

fn key(size: usize) -> String {
    format!("p{size}")
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let mut pairs = Pairs::<C>::new(1, MINUTE + LONG.start..MINUTE + LONG.end);
    let figures = case.sizes.iter().fold(Figures::default(), |figures, &size| {
        pairs.fill(size, case.settle());
        let (nanos, _) = pairs.run(1, Limit::time(case.time()));
        figures.number(key(size), nanos)
    });
    pairs.check();
    figures
}
