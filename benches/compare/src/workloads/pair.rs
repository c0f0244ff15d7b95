//! A timeout's whole life when nothing goes wrong: scheduled and cancelled, while others are pending.

use super::LONG;
use super::pairs::Pairs;
use crate::case::{Case, thousands};
use crate::contestants::OneShots;
use crate::results::Figures;
use crate::roster::schedule_and_cancel;
use crate::workload::{Scale, Workload, columns_by_threads};

pub(super) const WORKLOAD: Workload = Workload {
    name: "pair",
    what: "schedule a timer 10 to 60 s ahead and cancel it (ns a pair and thread)",
    cases,
    columns: columns_by_threads,
    rounds: |scale, _| scale.pick(3, 1, 1),
    entrants: || schedule_and_cancel!(turn),
};

fn cases(scale: Scale) -> Vec<Case> {
    let case = |timers| Case {
        timers,
        threads: vec![1, 2, 8],
        time_ms: scale.pick(150, 20, 1),
        settle_ms: scale.pick(50, 5, 1),
        ..Case::named(if timers == 0 {
            "nothing pending".to_owned()
        } else {
            format!("{} pending", thousands(timers))
        })
    };
    scale.pick([0, 100_000, 1_000_000], [0, 10_000, 100_000], [0, 100, 200]).map(case).into()
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let most_threads = case.threads.iter().copied().max().unwrap_or(1);
    let mut pairs = Pairs::<C>::new(most_threads, LONG);
    pairs.fill(case.timers, case.settle());
    let figures = pairs.run_by_threads(case);
    pairs.check();
    figures
}
