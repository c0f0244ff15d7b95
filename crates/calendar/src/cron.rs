//! Cron expressions, and the civil times that they name.
//!
//! croner parses the expression and decides which days of a year match. The search itself is in this module, since
//! croner's own search ends in the year 5000 and in gaps above two hours. This module also refuses expressions that
//! croner accepts although they are not proper cron expressions.

use crate::CalendarError;
use croner::parser::CronParser;
use croner::{Cron as Parsed, CronComponent, CronPattern, Weekday};
use jiff::civil::{Date, DateTime, Time};

/// The fields, the names that may stand in them, and the longest step.
const FIELDS: [(&str, &[&str], u32); 7] = [
    ("second", &[], 59),
    ("minute", &[], 59),
    ("hour", &[], 23),
    ("day of the month", &["?", "L"], 31),
    ("month", &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], 12),
    ("weekday", &["?", "SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], 7),
    ("year", &[], 4999),
];
/// The last of the fields that name a time of the day.
const HOUR: usize = 2;
const DAY: usize = 3;
const WEEKDAY: usize = 5;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Cron {
    seconds: Values,
    minutes: Values,
    hours: Values,
    days: Days,
    is_fixed: bool,
}

impl Cron {
    pub(super) fn parse(expression: &str) -> Result<Self, CalendarError> {
        let syntax = |fault| CalendarError::Syntax { expression: expression.to_owned(), fault };
        let fields = fields(expression).map_err(syntax)?;
        let all: Vec<&str> = fields.iter().map(|(_, field)| &**field).collect();
        // A nickname has no fields.
        let understood = if all.is_empty() { expression.to_owned() } else { all.join(" ") };
        let parsed = CronParser::new().parse(&understood).map_err(|error| syntax(blame(&fields, &error)))?;
        let is_fixed = match &fields[..] {
            [] => !expression.trim().eq_ignore_ascii_case("@hourly"),
            fields => fields.iter().all(|(index, field)| *index > HOUR || !field.starts_with('*')),
        };
        let Parsed { pattern, .. } = parsed;
        let cron = Self {
            seconds: Values::of(&pattern.seconds),
            minutes: Values::of(&pattern.minutes),
            hours: Values::of(&pattern.hours),
            days: Days::new(pattern),
            is_fixed,
        };
        if cron.at_or_after(DateTime::MIN).is_none() {
            return Err(CalendarError::NeverFires { expression: expression.to_owned() });
        }
        Ok(cron)
    }

    /// Whether the expression is fixed: neither second nor minute nor hour begins with `*`.
    pub(super) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// The first civil time of the expression that is not before `from`.
    pub(super) fn at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let day = self.days.at_or_after(from.date())?;
        if day > from.date() {
            return Some(day.to_datetime(self.time_at_or_after(Time::MIN)?));
        }
        if let Some(time) = self.time_at_or_after(from.time()) {
            return Some(day.to_datetime(time));
        }
        let day = self.days.at_or_after(day.tomorrow().ok()?)?;
        Some(day.to_datetime(self.time_at_or_after(Time::MIN)?))
    }

    fn time_at_or_after(&self, from: Time) -> Option<Time> {
        let (hour, minute) = (from.hour(), from.minute());
        let second = from.second() + i8::from(from.subsec_nanosecond() > 0);
        let within_hour = |minute, second| {
            let same = self.minutes.has(minute).then(|| self.seconds.at_or_after(second)).flatten();
            same.map(|second| (minute, second))
                .or_else(|| Some((self.minutes.at_or_after(minute + 1)?, self.seconds.at_or_after(0)?)))
        };
        let same = self.hours.has(hour).then(|| within_hour(minute, second)).flatten();
        let (hour, (minute, second)) = match same {
            Some(same) => (hour, same),
            None => (self.hours.at_or_after(hour + 1)?, within_hour(0, 0)?),
        };
        Time::new(hour, minute, second, 0).ok()
    }
}

