//! Tests of the public interface of calendars: runs through changes of clocks, short months and leap years, and
//! refusals.

use jiff::civil::{Date, DateTime, Weekday, date, time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use proptest::collection::btree_set;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::string::string_regex;
use std::collections::{BTreeSet, HashSet};
use std::error::Error;
use tourbillon_calendar::{Calendar, CalendarError, DstPolicy, ShortMonth};

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn cron(expression: &str, zone: &str) -> Calendar {
    Calendar::cron(expression, zone).unwrap_or_else(|error| panic!("{error}"))
}

/// The runs after `from` up to `to`.
fn runs(calendar: &Calendar, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let runs: Vec<_> = calendar.after(from).take_while(|&run| run <= to).collect();
    assert!(runs.first().is_none_or(|&first| first > from) && runs.is_sorted_by(|one, next| one < next));
    runs
}

fn assert_runs(calendar: &Calendar, from: &str, to: &str, expected: &[&str]) {
    let expected: Vec<_> = expected.iter().map(|run| at(run)).collect();
    assert_eq!(runs(calendar, at(from), at(to)), expected, "{calendar:?}");
}

// --- Clocks are changed ---

/// The runs around a change of clocks, after `from` up to `to`: days and times of one month, with offsets.
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
    // 2:00 becomes 3:00.
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
    // 3:00 becomes 2:00.
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
    // 2:00 becomes 3:00.
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
    // 2:00 becomes 1:00.
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
    // 2:00 becomes 2:30.
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
    // 2:00 becomes 1:30.
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
    // Midnight becomes 1:00.
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
    // Midnight becomes 23:00.
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
    // There is no 30 December.
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
    // 0:01 becomes 23:01.
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
    // Midnight becomes 1:00, for the last time.
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
    // 3:00 becomes 2:00, in Ramadan.
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
    // 23:00 becomes midnight, and the gap ends on another day.
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

/// Fixed runs of two days that come to one instant are one run; a run of the next day is not merged with them.
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

/// Tests the edges of a gap, to the nanosecond.
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

/// As in Vixie's cron, a list of hours names times of the day.
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
    // A range names its hours, too; runs that come to one instant are one run.
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
    // Without `+` a day matches by the day or the weekday, although the day begins with `*`; with `+` by both.
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

/// Searches from each half of an overlap, also if the calendar ends in it.
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
    // In the overlap of October.
    let yearly = Calendar::yearly(10, 27, ShortMonth::Skip, time(2, 30, 0, 0), "Europe/Berlin").unwrap();
    assert_runs(&yearly, "2024-01-01T00:00Z", "2025-01-01T00:00Z", &["2024-10-27T02:30+02"]);
}

// --- Days ---

#[test]
fn monthly_on_the_31st() {
    let monthly = |short| Calendar::monthly(31, short, time(12, 0, 0, 0), "UTC").unwrap();
    let year = |short| -> Vec<_> {
        runs(&monthly(short), at("2023-12-31T12:00Z"), at("2024-12-31T12:00Z"))
            .into_iter()
            .map(|run| run.to_string()[5..10].to_owned())
            .collect()
    };
    assert_eq!(year(ShortMonth::Skip), ["01-31", "03-31", "05-31", "07-31", "08-31", "10-31", "12-31"]);
    let last = "01-31 02-29 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31";
    assert_eq!(year(ShortMonth::LastDay).join(" "), last);
}

#[test]
fn leap_days() {
    let years = |calendar: &Calendar| -> Vec<_> {
        let all = runs(calendar, at("2096-01-01T00:00Z"), at("2104-12-31T00:00Z"));
        all.into_iter().map(|run| run.to_string()[..10].to_owned()).collect()
    };
    let yearly = |short| Calendar::yearly(2, 29, short, time(6, 0, 0, 0), "UTC").unwrap();
    assert_eq!(years(&yearly(ShortMonth::Skip)), ["2096-02-29", "2104-02-29"]);
    assert_eq!(years(&cron("0 6 29 2 *", "UTC")), ["2096-02-29", "2104-02-29"]);
    assert_eq!(
        years(&yearly(ShortMonth::LastDay)).join(" "),
        "2096-02-29 2097-02-28 2098-02-28 2099-02-28 2100-02-28 2101-02-28 2102-02-28 2103-02-28 2104-02-29"
    );
}

