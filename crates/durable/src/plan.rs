//! Computes the occurrences of recurring timers.
//!
//! A series has one occurrence at a time. The next occurrence is computed from the instant for which the last
//! occurrence was *scheduled*. The time at which the last occurrence ran does not matter. A store ends the last
//! occurrence and stores the next occurrence in a single transaction, so a crash cannot lose the series.

use crate::id::TimerId;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tourbillon_calendar::jiff::{self, civil::Time};
use tourbillon_calendar::{Calendar, CalendarError, DstPolicy, ShortMonth};
use tourbillon_words::UtcMillis;

/// A series of timers that follow each other by a plan. Each timer of the series is an *occurrence*, and has its own
/// copy of this data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The id of the series, which is also the id of its first occurrence. The ids of the later occurrences are
    /// computed from it.
    pub id: TimerId,
    /// The plan that determines the instants of the series.
    pub plan: Plan,
    /// The rule for the instants of the plan that pass while an earlier occurrence has not ended yet.
    pub missed: MissedInstants,
    /// No occurrence is scheduled after this moment. `None` if the series does not end.
    pub end: Option<UtcMillis>,
    /// True if the series is paused. The occurrences of a paused series are parked
    /// ([`State::Parked`](crate::state::State::Parked)): they are stored, but are not delivered until the series is
    /// resumed.
    pub paused: bool,
}

/// The rule for the instants at which the occurrences of a series are scheduled. A *gap* of local time is a span that
/// the clocks of a time zone skip when they are set ahead, for example for summer time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Plan {
    /// An instant after each period, counted from the first occurrence. The period is in milliseconds; 0 counts as 1.
    Every(u64),
    /// The instants of a cron expression in a time zone of the IANA database.
    Cron {
        /// The cron expression, of five to seven fields, or a word such as `@daily`.
        expression: Box<str>,
        /// The name of the time zone.
        zone: Box<str>,
        /// True if instants in a gap of local time (see [`Plan`]) are left out. Otherwise an instant in a gap comes at
        /// the end of the gap.
        skip_gaps: bool,
    },
    /// An instant on a day of each month, in a time zone of the IANA database.
    Monthly {
        /// The day of the month, from 1 to 31.
        day: i8,
        /// The second of the day, from 0 to 86,399.
        second: u32,
        /// The name of the time zone.
        zone: Box<str>,
        /// True if a month without this day has its instant on the last day of the month. Otherwise such a month has no
        /// instant.
        last_if_short: bool,
        /// True if instants in a gap of local time (see [`Plan`]) are left out. Otherwise an instant in a gap comes at
        /// the end of the gap.
        skip_gaps: bool,
    },
}

/// The rule for the instants of a plan that pass while an earlier occurrence of the series has not ended yet. The
/// earlier occurrence still waits for its delivery, for example during a downtime, or its delivery takes longer than
/// the time between two instants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissedInstants {
    /// The passed instants get no occurrences, but are counted. This rule does not concern the earlier occurrence: if
    /// it is late itself, the policy's [`misfire`](crate::policy::Policy::misfire) decides whether it is delivered.
    #[default]
    Skip,
    /// Each passed instant gets an occurrence. The occurrences are delivered one after the other, after the earlier
    /// occurrence has ended.
    All,
}

/// The reason why a plan is not valid.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PlanError {
    /// The cron expression, the day of the month or the time zone is not valid.
    Calendar(Arc<CalendarError>),
    /// The second of the day is 86,400 or more.
    Second(u32),
}

impl core::fmt::Display for PlanError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Calendar(error) => error.fmt(f),
            Self::Second(second) => write!(f, "a day has no second {second}"),
        }
    }
}

