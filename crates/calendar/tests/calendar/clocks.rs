//! Tests calendars at changes of clocks.

use crate::{NANOSECOND, assert_runs, at, cron, runs};
use jiff::SignedDuration;
use jiff::civil::time;
use tourbillon_calendar::{Calendar, DstPolicy, ShortMonth};

/// A change of a zone's clocks, with the expected runs after `from` up to `to`. Each run is a day of the month and a
/// time, with the offset.
struct Change {
    zone: &'static str,
    month: &'static str,
    from: &'static str,
    to: &'static str,
    fixed: &'static str,
    vixie: &'static str,
    skip_gap: &'static str,
    hourly: &'static str,
    quarters: &'static str,
}

const CHANGES: [Change; 13] = [
    // The clocks change from 2:00 to 3:00.
    Change {
        zone: "Europe/Berlin",
        month: "2024-03-",
        from: "31T01:29+01",
        to: "31T03:30+02",
        fixed: "30 2 * * *",
        vixie: "31T03:00+02",
        skip_gap: "",
        hourly: "31T03:00+02",
        quarters: "31T01:30+01 31T01:45+01 31T03:00+02 31T03:15+02 31T03:30+02",
    },
    // The clocks change from 3:00 to 2:00.
    Change {
        zone: "Europe/Berlin",
        month: "2024-10-",
        from: "27T02:20+02",
        to: "27T03:00+01",
        fixed: "30 2 * * *",
        vixie: "27T02:30+02",
        skip_gap: "27T02:30+02",
        hourly: "27T02:00+01 27T03:00+01",
        quarters: "27T02:30+02 27T02:45+02 27T02:00+01 27T02:15+01 27T02:30+01 27T02:45+01 27T03:00+01",
    },
    // The clocks change from 2:00 to 3:00.
    Change {
        zone: "America/New_York",
        month: "2024-03-",
        from: "10T01:30-05",
        to: "10T04:00-04",
        fixed: "0 2 * * SUN",
        vixie: "10T03:00-04",
        skip_gap: "",
        hourly: "10T03:00-04 10T04:00-04",
        quarters: "10T01:45-05 10T03:00-04 10T03:15-04 10T03:30-04 10T03:45-04 10T04:00-04",
    },
    // The clocks change from 2:00 to 1:00.
    Change {
        zone: "America/New_York",
        month: "2024-11-",
        from: "03T00:59-04",
        to: "03T01:30-05",
        fixed: "0 1 * * *",
        vixie: "03T01:00-04",
        skip_gap: "03T01:00-04",
        hourly: "03T01:00-04 03T01:00-05",
        quarters: "03T01:00-04 03T01:15-04 03T01:30-04 03T01:45-04 03T01:00-05 03T01:15-05 03T01:30-05",
    },
    // The clocks change from 2:00 to 2:30.
    Change {
        zone: "Australia/Lord_Howe",
        month: "2024-10-",
        from: "06T00:59+10:30",
        to: "06T03:00+11",
        fixed: "15 2 * * *",
        vixie: "06T02:30+11",
        skip_gap: "",
        hourly: "06T01:00+10:30 06T03:00+11",
        quarters: "06T01:00+10:30 06T01:15+10:30 06T01:30+10:30 06T01:45+10:30 06T02:30+11 06T02:45+11 \
            06T03:00+11",
    },
    // The clocks change from 2:00 to 1:30.
    Change {
        zone: "Australia/Lord_Howe",
        month: "2024-04-",
        from: "07T00:59+11",
        to: "07T02:00+10:30",
        fixed: "45 1 7 4 *",
        vixie: "07T01:45+11",
        skip_gap: "07T01:45+11",
        hourly: "07T01:00+11 07T02:00+10:30",
        quarters: "07T01:00+11 07T01:15+11 07T01:30+11 07T01:45+11 07T01:30+10:30 07T01:45+10:30 \
            07T02:00+10:30",
    },
    // The clocks change from midnight to 1:00.
    Change {
        zone: "America/Sao_Paulo",
        month: "2018-11-",
        from: "03T23:30-03",
        to: "04T01:15-02",
        fixed: "@daily",
        vixie: "04T01:00-02",
        skip_gap: "",
        hourly: "04T01:00-02",
        quarters: "03T23:45-03 04T01:00-02 04T01:15-02",
    },
    // The clocks change from midnight to 23:00.
    Change {
        zone: "America/Sao_Paulo",
        month: "2018-02-",
        from: "17T23:20-02",
        to: "18T00:00-03",
        fixed: "30 23 * * *",
        vixie: "17T23:30-02",
        skip_gap: "17T23:30-02",
        hourly: "17T23:00-03 18T00:00-03",
        quarters: "17T23:30-02 17T23:45-02 17T23:00-03 17T23:15-03 17T23:30-03 17T23:45-03 18T00:00-03",
    },
    // The zone skips 30 December.
    Change {
        zone: "Pacific/Apia",
        month: "2011-12-",
        from: "29T23:30-10",
        to: "31T01:00+14",
        fixed: "0 12 30 * *",
        vixie: "31T00:00+14",
        skip_gap: "",
        hourly: "31T00:00+14 31T01:00+14",
        quarters: "29T23:45-10 31T00:00+14 31T00:15+14 31T00:30+14 31T00:45+14 31T01:00+14",
    },
    // The clocks change from 0:01 to 23:01.
    Change {
        zone: "America/St_Johns",
        month: "2006-10-",
        from: "28T23:29-02:30",
        to: "29T00:15-03:30",
        fixed: "0 0 * * *",
        vixie: "29T00:00-02:30",
        skip_gap: "29T00:00-02:30",
        hourly: "29T00:00-02:30 29T00:00-03:30",
        quarters: "28T23:30-02:30 28T23:45-02:30 29T00:00-02:30 28T23:15-03:30 28T23:30-03:30 \
            28T23:45-03:30 29T00:00-03:30 29T00:15-03:30",
    },
    // The clocks change from midnight to 1:00, for the last time.
    Change {
        zone: "Asia/Tehran",
        month: "2022-03-",
        from: "21T23:00+03:30",
        to: "22T01:00+04:30",
        fixed: "59 0 * * *",
        vixie: "22T01:00+04:30",
        skip_gap: "",
        hourly: "22T01:00+04:30",
        quarters: "21T23:15+03:30 21T23:30+03:30 21T23:45+03:30 22T01:00+04:30",
    },
    // The clocks change from 3:00 to 2:00, in Ramadan.
    Change {
        zone: "Africa/Casablanca",
        month: "2024-03-",
        from: "10T02:30+01",
        to: "10T03:00+00",
        fixed: "45 2 * * *",
        vixie: "10T02:45+01",
        skip_gap: "10T02:45+01",
        hourly: "10T02:00+00 10T03:00+00",
        quarters: "10T02:45+01 10T02:00+00 10T02:15+00 10T02:30+00 10T02:45+00 10T03:00+00",
    },
    // The clocks change from 23:00 to midnight, so the gap ends on another day.
    Change {
        zone: "America/Nuuk",
        month: "2024-03-",
        from: "30T22:30-02",
        to: "31T00:15-01",
        fixed: "30 23 30 * *",
        vixie: "31T00:00-01",
        skip_gap: "",
        hourly: "31T00:00-01",
        quarters: "30T22:45-02 31T00:00-01 31T00:15-01",
    },
];

