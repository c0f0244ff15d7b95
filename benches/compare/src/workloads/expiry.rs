//! Many timers are due over some seconds. The figures are their lateness and their processor time.
//!
//! This is an open loop. The deadlines are fixed beforehand, so no timer is left out if a contestant falls behind. Each
//! handler writes its time to a random word, and does nothing else.

use super::shots::{QUANTILES, Sorted, Volley};
use crate::case::Case;
use crate::common::Chance;
use crate::contestants::{
    AcrossBoundary, CoarseInline, CoarserInline, Fine, FineInline, Of, OneShots, OursTimerEach,
};
use crate::results::{Column, Figures};
use crate::roster::{entrants, fire};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "expiry",
    operation: "timers due at random moments of a window, inserted before it: how late their handlers are called",
    family: Family::Firing,
    about: "The deadlines are fixed beforehand, so that no timer is left out if a contestant falls behind. \
        Lateness is the time at which a handler is called, by a clock of the contestant's kind, less the \
        deadline that was asked for. Each handler writes its moment to the word of its timer, and counts itself \
        for its thread. The deadlines are random, so that this is a word at random in memory that was touched \
        before the first timer was armed. Checked: each timer fires once. Timers that fire early are \
        counted.\n\n\
        Contestants with \"tasks\" in their names have a task for each timer: with these engines an action \
        needs one. kestrel-timer has ticks of 1 ms here; its default is ten times as long. *engine, Timer* has \
        an owned timer for each, made before the first is armed; its inserts arm them. *Wake-ups* are the \
        voluntary context switches of all threads of the process from the last insert to the last handler, \
        for each thousand of timers.",
    reading: "A deadline is rounded up to a tick of 1 ms: half a tick is in the median of each wheel, and a \
        whole tick in the tail. A structure whose thread wakes for each deadline is less late, and takes \
        more processor time. The rows with ticks of 0.1 ms are less late, and take more processor time; the two \
        with coarser ticks have fewer wake-ups, and are later. A row across tick 65,536 has the \
        boundary of a level of our wheel in its window.",
    cases,
    columns: |_| {
        vec![
            Column::new("early", "early", ""),
            Column::new("p50", "p50", "ms"),
            Column::new("p99", "p99", "ms"),
            Column::new("p999", "p99.9", "ms"),
            Column::new("max", "max", "ms"),
            Column::new("cpu", "CPU", "s"),
            Column::new("insert", "an insert", "ns"),
            Column::new("wakes", "wake-ups for 1,000", ""),
        ]
    },
    rounds: |scale, _| scale.pick(3, 1, 1),
    entrants,
};

/// The number of equal parts of the window in which timers are due. Each part has its own figures.
const PARTS: u64 = 100;

fn entrants() -> Vec<Entrant> {
    let mut entrants = entrants![turn: Of<AcrossBoundary>, Of<Fine>, Of<FineInline>, Of<CoarseInline>, Of<CoarserInline>, OursTimerEach];
    entrants.extend(fire!(turn));
    entrants
}

fn cases(scale: Scale) -> Vec<Case> {
    let case = |timers, time_ms, lead_ms| {
        let name = format!("{} due over {} s", thousands(timers), time_ms as f64 / 1e3);
        Case { timers, time_ms, lead_ms, ..Case::named(name) }
    };
    scale.pick(
        vec![case(1_000_000, 2_000, 2_500), case(100_000, 1_000, 500)],
        vec![case(50_000, 200, 500)],
        vec![case(300, 100, 100)],
    )
}

/// Returns the due moments of the timers, in nanoseconds from the start of the window. The moments are random in the
/// window.
pub(super) fn offsets(case: &Case) -> Vec<u64> {
    let window = case.time_ms * 1_000_000;
    let mut chance = Chance::new(1);
    (0..case.timers).map(|_| chance.within(&(0..window))).collect()
}

/// Schedules the timers of `case` and waits until they have fired.
pub(super) fn volley<C: OneShots>(case: &Case) -> Volley {
    Volley::fire::<C>(case, offsets(case))
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let (window, offsets) = (case.time_ms * 1_000_000, offsets(case));
    let volley = Volley::fire::<C>(case, offsets.clone());
    let all = volley.sorted();
    let part_of = |offset: u64| usize::try_from(offset * PARTS / window).expect("one of some parts");
    let mut parts = vec![Vec::new(); usize::try_from(PARTS).expect("a few")];
    for (&offset, &lateness) in offsets.iter().zip(&volley.lateness) {
        parts[part_of(offset)].push(u64::try_from(lateness).unwrap_or(0));
    }
    let parts: Vec<Sorted> = parts.into_iter().map(Sorted::new).collect();
    let by_part = |quantile| parts.iter().map(|part| part.millis(quantile).unwrap_or(0.0)).collect();
    Figures::default()
        .number("early", volley.early())
        .number("p50", all.millis(0.5))
        .number("p99", all.millis(0.99))
        .number("p999", all.millis(0.999))
        .number("max", all.millis(1.0))
        .number("cpu", volley.cpu.map(|time| time.as_secs_f64()))
        .number("insert", volley.nanos_per_insert)
        .number("wakes", volley.wakes)
        .series("due_ms", (0..PARTS).map(|part| (part * case.time_ms) as f64 / PARTS as f64).collect())
        .series("part_p50", by_part(0.5))
        .series("part_p99", by_part(0.99))
        .series("part_max", by_part(1.0))
        .series("quantile", QUANTILES.into())
        .series("lateness", QUANTILES.iter().filter_map(|&quantile| all.millis(quantile)).collect())
}
