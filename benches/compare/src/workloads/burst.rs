//! All timers are due at one instant. The figure is the time until the last timer has fired.

use super::shots::Volley;
use crate::case::Case;
use crate::contestants::OneShots;
use crate::results::{Column, Figures};
use crate::roster::fire;
use crate::scale::Scale;
use crate::workload::{Family, Workload};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "burst",
    operation: "timers due at one instant, inserted before it: when their handlers are called",
    family: Family::Firing,
    about: "Checked: each timer fires once. Timers that fire early are counted.",
    reading: "Our shards hand the timers of a tick to their workers in chunks. Each timer is claimed by a \
        compare-and-swap before its handler runs, because any thread may cancel it at that moment, as in \
        Netty. Netty runs the handlers one after the other on its one thread. Go starts a goroutine for each callback.",
    cases,
    columns: |_| {
        vec![
            Column::new("early", "early", ""),
            Column::new("p50", "half of them after", "ms"),
            Column::new("last", "the last after", "ms"),
            Column::new("cpu", "CPU", "s"),
        ]
    },
    rounds: |scale, _| scale.pick(3, 1, 1),
    entrants: || fire!(turn),
};

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(1_000_000, 50_000, 300);
    let lead_ms = scale.pick(2_500, 500, 100);
    vec![Case { timers, lead_ms, ..Case::named(format!("{} due at once", thousands(timers))) }]
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let volley = Volley::fire::<C>(case, vec![0; case.timers]);
    let all = volley.sorted();
    Figures::default()
        .number("early", volley.early())
        .number("p50", all.millis(0.5))
        .number("last", all.millis(1.0))
        .number("cpu", volley.cpu.map(|time| time.as_secs_f64()))
}
