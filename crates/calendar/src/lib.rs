//! Moments by the calendar: cron expressions and days of the month, in the time zones of the world.
//!
//! A [`Calendar`] answers one question: when is the next run? It has no clock, no thread and no engine. A calendar is
//! made from text that people write, such as an expression and the name of a zone. A fixed offset cannot take the place
//! of a zone, since the offsets of a zone change during the year and by law.
//!
//! ```
//! use tourbillon_calendar::Calendar;
//!
//! let calendar = Calendar::cron("30 2 * * *", "Europe/Berlin")?;
//! let mut runs = calendar.after("2024-03-30T00:00:00Z".parse()?).map(|run| run.to_string());
//! assert_eq!(runs.next().as_deref(), Some("2024-03-30T01:30:00Z"));
//! // In the next night clocks go from 2:00 to 3:00.
//! assert_eq!(runs.next().as_deref(), Some("2024-03-31T01:00:00Z"));
//! assert_eq!(runs.next().as_deref(), Some("2024-04-01T00:30:00Z"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When clocks are changed
//!
//! A calendar is *fixed* if it names times of the day. [`monthly`](Calendar::monthly) and [`yearly`](Calendar::yearly)
//! calendars are fixed. A cron expression is fixed if none of its fields of the second, the minute and the hour begins
//! with `*`, as in `30 2,14 * * *`. Every other cron expression is *repeating*. Vixie's cron, which has no seconds,
//! makes the same distinction.
//!
//! | a local time that | fixed | repeating |
//! |---|---|---|
//! | does not exist, by [`DstPolicy::Vixie`] | runs once, at the first instant after the gap | does not run |
//! | does not exist, by [`DstPolicy::SkipGap`] | does not run | does not run |
//! | exists twice | runs once, at the earlier instant | runs at both instants |
//!
//! The first instant after a gap may be on another day. Samoa had no 30 December 2011: a run on that day comes at the
//! start of the 31st. If several runs have the same instant, they are one run.
//!
//! # Cron expressions
//!
//! The fields are `minute hour day-of-month month weekday`. A field for the second may come before them; without this
//! field the second is 0. After a field for the second, a field for the year may come at the end; without this field
//! every year matches. Case does not matter:
//!
//! | | |
//! |---|---|
//! | `*` | all values; `?` is the same for days of the month and weekdays |
//! | `1-5`, `1,15`, `8-12,20` | ranges and lists |
//! | `22-4`, `FRI-MON`, `NOV-FEB` | ranges that wrap around the end of the field; not for years |
//! | `*/15`, `10-40/5`, `10/5` | steps, from the first value of a range; a range without an end goes to the end of the field. A step beyond the field is refused: `*/90` for minutes |
//! | `JAN`-`DEC`, `SUN`-`SAT` | names, also in ranges; as numbers weekdays are 0-7, Sunday is both 0 and 7 |
//! | `L`, `LW`, `15W` | the last day of the month, its last day from Monday to Friday, the day from Monday to Friday that is nearest to the 15th in its month |
//! | `L-3` | three days before the last day; up to `L-27`, which each month has |
//! | `FRI#2`, `5#L`, `5L` | the second Friday of the month, the last Friday, the last Friday |
//! | `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight`, `@hourly` | the first instant of each year, month, week, day or hour; each stands alone, without fields |
//!
//! If neither the day of the month nor the weekday is `*`, a day matches if either of them does. A `+` before the
//! weekday demands that both match: `0 0 13 * +FRI`. So `0 0 */2 * MON` matches each odd day *or* Monday. In Vixie's
//! cron, which checks only whether the field begins with `*`, the same expression means each odd day *and* Monday.
//! Here, write `0 0 */2 * +MON` for that. Listed years are 1 to 5000. Without a list every year matches. Runs end with
//! the year 9999, the last year in the crate jiff.
//!
//! # Cost
//!
//! For each local time that it tries, a search examines the days of two years at most, even if the calendar runs
//! rarely. A search for a repeating calendar also examines each transition of its zone up to the run.
//!
//! - If the next run is within a year, a search takes a fraction of a microsecond. If the next run of a repeating
//!   calendar is in 40 years, it takes 10 µs.
//! - The worst known case takes 10 ms: a time that clocks skip in every year until 9999 (`* 2 * 3 0L` in
//!   `Europe/Berlin`).
//! - A repeating calendar that lists years has no further run after the last of these years. Finding this takes up to 2
//!   ms in a zone whose clocks change each year, since the search looks at each of the zone's transitions until the
//!   year 9999.
//! - Making a calendar takes 50 µs. Refusing a calendar that never runs takes 500 µs.
//! - A calendar takes about 700 bytes of memory, plus the listed years. With `L-3` it takes four times as much.
//!
//! # Out of scope
//!
//! Missed runs are out of scope. The scheduler that uses a calendar decides about them.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod cron;
mod error;
mod fields;
mod months;
mod occurrence;
mod policies;
mod similar;
mod zone;

