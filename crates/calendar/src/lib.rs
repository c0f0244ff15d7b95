//! Moments by the calendar: cron expressions and days of the month, in the time zones of the world.
//!
//! A [`Calendar`] answers one question: when is the next run? It has no clock, no thread and no engine. A calendar is
//! made from text that people write, such as an expression and the name of a zone. It is never made from an offset,
//! since offsets change, by the year and by law.
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
//! A calendar is *fixed* if it names times of the day. These are [`monthly`](Calendar::monthly) and
//! [`yearly`](Calendar::yearly) calendars, and every cron expression in which neither the second nor the minute nor the
//! hour begins with `*`, such as `30 2,14 * * *`. Every other cron expression is *repeating*. Vixie's cron, which has
//! no seconds, draws the same line.
//!
//! | a local time that | fixed | repeating |
//! |---|---|---|
//! | does not exist, by [`DstPolicy::Vixie`] | runs once, at the first instant after the gap | does not run |
//! | does not exist, by [`DstPolicy::SkipGap`] | does not run | does not run |
//! | exists twice | runs once, at the earlier instant | runs at both instants |
//!
//! The first instant after a gap may be on another day: Samoa had no 30 December 2011, and a run for that day is at the
//! start of the 31st. Several runs at one instant are one run.
//!
//! # Cron expressions
//!
//! The fields are `minute hour day-of-month month weekday`. A field for the second may come before them (without it the
//! second is 0). If it does, a field for the year may come after them (without it every year matches). Capitals and
//! small letters are the same:
//!
//! | | |
//! |---|---|
//! | `*` | all values; `?` is the same for days of the month and weekdays |
//! | `1-5`, `1,15`, `8-12,20` | ranges and lists |
//! | `22-4`, `FRI-MON`, `NOV-FEB` | ranges that go on at the beginning of the field; not for years |
//! | `*/15`, `10-40/5`, `10/5` | steps, from the first value of a range; a range without an end goes to the end of the field. A step beyond the field is refused: `*/90` for minutes |
//! | `JAN`-`DEC`, `SUN`-`SAT` | names, also in ranges; as numbers weekdays are 0-7, Sunday is both 0 and 7 |
//! | `L`, `LW`, `15W` | the last day of the month, its last day from Monday to Friday, the day from Monday to Friday that is nearest to the 15th in its month |
//! | `L-3` | three days before the last day; up to `L-27`, which each month has |
//! | `FRI#2`, `5#L`, `5L` | the second Friday of the month, the last Friday, the last Friday |
//! | `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight`, `@hourly` | the first instant of each year, month, week, day or hour; each stands alone, without fields |
//!
//! If neither the day of the month nor the weekday is `*`, a day matches if either of them does; `+` before the weekday
//! demands both: `0 0 13 * +FRI`. So `0 0 */2 * MON` is each odd day *or* Monday here. Vixie's cron checks whether the
//! field begins with `*`, and takes this expression for each odd day *and* Monday; here that is `0 0 */2 * +MON`.
//! Listed years are 1 to 5000. Without a list every year matches, and runs end with the year 9999, the last that the
//! crate jiff has.
//!
//! # Cost
//!
//! However rarely a calendar runs, a search looks into the days of two years at most for each local time that it tries.
//! A search for a repeating calendar also looks at each transition of its zone up to the run. A search takes a fraction
//! of a microsecond if the next run is within a year, 10 µs for a repeating calendar whose next run is in 40 years. The
//! worst known case is 10 ms, for a time that clocks skip in every year until 9999 (`* 2 * 3 0L` in `Europe/Berlin`).
//! Finding that a repeating calendar has ended, because its listed years are over, takes up to 2 ms, in a zone whose
//! clocks change each year: the search looks at each of the zone's transitions until the year 9999. Making a calendar
//! takes 50 µs; refusing a calendar that never runs takes 500 µs. A calendar's memory is about 700 bytes, plus the
//! listed years, and four times as much with `L-3`.
//!
//! # Out of scope
//!
//! Missed runs. The scheduler that uses a calendar decides about them.

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
/// The crate jiff, whose instants, times and zones are in this crate's signatures.
pub use jiff;
pub use occurrence::{ClockChange, Occurrence, Run};
pub use policies::{DstPolicy, ShortMonth};

use self::cron::Cron;
use self::months::{Months, Which};
use core::{fmt, iter};
use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

/// A rule for instants by the calendar, in one time zone; see the [crate].
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
    /// A calendar that runs when a [cron expression](self#cron-expressions) matches the clocks of `zone`, an IANA name
    /// such as `Europe/Berlin` or `UTC`.
    ///
    /// # Errors
    ///
    /// Fails if the expression or the zone is empty, if the expression is not a cron expression or names only days that
    /// do not exist (`0 0 30 2 *`), or if the zone is unknown.
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

    /// A calendar that runs at `time` on `day` of each month, by the clocks of `zone`.
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

    /// A calendar that runs at `time` on `day` of `month`, each year, by the clocks of `zone`. `short` matters only for
    /// 29 February.
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

    /// A calendar that runs at `instant`, and never again.
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

    /// The same calendar with another policy; the default is [`DstPolicy::Vixie`].
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

    /// The first run after `instant`, and not at `instant` itself; `None` if none is left before the year 10000 begins.
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

    /// All runs after `instant`, in order, each once.
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

    /// The next `count` runs after `instant`, with the effects of clock changes. A local time that is left out because
    /// clocks skip it stands between the runs and does not count. Of a repeating calendar only the first local time of
    /// each gap stands there.
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

    /// The cron expression, as it was given; for another calendar, its description in words.
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

    /// The name of the zone, as the database writes it.
    #[must_use]
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The policy for local times that clocks skip.
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

/// Files in the folders of zones that name no place: they are another zone on each machine, or none.
const OF_MACHINE: [&str; 3] = ["localtime", "posixrules", "Factory"];

/// Finds the zone of that name.
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
    // `Etc/Unknown` is found, and has no name.
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

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
