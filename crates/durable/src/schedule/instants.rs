//! Computes the instants of a schedule, for decisions and for previews.

use super::{Progress, Schedule};
use crate::plan::{Instants, MOST_COUNTED, Plan, PlanError};
use core::time::Duration;
use tourbillon_calendar::{ClockChange, jiff};
use tourbillon_words::UtcMillis;

/// An instant of a schedule and its local time, as a preview shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occurrence {
    /// The instant. `None` if a clock change skips the planned local time.
    pub instant: Option<UtcMillis>,
    /// The local time that the plan calls for, without the time zone's offset from UTC.
    pub planned: Box<str>,
    /// The local time at the instant, with the time zone's offset from UTC. `None` if there is no instant.
    pub local: Option<Box<str>>,
    /// The clock change that affects the instant. `None` if no clock change affects the instant.
    pub change: Option<ClockChange>,
}

/// The parsed form of a schedule's plan, which computes instants without parsing the plan again.
pub(super) struct ScheduleInstants {
    instants: Instants,
    /// The moment from which fixed periods are counted: the start of the schedule, or else its creation.
    anchor: UtcMillis,
    start: Option<UtcMillis>,
    end: Option<UtcMillis>,
}

/// The instants of a schedule before a given moment: their number, the last of them, and the instant that follows.
pub(super) struct Passed {
    pub(super) count: u64,
    pub(super) last: Option<UtcMillis>,
    /// The schedule's first instant that is not before the given moment. `None` if there is no such instant.
    pub(super) next: Option<UtcMillis>,
}

impl ScheduleInstants {
    pub(super) fn new(schedule: &Schedule, created: UtcMillis) -> Result<Self, PlanError> {
        let (start, end) = (schedule.start, schedule.end);
        Ok(Self { instants: schedule.plan.instants()?, anchor: start.unwrap_or(created), start, end })
    }

    /// Returns the schedule's first instant after `moment`, or `None` if there is no further instant.
    pub(super) fn next_after(&self, moment: UtcMillis) -> Option<UtcMillis> {
        self.first_from(moment + Duration::from_millis(1))
    }

    /// Returns the schedule's first instant that is not before `moment`, or `None` if there is no such instant.
    pub(super) fn first_from(&self, moment: UtcMillis) -> Option<UtcMillis> {
        let moment = self.start.map_or(moment, |start| moment.max(start));
        let first = match &self.instants {
            Instants::Every(_) if moment <= self.anchor => self.anchor,
            Instants::Every(millis) => {
                let periods = (moment - self.anchor).as_millis().div_ceil(u128::from(*millis));
                let span = u64::try_from(periods.saturating_mul(u128::from(*millis))).unwrap_or(u64::MAX);
                self.anchor + Duration::from_millis(span)
            }
            calendar @ Instants::Calendar(_) => calendar.first_from(moment)?,
        };
        self.has(first).then_some(first)
    }

    /// Returns the earlier one of a moment and the end of the schedule.
    pub(super) fn no_later_than_end(&self, moment: UtcMillis) -> UtcMillis {
        self.end.map_or(moment, |end| moment.min(end))
    }

    /// Returns whether an instant of the plan is one of the schedule.
    fn has(&self, instant: UtcMillis) -> bool {
        let is_before_start = self.start.is_some_and(|start| instant < start);
        let is_after_end = self.end.is_some_and(|end| instant > end);
        // Sums of moments stop at `MAX`, so `MAX` is not an instant. Otherwise it would follow itself without end.
        instant < UtcMillis::MAX && !is_before_start && !is_after_end
    }