#[test]
fn clocks_are_changed() {
    for change in CHANGES {
        let at = |text: &str| at(&format!("{}{text}", change.month));
        let assert_runs = |calendar: &Calendar, expected: &str| {
            let expected: Vec<_> = expected.split_whitespace().map(at).collect();
            assert_eq!(runs(calendar, at(change.from), at(change.to)), expected, "{calendar:?}");
        };
        let fixed = cron(change.fixed, change.zone);
        assert_runs(&fixed, change.vixie);
        assert_runs(&fixed.with_dst(DstPolicy::SkipGap), change.skip_gap);
        for policy in [DstPolicy::Vixie, DstPolicy::SkipGap] {
            assert_runs(&cron("@hourly", change.zone).with_dst(policy), change.hourly);
            assert_runs(&cron("*/15 * * * *", change.zone).with_dst(policy), change.quarters);
        }
    }
}

/// A zone skips a whole day. If the runs for two days come to the same instant, they are one run. The run for the third
/// day is another run.
#[test]
fn a_skipped_day_is_run_once() {
    let (from, to) = ("2011-12-29T00:00-10", "2012-01-01T00:00+14");
    let daily = [at("2011-12-31T00:00+14"), at("2012-01-01T00:00+14")];
    for policy in [DstPolicy::Vixie, DstPolicy::SkipGap] {
        assert_eq!(runs(&cron("0 0 * * *", "Pacific/Apia").with_dst(policy), at(from), at(to)), daily);
    }
    let noon = cron("0 12 * * *", "Pacific/Apia");
    assert_runs(&noon, from, to, &["2011-12-29T12:00-10", "2011-12-31T00:00+14", "2011-12-31T12:00+14"]);
    let noon = noon.with_dst(DstPolicy::SkipGap);
    assert_runs(&noon, from, to, &["2011-12-29T12:00-10", "2011-12-31T12:00+14"]);
}

/// Tests both edges of a gap in local time, to the nanosecond.
#[test]
fn a_gap_ends_once() {
    let end = at("2024-03-31T03:00+02");
    let next = at("2024-04-01T02:30+02");
    for expression in ["30 2 * * *", "0 2 * * *"] {
        let calendar = cron(expression, "Europe/Berlin");
        assert_eq!(calendar.next_after(at("2024-03-31T01:59:59.5+01")), Some(end));
        assert_eq!(calendar.next_after(end - NANOSECOND), Some(end));
        assert!(calendar.next_after(end) > Some(end + SignedDuration::from_hours(22)));
    }
    let skipping = cron("30 2 * * *", "Europe/Berlin").with_dst(DstPolicy::SkipGap);
    assert_eq!(skipping.next_after(end - NANOSECOND), Some(next));
}

