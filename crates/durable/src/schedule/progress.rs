//! Computes the progress of a schedule after a change of the rule, a pause, or a step of the clock.

use super::instants::ScheduleInstants;
use super::{CatchUp, Progress, Schedule, Sooner};
use crate::id::TimerId;
use crate::plan::{Plan, PlanError};
use core::time::Duration;
use tourbillon_words::UtcMillis;

/// The greatest expected difference between the clocks of processes that share a store. If a stored moment is further
/// in the future, it was stored while the store's clock was ahead of the true time.
pub(super) const SLACK: Duration = Duration::from_secs(1);

const MILLISECOND: Duration = Duration::from_millis(1);

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
            last_scheduled: None,
            last_fired: None,
            last_occurrence: None,
            queued: None,
            catch_up: Vec::new(),
            sooner: None,
            ahead: None,
            fired: 0,
            missed: 0,
            skipped: 0,
            asked: 0,
            paused: false,
            fault: None,
        })
    }

    /// Computes the progress after the rule was changed. `before` and `after` are the former and the new rule, each
    /// with its offset: the time from an instant to the moment at which the occurrence is due. An instant has passed if
    /// its occurrence would be due by now.
    ///
    /// - Instants that have passed without a decision, and instants that wait for their occurrences, stay if the new
    ///   rule has them. Missed instants that wait stay only if the plan is the same.
    /// - The others are left out. Those that waited because of an overlap count as skipped, and all others as missed.
    /// - After a change of the plan, no other instant that has passed comes any more. The same holds after a change of
    ///   the start of a plan with a fixed period, after a change of an end that has passed, and after a time in which
    ///   the plan was not valid. Instants that have passed without a decision then count as missed.
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
        let is_fixed = matches!(after.plan, Plan::Every(_));
        let is_same_plan = before.plan == after.plan && (before.start == after.start || !is_fixed);
        let followed = if is_same_plan { self.followed(after, offset, now)? } else { None };
        let is_followed = followed.is_some();
        let mut progress = followed.unwrap_or_else(|| self.clone().without_future(now));
        let moments = ScheduleInstants::new(after, progress.created)?;
        // Nobody can list the instants of a plan that is not valid.
        let former = ScheduleInstants::new(before, self.created).ok();
        let (had_come, come) = (less(now, former_offset), less(now, offset));
        let passed = had_come.max(come);
        let is_anew = !is_same_plan || self.fault.is_some();
        // A schedule that had ended had no instants since its end.
        let is_other_end = before.end != after.end && before.end.is_some_and(|end| end < passed);
        let has_ended = self.next.is_none() || is_other_end;
        if is_anew || has_ended {
            progress.settled = progress.settled.max(passed);
            progress.next = moments.next_after(progress.passed(offset, now));
        } else if !is_followed {
            progress.next = progress.next.and_then(|next| moments.first_from(next));
        }
        // Instants that pass during a pause are not counted.
        if !self.paused {
            let count = |moments: &ScheduleInstants, next| moments.passed(next, passed + MILLISECOND).count;
            let had_passed = former.as_ref().map_or(0, |former| count(former, self.next));
            progress.missed += had_passed.saturating_sub(count(&moments, progress.next));
        }
        if progress.queued.is_some_and(|queued| moments.first_from(queued) != Some(queued)) {
            progress.queued = None;
            progress.skipped += 1;
        }
        let catch_up = core::mem::take(&mut progress.catch_up);
        for span in catch_up {
            let waited = former.as_ref().map_or(0, |former| span.count(former));
            // A span of another plan has other instants.
            let kept = if is_same_plan { span.within(&moments) } else { None };
            progress.missed += waited.saturating_sub(kept.map_or(0, |kept| kept.count(&moments)));
            progress.catch_up.extend(kept);
        }
        if come > had_come && !is_anew {
            let active = self.sooner.filter(|sooner| sooner.is_active(before, now));
            let after = active.map_or(had_come, |sooner| sooner.after.min(had_come));
            progress.sooner = Some(Sooner { after, at: now });
        }
        Ok(Self { fault: None, ..progress })
    }

    /// Computes the progress of a schedule that is resumed. Instants are left out if their occurrences would have been
    /// due during a pause. Instants that passed while the plan was not valid count as missed. An occurrence is due at
    /// its instant plus `offset`.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn resumed(&self, schedule: &Schedule, offset: Duration, now: UtcMillis) -> Result<Self, PlanError> {
        let followed = self.followed(schedule, offset, now)?;
        let mut progress = followed.unwrap_or_else(|| self.clone().without_future(now));
        let moments = ScheduleInstants::new(schedule, progress.created)?;
        if self.paused {
            progress.settled = progress.settled.max(less(now, offset));
            progress.next = moments.next_after(progress.passed(offset, now));
        }
        Ok(Self { paused: false, fault: None, ..progress })
    }

    /// Corrects the progress of a schedule, if the progress was stored while the store's clock was ahead of the true
    /// time. The progress needs a correction if its next instant is later than the first instant that has not passed.
    /// Otherwise the result is `None`. The counters do not change. An occurrence is due at its instant plus `offset`.
    ///
    /// An instant that got its occurrence while the clock was ahead may come again now. It gets no second occurrence
    /// while the first occurrence is stored, or within an hour after the first occurrence ended.
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
        let progress = self.clone().without_future(now);
        let first =
            ScheduleInstants::new(schedule, progress.created)?.next_after(progress.passed(offset, now));
        let is_behind = match (self.next, first) {
            // While the clock does not step back, the next instant is at most the first instant that has not passed.
            (Some(next), Some(first)) => first < next,
            // A schedule that has ended by the present clock has no later instant, so a clock that was ahead has ended
            // this schedule.
            (None, Some(_)) => true,
            _ => false,
        };
        Ok(is_behind.then_some(Self { next: first, ..progress }))
    }

    /// Returns the progress without the moments that are too far in the future: later than `now` by more than
    /// [`SLACK`]. Such moments were stored while the store's clock was ahead of the true time.
    pub(super) fn without_future(mut self, now: UtcMillis) -> Self {
        let latest = now + SLACK;
        let is_past = |moment: &UtcMillis| *moment <= latest;
        // Fixed periods may be counted from the creation. A creation in the future would hold back all instants until
        // then.
        self.created = if is_past(&self.created) { self.created } else { now };
        self.settled = if is_past(&self.settled) { self.settled } else { now };
        self.ahead = self.ahead.max(self.last_scheduled.filter(|last| !is_past(last)));
        self.last_scheduled = self.last_scheduled.filter(is_past);
        self.last_fired = self.last_fired.filter(is_past);
        self.queued = self.queued.filter(is_past);
        self.sooner = self.sooner.filter(|sooner| is_past(&sooner.at));
        self.catch_up.retain(|span| span.next <= now);
        for span in &mut self.catch_up {
            span.last = span.last.min(now);
        }
        self
    }

    /// Returns the moment after which the schedule looks for its next instant. This is the latest of three moments: the
    /// last instant whose occurrence would be due by now, the last instant about which a decision was made
    /// ([`last_scheduled`](Self::last_scheduled)), and [`settled`](Self::settled).
    pub(super) fn passed(&self, offset: Duration, now: UtcMillis) -> UtcMillis {
        let passed = less(now, offset).max(self.settled);
        // The last instant may be later than now by up to `SLACK`, if the clock of another process is ahead. This
        // instant must not come again.
        self.last_scheduled.map_or(passed, |last| last.max(passed))
    }
}

impl CatchUp {
    /// Counts the instants that wait, up to [`MOST_COUNTED`](crate::plan::MOST_COUNTED).
    pub(super) fn count(self, moments: &ScheduleInstants) -> u64 {
        moments.passed(Some(self.next), self.last + MILLISECOND).count
    }

    /// Returns the instants that wait without those before the start or after the end of a schedule. `None` if none is
    /// left.
    fn within(self, moments: &ScheduleInstants) -> Option<Self> {
        let next = moments.first_from(self.next).filter(|next| *next <= self.last)?;
        Some(Self { next, last: moments.no_later_than_end(self.last) })
    }
}

impl Sooner {
    /// Returns whether instants after [`after`](Self::after) are still on time at `now`.
    pub(super) fn is_active(&self, schedule: &Schedule, now: UtcMillis) -> bool {
        now <= self.at + schedule.grace
    }
}

/// Returns the moment that is earlier than `moment` by `time`.
pub(super) fn less(moment: UtcMillis, time: Duration) -> UtcMillis {
    let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    UtcMillis::from_millis(moment.as_millis().saturating_sub(time))
}
