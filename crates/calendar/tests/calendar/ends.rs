//! Tests single instants, the ends of time, and lists of years.

use crate::{NANOSECOND, at, cron};
use jiff::civil::time;
use jiff::{SignedDuration, Timestamp};
use tourbillon_calendar::{Calendar, DstPolicy, ShortMonth};

#[test]
fn once_is_once() {
    let moment = at("2030-01-01T00:00:00.5Z");
    let once = Calendar::once(moment);
    assert_eq!(once.next_after(Timestamp::MIN), Some(moment));
    assert_eq!(once.next_after(moment - NANOSECOND), Some(moment));
    assert_eq!(once.next_after(moment), None);
    assert_eq!((once.expression(), once.zone()), ("2030-01-01T00:00:00.5Z", "UTC"));
}

/// Checks that the next run is strictly after the instant of the search, even if only by a nanosecond. The instants lie
/// before and after 1970, before and after the year 1, and after the last year of croner's own search.
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
    // The zone's offset of that time is mean solar time, to the second.
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
    // Of these years, only 2000 is a leap year.
    let leap_days = cron("0 0 0 29 2 * 1999-2003,2100,4999-5000", "Europe/Berlin");
    assert_eq!(leap_days.after(Timestamp::MIN).collect::<Vec<_>>(), [at("2000-02-29T00:00+01")]);
    let all = cron("0 0 0 1 1 * 1-5000", "UTC");
    assert_eq!(all.next_after(Timestamp::MIN), Some(at("0001-01-01T00:00Z")));
    assert_eq!(all.next_after(at("5000-01-01T00:00Z")), None);
    // In each year the clocks skip this time, so the calendar never runs.
    for expression in ["30 2 * 3 0L", "*/30 2 * 3 0L"] {
        let never = cron(expression, "Europe/Berlin").with_dst(DstPolicy::SkipGap);
        assert_eq!(never.next_after(at("2024-01-01T00:00Z")), None);
    }
}