#[test]
fn a_hundred_years_of_months() {
    let count = |day, short| {
        let calendar = Calendar::monthly(day, short, time(23, 59, 59, 0), "America/New_York").unwrap();
        let all = runs(&calendar, at("1999-12-31T23:59:59-05"), at("2099-12-31T23:59:59-05"));
        all.len()
    };
    assert_eq!(count(1, ShortMonth::Skip), 1200);
    assert_eq!(count(29, ShortMonth::Skip), 1100 + 25);
    assert_eq!(count(30, ShortMonth::Skip), 1100);
    assert_eq!(count(31, ShortMonth::Skip), 700);
    assert_eq!(count(31, ShortMonth::LastDay), 1200);
}

/// Compares every day of 400 years, after which all days repeat, with the description of each sign.
#[test]
fn signs_of_days() {
    let workday = |day: Date| !matches!(day.weekday(), Weekday::Saturday | Weekday::Sunday);
    let nearest_to_15th = |day: Date| match date(day.year(), day.month(), 15).weekday() {
        Weekday::Saturday => day.day() == 14,
        Weekday::Sunday => day.day() == 16,
        _ => day.day() == 15,
    };
    let last_workday = |day: Date| {
        let rest = day.day() + 1..=day.days_in_month();
        workday(day) && !rest.into_iter().any(|later| workday(date(day.year(), day.month(), later)))
    };
    let is = |day: Date, weekday| day.weekday() == weekday;
    let from_end = |day: Date| day.days_in_month() - day.day();
    let signs: [(&str, &dyn Fn(Date) -> bool); 26] = [
        ("L-3 * *", &|day| from_end(day) == 3),
        ("L-27 * *", &|day| from_end(day) == 27),
        ("1,L-1,L * *", &|day| day.day() == 1 || from_end(day) < 2),
        ("L-2 * +SUN", &|day| from_end(day) == 2 && is(day, Weekday::Sunday)),
        ("L-2 2 SUN", &|day| day.month() == 2 && (from_end(day) == 2 || is(day, Weekday::Sunday))),
        ("* * FRI-MON", &|day| {
            !matches!(day.weekday(), Weekday::Tuesday | Weekday::Wednesday | Weekday::Thursday)
        }),
        ("* * 7-1", &|day| is(day, Weekday::Sunday) || is(day, Weekday::Monday)),
        ("* * fri-tue/2", &|day| {
            is(day, Weekday::Friday) || is(day, Weekday::Sunday) || is(day, Weekday::Tuesday)
        }),
        ("1 NOV-FEB *", &|day| day.day() == 1 && [11, 12, 1, 2].contains(&day.month())),
        ("30-2 * *", &|day| day.day() >= 30 || day.day() <= 2),
        ("5/10 * ?", &|day| [5, 15, 25].contains(&day.day())),
        ("L * *", &|day| day.day() == day.days_in_month()),
        ("LW * *", &last_workday),
        ("1,LW,15 * *", &|day| [1, 15].contains(&day.day()) || last_workday(day)),
        ("15W * *", &nearest_to_15th),
        ("1W 6 *", &|day| {
            day.month() == 6
                && match date(day.year(), 6, 1).weekday() {
                    Weekday::Saturday => day.day() == 3,
                    Weekday::Sunday => day.day() == 2,
                    _ => day.day() == 1,
                }
        }),
        ("* * FRI#2", &|day| is(day, Weekday::Friday) && (8..15).contains(&day.day())),
        ("* * MON#5", &|day| is(day, Weekday::Monday) && day.day() > 28),
        ("* * 5#L", &|day| is(day, Weekday::Friday) && day.day() + 7 > day.days_in_month()),
        ("* * sunL", &|day| is(day, Weekday::Sunday) && day.day() + 7 > day.days_in_month()),
        ("13 * 5", &|day| day.day() == 13 || is(day, Weekday::Friday)),
        ("13 * +5", &|day| day.day() == 13 && is(day, Weekday::Friday)),
        ("29 feb +mon", &|day| day.month() == 2 && day.day() == 29 && is(day, Weekday::Monday)),
        ("? 1,4-6,10-12/2 SAT-SUN", &|day| [1, 4, 5, 6, 10, 12].contains(&day.month()) && !workday(day)),
        ("*/10 * ?", &|day| [1, 11, 21, 31].contains(&day.day())),
        ("* * 0,7", &|day| is(day, Weekday::Sunday)),
    ];
    for (sign, matches) in signs {
        let calendar = cron(&format!("0 0 {sign}"), "UTC");
        let mut runs = calendar.after(at("1999-12-31T00:00Z"));
        for day in
            date(2000, 1, 1).series(1.day()).take_while(|day| day.year() < 2400).filter(|&day| matches(day))
        {
            let run = runs.next().map(|run| run.to_string());
            assert_eq!(run, Some(format!("{day}T00:00:00Z")), "{sign}");
        }
    }
}

