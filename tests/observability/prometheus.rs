//! The metrics of an engine as text: their form, their numbers, and their description in the README.

use crate::engine_with_a_history;
use crate::page::Page;
use crate::support::{HOUR, MS};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tourbillon::{Builder, Fired, Lateness, Prometheus};

#[test]
fn a_known_history_gives_its_numbers() {
    let engine = engine_with_a_history();
    let page = Page::read(&engine.handle().stats().prometheus().to_string()).unwrap();
    let expected = [
        ("scheduled_total", 4.0),
        ("cancelled_total", 1.0),
        ("returned_total", 0.0),
        ("pending", 1.0),
        ("capacity", 64.0),
        ("full_total", 0.0),
        ("lane_full_total", 0.0),
        ("owned", 0.0),
        ("owned_fired_total", 1.0),
        ("owned_posted_total", 1.0),
        ("owned_postponed_total", 1.0),
        ("stall_after_seconds", 0.1),
        ("fired_total{shard=\"0\"}", 1.0),
        ("fired_total{shard=\"1\"}", 2.0),
        ("panics_total{shard=\"0\"}", 0.0),
        ("panics_total{shard=\"1\"}", 1.0),
        ("tickets{shard=\"0\"}", 1.0),
        ("tickets{shard=\"1\"}", 0.0),
        ("stale_tickets_total{shard=\"0\"}", 1.0),
        ("stale_tickets_total{shard=\"1\"}", 0.0),
        ("wakes_total{shard=\"0\"}", 0.0),
        ("takeovers_total{shard=\"0\"}", 0.0),
        ("stalls_total{shard=\"0\"}", 0.0),
        ("worst_stall_seconds{shard=\"0\"}", 0.0),
        ("behind_seconds{shard=\"0\"}", 0.0),
        ("queued_timers{shard=\"0\"}", 0.0),
        ("queued_timers{shard=\"1\"}", 0.0),
        ("queue_age_seconds{shard=\"0\"}", 0.0),
        ("handler_seconds_total{shard=\"1\"}", 0.0),
        ("pin_refused{shard=\"1\"}", 0.0),
        ("departures_total{shard=\"1\"}", 0.0),
        ("lateness_seconds_count{shard=\"0\"}", 1.0),
        ("lateness_seconds_count{shard=\"1\"}", 2.0),
        ("lateness_seconds_bucket{shard=\"1\",le=\"0.0001\"}", 1.0),
        ("lateness_seconds_bucket{shard=\"1\",le=\"0.00025\"}", 2.0),
        ("lateness_seconds_bucket{shard=\"1\",le=\"+Inf\"}", 2.0),
    ];
    for (series, value) in expected {
        assert_eq!(page.get(&format!("tourbillon_engine_{series}")), value, "{series}");
    }
    let sum = page.get("tourbillon_engine_lateness_seconds_sum{shard=\"1\"}");
    assert!((sum - 0.000_25).abs() < 0.000_005, "{sum}");
    assert!(page.get("tourbillon_engine_turns_total{shard=\"1\"}") > 0.0);
}

