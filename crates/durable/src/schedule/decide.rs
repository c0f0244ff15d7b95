//! Makes the decisions of schedules. A decision determines which of the instants that have come get occurrences.

use super::instants::{ScheduleInstants, just_before};
use super::{CatchUp, Missed, Overlap, Progress, Schedule};
use crate::id::TimerId;
use crate::plan::PlanError;
use core::time::Duration;
use tourbillon_words::UtcMillis;

/// The greatest number of instants that a single decision handles. Each of these instants gets an occurrence, is
/// skipped, or is queued. Missed instants without an occurrence do not count.
pub const MOST_AT_ONCE: usize = 100;
/// The greatest number of missed instants that get occurrences with [`Missed::All`]. If more instants were missed, only
/// the latest ones get occurrences.
pub const MOST_CAUGHT_UP: u64 = 10_000;
/// The greatest expected difference between the clocks of processes that share a store. If a stored moment is further
/// in the future, it was stored while the store's clock was ahead of the true time.
pub(super) const SLACK: Duration = Duration::from_secs(1);
/// The shortest and the longest interval at which a schedule checks whether its last occurrence has ended, while an
/// instant waits for this end. An occurrence that is younger than a minute is checked at least each second, and then
/// after each sixtieth of its age.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));

/// The result of a decision, which determines which of the instants that have come get occurrences.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// The instants that get occurrences by this decision.
    pub fire: Vec<UtcMillis>,
    /// The number of instants that were missed and got no occurrence.
    pub missed: u64,
    /// The number of instants that were skipped because of an overlap.
    pub skipped: u64,
    /// The progress of the schedule through its instants, after the decision.
    pub progress: Progress,
    /// The moment of the next decision (choice of the instants that get occurrences). `None` if the schedule has ended.
    pub wake: Option<UtcMillis>,
}