/// Expressions of Quartz, and plain expressions that mean the same.
#[test]
fn words_of_quartz() {
    for (expression, other) in [
        ("0 0/5 * * * ?", "0 */5 * * * *"),
        ("0 3/20 22-4 ? * *", "0 3,23,43 22,23,0,1,2,3,4 * * *"),
        ("0 0 22-4/3 * * ?", "0 0 22,1,4 * * *"),
        ("0 50-10/5 * * * ?", "0 50,55,0,5,10 * * * *"),
        ("0 0 12 ? * FRI-MON", "0 0 12 * * 5,6,0,1"),
        ("0 0 12 ? NOV-FEB MON", "0 0 12 * 11,12,1,2 MON"),
        ("0 0 12 ? * 5/2", "0 0 12 * * 5"),
        ("@midnight", "0 0 * * *"),
        ("0 0 0 1 1 ? 2030/2", "0 0 0 1 1 ? 2030-5000/2"),
    ] {
        let runs =
            |expression| cron(expression, "UTC").after(at("2026-01-01T00:00Z")).take(500).collect::<Vec<_>>();
        assert_eq!(runs(expression), runs(other), "{expression}");
    }
}

// --- Ends ---

#[test]
fn once_is_once() {
    let moment = at("2030-01-01T00:00:00.5Z");
    let once = Calendar::once(moment);
    assert_eq!(once.next_after(Timestamp::MIN), Some(moment));
    assert_eq!(once.next_after(moment - NANOSECOND), Some(moment));
    assert_eq!(once.next_after(moment), None);
    assert_eq!((once.expression(), once.zone()), ("2030-01-01T00:00:00.5Z", "UTC"));
}

/// A run is strictly after the instant, to the nanosecond: on both sides of 1970 and of the year 1, and after the end
/// of croner's own search.
#[test]
fn instants_far_and_fine() {
    for (from, expected) in [
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z"),
        ("2024-01-01T00:00:00.999999999Z", "2024-01-01T00:00:01Z"),
        ("2023-12-31T23:59:59.000000001Z", "2024-01-01T00:00:00Z"),
        ("1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00Z"),
        ("1969-12-31T23:59:58.999999999Z", "1969-12-31T23:59:59Z"),
        ("9000-02-28T23:59:59.5Z", "9000-03-01T00:00:00Z"),
        ("-000044-03-14T23:59:59.5Z", "-000044-03-15T00:00:00Z"),
    ] {
        assert_eq!(cron("* * * * * *", "UTC").next_after(at(from)), Some(at(expected)), "{from}");
    }
    let new_year = cron("0 0 1 1 *", "Europe/Berlin");
    assert_eq!(new_year.next_after(at("8999-06-01T00:00Z")), Some(at("9000-01-01T00:00+01")));
    // Mean solar time, to the second.
    assert_eq!(new_year.next_after(at("1800-06-01T00:00Z")), Some(at("1801-01-01T00:00:00+00:53:28")));
    let rare = cron("0 0 29 2 +MON", "UTC");
    let years = rare.after(at("2024-01-01T00:00Z")).take(3).map(|run| run.to_string()[..4].to_owned());
    assert_eq!(years.collect::<Vec<_>>(), ["2044", "2072", "2112"]);
}

