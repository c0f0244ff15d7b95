//! Tests days: short months, leap years, and the signs of a cron expression.

use crate::{at, cron, runs};
use jiff::ToSpan;
use jiff::civil::{Date, Weekday, date, time};
use tourbillon_calendar::{Calendar, ShortMonth};

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

/// Compares each sign for days, such as `L-3`, with a function that describes the sign, for every day of 400 years.
/// After 400 years the calendar repeats.
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

/// Compares expressions in Quartz's notation with plain expressions of the same meaning.
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
