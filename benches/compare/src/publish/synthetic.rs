//! Invented results, for tests of the publishing.

use crate::case::Case;
use crate::results::{Column, Outcome, Results, Row};
use serde_json::json;
use std::collections::BTreeMap;
use tourbillon_book::figure::thousands;

const NAMES: [&str; 14] = [
    "engine, Handle",
    "engine, Handle, caller's now",
    "engine, Timer",
    "Mutex<BinaryHeap>",
    "Mutex<BTreeMap>",
    "Mutex<cascading wheel>, a shard a core",
    "tokio, Sleep",
    "tokio, alternative timer",
    "tokio-util, DelayQueue",
    "kestrel-timer",
    "async-io",
    "Netty, HashedWheelTimer",
    "JDK, ScheduledThreadPoolExecutor",
    "Go, runtime timers",
];
const EXPIRING: [&str; 12] = [
    "engine, own workers, across tick 65,536",
    "engine, own workers, tick 0.1 ms",
    "engine, inline, tick 0.1 ms",
    "engine, own workers",
    "engine, inline",
    "Mutex<BinaryHeap>",
    "Mutex<BTreeMap>",
    "Mutex<cascading wheel>, a shard a core",
    "tokio, tasks",
    "Netty, HashedWheelTimer",
    "JDK, ScheduledThreadPoolExecutor",
    "Go, runtime timers",
];
const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// Makes an outcome for tests, with one or more columns. A contestant has the same figures in each column.
pub(crate) fn outcome(workload: &str, case: &str, columns: &[&str], rows: &[(&str, &[f64])]) -> Outcome {
    let row = |&(name, figures): &(&str, &[f64])| {
        let numbers = columns.iter().map(|&key| (key.to_owned(), figures.to_vec()));
        Row { numbers: numbers.filter(|(_, figures)| !figures.is_empty()).collect(), ..empty(name) }
    };
    Outcome {
        workload: workload.to_owned(),
        operation: format!("what {workload} does"),
        case: Case::named(case),
        columns: columns.iter().map(|key| column(key)).collect(),
        rows: rows.iter().map(row).collect(),
        commit: None,
        processor: None,
    }
}

pub(crate) fn column(key: &str) -> Column {
    if let Some(size) = key.strip_prefix('p').and_then(|size| size.parse().ok()).filter(|size| *size >= 1_000)
    {
        return Column::new(key, thousands(size), "ns");
    }
    match key {
        "t1" => Column::new(key, "1 thread", "ns"),
        "t2" | "t8" => Column::new(key, format!("{} threads", &key[1..]), "ns"),
        "bytes" => Column::new(key, "a pending timer", "bytes"),
        "cpu" => Column::new(key, "CPU", "s"),
        "early" => Column::new(key, "early", ""),
        _ => Column::new(key, key, "ms"),
    }
}

/// Makes results for tests, with all workloads, and with the names and approximate figures of a real run.
pub(crate) fn results() -> Results {
    let cases = [
        timed("pair", "nothing pending", &["t1", "t2", "t8"], 20.0),
        timed("pair", "100,000 pending", &["t1", "t2", "t8"], 30.0),
        timed("pair", "1,000,000 pending", &["t1", "t2", "t8"], 40.0),
        timed("refresh", "100,000 pending", &["t1"], 25.0),
        timed("refresh", "1,000,000 pending", &["t1"], 60.0),
        timed("rearm", "10,000 connections", &["t1", "t2"], 11.0),
        timed("memory", "1,000,000 pending", &["bytes"], 30.0),
        timed("growth", "growth", &["p1000", "p10000", "p100000", "p1000000", "p10000000"], 30.0),
        expiry(),
    ];
    let fewer = outcome("expiry", "100,000 due over 1 s", &["p999"], &[("engine, inline", &[1.0])]);
    let mixed = [10_000, 100_000, 1_000_000].map(mixed);
    Results {
        machine: json!({ "processor": "a processor", "cores": 2, "governor": null }),
        versions: [("tokio", "1.54.0"), ("Netty", "4.2.1")]
            .map(|(name, version)| (name.into(), version.into()))
            .into(),
        scale: "full".to_owned(),
        seconds: 1_234,
        outcomes: cases.into_iter().chain([fewer]).chain(mixed).collect(),
    }
}