pub use error::CalendarError;
/// The crate jiff. Its instants, times and zones are in the signatures of this crate.
pub use jiff;
pub use occurrence::{ClockChange, Occurrence, Run};
pub use policies::{DstPolicy, ShortMonth};

use self::cron::Cron;
use self::months::{Months, Which};
use core::{fmt, iter};
use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

/// A rule that gives the instants of runs, such as "daily at 8:00", by the clocks of a time zone. See the [crate].
///
/// # Examples
///
/// ```
/// use tourbillon_calendar::Calendar;
///
/// let calendar = Calendar::cron("0 9 * * MON-FRI", "America/New_York")?;
/// let friday = "2026-10-30T13:00:00Z".parse()?;
/// let monday = "2026-11-02T14:00:00Z".parse()?;
/// assert_eq!(calendar.next_after(friday), Some(monday));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Calendar {
    expression: Box<str>,
    zone: TimeZone,
    dst: DstPolicy,
    rule: Rule,
}

#[derive(Clone, PartialEq, Eq)]
enum Rule {
    Once(Timestamp),
    Months(Months),
    Cron(Box<Cron>),
}

impl Calendar {
    /// Makes a calendar from a [cron expression](self#cron-expressions), by the clocks of `zone`. `zone` is an IANA
    /// name such as `Europe/Berlin` or `UTC`.
    ///
    /// # Errors
    ///
    /// Fails if the expression or the zone is empty, or if the zone is unknown. Also fails if the text is not a cron
    /// expression, or names only days that do not exist, as `0 0 30 2 *` does.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_calendar::{Calendar, CalendarError};
    ///
    /// let calendar = Calendar::cron("0 18 * * 5#L", "UTC")?;
    /// assert_eq!(calendar.next_after("2026-10-01T00:00:00Z".parse()?), Some("2026-10-30T18:00:00Z".parse()?));
    ///
    /// let error = Calendar::cron("0 25 * * *", "UTC").unwrap_err();
    /// assert!(matches!(error, CalendarError::Syntax { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cron(expression: &str, zone: &str) -> Result<Self, CalendarError> {
        if expression.trim().is_empty() {
            return Err(CalendarError::EmptyExpression);
        }
        let rule = Rule::Cron(Box::new(Cron::parse(expression)?));
        Self::new(expression, zone, rule)
    }

    /// Makes a calendar that runs at `time` on `day` of each month, by the clocks of `zone`. `short` decides about
    /// months without that day.
    ///
    /// # Errors
    ///
    /// Fails if the day is not from 1 to 31, or if the zone is empty or unknown.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_calendar::jiff::civil::time;
    /// use tourbillon_calendar::{Calendar, ShortMonth};
    ///
    /// let calendar = Calendar::monthly(31, ShortMonth::LastDay, time(12, 0, 0, 0), "UTC")?;
    /// assert_eq!(calendar.next_after("2026-01-31T12:00:00Z".parse()?), Some("2026-02-28T12:00:00Z".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn monthly(day: i8, short: ShortMonth, time: Time, zone: &str) -> Result<Self, CalendarError> {
        within("day", day, 31)?;
        let expression = format!("monthly on day {day}{} at {time}", or_last(day, short));
        let rule = Rule::Months(Months { months: Which::All, day, short, time });
        Self::new(&expression, zone, rule)
    }

    /// Makes a calendar that runs each year at `time` on `day` of `month`, by the clocks of `zone`. `short` decides
    /// about years without that day, which matters only for 29 February.
    ///
    /// # Errors
    ///
    /// Fails if the month is not from 1 to 12, if the day is not from 1 to the month's last day in a leap year, or if
    /// the zone is empty or unknown.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_calendar::jiff::civil::time;
    /// use tourbillon_calendar::{Calendar, ShortMonth};
    ///
    /// let leap_days = Calendar::yearly(2, 29, ShortMonth::Skip, time(0, 0, 0, 0), "UTC")?;
    /// let first = "2096-02-29T00:00:00Z".parse()?;
    /// // 2100 has none.
    /// assert_eq!(leap_days.next_after(first), Some("2104-02-29T00:00:00Z".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn yearly(
        month: i8,
        day: i8,
        short: ShortMonth,
        time: Time,
        zone: &str,
    ) -> Result<Self, CalendarError> {
        within("month", month, 12)?;
        let most = match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        within("day", day, most)?;
        let may_lack = if month == 2 { or_last(day, short) } else { "" };
        let expression = format!("yearly on {month:02}-{day:02}{may_lack} at {time}");
        let rule = Rule::Months(Months { months: Which::One(month), day, short, time });
        Self::new(&expression, zone, rule)
    }

    /// Makes a calendar that runs once, at `instant`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_calendar::jiff::Timestamp;
    /// use tourbillon_calendar::Calendar;
    ///
    /// let calendar = Calendar::once("2038-01-19T03:14:08Z".parse()?);
    /// assert_eq!(calendar.after(Timestamp::UNIX_EPOCH).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn once(instant: Timestamp) -> Self {
        let expression = instant.to_string().into();
        Self { expression, zone: TimeZone::UTC, dst: DstPolicy::default(), rule: Rule::Once(instant) }
    }

    fn new(expression: &str, zone: &str, rule: Rule) -> Result<Self, CalendarError> {
        Ok(Self { expression: expression.into(), zone: named(zone)?, dst: DstPolicy::default(), rule })
    }

    /// Sets the policy for local times that clocks skip. The default is [`DstPolicy::Vixie`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_calendar::{Calendar, DstPolicy};
    ///
    /// let calendar = Calendar::cron("30 2 * * *", "Europe/Berlin")?.with_dst(DstPolicy::SkipGap);
    /// let before = "2024-03-30T01:30:00Z".parse()?;
    /// assert_eq!(calendar.next_after(before), Some("2024-04-01T00:30:00Z".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_dst(self, dst: DstPolicy) -> Self {
        Self { dst, ..self }
    }

    /// Returns the calendar's first run after `instant`. A run at `instant` itself does not count. Returns `None` if
    /// there is no further run before the year 10000.
    ///
    /// # Time complexity
    ///
    /// See [the costs](self#cost). A search always ends.
    #[must_use]
    pub fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            Rule::Once(run) => (*run > instant).then_some(*run),
            Rule::Months(months) => {
                zone::next_fixed(|from| months.at_or_after(from), &self.zone, self.dst, instant)
            }
            Rule::Cron(cron) if cron.is_fixed() => {
                zone::next_fixed(|from| cron.at_or_after(from), &self.zone, self.dst, instant)
            }
            Rule::Cron(cron) => zone::next_repeating(|from| cron.at_or_after(from), &self.zone, instant),
        }
    }

    /// Returns all runs after `instant`, in order, each once.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_calendar::Calendar;
    ///
    /// let calendar = Calendar::cron("@hourly", "UTC")?;
    /// let runs: Vec<_> = calendar.after("2026-01-01T00:00:00Z".parse()?).take(2).collect();
    /// assert_eq!(runs, ["2026-01-01T01:00:00Z".parse()?, "2026-01-01T02:00:00Z".parse()?]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn after(&self, instant: Timestamp) -> impl Iterator<Item = Timestamp> {
        iter::successors(self.next_after(instant), |&run| self.next_after(run))
    }

    /// Returns the next `count` runs after `instant`, with the effects of clock changes. The list also has the local
    /// times that have no run because clocks skip them. These do not count towards `count`. A repeating calendar, such
    /// as "each minute", lists only the first skipped local time of a gap.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_calendar::{Calendar, ClockChange};
    ///
    /// let calendar = Calendar::cron("30 2 * * *", "Europe/Berlin")?;
    /// let next = calendar.preview("2024-03-30T12:00:00Z".parse()?, 2);
    /// assert_eq!(next[0].planned.to_string(), "2024-03-31T02:30:00");
    /// assert_eq!(next[0].change, Some(ClockChange::Moved));
    /// assert_eq!(next[0].run.unwrap().to_string(), "2024-03-31T03:00:00+02:00");
    /// assert_eq!(next[1].change, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn preview(&self, instant: Timestamp, count: usize) -> Vec<Occurrence> {
        match &self.rule {
            Rule::Once(run) => {
                let run = (*run > instant && count > 0).then(|| Run::new(*run, &self.zone));
                run.map(|run| Occurrence { planned: run.local, run: Some(run), change: None })
                    .into_iter()
                    .collect()
            }
            Rule::Months(months) => {
                occurrence::fixed(|from| months.at_or_after(from), &self.zone, self.dst, instant, count)
            }
            Rule::Cron(cron) if cron.is_fixed() => {
                occurrence::fixed(|from| cron.at_or_after(from), &self.zone, self.dst, instant, count)
            }
            Rule::Cron(cron) => {
                occurrence::repeating(|from| cron.at_or_after(from), &self.zone, instant, count)
            }
        }
    }

    /// Returns the cron expression, as the caller gave it. For a calendar without an expression, returns a description
    /// in words.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_calendar::Calendar;
    ///
    /// let calendar = Calendar::cron("0 9 * * mon", "europe/berlin")?;
    /// assert_eq!(calendar.expression(), "0 9 * * mon");
    /// assert_eq!(calendar.zone(), "Europe/Berlin");
    /// assert_eq!(calendar.to_string(), "0 9 * * mon in Europe/Berlin");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Returns the name of the zone, as the database of zones spells it.
    #[must_use]
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Returns the policy for local times that clocks skip.
    #[must_use]
    pub fn dst(&self) -> DstPolicy {
        self.dst
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.expression, self.zone())
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calendar")
            .field("expression", &self.expression)
            .field("zone", &self.zone())
            .field("dst", &self.dst)
            .finish()
    }
}