/// Numbers below 64, as bits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Values(u64);

impl Values {
    fn of(field: &CronComponent) -> Self {
        Self(field.values().into_iter().fold(0, |bits, value| bits | 1 << value))
    }

    fn has(self, value: i8) -> bool {
        self.0 >> value & 1 == 1
    }

    /// The least number that is not below `value`, which is at most 60.
    fn at_or_after(self, value: i8) -> Option<i8> {
        let bits = self.0 >> value;
        (bits != 0).then(|| value + i8::try_from(bits.trailing_zeros()).unwrap_or(i8::MAX))
    }
}

/// The days that match.
///
/// Whether a year has a matching day depends on its *kind* only: on the weekday on which it begins, and on whether it
/// is a leap year. So a search skips all years without a matching day, except perhaps the first year.
#[derive(Clone, PartialEq, Eq)]
struct Days {
    pattern: CronPattern,
    /// The years that are listed, in order; `None` means all years.
    years: Option<Box<[i16]>>,
    /// The kinds of years that have a matching day, as bits.
    kinds: u16,
}

impl Days {
    fn new(mut pattern: CronPattern) -> Self {
        // The years of a pattern take 5 KB.
        let all = core::mem::take(&mut pattern.years);
        let years = all.values();
        let is_every_year = all.from_wildcard && years.len() == usize::from(all.max - all.min + 1);
        let years = (!is_every_year).then(|| years.into_iter().filter_map(|year| i16::try_from(year).ok()));
        let mut days = Self { pattern, years: years.map(Iterator::collect), kinds: 0 };
        // These 28 years contain all 14 kinds.
        for year in 2000..2028 {
            if days.within(year, 1, 1).is_some() {
                days.kinds |= 1 << kind(year);
            }
        }
        days
    }

    fn at_or_after(&self, from: Date) -> Option<Date> {
        let year = self.year_at_or_after(from.year())?;
        let here = (year == from.year()).then(|| self.within(year, from.month(), from.day())).flatten();
        here.or_else(|| self.within(self.year_at_or_after(from.year() + 1)?, 1, 1))
    }

    fn year_at_or_after(&self, from: i16) -> Option<i16> {
        let has_day = |year: &i16| self.kinds >> kind(*year) & 1 == 1;
        match &self.years {
            Some(years) => {
                let at = years.partition_point(|&year| year < from);
                years[at..].iter().copied().find(has_day)
            }
            None => (from..=9999).find(has_day),
        }
    }

    /// The first matching day of `year` that is not before `day` of `month`.
    fn within(&self, year: i16, month: i8, day: i8) -> Option<Date> {
        let months = (month..=12).filter(|&month| self.pattern.month_match(u32_of(month)).unwrap_or(false));
        months
            .filter_map(|it| Date::new(year, it, if it == month { day } else { 1 }).ok())
            .find_map(|first| (first.day()..=first.days_in_month()).find_map(|day| self.matching(first, day)))
    }

    fn matching(&self, of_month: Date, day: i8) -> Option<Date> {
        let date = Date::new(of_month.year(), of_month.month(), day).ok()?;
        let weekday = Weekday::from_days_from_sunday(u32_of(date.weekday().to_sunday_zero_offset()));
        // `day_match` fails for days that do not exist.
        let (year, month) = (i32::from(date.year()), u32_of(date.month()));
        self.pattern.day_match(year, month, u32_of(day), weekday).unwrap_or(false).then_some(date)
    }
}

/// The kind of a year, below 14.
fn kind(year: i16) -> u32 {
    Date::new(year, 1, 1).map_or(0, |first| {
        u32_of(first.weekday().to_sunday_zero_offset()) + if first.in_leap_year() { 7 } else { 0 }
    })
}

fn u32_of(small: i8) -> u32 {
    u32::try_from(small).unwrap_or(0)
}

