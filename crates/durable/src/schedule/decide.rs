//! Makes the decisions of schedules. A decision determines which of the instants that have come get occurrences.

use super::instants::ScheduleInstants;
use super::progress::{MILLISECOND, MOST_SPANS, less};
use super::{CatchUp, Missed, Overlap, Progress, Schedule, Undecided};
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
/// The shortest and the longest interval at which a schedule checks whether its last occurrence has ended, while an
/// instant waits for this end. An occurrence that is younger than a minute is checked at least each second, and then
/// after each sixtieth of its age.
pub(super) const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));

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
    /// The instants that were missed or skipped, without the spans that [`Progress`] had no room for.
    pub(super) left_out: LeftOut,
}

/// The instants to which a decision gave no occurrences.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LeftOut {
    /// The spans of the instants that count in [`Progress::missed`].
    pub(super) missed: Vec<CatchUp>,
    /// The instants that count in [`Progress::skipped`].
    pub(super) skipped: Vec<UtcMillis>,
}

impl Progress {
    /// Decides which of the instants that have come at `now` get occurrences. An occurrence is due at its instant plus
    /// `offset`. `is_under_way` is true if the last occurrence has not ended.
    ///
    /// The missed instants that get occurrences by the schedule's [`Missed`] wait in [`catch_up`](Self::catch_up), and
    /// are never skipped. With [`Overlap::Allow`], they get their occurrences at once. Otherwise each of them gets its
    /// occurrence after the end of the occurrence before. With [`Missed::Once`], an instant that is on time and gets
    /// its occurrence at once stands for the missed instants.
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
            left_out: LeftOut::default(),
            progress: self.clone().without_future(offset, now),
        };
        // An instant comes only with its offset, so the decision looks at the last occurrence as late as possible.
        let come = less(now, offset);
        work.progress.let_come(&moments, come, None);
        let without_room = work.progress.missed.saturating_sub(self.missed);
        let earliest_missed = work.progress.catch_up.first().map(|span| span.next);
        if work.is_free()
            && let Some(queued) = work.progress.queued
            && earliest_missed.is_none_or(|missed| queued < missed)
        {
            work.progress.queued = None;
            work.fire(queued);
        }
        let (late, on_time) = work.split_by_grace(&moments, schedule.grace, come, now);
        work.note_missed(&moments, schedule.missed, &late, !on_time.is_empty());
        let mut decided = 0;
        while decided < MOST_AT_ONCE
            && work.is_free()
            && let Some(CatchUp { next, last }) = work.progress.catch_up.first().copied()
        {
            decided += 1;
            work.fire(next);
            let following = moments.next_after(next).filter(|following| *following <= last);
            drop(work.progress.catch_up.splice(..1, following.map(|next| CatchUp { next, last })));
        }
        for mut span in on_time {
            let mut next = Some(span.next);
            while decided < MOST_AT_ONCE
                && let Some(instant) = next
            {
                decided += 1;
                work.take(instant);
                next = moments.next_after(instant).filter(|next| *next <= span.last);
            }
            if let Some(next) = next {
                span.next = next;
                work.progress.undecided.push(span);
            }
        }
        let Work { fire, missed, left_out, mut progress, .. } = work;
        let skipped = left_out.skipped.len() as u64;
        progress.missed = progress.missed.saturating_add(missed);
        progress.skipped = progress.skipped.saturating_add(skipped);
        progress.fired = progress.fired.saturating_add(fire.len() as u64);
        // A later instant had no decision while the clock was ahead.
        progress.ahead =
            progress.ahead.filter(|ahead| progress.last_scheduled.is_none_or(|last| last < *ahead));
        if let Some(last) = fire.last() {
            progress.last_fired = Some(now);
            progress.last_occurrence = Some(TimerId::of_occurrence(progress.id, *last));
        }
        // The last occurrence may be quick or take long, so the checks become rarer with its age.
        let second = Duration::from_secs(1);
        let age = progress.last_fired.filter(|fired| *fired <= now).map_or(second, |fired| now - fired);
        let look = now + age.min(second).max(age / 60).clamp(LOOK.0, LOOK.1);
        let next = progress.next.map(|next| next + offset);
        let of_undecided = (!progress.undecided.is_empty()).then_some(now);
        let of_catch_up = (!progress.catch_up.is_empty()).then_some(if schedule.overlap == Overlap::Allow {
            now
        } else {
            look
        });
        let of_queued = progress.queued.map(|_| look);
        let wake = next.into_iter().chain(of_undecided).chain(of_catch_up).chain(of_queued).min();
        let missed = missed.saturating_add(without_room);
        Ok(Decision { fire, missed, skipped, progress, wake, left_out })
    }
}