impl PlanError {
    /// Returns true if the plan is not valid because of its cron expression.
    ///
    /// ```
    /// use tourbillon_durable::plan::Plan;
    ///
    /// let error = Plan::cron("61 * * * *", "UTC").expect_err("no hour has such a minute");
    /// assert!(error.is_about_expression() && !error.is_about_zone());
    /// ```
    #[must_use]
    pub fn is_about_expression(&self) -> bool {
        use CalendarError::{EmptyExpression, NeverFires, Syntax};
        let Self::Calendar(error) = self else { return false };
        matches!(**error, EmptyExpression | Syntax { .. } | NeverFires { .. })
    }

    /// Returns true if the plan is not valid because of its time zone.
    #[must_use]
    pub fn is_about_zone(&self) -> bool {
        let Self::Calendar(error) = self else { return false };
        matches!(
            **error,
            CalendarError::UnknownZone { .. } | CalendarError::NoPlace { .. } | CalendarError::EmptyZone
        )
    }
}

impl PlanError {
    /// Returns true if the plan names a time zone that this machine does not know. Another machine may know it, and
    /// this machine may know it later, for example once its database of zones can be read.
    pub(crate) fn is_about_unknown_zone(&self) -> bool {
        matches!(self, Self::Calendar(error) if matches!(**error, CalendarError::UnknownZone { .. }))
    }
}

impl core::error::Error for PlanError {}

impl From<CalendarError> for PlanError {
    fn from(error: CalendarError) -> Self {
        Self::Calendar(Arc::new(error))
    }
}

/// The parsed form of a plan, which computes instants without parsing the plan again.
pub(crate) enum Instants {
    Every(u64),
    Calendar(Calendar),
}

