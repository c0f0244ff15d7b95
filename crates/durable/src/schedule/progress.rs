//! Computes the progress of a schedule after a change of the rule, a pause, or a step of the clock.

use super::instants::ScheduleInstants;
use super::{CatchUp, Progress, Schedule, Undecided};
use crate::id::TimerId;
use crate::plan::{Plan, PlanError};
use core::time::Duration;
use tourbillon_words::UtcMillis;

/// The greatest expected difference between the clocks of processes that share a store. If a stored moment is further
/// in the future, it was stored while the store's clock was ahead of the true time.
pub(super) const SLACK: Duration = Duration::from_secs(1);
/// The greatest number of spans of undecided instants, and of spans of missed instants that wait.
pub(super) const MOST_SPANS: usize = 100;

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);

impl Progress {
    /// Makes the progress of a new schedule, which is created at `now`.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn new(id: TimerId, schedule: &Schedule, now: UtcMillis) -> Result<Self, PlanError> {
        let next = ScheduleInstants::new(schedule, now)?.next_after(now);
        Ok(Self {
            id,
            created: now,
            settled: now,
            next,
            undecided: Vec::new(),
            storing: Vec::new(),
            storing_since: None,
            last_scheduled: None,
            last_fired: None,
            last_occurrence: None,
            queued: None,
            catch_up: Vec::new(),
            ahead: None,
            fired: 0,
            missed: 0,
            skipped: 0,
            asked: 0,
            paused: None,
            fault: None,
        })
    }

    /// Lets the instants up to the moment `come` come: notes them as undecided, and settles the time up to `come`.
    /// `sooner` is the moment of the change of the jitter that lets them come, see [`Undecided::sooner`].
    pub(super) fn let_come(
        &mut self,
        moments: &ScheduleInstants,
        come: UtcMillis,
        sooner: Option<UtcMillis>,
    ) {
        let first = moments.next_after(self.settled);
        let passed = moments.passed(first, come + MILLISECOND);
        if let (Some(next), Some(last)) = (first, passed.last) {
            match self.undecided.last_mut() {
                // The instants of a pause lie between two spans, and never come.
                Some(span) if span.sooner == sooner && moments.next_after(span.last) == first => {
                    span.last = last;
                }
                _ => self.undecided.push(Undecided { next, last, sooner }),
            }
        }
        // Each pause and each change of the jitter may leave a span, while no decision is possible.
        if self.undecided.len() > MOST_SPANS {
            self.missed += self.undecided.remove(0).count(moments);
        }
        self.settled = self.settled.max(come);
        self.next = passed.next;
    }

    /// Returns the progress once the instants have come that have passed by `now`. Instants of a pause do not come. An
    /// occurrence is due at its instant plus `offset`.
    pub(super) fn through(
        &self,
        schedule: &Schedule,
        offset: Duration,
        now: UtcMillis,
    ) -> Result<Self, PlanError> {
        let mut progress = self.clone().without_future(offset, now);
        let moments = ScheduleInstants::new(schedule, progress.created)?;
        progress.let_come(&moments, less(progress.paused.unwrap_or(now), offset), None);
        Ok(progress)
    }

    /// Computes the progress after the rule was changed. `before` and `after` are the former and the new rule, each
    /// with its offset: the time from an instant to the moment at which the occurrence is due. The module
    /// [`schedule`](super) says what happens to each instant.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn changed(
        &self,
        before: (&Schedule, Duration),
        after: (&Schedule, Duration),
        now: UtcMillis,
    ) -> Result<Self, PlanError> {
        let ((before, former_offset), (after, offset)) = (before, after);
        let mut progress = self.clone().without_future(former_offset, now);
        let moments = ScheduleInstants::new(after, progress.created)?;
        // Nobody can list the instants of a plan that is not valid.
        let former = ScheduleInstants::new(before, progress.created).ok();
        if let Some(former) = &former {
            progress.let_come(former, less(progress.paused.unwrap_or(now), former_offset), None);
        }
        let is_fixed = matches!(after.plan, Plan::Every(_));
        let is_same_plan = before.plan == after.plan && (before.start == after.start || !is_fixed);
        if progress.queued.is_some_and(|queued| moments.first_from(queued) != Some(queued)) {
            progress.queued = None;
            progress.skipped += 1;
        }
        // A span of another plan has other instants.
        let within = |span: CatchUp| if is_same_plan { span.within(&moments) } else { None };
        let mut missed = 0;
        let mut keep = |span: CatchUp| {
            let (waited, kept) = (former.as_ref().map_or(0, |former| span.count(former)), within(span));
            missed += waited.saturating_sub(kept.map_or(0, |kept| kept.count(&moments)));
            kept
        };
        progress.catch_up = progress.catch_up.into_iter().filter_map(&mut keep).collect();
        let undecided = progress.undecided.into_iter();
        progress.undecided = undecided.filter_map(|span| Some(span.with(keep(span.span())?))).collect();
        progress.missed += missed;
        let come = less(now, offset);
        if is_same_plan && progress.paused.is_none() {
            // With a shorter jitter, instants come at once that would have come later.
            let sooner = (come > progress.settled).then_some(now);
            progress.let_come(&moments, come, sooner);
        } else {
            progress.settled = progress.settled.max(come).max(less(now, former_offset));
        }
        progress.next = moments.next_after(progress.settled);
        Ok(Self { fault: None, ..progress })
    }

    /// Computes the progress of a schedule that is resumed. An occurrence is due at its instant plus `offset`.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn resumed(&self, schedule: &Schedule, offset: Duration, now: UtcMillis) -> Result<Self, PlanError> {
        // The instants before a pause stay, and those of the pause never come.
        let mut progress = self.through(schedule, offset, now)?;
        progress.settled = progress.settled.max(less(now, offset));
        progress.paused = None;
        progress.next = ScheduleInstants::new(schedule, progress.created)?.next_after(progress.settled);
        Ok(Self { fault: None, ..progress })
    }

    /// Computes the next instant again. Returns the corrected progress, or `None` if the next instant is the same. It
    /// differs if the progress was stored while the store's clock was ahead of the true time, or if the rules of the
    /// plan's time zone have changed since. The counters do not change. An occurrence is due at its instant plus
    /// `offset`.
    ///
    /// An instant that got its occurrence while the clock was ahead may come again now. It gets no second occurrence
    /// while the first occurrence is stored, or within an hour after the first occurrence ended. An instant that was
    /// missed or skipped while the clock was ahead may be counted again.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn followed(
        &self,
        schedule: &Schedule,
        offset: Duration,
        now: UtcMillis,
    ) -> Result<Option<Self>, PlanError> {
        let progress = self.clone().without_future(offset, now);
        let next = ScheduleInstants::new(schedule, progress.created)?.next_after(progress.settled);
        Ok((next != self.next).then_some(Self { next, ..progress }))
    }

    /// Returns the progress without the moments that are too far in the future: later than `now` by more than
    /// [`SLACK`]. Such moments were stored while the store's clock was ahead of the true time. Instants after the
    /// present time then come again.
    pub(super) fn without_future(mut self, offset: Duration, now: UtcMillis) -> Self {
        let latest = now + SLACK;
        let is_past = |moment: &UtcMillis| *moment <= latest;
        // Fixed periods may be counted from the creation. A creation in the future would hold back all instants until
        // then.
        self.created = if is_past(&self.created) { self.created } else { now };
        self.ahead = self.ahead.max(self.last_scheduled.filter(|last| !is_past(last)));
        self.last_scheduled = self.last_scheduled.filter(is_past);
        self.last_fired = self.last_fired.filter(is_past);
        self.paused = self.paused.map(|paused| if is_past(&paused) { paused } else { now });
        if is_past(&self.settled) {
            return self;
        }
        // The last instant may be later than now by up to `SLACK`, if the clock of another process is ahead. This
        // instant must not come again.
        let last = self.last_scheduled.unwrap_or(UtcMillis::ZERO);
        let settled = less(now, offset).max(self.created).max(last);
        self.settled = settled;
        self.queued = self.queued.filter(|queued| *queued <= settled);
        let cut = |span: CatchUp| {
            let last = span.last.min(settled);
            (span.next <= last).then_some(CatchUp { last, ..span })
        };
        self.catch_up = self.catch_up.into_iter().filter_map(cut).collect();
        let undecided = self.undecided.into_iter();
        self.undecided = undecided.filter_map(|span| Some(span.with(cut(span.span())?))).collect();
        self
    }

    /// Returns the moment of the next decision. Returns `None` if no instant is left. An occurrence is due at its
    /// instant plus `offset`.
    pub(super) fn wake(&self, offset: Duration, now: UtcMillis) -> Option<UtcMillis> {
        let next = self.next.map(|next| next + offset);
        // The decision about instants that have come is late since the first of them was due.
        let undecided = self.undecided.first().map(|span| span.sooner.unwrap_or(span.next + offset));
        let waiting = self.has_waiting().then_some(now);
        next.into_iter().chain(undecided).chain(waiting).min()
    }

    /// Returns whether an instant that has come still waits for its occurrence or for a decision.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        let is_empty = self.catch_up.is_empty() && self.undecided.is_empty() && self.storing.is_empty();
        self.queued.is_some() || !is_empty
    }

    /// Returns whether an instant that has come waits for a decision or for its occurrence.
    pub(super) fn has_waiting_instant(&self, instant: UtcMillis) -> bool {
        let is_in = |span: &CatchUp| span.next <= instant && instant <= span.last;
        self.queued == Some(instant)
            || self.catch_up.iter().any(is_in)
            || self.undecided.iter().any(|span| is_in(&span.span()))
            || self.storing.contains(&instant)
    }

    /// Returns the moment after which the schedule has its next instant: the present moment minus the jitter, or
    /// [`settled`](Self::settled) if this is later.
    pub(super) fn passed(&self, offset: Duration, now: UtcMillis) -> UtcMillis {
        less(now, offset).max(self.settled)
    }
}