/// The interim results of a decision about a schedule's instants.
struct Work {
    overlap: Overlap,
    is_under_way: bool,
    fire: Vec<UtcMillis>,
    missed: u64,
    left_out: LeftOut,
    progress: Progress,
}

impl Work {
    fn fire(&mut self, instant: UtcMillis) {
        self.fire.push(instant);
        self.is_under_way = true;
    }

    /// Returns whether an instant may get its occurrence at once.
    fn is_free(&self) -> bool {
        self.overlap == Overlap::Allow || !self.is_under_way
    }

    /// Takes the undecided instants, and splits them into those that are late by more than the grace, and those that
    /// are on time. Instants up to `come` have come by `now`.
    fn split_by_grace(
        &mut self,
        moments: &ScheduleInstants,
        grace: Duration,
        come: UtcMillis,
        now: UtcMillis,
    ) -> (Vec<CatchUp>, Vec<Undecided>) {
        let (mut late, mut on_time) = (Vec::new(), Vec::new());
        // The grace may be as long as `Duration::MAX`. Then no instant is missed.
        let earliest = less(come, grace);
        for span in core::mem::take(&mut self.progress.undecided) {
            let is_on_time = span.sooner.is_some_and(|sooner| now <= sooner + grace);
            let until = if is_on_time { span.next } else { earliest.min(span.last + MILLISECOND) };
            let passed = moments.passed(Some(span.next), until);
            late.extend(passed.last.map(|last| CatchUp { next: span.next, last }));
            let next = passed.next.filter(|next| *next <= span.last);
            on_time.extend(next.map(|next| Undecided { next, ..span }));
        }
        (late, on_time)
    }

    /// Decides about missed instants by the schedule's rule `missed`. Those that get occurrences wait in
    /// [`Progress::catch_up`], and the others are left out. `has_on_time` is true if an instant is on time.
    fn note_missed(
        &mut self,
        moments: &ScheduleInstants,
        missed: Missed,
        late: &[CatchUp],
        has_on_time: bool,
    ) {
        let most = match missed {
            Missed::Skip => 0,
            // An instant on time that is an overlap may get no occurrence, so it stands for no other instant.
            Missed::Once => u64::from(!(has_on_time && self.is_free())),
            Missed::All => MOST_CAUGHT_UP,
        };
        for span in late {
            match self.progress.catch_up.last_mut() {
                Some(before) if moments.next_after(before.last) == Some(span.next) => before.last = span.last,
                _ => self.progress.catch_up.push(*span),
            }
            self.progress.last_scheduled = self.progress.last_scheduled.max(Some(span.last));
        }
        self.progress.catch_up.sort_by_key(|span| span.next);
        // The rule may have changed, so that it leaves out instants that wait already.
        if !late.is_empty() || most <= 1 {
            self.keep_last(moments, most);
        }
    }

    /// Leaves out all missed instants that wait, except for the last `most` ones.
    fn keep_last(&mut self, moments: &ScheduleInstants, most: u64) {
        let (mut most, mut kept) = (most, Vec::new());
        while let Some(CatchUp { next, last }) = self.progress.catch_up.pop() {
            let span = CatchUp { next, last };
            if most == 0 || kept.len() == MOST_SPANS {
                self.missed += span.count(moments);
                self.left_out.missed.push(span);
                continue;
            }
            let after = last + MILLISECOND;
            if let Some(from) = moments.beginning_of_last(most, Some(next), after) {
                let left_out = moments.passed(Some(next), from);
                self.missed += left_out.count;
                self.left_out.missed.extend(left_out.last.map(|last| CatchUp { next, last }));
                kept.extend(left_out.next.filter(|next| *next <= last).map(|next| CatchUp { next, last }));
                most = 0;
            } else {
                most -= span.count(moments).min(most);
                kept.push(span);
            }
        }
        kept.reverse();
        self.progress.catch_up = kept;
    }

    /// Decides about an instant by the schedule's [`Overlap`]. The instant gets an occurrence, is queued, or is
    /// skipped.
    fn take(&mut self, instant: UtcMillis) {
        self.progress.last_scheduled = self.progress.last_scheduled.max(Some(instant));
        match self.overlap {
            _ if self.is_free() => self.fire(instant),
            Overlap::QueueOne if self.progress.queued.is_none() => self.progress.queued = Some(instant),
            _ => self.left_out.skipped.push(instant),
        }
    }
}