/// The names in the database of zones that stand for no place. `localtime` and `posixrules` mean a different zone on
/// each machine, and `Factory` means no zone.
const OF_MACHINE: [&str; 3] = ["localtime", "posixrules", "Factory"];

/// Returns the time zone with this name. Fails if the name is empty, stands for no place, or is unknown.
fn named(zone: &str) -> Result<TimeZone, CalendarError> {
    if zone.trim().is_empty() {
        return Err(CalendarError::EmptyZone);
    }
    if OF_MACHINE.iter().any(|name| zone.eq_ignore_ascii_case(name)) {
        return Err(CalendarError::NoPlace { zone: zone.to_owned() });
    }
    let unknown =
        |source| CalendarError::UnknownZone { zone: zone.to_owned(), meant: similar::zone(zone), source };
    let found = TimeZone::get(zone).map_err(|error| unknown(Some(error)))?;
    // The database also has `Etc/Unknown`, which has no name.
    if found.iana_name().is_some() { Ok(found) } else { Err(unknown(None)) }
}

fn within(argument: &'static str, value: i8, most: i8) -> Result<(), CalendarError> {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        Err(CalendarError::OutOfBounds { argument, value, most })
    }
}

fn or_last(day: i8, short: ShortMonth) -> &'static str {
    if day > 28 && short == ShortMonth::LastDay { " or the last" } else { "" }
}

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