/// Each engine has each time series, for each of its shards.
#[test]
fn the_line_up_is_the_same_for_every_engine() {
    let families = |shards| {
        let engine = Builder::new().shards(shards).driven(|_: Fired<'_, ()>| {}).unwrap();
        let page = Page::read(&engine.handle().stats().prometheus().to_string()).unwrap();
        for (family, kind) in &page.families {
            let samples = page.samples.keys().filter(|series| match kind.as_str() {
                "histogram" => series.name == format!("{family}_count"),
                _ => series.name == *family,
            });
            let labels: BTreeSet<_> = samples.map(|series| series.labels.get("shard").cloned()).collect();
            let of_shards = (0..shards).map(|shard| Some(shard.to_string())).collect();
            assert!(labels == BTreeSet::from([None]) || labels == of_shards, "{family}: {labels:?}");
        }
        let buckets = page.samples.keys().filter(|series| series.name.ends_with("_bucket")).count();
        assert_eq!(buckets, shards * (Lateness::BOUNDS.len() + 1));
        page.families
    };
    assert_eq!(families(1), families(12));
}

#[test]
fn engines_are_told_apart_by_a_label_whatever_their_names() {
    let (one, other) = (engine_with_a_history(), engine_with_a_history());
    other.handle().schedule(HOUR, 7).unwrap();
    let names = ["\\ a \"quoted\"\nname, {shard=\"0\"}", ""];
    let (one, other) = (one.handle().stats(), other.handle().stats());
    let page = Page::read(&Prometheus::of([(names[0], &one), (names[1], &other)]).to_string()).unwrap();
    let scheduled: Vec<_> = page
        .samples
        .iter()
        .filter(|(series, _)| series.name == "tourbillon_engine_scheduled_total")
        .collect();
    assert_eq!(scheduled.len(), 2);
    for (series, &value) in scheduled {
        let name = &series.labels["engine"];
        assert_eq!(value, if name.is_empty() { 5.0 } else { 4.0 });
        assert!(names.contains(&name.as_str()), "{name}");
    }
    assert_eq!(Prometheus::of([]).to_string().lines().filter(|line| !line.starts_with("# ")).count(), 0);
}

/// Refusals are counted by their reasons. Timers that a shutdown returns are counted, too.
#[test]
fn refusals_and_returns_are_counted() {
    let mut engine = Builder::new().capacity(70).lane_capacity(64).driven(|_: Fired<'_, u32>| {}).unwrap();
    let scheduled = (0..100).take_while(|&n| engine.handle().schedule(HOUR, n).is_ok()).count();
    assert_eq!(scheduled, 64);
    engine.advance(MS);
    let more = (0..100).filter(|&n| engine.handle().schedule(HOUR, n).is_ok()).count();
    assert_eq!(more, 6);
    assert!(
        engine.handle().timer(1).is_err() && engine.handle().schedule_batch([(HOUR, 1), (HOUR, 2)]).is_err()
    );
    let stats = engine.handle().stats();
    assert_eq!((stats.lane_full, stats.engine_full, stats.pending, stats.capacity), (1, 96, 70, 70));
    assert_eq!(engine.handle().shutdown().len(), 70);
    assert!(engine.handle().schedule(HOUR, 1).is_err());
    let page = Page::read(&engine.handle().stats().prometheus().to_string()).unwrap();
    assert_eq!(page.get("tourbillon_engine_full_total"), 96.0);
    assert_eq!(page.get("tourbillon_engine_lane_full_total"), 1.0);
    assert_eq!(page.get("tourbillon_engine_returned_total"), 70.0);
}

/// A program with an engine and the service `tourbillond` may be scraped by one Prometheus. Only an engine's series
/// have this prefix.
#[test]
fn the_name_of_each_series_says_that_it_is_of_an_engine() {
    let engine = engine_with_a_history();
    let page = Page::read(&engine.handle().stats().prometheus().to_string()).unwrap();
    let names = page.families.iter().map(|(name, _)| name);
    let others: Vec<_> = names.filter(|name| !name.starts_with("tourbillon_engine_")).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// The guide has a table of the time series. Each series in the table exists under its name.
#[test]
fn the_guide_names_no_series_that_there_is_not() {
    let engine = engine_with_a_history();
    let page = Page::read(&engine.handle().stats().prometheus().to_string()).unwrap();
    let mut known: BTreeSet<&str> = page.families.iter().map(|(name, _)| name.as_str()).collect();
    known.extend(page.samples.keys().map(|series| series.name.as_str()));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/timeouts.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## What to watch\n").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let named: BTreeSet<&str> = section
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("tourbillon_"))
        .collect();
    assert!(named.len() >= 8, "{named:?}");
    assert!(named.is_subset(&known), "{:?}", named.difference(&known));
}

#[test]
fn the_clock_in_use_and_its_error_are_told_everywhere() {
    let engine = Builder::new().start(|_: Fired<'_, ()>| {}).unwrap();
    let (stats, health) = (engine.handle().stats(), engine.handle().health());
    assert_eq!(stats.clock.source, health.clock.source);
    assert!(["counter", "system"].contains(&stats.clock.source), "{:?}", stats.clock);
    let page = Page::read(&stats.prometheus().to_string()).unwrap();
    let series = format!("tourbillon_engine_clock{{source=\"{}\"}}", stats.clock.source);
    assert_eq!(page.get(&series).to_bits(), 1.0f64.to_bits());
    assert_eq!(page.get("tourbillon_engine_clock_behind_seconds").to_bits(), 0.0f64.to_bits());
    let seconds = stats.clock.ahead.as_secs_f64();
    assert_eq!(page.get("tourbillon_engine_clock_ahead_seconds").to_bits(), seconds.to_bits());
    let driven = Builder::new().driven(|_: Fired<'_, ()>| {}).unwrap();
    assert_eq!(driven.handle().stats().clock.source, "manual");
}
