//! Tests the public interface of calendars: runs through changes of clocks, short months and leap years, and texts that
//! are refused.

mod clocks;
mod days;
mod ends;
mod properties;
mod refusals;

use jiff::{SignedDuration, Timestamp};
use tourbillon_calendar::Calendar;

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn cron(expression: &str, zone: &str) -> Calendar {
    Calendar::cron(expression, zone).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the runs of a calendar after `from` up to `to`.
fn runs(calendar: &Calendar, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let runs: Vec<_> = calendar.after(from).take_while(|&run| run <= to).collect();
    assert!(runs.first().is_none_or(|&first| first > from) && runs.is_sorted_by(|one, next| one < next));
    runs
}

fn assert_runs(calendar: &Calendar, from: &str, to: &str, expected: &[&str]) {
    let expected: Vec<_> = expected.iter().map(|run| at(run)).collect();
    assert_eq!(runs(calendar, at(from), at(to)), expected, "{calendar:?}");
}