/// Checks that a list of hours makes a calendar fixed, because the list names times of the day. Vixie's cron treats
/// such a list in the same way.
#[test]
fn a_list_of_hours_is_fixed() {
    let listed = cron("30 2,14 * * *", "Europe/Berlin");
    let (spring, autumn) =
        (("2024-03-30T12:00Z", "2024-04-01T00:00Z"), ("2024-10-26T13:00Z", "2024-10-27T22:00Z"));
    assert_runs(
        &listed,
        spring.0,
        spring.1,
        &["2024-03-30T14:30+01", "2024-03-31T03:00+02", "2024-03-31T14:30+02"],
    );
    assert_runs(&listed, autumn.0, autumn.1, &["2024-10-27T02:30+02", "2024-10-27T14:30+01"]);
    let skipping = listed.with_dst(DstPolicy::SkipGap);
    assert_runs(&skipping, spring.0, spring.1, &["2024-03-30T14:30+01", "2024-03-31T14:30+02"]);
    // A range of hours names them, too. Runs that come to the same instant are one run.
    let range = cron("0 1-3 * * *", "Europe/Berlin");
    assert_runs(
        &range,
        "2024-03-31T00:00+01",
        "2024-03-31T12:00+02",
        &["2024-03-31T01:00+01", "2024-03-31T03:00+02"],
    );
}

#[test]
fn a_range_from_sunday_to_sunday_is_a_sunday() {
    let sundays = cron("0 0 * * SUN", "UTC");
    for weekday in ["SUN-SUN", "sun-sun", "SUN-7", "0-SUN", "SUN-SUN/2", "+SUN-SUN", "SUN-SUN,0"] {
        let calendar = cron(&format!("0 0 * * {weekday}"), "UTC");
        let from = at("2024-01-01T00:00Z");
        assert!(calendar.after(from).take(60).eq(sundays.after(from).take(60)), "{weekday}");
    }
    let all = cron("0 0 * * 0-7", "UTC");
    assert_runs(&all, "2024-01-01T00:00Z", "2024-01-02T12:00Z", &["2024-01-02T00:00Z"]);
    // Without `+`, a day matches by the day or by the weekday. This holds although the day's field begins with `*`.
    // With `+`, both must match.
    let either = cron("0 0 */2 * MON", "UTC");
    assert_runs(
        &either,
        "2024-01-07T00:00Z",
        "2024-01-09T12:00Z",
        &["2024-01-08T00:00Z", "2024-01-09T00:00Z"],
    );
    let both = cron("0 0 */2 * +MON", "UTC");
    assert_runs(&both, "2024-01-07T00:00Z", "2024-01-15T12:00Z", &["2024-01-15T00:00Z"]);
}

/// Searches for runs from both halves of an overlap, where clocks show each time twice. One of the tested calendars has
/// its last run in the overlap.
#[test]
fn an_overlap_has_two_halves() {
    let fixed = cron("30 2 * * *", "Europe/Berlin");
    for within in
        ["2024-10-27T02:30+02", "2024-10-27T02:59+02", "2024-10-27T02:00+01", "2024-10-27T02:29:59.9+01"]
    {
        assert_eq!(fixed.next_after(at(within)), Some(at("2024-10-28T02:30+01")), "{within}");
    }
    let listed = cron("0 */20 2 27 10 ? 2024", "Europe/Berlin");
    assert_runs(
        &listed,
        "2024-10-27T02:30+02",
        "2026-01-01T00:00Z",
        &["2024-10-27T02:40+02", "2024-10-27T02:00+01", "2024-10-27T02:20+01", "2024-10-27T02:40+01"],
    );
    let two_hours = cron("0 */1 * * *", "America/New_York");
    assert_runs(
        &two_hours,
        "2024-11-03T00:00-04",
        "2024-11-03T02:30-05",
        &["2024-11-03T01:00-04", "2024-11-03T01:00-05", "2024-11-03T02:00-05"],
    );
}

#[test]
fn months_follow_the_policy() {
    let monthly = Calendar::monthly(31, ShortMonth::LastDay, time(2, 30, 0, 0), "Europe/Berlin").unwrap();
    let (from, to) = ("2024-03-01T00:00Z", "2024-05-01T00:00Z");
    assert_runs(&monthly, from, to, &["2024-03-31T03:00+02", "2024-04-30T02:30+02"]);
    let run = at("2024-04-30T02:30+02");
    assert_eq!(monthly.next_after(run - NANOSECOND), Some(run));
    let monthly = monthly.with_dst(DstPolicy::SkipGap);
    assert_runs(&monthly, from, to, &["2024-04-30T02:30+02"]);
    assert_eq!(monthly.dst(), DstPolicy::SkipGap);
    // The run is in the overlap of October, in its first half.
    let yearly = Calendar::yearly(10, 27, ShortMonth::Skip, time(2, 30, 0, 0), "Europe/Berlin").unwrap();
    assert_runs(&yearly, "2024-01-01T00:00Z", "2025-01-01T00:00Z", &["2024-10-27T02:30+02"]);
}