impl Progress {
    /// Makes the progress of a new schedule, which is created at `now`.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn new(id: TimerId, schedule: &Schedule, now: UtcMillis) -> Result<Self, PlanError> {
        let next = ScheduleInstants::new(schedule, now)?.next_after(just_before_start(schedule, now));
        Ok(Self {
            id,
            created: now,
            next,
            last_scheduled: None,
            last_fired: None,
            last_occurrence: None,
            queued: None,
            catch_up: None,
            fired: 0,
            missed: 0,
            skipped: 0,
            asked: 0,
            paused: false,
            fault: None,
        })
    }

    /// Computes the progress after the rule was changed from `before` to `after`. The counters do not change. Normally,
    /// instants that have passed without a decision still get a decision. In three cases these instants are left out,
    /// and only instants after `now` count:
    ///
    /// - The plan, the start or the end has changed.
    /// - The plan was not valid before the change.
    /// - The next instant was computed while the store's clock was ahead of the true time.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn changed(&self, before: &Schedule, after: &Schedule, now: UtcMillis) -> Result<Self, PlanError> {
        let is_same = before.plan == after.plan && before.start == after.start && before.end == after.end;
        let followed = if is_same { self.followed(after, now)? } else { None };
        let is_clean = is_same && followed.is_none() && self.fault.is_none();
        let progress = followed.unwrap_or_else(|| self.clone()).without_future(now);
        let moments = ScheduleInstants::new(after, progress.created)?;
        let next = if is_clean { self.next } else { moments.next_after(progress.passed(after, now)) };
        // Missed instants of another plan are no instants of this plan.
        let catch_up = progress.catch_up.filter(|_| is_same);
        Ok(Self { next, catch_up, fault: None, ..progress })
    }

    /// Computes the progress of a schedule that is resumed. Instants that passed during a pause are left out. Instants
    /// that passed while the plan was not valid count as missed.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn resumed(&self, schedule: &Schedule, now: UtcMillis) -> Result<Self, PlanError> {
        let followed = self.followed(schedule, now)?;
        let is_past = self.paused || followed.is_some();
        let progress = followed.unwrap_or_else(|| self.clone()).without_future(now);
        let moments = ScheduleInstants::new(schedule, progress.created)?;
        let next = if is_past { moments.next_after(progress.passed(schedule, now)) } else { self.next };
        Ok(Self { next, paused: false, fault: None, ..progress })
    }

    /// Corrects the progress of a schedule, if the progress was stored while the store's clock was ahead of the true
    /// time. The progress needs a correction if its next instant is later than the first instant after now. Otherwise
    /// the result is `None`. The counters do not change.
    ///
    /// An instant that got its occurrence while the clock was ahead may come again now. It gets no second occurrence
    /// while the first occurrence is stored, or within an hour after the first occurrence ended.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    pub fn followed(&self, schedule: &Schedule, now: UtcMillis) -> Result<Option<Self>, PlanError> {
        let progress = self.clone().without_future(now);
        let first =
            ScheduleInstants::new(schedule, progress.created)?.next_after(progress.passed(schedule, now));
        let is_behind = match (self.next, first) {
            // While the clock does not step back, the next instant is at most the first instant after now.
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
    fn without_future(mut self, now: UtcMillis) -> Self {
        let latest = now + SLACK;
        let is_past = |moment: &UtcMillis| *moment <= latest;
        // Fixed periods may be counted from the creation. A creation in the future would hold back all instants until
        // then.
        self.created = if is_past(&self.created) { self.created } else { now };
        self.last_scheduled = self.last_scheduled.filter(is_past);
        self.last_fired = self.last_fired.filter(is_past);
        self.queued = self.queued.filter(is_past);
        let catch_up = self.catch_up.filter(|catch_up| catch_up.next <= now);
        self.catch_up = catch_up.map(|CatchUp { next, last }| CatchUp { next, last: last.min(now) });
        self
    }

    /// Returns the moment after which the schedule looks for its next instant. This is the latest of three moments:
    /// now, the last instant about which a decision was made ([`last_scheduled`](Self::last_scheduled)), and the
    /// millisecond before the start of the schedule ([`Schedule::start`]).
    fn passed(&self, schedule: &Schedule, now: UtcMillis) -> UtcMillis {
        let now = just_before_start(schedule, now);
        // The last instant may be later than now by up to `SLACK`, if the clock of another process is ahead. This
        // instant must not come again.
        self.last_scheduled.map_or(now, |last| last.max(now))
    }

    /// Decides which of the instants that have come at `now` get occurrences. An occurrence is due at its instant plus
    /// `offset`. `is_under_way` is true if the last occurrence has not ended.
    ///
    /// With [`Missed::All`], the missed instants wait in [`catch_up`](Self::catch_up) for their occurrences, and are
    /// never skipped. With [`Overlap::Allow`], they get their occurrences at once. Otherwise each of them gets its
    /// occurrence after the end of the occurrence before.
    ///
    /// # Errors
    ///
    /// Fails if the plan is not valid.
    ///
    /// # Time complexity
    ///
    /// At most [`MOST_AT_ONCE`] instants get occurrences. If more instants have come, the next decision is due at once.
    /// Missed instants are counted up to [`MOST_COUNTED`](crate::plan::MOST_COUNTED). If the plan has a fixed period, a
    /// division computes their number. Otherwise they are counted one by one. With [`Missed::All`], a search finds the
    /// last [`MOST_CAUGHT_UP`] missed instants.
    pub fn decide(
        &self,
        schedule: &Schedule,
        offset: Duration,
        now: UtcMillis,
        is_under_way: bool,
    ) -> Result<Decision, PlanError> {
        let moments = ScheduleInstants::new(schedule, self.created)?;
        let mut work = Work {
            overlap: schedule.overlap,
            is_under_way,
            fire: Vec::new(),
            missed: 0,
            skipped: 0,
            progress: self.clone(),
        };
        let earliest_missed = work.progress.catch_up.map(|catch_up| catch_up.next);
        if !work.is_under_way
            && let Some(queued) = work.progress.queued
            && earliest_missed.is_none_or(|missed| queued < missed)
        {
            work.progress.queued = None;
            work.fire(queued);
        }
        // Instants up to `come` have come. Of these, instants before `on_time` are missed. An instant comes only with
        // its offset, so the decision looks at the last occurrence as late as possible.
        let come = UtcMillis::from_millis(now.as_millis().saturating_sub(millis(offset)));
        // The grace may be as long as `Duration::MAX`. Then no instant is missed.
        let on_time = UtcMillis::from_millis(come.as_millis().saturating_sub(millis(schedule.grace)));
        if schedule.missed == Missed::All {
            work.note_missed(&moments, on_time);
        } else {
            if let Some(CatchUp { next, last }) = work.progress.catch_up.take() {
                // The rule was changed, and now leaves these instants out.
                work.missed += moments.passed(Some(next), last + Duration::from_millis(1)).count;
            }
            let passed = moments.passed(work.progress.next, on_time);
            work.progress.next = passed.next;
            if let Some(last) = passed.last {
                work.progress.last_scheduled = Some(last);
                let is_one_on_time = passed.next.is_some_and(|next| next <= come);
                // The occurrence of an instant that is on time also stands for the missed instants.
                if schedule.missed == Missed::Once && !is_one_on_time {
                    work.missed += passed.count - 1;
                    work.take(last);
                } else {
                    work.missed += passed.count;
                }
            }
        }
        let mut decided = 0;
        while decided < MOST_AT_ONCE
            && let Some(CatchUp { next, last }) = work.progress.catch_up
            && (work.overlap == Overlap::Allow || !work.is_under_way)
        {
            decided += 1;
            work.fire(next);
            let following = moments.next_after(next).filter(|following| *following <= last);
            work.progress.catch_up = following.map(|next| CatchUp { next, last });
        }
        while let Some(instant) = work.progress.next.filter(|instant| *instant <= come) {
            if decided == MOST_AT_ONCE {
                break;
            }
            decided += 1;
            work.take(instant);
            work.progress.last_scheduled = Some(instant);
            work.progress.next = moments.next_after(instant);
        }
        let Work { fire, missed, skipped, mut progress, .. } = work;
        progress.missed = progress.missed.saturating_add(missed);
        progress.skipped = progress.skipped.saturating_add(skipped);
        progress.fired = progress.fired.saturating_add(fire.len() as u64);
        if let Some(last) = fire.last() {
            progress.last_fired = Some(now);
            progress.last_occurrence = Some(TimerId::of_occurrence(progress.id, *last));
        }
        // The last occurrence may be quick or take long, so the checks become rarer with its age.
        let second = Duration::from_secs(1);
        let age = progress.last_fired.filter(|fired| *fired <= now).map_or(second, |fired| now - fired);
        let look = now + age.min(second).max(age / 60).clamp(LOOK.0, LOOK.1);
        let next = progress.next.map(|next| next + offset);
        let of_catch_up =
            progress.catch_up.map(|_| if schedule.overlap == Overlap::Allow { now } else { look });
        let of_queued = progress.queued.map(|_| look);
        let wake = next.into_iter().chain(of_catch_up).chain(of_queued).min();
        Ok(Decision { fire, missed, skipped, progress, wake })
    }
}