impl Plan {
    /// Makes a plan with a fixed period, counted from the first occurrence. The period is rounded down to whole
    /// milliseconds, but is at least one millisecond.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::plan::Plan;
    ///
    /// let next = Plan::every(Duration::from_secs(60)).next_after(UtcMillis::from_millis(1_000));
    /// assert_eq!(next, Some(UtcMillis::from_millis(61_000)));
    /// ```
    #[must_use]
    pub fn every(period: Duration) -> Self {
        Self::Every(u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1))
    }

    /// Makes a plan from a cron expression of five to seven fields, in a time zone of the IANA database. A word such as
    /// `@daily` may stand for all fields. An instant in a gap of local time (see [`Plan`]) comes at the end of the gap.
    /// [`without_gaps`](Self::without_gaps) leaves such instants out instead.
    ///
    /// # Errors
    ///
    /// Fails if the expression or the zone is not valid, or if the expression has no instant.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::plan::Plan;
    ///
    /// let daily = Plan::cron("0 9 * * *", "Europe/Zurich")?;
    /// let first = daily.next_after(UtcMillis::ZERO).ok_or("no day")?;
    /// assert_eq!(first.to_string(), "1970-01-01T08:00:00.000Z");
    /// assert!(Plan::cron("0 9 * * *", "Europe/Nowhere").is_err_and(|error| error.is_about_zone()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cron(expression: impl Into<Box<str>>, zone: impl Into<Box<str>>) -> Result<Self, PlanError> {
        Self::Cron { expression: expression.into(), zone: zone.into(), skip_gaps: false }.validated()
    }

    /// Makes a plan with an instant on a day of each month, in a time zone of the IANA database. The day is from 1 to
    /// 31, and the second of the day is from 0 to 86,399. In a month without this day, the last day is used. An instant
    /// in a gap of local time (see [`Plan`]) comes at the end of the gap. [`without_gaps`](Self::without_gaps) leaves
    /// such instants out instead.
    ///
    /// # Errors
    ///
    /// Fails if the day, the second or the zone is not valid.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::plan::Plan;
    ///
    /// let last_days = Plan::monthly(31, 9 * 3_600, "UTC")?.preview(UtcMillis::ZERO, 2)?;
    /// assert_eq!(last_days[1].to_string(), "1970-02-28T09:00:00.000Z");
    /// assert!(Plan::monthly(32, 0, "UTC").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn monthly(day: i8, second: u32, zone: impl Into<Box<str>>) -> Result<Self, PlanError> {
        let zone = zone.into();
        Self::Monthly { day, second, zone, last_if_short: true, skip_gaps: false }.validated()
    }

    /// Makes the plan leave out instants in gaps of local time (see [`Plan`]). A plan with a fixed period does not
    /// change.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::plan::Plan;
    ///
    /// // In the night to 29 March 2026, clocks in Zurich go from 2:00 to 3:00.
    /// let plan = Plan::cron("30 2 * * *", "Europe/Zurich")?;
    /// let evening = UtcMillis::from_millis(1_774_728_000_000);
    /// let next = |plan: &Plan| plan.next_after(evening).map(|instant| instant.to_string());
    /// assert_eq!(next(&plan).as_deref(), Some("2026-03-29T01:00:00.000Z"));
    /// assert_eq!(next(&plan.without_gaps()).as_deref(), Some("2026-03-30T00:30:00.000Z"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn without_gaps(mut self) -> Self {
        if let Self::Cron { skip_gaps, .. } | Self::Monthly { skip_gaps, .. } = &mut self {
            *skip_gaps = true;
        }
        self
    }

    fn validated(self) -> Result<Self, PlanError> {
        self.validate()?;
        Ok(self)
    }

    /// Fails with the reason if the plan is not valid.
    pub(crate) fn validate(&self) -> Result<(), PlanError> {
        self.instants().map(drop)
    }

    pub(crate) fn instants(&self) -> Result<Instants, PlanError> {
        Ok(match self {
            Self::Every(millis) => Instants::Every((*millis).max(1)),
            Self::Cron { expression, zone, skip_gaps } => {
                Instants::Calendar(Calendar::cron(expression, zone)?.with_dst(dst_policy(*skip_gaps)))
            }
            Self::Monthly { day, second, zone, last_if_short, skip_gaps } => {
                let short = if *last_if_short { ShortMonth::LastDay } else { ShortMonth::Skip };
                let calendar = Calendar::monthly(*day, short, time_of(*second)?, zone)?;
                Instants::Calendar(calendar.with_dst(dst_policy(*skip_gaps)))
            }
        })
    }

    /// Returns the plan's first instant after `instant`. Returns `None` if the plan is not valid, or has no further
    /// instant before the year 10000.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::plan::Plan;
    ///
    /// let new_year = Plan::cron("0 0 1 1 *", "UTC")?.next_after(UtcMillis::from_millis(1_800_000_000_000));
    /// assert_eq!(new_year.map(|instant| instant.to_string()).as_deref(), Some("2028-01-01T00:00:00.000Z"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn next_after(&self, instant: UtcMillis) -> Option<UtcMillis> {
        self.instants().ok()?.next_after(instant)
    }

    /// Returns the plan's first `count` instants after `instant`. The list is shorter if the plan has fewer instants.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::plan::Plan;
    ///
    /// let days = Plan::cron("0 9 * * *", "UTC")?.preview(UtcMillis::ZERO, 2)?;
    /// let days: Vec<_> = days.iter().map(ToString::to_string).collect();
    /// assert_eq!(days, ["1970-01-01T09:00:00.000Z", "1970-01-02T09:00:00.000Z"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn preview(&self, instant: UtcMillis, count: usize) -> Result<Vec<UtcMillis>, PlanError> {
        let instants = self.instants()?;
        let next = |at: &UtcMillis| instants.next_after(*at);
        Ok(core::iter::successors(next(&instant), next).take(count).collect())
    }
}

fn dst_policy(skip_gaps: bool) -> DstPolicy {
    if skip_gaps { DstPolicy::SkipGap } else { DstPolicy::Vixie }
}

fn time_of(second: u32) -> Result<Time, PlanError> {
    let part = |part: u32| i8::try_from(part).map_err(|_| PlanError::Second(second));
    if second >= 86_400 {
        return Err(PlanError::Second(second));
    }
    let (hour, minute, second_of_minute) =
        (part(second / 3_600)?, part(second / 60 % 60)?, part(second % 60)?);
    Time::new(hour, minute, second_of_minute, 0).map_err(|_| PlanError::Second(second))
}

