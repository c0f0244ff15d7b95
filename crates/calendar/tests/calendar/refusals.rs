//! Tests expressions that are refused, and expressions that mean the same.

use crate::{at, cron};
use jiff::civil::time;
use std::error::Error;
use tourbillon_calendar::{Calendar, CalendarError, DstPolicy, ShortMonth};

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
    assert_eq!(text("* * *", "UTC"), r#""* * *" is not a cron expression: it has 3 fields, not 5, 6 or 7"#);
    assert_eq!(
        text("0 25 * * *", "UTC"),
        r#""0 25 * * *" is not a cron expression: the hour "25": number out of bounds"#
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

/// Checks that expressions are refused that croner would misread, or on which croner would search for a long time.
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
        assert!(
            error.to_string().starts_with(&format!("{expression:?} is not a cron expression: ")),
            "{error}"
        );
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