#[test]
fn time_ends() {
    let every_second = cron("* * * * * *", "UTC");
    assert_eq!(every_second.next_after(Timestamp::MAX), None);
    assert_eq!(every_second.after(Timestamp::MAX - SignedDuration::from_secs(10)).count(), 10);
    assert!(every_second.next_after(Timestamp::MIN).is_some());
    let zones = ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "Pacific/Pago_Pago"];
    for (zone, expression) in zones.iter().flat_map(|zone| ["0 0 1 1 *", "* * 1 1 *"].map(|it| (zone, it))) {
        let calendar = cron(expression, zone);
        assert_eq!(calendar.next_after(at("9999-06-01T00:00Z")), None, "{calendar}");
        assert_eq!(calendar.next_after(Timestamp::MAX), None, "{calendar}");
        assert!(calendar.next_after(Timestamp::MIN).is_some(), "{calendar}");
    }
    let monthly = Calendar::monthly(31, ShortMonth::LastDay, time(23, 59, 59, 999_999_999), "UTC").unwrap();
    assert_eq!(monthly.next_after(at("9999-11-30T23:59:59.999999999Z")), None);
}

#[test]
fn years_that_are_listed() {
    let calendar = cron("0 0 0 1 1 * 2020,2030-2032,5000", "UTC");
    let years: Vec<_> = calendar.after(Timestamp::MIN).map(|run| run.to_string()[..4].to_owned()).collect();
    assert_eq!(years, ["2020", "2030", "2031", "2032", "5000"]);
    // The leap years among them.
    let leap_days = cron("0 0 0 29 2 * 1999-2003,2100,4999-5000", "Europe/Berlin");
    assert_eq!(leap_days.after(Timestamp::MIN).collect::<Vec<_>>(), [at("2000-02-29T00:00+01")]);
    let all = cron("0 0 0 1 1 * 1-5000", "UTC");
    assert_eq!(all.next_after(Timestamp::MIN), Some(at("0001-01-01T00:00Z")));
    assert_eq!(all.next_after(at("5000-01-01T00:00Z")), None);
    // The time is in the gap of each year, so the calendar never runs.
    for expression in ["30 2 * 3 0L", "*/30 2 * 3 0L"] {
        let never = cron(expression, "Europe/Berlin").with_dst(DstPolicy::SkipGap);
        assert_eq!(never.next_after(at("2024-01-01T00:00Z")), None);
    }
}

// --- Refusals ---