impl Instants {
    pub(crate) fn next_after(&self, instant: UtcMillis) -> Option<UtcMillis> {
        let next = match self {
            Self::Every(millis) => instant + Duration::from_millis(*millis),
            Self::Calendar(calendar) => next_of(calendar, i64::try_from(instant.as_millis()).ok()?)?,
        };
        // A sum that is too great becomes `UtcMillis::MAX`, which is not an instant of the plan.
        (next > instant && next < UtcMillis::MAX).then_some(next)
    }

    /// Returns the first instant of a calendar that is not before `moment`. For a fixed period, which counts from
    /// `moment`, returns `moment`.
    pub(crate) fn first_from(&self, moment: UtcMillis) -> Option<UtcMillis> {
        let first = match self {
            Self::Every(_) => moment,
            // The first moment of all has no moment before it, but the calendar's clock has.
            Self::Calendar(calendar) => next_of(calendar, i64::try_from(moment.as_millis()).ok()? - 1)?,
        };
        (first >= moment && first < UtcMillis::MAX).then_some(first)
    }
}

/// Returns the first instant of a calendar after a moment, which is given in milliseconds since 1970.
fn next_of(calendar: &Calendar, millis: i64) -> Option<UtcMillis> {
    let after = jiff::Timestamp::from_millisecond(millis).ok()?;
    let next = calendar.next_after(after)?.as_nanosecond().div_euclid(1_000_000);
    Some(UtcMillis::from_millis(u64::try_from(next).ok()?))
}

/// The next occurrence of a series, and the number of instants before it that get no occurrence, because they have
/// already passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Following {
    /// The instant of the next occurrence. `None` if the series has ended.
    pub instant: Option<UtcMillis>,
    /// The number of passed instants that get no occurrence. The number is at most [`MOST_COUNTED`].
    pub skipped: u64,
}

/// The greatest value of [`Following::skipped`]. If more instants have passed, the count stops here.
pub const MOST_COUNTED: u64 = 100_000;