impl CatchUp {
    /// Counts the instants that wait, up to [`MOST_COUNTED`](crate::plan::MOST_COUNTED).
    pub(super) fn count(self, moments: &ScheduleInstants) -> u64 {
        moments.passed(moments.first_from(self.next), self.last + MILLISECOND).count
    }

    /// Returns the instants that wait without those before the start or after the end of a schedule. `None` if none is
    /// left.
    fn within(self, moments: &ScheduleInstants) -> Option<Self> {
        let next = moments.first_from(self.next).filter(|next| *next <= self.last)?;
        Some(Self { next, last: moments.no_later_than_end(self.last) })
    }
}

impl Undecided {
    /// Returns the first and the last moment of the span.
    pub(super) fn span(self) -> CatchUp {
        CatchUp { next: self.next, last: self.last }
    }

    /// Returns the span with another first and last moment.
    pub(super) fn with(self, CatchUp { next, last }: CatchUp) -> Self {
        Self { next, last, ..self }
    }

    fn count(self, moments: &ScheduleInstants) -> u64 {
        self.span().count(moments)
    }
}

/// Returns the moment that is earlier than `moment` by `time`.
pub(super) fn less(moment: UtcMillis, time: Duration) -> UtcMillis {
    let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    UtcMillis::from_millis(moment.as_millis().saturating_sub(time))
}