#[test]
fn refusals_name_what_is_wrong() {
    let text = |expression: &str, zone: &str| Calendar::cron(expression, zone).unwrap_err().to_string();
    assert_eq!(text("", "UTC"), "the cron expression is empty");
    assert_eq!(text(" \t", "UTC"), "the cron expression is empty");
    assert_eq!(text("* * * * *", " "), "the name of the time zone is empty");
    assert_eq!(text("* * * * *", "Mars/Olympus"), r#"the time zone "Mars/Olympus" is unknown"#);
    assert_eq!(text("* * * * *", "Etc/Unknown"), r#"the time zone "Etc/Unknown" is unknown"#);
    for zone in ["localtime", "posixrules", "Factory", "LOCALTIME"] {
        let place = format!(
            r#"the time zone {zone:?} differs by machine; name that of a place, such as "Europe/Zurich""#
        );
        assert_eq!(text("* * * * *", zone), place);
    }
    for slip in ["Europe/Zurch", "europe/zuirch", "zurich", "Zürich", "Europe/ Zurich"] {
        let meant = format!(r#"the time zone {slip:?} is unknown; is "Europe/Zurich" meant?"#);
        assert_eq!(text("* * * * *", slip), meant);
    }
    let long = "x/".repeat(5_000);
    assert_eq!(text("* * * * *", &long), format!("the time zone {long:?} is unknown"));
    assert_eq!(text("* * *", "UTC"), r#""* * *" is no cron expression: it has 3 fields, not 5, 6 or 7"#);
    assert_eq!(
        text("0 25 * * *", "UTC"),
        r#""0 25 * * *" is no cron expression: the hour "25": number out of bounds"#
    );
    assert_eq!(text("0 0 30 2 *", "UTC"), r#"the cron expression "0 0 30 2 *" never fires"#);
    let unknown = Calendar::cron("* * * * *", "Mars/Olympus").unwrap_err();
    assert!(unknown.source().is_some());
    let month = |month, day| {
        Calendar::yearly(month, day, ShortMonth::Skip, time(0, 0, 0, 0), "UTC")
            .map_err(|error| error.to_string())
    };
    assert_eq!(month(13, 1).unwrap_err(), "the month is 13, but must be from 1 to 12");
    assert_eq!(month(2, 30).unwrap_err(), "the day is 30, but must be from 1 to 29");
    assert_eq!(month(4, 31).unwrap_err(), "the day is 31, but must be from 1 to 30");
    assert!(month(12, 31).is_ok() && month(0, 1).is_err() && month(1, i8::MIN).is_err());
    for day in [i8::MIN, -1, 0, 32, i8::MAX] {
        let error = Calendar::monthly(day, ShortMonth::LastDay, time(0, 0, 0, 0), "UTC").unwrap_err();
        assert!(
            matches!(error, CalendarError::OutOfBounds { argument: "day", value, most: 31 } if value == day)
        );
    }
}

/// Expressions that croner would accept with another meaning, or search for a long time.
#[test]
fn what_is_no_expression() {
    for expression in [
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-61 * * * *",
        "61-5 * * * *",
        "5-1/0 * * * *",
        "* * * * FRI-MON#2",
        "*/0 * * * *",
        "*/60 * * * *",
        "*/90 * * * *",
        "5-10/60 * * * *",
        "* */24 * * *",
        "* * */32 * *",
        "* * * */13 *",
        "* * * * */8",
        "*/61 * * * * *",
        "60/5 * * * *",
        "10/0 * * * *",
        "10/60 * * * *",
        "* * L/2 * *",
        "* * L-0 * *",
        "* * L-28 * *",
        "* * L- * *",
        "* * L-3W * *",
        "* * 3-L * *",
        "* * L-3-2 * *",
        "0 0 0 1 1 * 2030-2020",
        "/5 * * * *",
        "1- * * * *",
        "-1 * * * *",
        "1,,2 * * * *",
        ", * * * *",
        "* , * * *",
        "1MON * * * *",
        "* * * MON *",
        "* * 1 JANUARY *",
        "* * 15W3 * *",
        "* * 1-5W * *",
        "* * L,LW * *",
        "* * * * L",
        "* * * * +",
        "* * * * 1#6",
        "* * * * 1#0",
        "? * * * *",
        "@daily @daily",
        "@reboot",
        "@",
        "0 0 * * @daily",
        "0 0 0 1 1 * 5001",
        "0 0 0 1 1 * 0",
        "0 0 0 1 1 * 2024 1",
        "* * * * ſun",
        "@daıly",
        "* * * * \u{661}",
        "99999999999 * * * *",
        "\0 * * * *",
    ] {
        let error = Calendar::cron(expression, "UTC").expect_err(expression);
        assert!(matches!(error, CalendarError::Syntax { .. }), "{expression}: {error:?}");
        assert!(error.to_string().starts_with(&format!("{expression:?} is no cron expression: ")), "{error}");
    }
    for expression in [
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "0 0 1 * +MON#5",
        "0 0 0 29 2 * 2100",
        "0 0 30W 2 *",
        "* * 31 4 +SUN",
    ] {
        let error = Calendar::cron(expression, "UTC").expect_err(expression);
        assert!(matches!(error, CalendarError::NeverFires { .. }), "{expression}: {error:?}");
    }
}

#[test]
fn nicknames_and_capitals_do_not_matter() {
    for (nickname, line) in [
        ("@Yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        (" @HOURLY ", "0 * * * *"),
        ("0 0 * JAN-mar Mon-7", "0 0 * 1-3 1-7"),
    ] {
        let from = at("2024-02-29T12:34:56Z");
        let times = |expression| cron(expression, "Europe/Berlin").after(from).take(10).collect::<Vec<_>>();
        assert_eq!(times(nickname), times(line), "{nickname}");
    }
}

#[test]
fn equal_are_those_made_alike() {
    fn is_shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let calendar = cron("0 0 * * *", "Europe/Berlin");
    is_shared(&calendar);
    assert_eq!(calendar, cron("0 0 * * *", "europe/berlin"));
    assert_ne!(calendar, cron("0 0 * * *", "Europe/Paris"));
    assert_ne!(calendar, cron("0 1 * * *", "Europe/Berlin"));
    assert_ne!(calendar, calendar.clone().with_dst(DstPolicy::SkipGap));
    assert_eq!(
        format!("{calendar:?}"),
        r#"Calendar { expression: "0 0 * * *", zone: "Europe/Berlin", dst: Vixie }"#
    );
    let words = |short| Calendar::monthly(31, short, time(9, 0, 0, 0), "UTC").unwrap().to_string();
    assert_eq!(words(ShortMonth::Skip), "monthly on day 31 at 09:00:00 in UTC");
    assert_eq!(words(ShortMonth::LastDay), "monthly on day 31 or the last at 09:00:00 in UTC");
}

// --- Any ---

/// Lists of the numbers of each field; `None` is `*`.
#[derive(Clone, Debug)]
struct Fields {
    minutes: Option<BTreeSet<i8>>,
    hours: Option<BTreeSet<i8>>,
    days: Option<BTreeSet<i8>>,
    months: Option<BTreeSet<i8>>,
    weekdays: Option<BTreeSet<i8>>,
}

impl Fields {
    fn expression(&self) -> String {
        let list = |field: &Option<BTreeSet<i8>>| match field {
            Some(values) => values.iter().map(i8::to_string).collect::<Vec<_>>().join(","),
            None => "*".to_owned(),
        };
        [&self.minutes, &self.hours, &self.days, &self.months, &self.weekdays].map(list).join(" ")
    }

    fn is_fixed(&self) -> bool {
        self.minutes.is_some() && self.hours.is_some()
    }

    fn matches(&self, shown: DateTime) -> bool {
        let has =
            |field: &Option<BTreeSet<i8>>, value| field.as_ref().is_none_or(|values| values.contains(&value));
        let day = has(&self.days, shown.day());
        let weekday = has(&self.weekdays, shown.weekday().to_sunday_zero_offset());
        let either = self.days.is_some() && self.weekdays.is_some();
        has(&self.minutes, shown.minute())
            && has(&self.hours, shown.hour())
            && has(&self.months, shown.month())
            && (day && weekday || either && (day || weekday))
    }

    /// The runs after `from` up to `to`, by a check of the clock each minute from two days before.
    fn runs(&self, zone: &TimeZone, policy: DstPolicy, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
        let mut minute = Timestamp::from_second(from.as_second().div_euclid(60) * 60).unwrap()
            - SignedDuration::from_hours(48);
        let mut seen = HashSet::new();
        let mut runs = Vec::new();
        let mut expected = zone.to_datetime(minute);
        while minute <= to {
            let shown = zone.to_datetime(minute);
            let mut skipped = expected.series(1.minute()).take_while(|&minute| minute < shown);
            let made_up =
                self.is_fixed() && policy == DstPolicy::Vixie && skipped.any(|minute| self.matches(minute));
            let is_first = seen.insert(shown);
            let is_due = self.matches(shown) && (is_first || !self.is_fixed());
            if (made_up || is_due) && minute > from {
                runs.push(minute);
            }
            expected = shown + MINUTE;
            minute += MINUTE;
        }
        runs
    }
}

fn fields() -> impl Strategy<Value = Fields> {
    let minutes = prop_oneof![
        4 => btree_set(select(vec![0_i8, 1, 15, 30, 45, 59]), 1..3).prop_map(Some),
        1 => btree_set(0_i8..60, 1..4).prop_map(Some),
        1 => Just(None),
    ];
    let hours = prop_oneof![
        3 => btree_set(select(vec![0_i8, 1, 2, 3, 23]), 1..3).prop_map(Some),
        1 => btree_set(0_i8..24, 1..4).prop_map(Some),
        1 => Just(None),
    ];
    let days = option::weighted(0.3, btree_set(1_i8..=31, 1..8));
    let months = option::weighted(0.2, btree_set(1_i8..=12, 1..8));
    let weekdays = option::weighted(0.3, btree_set(0_i8..=6, 1..4));
    (minutes, hours, days, months, weekdays).prop_map(|(minutes, hours, days, months, weekdays)| Fields {
        minutes,
        hours,
        days,
        months,
        weekdays,
    })
}

const ZONES: [&str; 12] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Tehran",
    "Africa/Casablanca",
    "Pacific/Apia",
    "America/St_Johns",
    "America/Nuuk",
    "Antarctica/Troll",
    "Asia/Gaza",
];

/// An instant in the years from 2000 to 2060, mostly two days at most before a change of clocks.
fn somewhere(zone: &TimeZone, second: i64, before: i64, nanos: i32) -> Timestamp {
    let about = Timestamp::from_second(second).unwrap();
    let change = zone.following(about).next().map_or(about, |change| change.timestamp());
    change - SignedDuration::new(before, nanos)
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn as_a_clock_shows_it(
        fields in fields(),
        zone in select(&ZONES[..]),
        second in 946_684_800_i64..2_840_140_800,
        before in -7200_i64..172_800,
        nanos in select(vec![0, 1, 500_000_000]),
        policy in select(vec![DstPolicy::Vixie, DstPolicy::SkipGap]),
    ) {
        let expression = fields.expression();
        let calendar = match Calendar::cron(&expression, zone) {
            Ok(calendar) => calendar.with_dst(policy),
            Err(error) => {
                // An expression with days that none of the months has.
                prop_assert!(matches!(error, CalendarError::NeverFires { .. }), "{}", error);
                return Ok(());
            }
        };
        let zone = TimeZone::get(zone).unwrap();
        let from = somewhere(&zone, second, before, nanos);
        let to = from + SignedDuration::from_hours(72);
        let expected = fields.runs(&zone, policy, from, to);
        prop_assert_eq!(runs(&calendar, from, to), expected.clone(), "{} from {}", calendar, from);
        for &run in &expected {
            prop_assert_eq!(calendar.next_after(run - NANOSECOND), Some(run));
            let next = expected.iter().copied().find(|&next| next > run);
            prop_assert!(next.is_none() || calendar.next_after(run + NANOSECOND) == next);
        }
    }
}

/// A text that is mostly a valid expression.
fn plausible() -> impl Strategy<Value = String> {
    let small = "(\\*|[0-5]?[0-9]|\\*/[1-9]|[0-4]-[5-9]|[0-9],1[0-9])";
    let hour = "(\\*|1?[0-9]|\\*/[0-9]{1,5}|[0-4]-[5-9]/2|1,2)";
    let day = "(\\*|\\?|L|LW|[12]?[1-9]W?|29|3[01]|1-9/2)";
    let month = "(\\*|[1-9]|1[0-2]|FEB|mar-Jun)";
    let weekday = "(\\*|\\?|\\+?[0-7](#[1-5L]|L)?|MON-FRI|sat-sun)";
    let minutes = format!("{small} {hour} {day} {month} {weekday}");
    let years = "(\\*|[0-9]{4}|[1-9][0-9]-2[0-9]{3}/7)";
    string_regex(&format!("({minutes}|{small} {minutes}|{small} {minutes} {years})")).unwrap()
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn no_text_panics(
        expression in prop_oneof![
            1 => ".{0,30}",
            1 => "[0-9*/,LWADMNO#?@+ -]{0,20}",
            1 => "([0-9*?L]{1,2}([-/#][0-9L]{1,2})?[W,]? ?){4,8}",
            3 => plausible(),
        ],
        zone in prop_oneof![
            4 => select(&ZONES[..]).prop_map(str::to_owned),
            1 => ".{0,12}",
        ],
        instant in prop_oneof![
            Just(Timestamp::MIN),
            Just(Timestamp::MAX),
            (Timestamp::MIN.as_second()..Timestamp::MAX.as_second(), 0..1_000_000_000)
                .prop_map(|(second, nanos)| Timestamp::new(second, nanos).unwrap()),
        ],
    ) {
        match Calendar::cron(&expression, &zone) {
            Ok(calendar) => {
                let mut last = instant;
                for run in calendar.after(instant).take(5) {
                    prop_assert!(run > last, "{}: {} after {}", calendar, run, last);
                    last = run;
                }
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
