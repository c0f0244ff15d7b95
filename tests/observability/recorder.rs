//! The metrics of an engine, as the `metrics` facade gets them.

use crate::engine_with_a_history;
use crate::page::Page;
use crate::support::lock;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tourbillon::Stats;

/// A metric's kind, name and labels.
type Name = (&'static str, String, Vec<(String, String)>);

/// A metric's kind, name, unit and help text.
type Description = (&'static str, String, Option<Unit>, String);

/// A metrics recorder that keeps all values in memory.
#[derive(Clone, Default)]
struct Tally {
    values: Arc<Mutex<BTreeMap<Name, f64>>>,
    described: Arc<Mutex<Vec<Description>>>,
}

struct Cell {
    name: Name,
    tally: Tally,
}

impl Cell {
    fn set(&self, value: f64) {
        lock(&self.tally.values).insert(self.name.clone(), value);
    }
}

impl CounterFn for Cell {
    fn increment(&self, _: u64) {
        panic!("a snapshot increments nothing");
    }

    fn absolute(&self, value: u64) {
        self.set(value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        panic!("a snapshot increments nothing");
    }

    fn decrement(&self, _: f64) {
        panic!("a snapshot decrements nothing");
    }

    fn set(&self, value: f64) {
        self.set(value);
    }
}

impl Tally {
    fn cell(&self, kind: &'static str, key: &Key) -> Arc<Cell> {
        let labels = key.labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
        Arc::new(Cell { name: (kind, key.name().to_owned(), labels), tally: self.clone() })
    }

    fn describe(&self, kind: &'static str, name: &KeyName, unit: Option<Unit>, help: &SharedString) {
        lock(&self.described).push((kind, name.as_str().to_owned(), unit, help.to_string()));
    }
}

impl Recorder for Tally {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("counter", &name, unit, &help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("gauge", &name, unit, &help);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("no histogram can be set");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell("counter", key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell("gauge", key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("no histogram can be set");
    }
}

/// The recorder gets each sample of the Prometheus page under its name and labels, except the lateness. The recorder
/// gets nothing else.
#[test]
fn the_facade_gets_what_the_page_shows() {
    let stats = engine_with_a_history().handle().stats();
    let tally = Tally::default();
    metrics::with_local_recorder(&tally, || stats.record());
    let mut recorded = std::mem::take(&mut *lock(&tally.values));
    for shard in ["0", "1"] {
        let lateness = |quantile: &str| {
            let labels = [("shard", shard), ("quantile", quantile)];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
            ("gauge", "tourbillon_engine_lateness_seconds".to_owned(), labels)
        };
        let quantiles = ["0.5", "0.99", "0.999", "1"].map(|q| recorded.remove(&lateness(q)).expect(q));
        let lateness = stats.shards[shard.parse::<usize>().unwrap()].lateness;
        let expected = [lateness.p50, lateness.p99, lateness.p999, lateness.max];
        assert_eq!(quantiles, expected.map(|time| time.as_secs_f64()));
    }
    let page = Page::read(&stats.prometheus().to_string()).unwrap();
    for (series, value) in &page.samples {
        if series.name.starts_with("tourbillon_engine_lateness_seconds") {
            continue;
        }
        let is_counter = series.name.ends_with("_total") && !series.name.ends_with("_seconds_total");
        let name = (
            if is_counter { "counter" } else { "gauge" },
            series.name.clone(),
            series.labels.clone().into_iter().collect(),
        );
        assert_eq!(recorded.remove(&name), Some(*value), "{name:?}");
    }
    assert!(recorded.is_empty(), "{recorded:?}");
}

#[test]
fn engines_are_told_apart_by_a_label() {
    let stats = engine_with_a_history().handle().stats();
    let tally = Tally::default();
    metrics::with_local_recorder(&tally, || {
        stats.record_as("http");
        stats.record_as(String::from("jobs"));
    });
    let values = lock(&tally.values);
    for engine in ["http", "jobs"] {
        let is_its = |labels: &[(String, String)]| labels[0] == ("engine".to_owned(), engine.to_owned());
        assert_eq!(values.keys().filter(|(_, _, labels)| is_its(labels)).count(), values.len() / 2);
    }
}

#[test]
fn each_series_is_described_once_with_its_unit() {
    let tally = Tally::default();
    metrics::with_local_recorder(&tally, Stats::describe);
    let described = lock(&tally.described);
    let text = engine_with_a_history().handle().stats().prometheus().to_string();
    let page = Page::read(&text).unwrap();
    assert_eq!(described.len(), page.families.len());
    for ((kind, name, unit, help), (family, of_page)) in described.iter().zip(&page.families) {
        assert_eq!(name, family);
        let is_time = name.contains("_seconds");
        assert_eq!(*unit, Some(if is_time { Unit::Seconds } else { Unit::Count }), "{name}");
        assert_eq!(*kind == "counter", of_page == "counter" && !is_time, "{name}");
        assert!(text.contains(&format!("# HELP {name} {help}\n")));
    }
}