    /// Counts the schedule's instants from `first` (included) to `moment` (excluded), up to [`MOST_COUNTED`]. `first`
    /// must be an instant of the schedule.
    pub(super) fn passed(&self, first: Option<UtcMillis>, moment: UtcMillis) -> Passed {
        let (mut count, mut last, mut next) = (0, None, first);
        if let (Instants::Every(millis), Some(first)) = (&self.instants, first)
            && first < moment
        {
            // The end of the schedule may be an instant, but `until` is excluded.
            let until = self.end.map_or(moment, |end| moment.min(end + Duration::from_millis(1)));
            let ahead = (until - first).as_millis().saturating_sub(1) / u128::from(*millis);
            let span = u64::try_from(ahead * u128::from(*millis)).unwrap_or(u64::MAX);
            let at = first + Duration::from_millis(span);
            count = u64::try_from(ahead + 1).unwrap_or(u64::MAX).min(MOST_COUNTED);
            (last, next) = (Some(at), self.next_after(at));
        }
        while let Some(instant) = next.filter(|instant| *instant < moment) {
            if count >= MOST_COUNTED {
                // The remaining instants are not counted, but the last one may still get an occurrence
                // (`Missed::Once`).
                last = self.last_before(instant, moment);
                next = self.first_from(moment);
                break;
            }
            (count, last, next) = (count + 1, Some(instant), self.next_after(instant));
        }
        Passed { count, last, next }
    }

    /// Returns a moment that separates the last `most` instants before `moment` from all earlier instants. The last
    /// `most` instants are at the returned moment or later. Returns `None` if there are at most `most` instants from
    /// `first` to `moment`. `first` must be an instant of the schedule. The search assumes that the instants of a
    /// calendar are at least a second apart.
    pub(super) fn beginning_of_last(
        &self,
        most: u64,
        first: Option<UtcMillis>,
        moment: UtcMillis,
    ) -> Option<UtcMillis> {
        let first = first.filter(|first| *first < moment)?;
        let moment = self.end.map_or(moment, |end| moment.min(end + Duration::from_millis(1)));
        let span = moment - first;
        if let Instants::Every(millis) = &self.instants {
            let count = span.as_millis().div_ceil(u128::from(*millis));
            let more = count.checked_sub(u128::from(most)).filter(|more| *more > 0)?;
            let ahead = u64::try_from(more * u128::from(*millis)).unwrap_or(u64::MAX);
            return Some(first + Duration::from_millis(ahead));
        }
        let back = |seconds: u64| UtcMillis::from_millis(moment.as_millis().saturating_sub(seconds * 1_000));
        let is_too_early = |from: UtcMillis| {
            let all = core::iter::successors(self.first_from(from), |at| self.next_after(*at));
            all.take_while(|instant| *instant < moment)
                .nth(usize::try_from(most).unwrap_or(usize::MAX))
                .is_some()
        };
        // A span of `most` seconds has at most `most` instants. The longer span reaches back beyond `first`.
        let (mut few, mut many) = (most, span.as_secs() + 1);
        if many <= few || !is_too_early(first) {
            return None;
        }
        while many - few > 1 {
            // At first the search doubles the span, since counting is fast in short spans. Then it halves the interval
            // between the span with few instants and the span with many instants.
            let middle = if many / 2 > few { few * 2 } else { few + (many - few) / 2 };
            if is_too_early(back(middle)) {
                many = middle;
            } else {
                few = middle;
            }
        }
        Some(back(few))
    }

    /// Returns the schedule's last instant before `moment`. `from` must be an instant of the schedule, and is the
    /// earliest possible result.
    fn last_before(&self, from: UtcMillis, moment: UtcMillis) -> Option<UtcMillis> {
        let (end, mut span, mut last) = (just_before(moment), 1_000_u64, Some(from));
        loop {
            let back = UtcMillis::from_millis(end.as_millis().saturating_sub(span)).max(from);
            let mut next = self.next_after(back);
            if next.is_some_and(|next| next <= end) || back == from {
                while let Some(instant) = next.filter(|instant| *instant <= end) {
                    (last, next) = (Some(instant), self.next_after(instant));
                }
                return last;
            }
            span = span.saturating_mul(2);
        }
    }