/// The fields of an expression, by their indices in [`FIELDS`]; no fields for a nickname. If a field is wrong, the
/// error describes the fault.
///
/// The checks are stricter than croner, which accepts `1,,2`, `1MON` for 11, `MON` for January, `15W3` for `15W`,
/// `L,LW` for `LW`, and letters of other scripts. In the weekday croner ignores an `L` alone, and it takes seconds to
/// parse `,` as a minute.
fn fields(expression: &str) -> Result<Vec<(usize, String)>, String> {
    if let Some(letter) = expression.chars().find(|letter| !letter.is_ascii()) {
        return Err(format!("{letter:?} is not understood"));
    }
    let upper = expression.trim().to_ascii_uppercase();
    if upper.starts_with('@') {
        return Ok(Vec::new());
    }
    let fields: Vec<&str> = upper.split_whitespace().collect();
    if !(5..=7).contains(&fields.len()) {
        return Err(format!("it has {} fields, not 5, 6 or 7", fields.len()));
    }
    let first = usize::from(fields.len() == 5);
    let fields: Vec<_> = (first..).zip(fields.into_iter().map(without_idle_ranges)).collect();
    for (index, field) in &fields {
        let items = if *index == WEEKDAY { field.strip_prefix('+').unwrap_or(field) } else { field };
        if let Some(item) = items.split(',').find(|item| !is_item(*index, item)) {
            return Err(format!("the {} {item:?} is not understood", FIELDS[*index].0));
        }
        let (name, _, longest) = FIELDS[*index];
        let is_too_long = |item: &&str| {
            let step = item.split_once('/').map(|(_, step)| step.parse::<u32>());
            step.is_some_and(|step| step.is_ok_and(|step| step > longest))
        };
        if let Some(item) = items.split(',').find(is_too_long) {
            return Err(format!("the {name} {item:?}: its step is out of bounds, at most {longest}"));
        }
        let has = |sign: &str| *index == DAY && items.split(',').any(|item| item == sign);
        if has("L") && has("LW") {
            return Err("L and LW exclude each other".to_owned());
        }
    }
    Ok(fields)
}

/// The field with each range from Sunday to Sunday replaced by Sunday. croner would take the second Sunday for 7, and
/// the range for all days.
fn without_idle_ranges(field: &str) -> String {
    let (plus, items) = field.strip_prefix('+').map_or(("", field), |items| ("+", items));
    let is_idle = |item: &str| {
        let range = item.split_once('/').map_or(item, |(range, _)| range);
        ["SUN-SUN", "SUN-7", "0-SUN"].contains(&range)
    };
    let items: Vec<_> = items.split(',').map(|item| if is_idle(item) { "SUN" } else { item }).collect();
    format!("{plus}{}", items.join(","))
}

/// Whether an item has only names and numbers between its signs.
fn is_item(index: usize, item: &str) -> bool {
    let item = match index {
        DAY => item.strip_suffix('W').unwrap_or(item),
        WEEKDAY => item.strip_suffix("#L").or_else(|| item.strip_suffix('L')).unwrap_or(item),
        _ => item,
    };
    item.split(['-', '/', '#']).all(|word| {
        let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        is_number || word == "*" || FIELDS[index].1.contains(&word)
    })
}

/// Croner's objection to an expression, with the field that it is about.
fn blame(fields: &[(usize, String)], error: &croner::errors::CronError) -> String {
    let alone = |index: usize, field: &str| {
        let mut all = ["*"; FIELDS.len()];
        all[index] = field;
        all.join(" ")
    };
    let at_fault =
        fields.iter().find(|(index, field)| CronParser::new().parse(&alone(*index, field)).is_err());
    match at_fault {
        Some((index, field)) => {
            let message = error.to_string();
            let message =
                message.rsplit(": ").next().unwrap_or_default().trim_end_matches('.').to_lowercase();
            format!("the {} {field:?}: {message}", FIELDS[*index].0)
        }
        None => "it is no nickname".to_owned(),
    }
}
