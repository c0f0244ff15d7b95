//! A hundred thousand timers a second on a machine that does nothing else: how late they fire, by the length of the tick.
//!
//! As `lateness`, which see, with a tenth of its load.

use super::lateness::engine;
use crate::process::measure_apart;
use crate::report::{Report, Samples};
use crate::sizes::Sizes;
use crate::{Contestant, Section};
use serde_json::Value;
use std::time::Duration;
use tourbillon::Builder;

const MILLI: &str = "engine, own workers, tick 1 ms";
const MILLI_INLINE: &str = "engine, inline, tick 1 ms";
const FINE: &str = "engine, own workers, tick 0.1 ms";
const FINE_INLINE: &str = "engine, inline, tick 0.1 ms";

pub(crate) const CONTESTANTS: &[Contestant] = &[
    (MILLI, |sizes| at_a_lower_rate(sizes, Builder::new())),
    (MILLI_INLINE, |sizes| at_a_lower_rate(sizes, Builder::new().inline())),
    (FINE, |sizes| at_a_lower_rate(sizes, Builder::new().tick(TENTH))),
    (FINE_INLINE, |sizes| at_a_lower_rate(sizes, Builder::new().tick(TENTH).inline())),
];

const TENTH: Duration = Duration::from_micros(100);
/// Of the million over two seconds.
const PART: usize = 5;

/// A column's heading, and its key in what a child found.
const COLUMNS: [(&str, &str); 6] = [
    ("early", "early"),
    ("p50 (ms)", "p50"),
    ("p99 (ms)", "p99"),
    ("p99.9 (ms)", "p999"),
    ("max (ms)", "max"),
    ("CPU (s)", "cpu"),
];
const P99: usize = 2;
/// Beyond the tick.
const MOST_P99_MS: f64 = 0.2;

fn at_a_lower_rate(sizes: &Sizes, builder: Builder) -> Value {
    engine(&Sizes { many: sizes.many / PART, ..sizes.clone() }, builder)
}

pub(crate) fn run(sizes: &Sizes) -> Report {
    let mut figures = vec![vec![Samples::default(); COLUMNS.len()]; CONTESTANTS.len()];
    for round in 0..sizes.rounds {
        eprintln!("steady: round {} of {}", round + 1, sizes.rounds);
        for ((name, _), samples) in CONTESTANTS.iter().zip(&mut figures) {
            let found = measure_apart(Section::Steady, name, sizes);
            for (samples, (_, key)) in samples.iter_mut().zip(COLUMNS) {
                found[key].as_f64().into_iter().for_each(|figure| samples.push(figure));
            }
        }
    }
    let title = format!("{} timers due over {:?}", sizes.many / PART, sizes.window);
    let mut report = Report::new(title, &COLUMNS.map(|column| column.0));
    for ((name, _), samples) in CONTESTANTS.iter().zip(figures) {
        report.row(*name, samples);
    }
    for (ours, tick) in [(MILLI, 1.0), (MILLI_INLINE, 1.0), (FINE, 0.1), (FINE_INLINE, 0.1)] {
        let p99 = report.median(ours, P99);
        let most = tick + MOST_P99_MS;
        report.verdict(format!("{ours}: p99 below {most:.1} ms"), format!("{p99:.3}"), p99 < most);
    }
    report
}