    /// Returns the schedule's first `count` instants after `moment`, in the form for a preview.
    fn occurrences(&self, moment: UtcMillis, count: usize) -> Vec<Occurrence> {
        let Instants::Calendar(calendar) = &self.instants else {
            let next = |at: &UtcMillis| self.next_after(*at);
            let all = core::iter::successors(self.next_after(moment), next).take(count);
            let shown = |instant: UtcMillis| {
                // A plan with a fixed period has no time zone, so its instants are shown in UTC.
                let planned = jiff::tz::TimeZone::UTC.to_datetime(timestamp(instant)?).to_string();
                let local = Some(format!("{planned}+00:00").into());
                Some(Occurrence { instant: Some(instant), planned: planned.into(), local, change: None })
            };
            return all.map_while(shown).collect();
        };
        let moment = self.start.map_or(moment, |start| moment.max(just_before(start)));
        let Some(after) = timestamp(moment) else { return Vec::new() };
        let occurrences = calendar.preview(after, count).into_iter();
        let shown = occurrences.map(|one| shown_occurrence(&one));
        let is_within = |one: &Occurrence| one.instant.is_none_or(|instant| self.has(instant));
        let mut shown: Vec<_> = shown.take_while(is_within).collect();
        if self.end.is_some() {
            // A local time that a clock change skips has no instant to compare with the end. If no later instant is
            // before the end, the skipped time may be after the end. So it is left out.
            while shown.last().is_some_and(|last| last.instant.is_none()) {
                shown.pop();
            }
        }
        shown
    }
}

/// Returns the moment a millisecond before `moment`.
fn just_before(moment: UtcMillis) -> UtcMillis {
    UtcMillis::from_millis(moment.as_millis().saturating_sub(1))
}

fn timestamp(moment: UtcMillis) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(i64::try_from(moment.as_millis()).ok()?).ok()
}

fn shown_occurrence(one: &tourbillon_calendar::Occurrence) -> Occurrence {
    Occurrence {
        instant: one.run.and_then(|run| {
            let millis = run.instant.as_nanosecond().div_euclid(1_000_000);
            Some(UtcMillis::from_millis(u64::try_from(millis).ok()?))
        }),
        planned: one.planned.to_string().into(),
        local: one.run.map(|run| run.to_string().into()),
        change: one.change,
    }
}

impl Schedule {
    /// Returns the next `count` instants after `moment`, in order. `created` is the moment at which the schedule is
    /// created. The list also contains the local times that a clock change skips. These entries have no instant, and do
    /// not count towards `count`.
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
    /// use tourbillon_durable::schedule::{ClockChange, Schedule};
    ///
    /// let plan = Plan::Cron { expression: "30 2 * * *".into(), zone: "Europe/Zurich".into(), skip_gaps: false };
    /// let evening = UtcMillis::from_millis(1_774_728_000_000);
    /// assert_eq!(evening.to_string(), "2026-03-28T20:00:00.000Z");
    /// let next = Schedule::new(plan).preview(evening, evening, 2)?;
    /// assert_eq!(next[0].planned.as_ref(), "2026-03-29T02:30:00");
    /// assert_eq!(next[0].local.as_deref(), Some("2026-03-29T03:00:00+02:00"));
    /// assert_eq!(next[0].change, Some(ClockChange::Moved));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn preview(
        &self,
        created: UtcMillis,
        moment: UtcMillis,
        count: usize,
    ) -> Result<Vec<Occurrence>, PlanError> {
        Ok(ScheduleInstants::new(self, created)?.occurrences(moment, count))
    }
}

impl Progress {
    /// Returns the instants for which a backfill makes occurrences: the first `limit` instants that are not before
    /// `from`, and not later than `until`.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn instants(
        &self,
        schedule: &Schedule,
        from: UtcMillis,
        until: UtcMillis,
        limit: usize,
    ) -> Result<Vec<UtcMillis>, PlanError> {
        // Without a start, fixed periods are counted from the creation. A backfill may begin before the creation, so
        // the anchor is the creation minus as many whole periods as possible.
        let anchor = match &schedule.plan {
            // A stored period of zero counts as a millisecond, as in `Plan::instants`.
            Plan::Every(millis) => self.created.as_millis() % (*millis).max(1),
            _ => 0,
        };
        let moments = ScheduleInstants::new(schedule, UtcMillis::from_millis(anchor))?;
        let first = moments.first_from(from);
        let all = core::iter::successors(first, |at| moments.next_after(*at));
        Ok(all.take_while(|instant| *instant <= until).take(limit).collect())
    }
}
