//! Schedule + cancel without end, with deadlines an hour ahead: what cancelled timers leave behind.

use crate::baselines::{LazyHeap, Locked, Tree};
use crate::common::{FireCount, Length, NANOS, Service, ThroughHandle, ThroughProducer, run_pairs};
use crate::process::{measure_apart, number, peak_resident, resident};
use crate::report::{Report, Samples};
use crate::sizes::Sizes;
use crate::{Contestant, Section};
use serde_json::{Value, json};

pub(crate) const CONTESTANTS: &[Contestant] = &[
    (ThroughHandle::NAME, measure::<ThroughHandle>),
    (ThroughProducer::NAME, measure::<ThroughProducer>),
    (<Locked<LazyHeap> as Service>::NAME, measure::<Locked<LazyHeap>>),
    (<Locked<Tree> as Service>::NAME, measure::<Locked<Tree>>),
];

const HOUR: u64 = 3_600_000_000_000;
const THREADS: usize = 2;
/// Pairs before the first look, as a part of all.
const WARM_UP: u64 = 100;
const MOST_GROWTH_MIB: f64 = 4.0;

pub(crate) fn run(sizes: &Sizes) -> Report {
    let title = format!("{} pairs from {THREADS} threads, deadlines an hour ahead", sizes.storm_pairs);
    let columns = ["resident before (MiB)", "after (MiB)", "peak (MiB)", "ns a pair and thread"];
    let mut report = Report::new(title, &columns);
    for (name, _) in CONTESTANTS {
        eprintln!("storm: {name}");
        let found = measure_apart(Section::Storm, name, sizes);
        let figure = |key| [number(&found, key)].into_iter().collect::<Samples>();
        report.row(*name, ["before", "after", "peak", "nanos"].map(figure).into());
    }
    for ours in [ThroughHandle::NAME, ThroughProducer::NAME] {
        let growth = report.median(ours, 1) - report.median(ours, 0);
        report.verdict(
            format!("{ours}: grows by less than {MOST_GROWTH_MIB} MiB"),
            format!("{growth:.2} MiB"),
            growth < MOST_GROWTH_MIB,
        );
    }
    report
}

fn measure<S: Service>(sizes: &Sizes) -> Value {
    let fired = FireCount::default();
    let service = S::start(fired.on_fire());
    let delays = HOUR + NANOS.start..HOUR + NANOS.end;
    let storm = |pairs: u64| {
        run_pairs(&service, THREADS, &delays, Length::Pairs(pairs / THREADS as u64)).nanos_per_pair
    };
    storm(sizes.storm_pairs / WARM_UP);
    let before = resident();
    let nanos = storm(sizes.storm_pairs);
    let after = resident();
    fired.check(&service, 0);
    let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / 1_048_576.0);
    json!({ "before": mib(before), "after": mib(after), "peak": mib(peak_resident()), "nanos": nanos })
}
