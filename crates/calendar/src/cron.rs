//! Computes the civil times that a cron expression matches.
//!
//! The crate croner parses the [fields] and decides which days of a year match. The search is in this module, since
//! croner's own search ends in the year 5000, and where clocks skip more than two hours.
//!
//! [fields]: crate::fields

use crate::CalendarError;
use crate::fields::Fields;
use croner::parser::CronParser;
use croner::{CronComponent, CronPattern, Weekday};
use jiff::civil::{Date, DateTime, Time};

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
        let fields = Fields::parse(expression).map_err(syntax)?;
        let mut patterns = Vec::new();
        for text in fields.by_length() {
            let parsed = CronParser::new().parse(&text).map_err(|error| syntax(fields.blame(&error)))?;
            patterns.push(parsed.pattern);
        }
        let pattern = &patterns[0];
        let cron = Self {
            seconds: Values::of(&pattern.seconds),
            minutes: Values::of(&pattern.minutes),
            hours: Values::of(&pattern.hours),
            is_fixed: fields.are_fixed(),
            days: Days::new(patterns),
        };
        if cron.at_or_after(DateTime::MIN).is_none() {
            return Err(CalendarError::NeverFires { expression: expression.to_owned() });
        }
        Ok(cron)
    }

    /// Returns whether the expression is fixed. An expression is repeating if its second, its minute or its hour begins
    /// with `*`. Every other expression is fixed.
    pub(super) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Returns the first civil time at `from` or later that the expression matches. Returns `None` if it matches no
    /// later time.
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

/// A set of numbers below 64. Bit `n` is 1 if the set contains the number `n`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Values(u64);

impl Values {
    fn of(field: &CronComponent) -> Self {
        Self(field.values().into_iter().fold(0, |bits, value| bits | 1 << value))
    }

    fn has(self, value: i8) -> bool {
        self.0 >> value & 1 == 1
    }

    /// Returns the least number of the set that is `value` or more. Returns `None` if the set has no such number.
    /// `value` is at most 60.
    fn at_or_after(self, value: i8) -> Option<i8> {
        let bits = self.0 >> value;
        (bits != 0).then(|| value + i8::try_from(bits.trailing_zeros()).unwrap_or(i8::MAX))
    }
}

/// The days that an expression matches.
///
/// The *kind* of a year is the weekday of its first day, and whether it is a leap year. The kind alone decides whether
/// the year has a matching day. So a search reads only years of kinds that have a matching day.
#[derive(Clone, PartialEq, Eq)]
struct Days {
    /// The patterns of the parser croner: a single pattern for all months, or four patterns for months of 28 to 31
    /// days.
    patterns: Box<[CronPattern]>,
    /// The years that the expression lists, in order. `None` means all years.
    years: Option<Box<[i16]>>,
    /// The kinds of years that have a matching day. Bit `n` is 1 if years of kind `n` have a matching day.
    kinds: u16,
}

impl Days {
    /// Makes the days that an expression matches. `patterns` has a single pattern for all months, or four patterns for
    /// months of 28, 29, 30 and 31 days.
    fn new(mut patterns: Vec<CronPattern>) -> Self {
        // The years of a pattern take 5 KB of memory, so they are removed from the patterns.
        let mut all = CronComponent::default();
        for pattern in &mut patterns {
            all = core::mem::take(&mut pattern.years);
        }
        let years = all.values();
        let is_every_year = all.from_wildcard && years.len() == usize::from(all.max - all.min + 1);
        let years = (!is_every_year).then(|| years.into_iter().filter_map(|year| i16::try_from(year).ok()));
        let mut days = Self { patterns: patterns.into(), years: years.map(Iterator::collect), kinds: 0 };
        // These 28 years contain each of the 14 kinds of years.
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

    /// Returns the first matching day of `year` from `day` of `month` on. Returns `None` if the rest of the year has no
    /// matching day.
    fn within(&self, year: i16, month: i8, day: i8) -> Option<Date> {
        let months =
            (month..=12).filter(|&month| self.patterns[0].month_match(u32_of(month)).unwrap_or(false));
        months
            .filter_map(|it| Date::new(year, it, if it == month { day } else { 1 }).ok())
            .find_map(|first| (first.day()..=first.days_in_month()).find_map(|day| self.matching(first, day)))
    }

    fn matching(&self, of_month: Date, day: i8) -> Option<Date> {
        let date = Date::new(of_month.year(), of_month.month(), day).ok()?;
        let weekday = Weekday::from_days_from_sunday(u32_of(date.weekday().to_sunday_zero_offset()));
        // croner's `day_match` fails for days that do not exist.
        let (year, month) = (i32::from(date.year()), u32_of(date.month()));
        let length = usize::try_from(date.days_in_month() - 28).unwrap_or(0);
        let pattern = &self.patterns[length % self.patterns.len()];
        pattern.day_match(year, month, u32_of(day), weekday).unwrap_or(false).then_some(date)
    }
}

/// Returns the kind of `year`, a number below 14. The kind is the weekday of the year's first day, plus 7 in a leap
/// year.
fn kind(year: i16) -> u32 {
    Date::new(year, 1, 1).map_or(0, |first| {
        u32_of(first.weekday().to_sunday_zero_offset()) + if first.in_leap_year() { 7 } else { 0 }
    })
}

fn u32_of(small: i8) -> u32 {
    u32::try_from(small).unwrap_or(0)
}
