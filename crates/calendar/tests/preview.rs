//! Tests previews: their runs agree with the search, and they name the clock changes.

use tourbillon_calendar::jiff::Timestamp;
use tourbillon_calendar::jiff::civil::time;
use tourbillon_calendar::{Calendar, ClockChange, DstPolicy, Occurrence, ShortMonth};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns the planned local time, the instant and the clock change of each occurrence.
fn texts(occurrences: &[Occurrence]) -> Vec<(String, Option<String>, Option<ClockChange>)> {
    occurrences
        .iter()
        .map(|occurrence| {
            let run = occurrence.run.as_ref().map(|run| run.instant.to_string());
            (occurrence.planned.to_string(), run, occurrence.change)
        })
        .collect()
}

fn line(
    planned: &str,
    run: &str,
    change: Option<ClockChange>,
) -> (String, Option<String>, Option<ClockChange>) {
    (planned.to_owned(), (!run.is_empty()).then(|| run.to_owned()), change)
}

#[test]
fn a_fixed_time_that_clocks_skip_is_moved_or_skipped() {
    let cron = Calendar::cron("30 2 * * *", "Europe/Zurich").unwrap();
    let day = at("2026-03-28T12:00:00Z");
    let moved = [
        line("2026-03-29T02:30:00", "2026-03-29T01:00:00Z", Some(ClockChange::Moved)),
        line("2026-03-30T02:30:00", "2026-03-30T00:30:00Z", None),
    ];
    assert_eq!(texts(&cron.preview(day, 2)), moved);
    let skipped = [
        line("2026-03-29T02:30:00", "", Some(ClockChange::Skipped)),
        line("2026-03-30T02:30:00", "2026-03-30T00:30:00Z", None),
        line("2026-03-31T02:30:00", "2026-03-31T00:30:00Z", None),
    ];
    assert_eq!(texts(&cron.with_dst(DstPolicy::SkipGap).preview(day, 2)), skipped);
}

#[test]
fn a_fixed_time_that_comes_twice_runs_once_and_says_so() {
    let cron = Calendar::cron("30 2 * * *", "Europe/Zurich").unwrap();
    let expected = [
        line("2026-10-25T02:30:00", "2026-10-25T00:30:00Z", Some(ClockChange::Doubled)),
        line("2026-10-26T02:30:00", "2026-10-26T01:30:00Z", None),
    ];
    assert_eq!(texts(&cron.preview(at("2026-10-24T12:00:00Z"), 2)), expected);
}

#[test]
fn a_repeating_rule_names_a_gap_once_and_runs_twice_in_a_fold() {
    let cron = Calendar::cron("*/30 * * * *", "Europe/Zurich").unwrap();
    let spring = [
        line("2026-03-29T01:30:00", "2026-03-29T00:30:00Z", None),
        line("2026-03-29T02:00:00", "", Some(ClockChange::Skipped)),
        line("2026-03-29T03:00:00", "2026-03-29T01:00:00Z", None),
        line("2026-03-29T03:30:00", "2026-03-29T01:30:00Z", None),
    ];
    assert_eq!(texts(&cron.preview(at("2026-03-29T00:10:00Z"), 3)), spring);
    let autumn = [
        line("2026-10-25T02:30:00", "2026-10-25T00:30:00Z", Some(ClockChange::Doubled)),
        line("2026-10-25T02:00:00", "2026-10-25T01:00:00Z", Some(ClockChange::Doubled)),
        line("2026-10-25T02:30:00", "2026-10-25T01:30:00Z", Some(ClockChange::Doubled)),
        line("2026-10-25T03:00:00", "2026-10-25T02:00:00Z", None),
    ];
    assert_eq!(texts(&cron.preview(at("2026-10-25T00:00:00Z"), 4)), autumn);
}

#[test]
fn the_31st_is_the_last_day_of_a_short_month() {
    let monthly = Calendar::monthly(31, ShortMonth::LastDay, time(9, 0, 0, 0), "Europe/Zurich").unwrap();
    let days: Vec<_> = texts(&monthly.preview(at("2026-01-31T12:00:00Z"), 4));
    let expected = [
        line("2026-02-28T09:00:00", "2026-02-28T08:00:00Z", None),
        line("2026-03-31T09:00:00", "2026-03-31T07:00:00Z", None),
        line("2026-04-30T09:00:00", "2026-04-30T07:00:00Z", None),
        line("2026-05-31T09:00:00", "2026-05-31T07:00:00Z", None),
    ];
    assert_eq!(days, expected);
}

#[test]
fn the_runs_of_a_preview_are_those_of_the_search() {
    for expression in ["*/7 * * * *", "30 1,2,3 * * *", "0 0 * * *", "*/20 2 * * *", "0 */5 * * *", "@hourly"]
    {
        for zone in ["Europe/Zurich", "Australia/Lord_Howe", "America/St_Johns", "UTC", "Pacific/Apia"] {
            for dst in [DstPolicy::Vixie, DstPolicy::SkipGap] {
                let calendar = Calendar::cron(expression, zone).unwrap().with_dst(dst);
                for from in ["2026-03-28T00:00:00Z", "2026-10-03T00:00:00Z", "2011-12-29T00:00:00Z"] {
                    let previewed = calendar.preview(at(from), 40);
                    let runs: Vec<_> = previewed.iter().filter_map(|one| Some(one.run?.instant)).collect();
                    let searched: Vec<_> = calendar.after(at(from)).take(40).collect();
                    assert_eq!(runs, searched, "{calendar}, {dst:?}, from {from}");
                }
            }
        }
    }
}
