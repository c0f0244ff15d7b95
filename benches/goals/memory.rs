//! Resident bytes for each pending timer with its 16-byte payload, each contestant in a fresh process.

use crate::baselines::{LazyHeap, Locked, Tree};
use crate::common::{
    Chance, FireCount, NANOS, Service, TICKS, ThroughHandle, Timers, Wheel256, fill, payload,
};
use crate::process::{measure_apart, number, resident};
use crate::report::{Report, Samples};
use crate::sizes::Sizes;
use crate::{Contestant, Section};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) const CONTESTANTS: &[Contestant] = &[
    (ThroughHandle::NAME, service::<ThroughHandle>),
    (<Locked<LazyHeap> as Service>::NAME, service::<Locked<LazyHeap>>),
    (<Locked<Tree> as Service>::NAME, service::<Locked<Tree>>),
    (Wheel256::NAME, wheel),
];

const MOST_BYTES: f64 = 56.0;

pub(crate) fn run(sizes: &Sizes) -> Report {
    let mut figures = vec![Samples::default(); CONTESTANTS.len()];
    for round in 0..sizes.rounds {
        eprintln!("memory: round {} of {}", round + 1, sizes.rounds);
        for ((name, _), samples) in CONTESTANTS.iter().zip(&mut figures) {
            let found = measure_apart(Section::Memory, name, sizes);
            samples.push(number(&found, "bytes") / sizes.many as f64);
        }
    }
    let mut report = Report::new(
        format!("Resident memory with {} timers pending, threads and all", sizes.many),
        &["bytes a timer"],
    );
    for ((name, _), samples) in CONTESTANTS.iter().zip(figures) {
        report.row(*name, vec![samples]);
    }
    let bytes = report.median(ThroughHandle::NAME, 0);
    report.verdict(
        format!("engine: below {MOST_BYTES} bytes a timer"),
        format!("{bytes:.1}"),
        bytes < MOST_BYTES,
    );
    report
}

fn service<S: Service>(sizes: &Sizes) -> Value {
    let before = resident();
    let fired = FireCount::default();
    let service = S::start(fired.on_fire());
    fill(&service, sizes.many, &NANOS, sizes.settle + Duration::from_millis(50));
    let after = resident();
    fired.check(&service, sizes.many);
    growth(before, after)
}

fn wheel(sizes: &Sizes) -> Value {
    let before = resident();
    let mut wheel = Wheel256::new(tourbillon::Tick(0));
    let mut chance = Chance::new(1);
    for n in 0..sizes.many as u64 {
        wheel.schedule(chance.within(&TICKS), payload(n));
    }
    let after = resident();
    assert_eq!(wheel.len(), sizes.many);
    growth(before, after)
}

fn growth(before: Option<u64>, after: Option<u64>) -> Value {
    json!({ "bytes": before.zip(after).map(|(before, after)| after.saturating_sub(before)) })
}