impl Series {
    /// Computes the next occurrence of the series. `scheduled` is the instant for which the last occurrence was
    /// scheduled. `now` is the moment at which the last occurrence has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::plan::{MissedInstants, Plan, Series};
    /// use tourbillon_durable::timer::TimerId;
    ///
    /// let plan = Plan::every(Duration::from_secs(60));
    /// let series = Series { id: TimerId::fresh(), plan, missed: MissedInstants::Skip, end: None, paused: false };
    /// // The process was down for ten minutes.
    /// let following = series.following(UtcMillis::ZERO, UtcMillis::from_millis(630_000));
    /// assert_eq!(following.instant, Some(UtcMillis::from_millis(660_000)));
    /// assert_eq!(following.skipped, 10);
    /// ```
    #[must_use]
    pub fn following(&self, scheduled: UtcMillis, now: UtcMillis) -> Following {
        let Ok(instants) = self.plan.instants() else { return Following { instant: None, skipped: 0 } };
        let within = |instant: &UtcMillis| self.end.is_none_or(|end| *instant <= end);
        let mut next = instants.next_after(scheduled).filter(within);
        let mut skipped = 0;
        if self.missed == MissedInstants::Skip {
            // After a long downtime, billions of instants of a short period may have passed. So their number is
            // computed in one step.
            if let (Instants::Every(millis), Some(first)) = (&instants, next)
                && first <= now
            {
                // Instants after the end of the series do not belong to the series, so they do not count as left out.
                let last = self.end.map_or(now, |end| end.min(now));
                let ahead = (last - first).as_millis() / u128::from(*millis) + 1;
                skipped = u64::try_from(ahead).unwrap_or(u64::MAX).min(MOST_COUNTED);
                let span = u64::try_from(ahead * u128::from(*millis)).unwrap_or(u64::MAX);
                next = Some(first + Duration::from_millis(span)).filter(within);
            }
            while let Some(instant) = next
                && instant <= now
            {
                skipped += 1;
                // A calendar finds its instants only one after the other. Without this limit, a downtime of years would
                // take too long.
                next = if skipped >= MOST_COUNTED {
                    instants.next_after(now)
                } else {
                    instants.next_after(instant)
                };
                next = next.filter(within);
            }
        }
        Following { instant: next, skipped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> UtcMillis {
        UtcMillis::from_millis(millis)
    }

    fn series(plan: Plan, missed: MissedInstants) -> Series {
        Series { id: TimerId::from_u128(1), plan, missed, end: None, paused: false }
    }

    #[test]
    fn an_occurrence_follows_the_scheduled_instant_not_the_late_end() {
        let skip = series(Plan::Every(1_000), MissedInstants::Skip);
        let follows = |now| skip.following(at(5_000), at(now));
        assert_eq!(follows(5_007), Following { instant: Some(at(6_000)), skipped: 0 });
        assert_eq!(follows(5_999), Following { instant: Some(at(6_000)), skipped: 0 });
        assert_eq!(follows(6_000), Following { instant: Some(at(7_000)), skipped: 1 });
        assert_eq!(follows(8_500), Following { instant: Some(at(9_000)), skipped: 3 });
        let all = series(Plan::Every(1_000), MissedInstants::All);
        assert_eq!(all.following(at(5_000), at(8_500)), Following { instant: Some(at(6_000)), skipped: 0 });
    }

    #[test]
    fn a_downtime_of_years_is_not_walked_for_ever() {
        let cron = Plan::Cron { expression: "* * * * * *".into(), zone: "UTC".into(), skip_gaps: false };
        let skip = series(cron, MissedInstants::Skip);
        let decade = at(10 * 365 * 86_400_000);
        let Following { instant, skipped } = skip.following(at(0), decade);
        assert_eq!(instant, Some(decade + Duration::from_secs(1)));
        assert_eq!(skipped, MOST_COUNTED);
        let every = series(Plan::Every(1), MissedInstants::Skip).following(at(0), decade);
        assert_eq!(
            every,
            Following { instant: Some(decade + Duration::from_millis(1)), skipped: MOST_COUNTED }
        );
    }

    #[test]
    fn a_series_ends() {
        let mut ending = series(Plan::Every(1_000), MissedInstants::Skip);
        ending.end = Some(at(6_000));
        assert_eq!(ending.following(at(5_000), at(5_000)).instant, Some(at(6_000)));
        assert_eq!(ending.following(at(6_000), at(6_000)).instant, None);
        assert_eq!(ending.following(UtcMillis::MAX, at(0)).instant, None);
    }

    #[test]
    fn plans_that_cannot_be_followed_are_refused() {
        let cron = |expression: &str, zone: &str| Plan::Cron {
            expression: expression.into(),
            zone: zone.into(),
            skip_gaps: true,
        };
        assert!(cron("0 9 * * *", "Europe/Zurich").validate().is_ok());
        assert!(cron("0 99 * * *", "Europe/Zurich").validate().is_err());
        assert!(cron("0 9 * * *", "Europe/Nowhere").validate().is_err());
        let monthly = |second| Plan::Monthly {
            day: 31,
            second,
            zone: "UTC".into(),
            last_if_short: true,
            skip_gaps: false,
        };
        assert!(monthly(86_399).validate().is_ok());
        assert!(matches!(monthly(86_400).validate(), Err(PlanError::Second(86_400))));
        assert_eq!(monthly(86_400).next_after(at(0)), None);
        let last_days = monthly(0).preview(at(0), 3).unwrap();
        let texts: Vec<String> = last_days.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["1970-01-31T00:00:00.000Z", "1970-02-28T00:00:00.000Z", "1970-03-31T00:00:00.000Z"]
        );
    }
}
