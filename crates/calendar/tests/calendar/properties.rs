//! Compares random cron expressions in random zones with a clock that is read minute by minute.

use crate::{MINUTE, NANOSECOND, runs};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use proptest::collection::btree_set;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::string::string_regex;
use std::collections::{BTreeSet, HashSet};
use tourbillon_calendar::{Calendar, CalendarError, DstPolicy};

/// The numbers that each field of a cron expression permits. `None` stands for `*`.
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

    /// Returns the expected runs after `from` up to `to`. Reads the zone's clock at every minute, beginning two days
    /// before `from`.
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

/// Returns an instant of the years 2000 to 2060, mostly within two days before a change of the zone's clocks.
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
                // The expression names days that do not exist in any of its months.
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

/// Makes a text that is mostly a valid cron expression.
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