/// Makes a page for tests that has all blocks, each empty.
pub(crate) fn page() -> String {
    let block = |name: &str| format!("## {name}\n\n<!-- begin {name} -->\n<!-- end {name} -->\n");
    ["machine", "questions", "cautions", "losses", "index"].map(block).concat()
}

fn empty(name: &str) -> Row {
    Row {
        contestant: name.to_owned(),
        clock: String::new(),
        is_ours: name.starts_with("engine"),
        note: None,
        numbers: BTreeMap::new(),
        series: BTreeMap::new(),
    }
}

/// Makes an outcome for tests. The figures rise from contestant to contestant, and from column to column.
fn timed(workload: &str, case: &str, columns: &[&str], least: f64) -> Outcome {
    let mut outcome = outcome(workload, case, columns, &NAMES.map(|name| (name, [].as_slice())));
    for (at, row) in (0..).zip(&mut outcome.rows) {
        row.clock = if row.is_ours { "TSC, each arm" } else { "Instant, each arm" }.to_owned();
        if row.contestant == "kestrel-timer" {
            row.note = Some("has no such operation".to_owned());
            continue;
        }
        for (nth, column) in (0..).zip(columns) {
            let steep = if row.is_ours { 0.1 } else { 0.5 };
            let middle = least * 1.35_f64.powi(at) * (1.0 + steep * f64::from(nth));
            let rounds = [0.95, 1.0, 1.04, 1.02, 0.98 + 0.3 * f64::from(at % 3)].map(|part| middle * part);
            row.numbers.insert((*column).to_owned(), rounds.into());
        }
        if row.contestant == "Go, runtime timers" {
            row.numbers.remove("p10000000");
        }
    }
    outcome
}

fn expiry() -> Outcome {
    let columns = ["early", "p50", "p99", "p999", "max", "cpu"];
    let rows = EXPIRING.map(|name| (name, [].as_slice()));
    let mut outcome = outcome("expiry", "1,000,000 due over 2 s", &columns, &rows);
    outcome.case.timers = 1_000_000;
    for (at, row) in (0..).zip(&mut outcome.rows) {
        let slow = 1.12_f64.powi(at);
        row.numbers.insert("early".to_owned(), vec![0.0; 3]);
        for (nth, column) in (0..).zip(&columns[1..]) {
            row.numbers.insert(
                (*column).to_owned(),
                [1.0, 1.1, 1.05].map(|part| part * slow * f64::from(nth + 1)).into(),
            );
        }
        row.series.insert("quantile".to_owned(), vec![QUANTILES.to_vec(); 3]);
        row.series.insert("lateness".to_owned(), vec![rising(slow); 3]);
        let parts = (0..64).map(|part| f64::from(part) * 31.25).collect();
        row.series.insert("due_ms".to_owned(), vec![parts; 3]);
        for (name, height) in [("part_p50", 1.0), ("part_p99", 3.0), ("part_max", 7.0)] {
            let wave =
                (0..64).map(|part| slow * height * (1.2 + f64::from(part * part % 7) / 10.0)).collect();
            row.series.insert(name.to_owned(), vec![wave; 3]);
        }
    }
    outcome
}

fn mixed(rate: usize) -> Outcome {
    let case = format!("{} operations a second", thousands(rate));
    let rows: Vec<(&str, &[f64])> = EXPIRING[3..].iter().map(|name| (*name, [].as_slice())).collect();
    let mut outcome = outcome("mixed", &case, &["late_p99", "late_p999"], &rows);
    for (at, row) in (0..).zip(&mut outcome.rows) {
        let slow = 1.4_f64.powi(at) * f64::from(u32::try_from(rate).unwrap()).powf(0.2);
        row.series.insert("quantile".to_owned(), vec![QUANTILES.to_vec()]);
        row.series.insert("op_us".to_owned(), vec![rising(slow * 0.05)]);
        row.series.insert("late_ms".to_owned(), vec![rising(slow * 0.1)]);
        row.numbers.insert("late_p99".to_owned(), vec![slow]);
        row.numbers.insert("late_p999".to_owned(), vec![slow * 2.0]);
    }
    outcome
}

/// Returns a series that rises from `least`, with a figure for each quantile.
fn rising(least: f64) -> Vec<f64> {
    [1.0, 1.3, 2.2, 4.0, 9.0, 22.0].map(|part| part * least).into()
}