/// Returns now or the millisecond before the schedule's start, whichever is later.
fn just_before_start(schedule: &Schedule, now: UtcMillis) -> UtcMillis {
    schedule.start.map_or(now, |start| now.max(just_before(start)))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The interim results of a decision about a schedule's instants.
struct Work {
    overlap: Overlap,
    is_under_way: bool,
    fire: Vec<UtcMillis>,
    missed: u64,
    skipped: u64,
    progress: Progress,
}

impl Work {
    fn fire(&mut self, instant: UtcMillis) {
        self.fire.push(instant);
        self.is_under_way = true;
    }

    /// Adds the instants before `on_time` to the instants that wait in [`Progress::catch_up`]. If more than
    /// [`MOST_CAUGHT_UP`] instants would wait, leaves out the earliest ones.
    fn note_missed(&mut self, moments: &ScheduleInstants, on_time: UtcMillis) {
        let passed = moments.passed(self.progress.next, on_time);
        let Some(last) = passed.last else { return };
        // A schedule that is still catching up decides about later instants by its `Overlap`. If it misses instants
        // then, the instants between the two times without a process wait again.
        let first = self.progress.catch_up.map(|catch_up| catch_up.next).or(self.progress.next);
        let first = match moments.beginning_of_last(MOST_CAUGHT_UP, first, on_time) {
            None => first,
            Some(from) => {
                let left_out = moments.passed(first, from);
                self.missed += left_out.count;
                left_out.next
            }
        };
        self.progress.catch_up = first.map(|next| CatchUp { next, last });
        // A queued instant that now waits with the missed ones must not get a second occurrence.
        self.progress.queued =
            self.progress.queued.filter(|queued| first.is_none_or(|first| *queued < first));
        (self.progress.next, self.progress.last_scheduled) = (passed.next, Some(last));
    }

    /// Decides about an instant by the schedule's [`Overlap`]. The instant gets an occurrence, is queued, or is
    /// skipped.
    fn take(&mut self, instant: UtcMillis) {
        match self.overlap {
            Overlap::Allow => self.fire(instant),
            _ if !self.is_under_way => self.fire(instant),
            Overlap::QueueOne if self.progress.queued.is_none() => self.progress.queued = Some(instant),
            _ => self.skipped += 1,
        }
    }
}
