//! Makes the decisions of schedules. A decision determines which of the instants that have come get occurrences.

use super::instants::ScheduleInstants;
use super::progress::less;
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
/// The greatest number of spans of missed instants that wait for their occurrences. If an instant on time lies between
/// two missed instants, they are in two spans.
const MOST_SPANS: usize = 100;
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
            skipped: 0,
            progress: self.clone(),
        };
        let earliest_missed = work.progress.catch_up.first().map(|span| span.next);
        if work.is_free()
            && let Some(queued) = work.progress.queued
            && earliest_missed.is_none_or(|missed| queued < missed)
        {
            work.progress.queued = None;
            work.fire(queued);
        }
        // Instants up to `come` have come. Of these, instants before `on_time` are missed. An instant comes only with
        // its offset, so the decision looks at the last occurrence as late as possible.
        let come = less(now, offset);
        // The grace may be as long as `Duration::MAX`. Then no instant is missed.
        let mut on_time = less(come, schedule.grace);
        if let Some(sooner) = work.progress.sooner.filter(|sooner| sooner.is_active(schedule, now)) {
            on_time = on_time.min(sooner.after + Duration::from_millis(1));
        }
        work.note_missed(&moments, schedule.missed, on_time, come);
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
        if progress.next.is_none_or(|next| next > come) {
            progress.sooner = None;
        }
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
        let of_catch_up = (!progress.catch_up.is_empty()).then_some(if schedule.overlap == Overlap::Allow {
            now
        } else {
            look
        });
        let of_queued = progress.queued.map(|_| look);
        let wake = next.into_iter().chain(of_catch_up).chain(of_queued).min();
        Ok(Decision { fire, missed, skipped, progress, wake })
    }
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

    /// Returns whether an instant may get its occurrence at once.
    fn is_free(&self) -> bool {
        self.overlap == Overlap::Allow || !self.is_under_way
    }

    /// Notes the instants before `on_time` as missed. Those that get occurrences wait in [`Progress::catch_up`], and
    /// the others are left out. `come` is the last moment whose instant has come.
    fn note_missed(
        &mut self,
        moments: &ScheduleInstants,
        missed: Missed,
        on_time: UtcMillis,
        come: UtcMillis,
    ) {
        let first = self.progress.next;
        let passed = moments.passed(first, on_time);
        // An instant on time that is an overlap may get no occurrence, so it stands for no other instant.
        let is_represented = passed.next.is_some_and(|next| next <= come) && self.is_free();
        let most = match missed {
            Missed::Skip => 0,
            Missed::Once => u64::from(!is_represented),
            Missed::All => MOST_CAUGHT_UP,
        };
        if let Some(last) = passed.last {
            let first = if most > 1 { first.unwrap_or(last) } else { last };
            if most <= 1 {
                self.missed += passed.count - 1;
            }
            match self.progress.catch_up.last_mut() {
                Some(span) if moments.next_after(span.last) == Some(first) => span.last = last,
                _ => self.progress.catch_up.push(CatchUp { next: first, last }),
            }
            (self.progress.next, self.progress.last_scheduled) = (passed.next, Some(last));
        }
        // The rule may have changed, so that it leaves out instants that wait already.
        if passed.last.is_some() || most <= 1 {
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
                continue;
            }
            let after = last + Duration::from_millis(1);
            if let Some(from) = moments.beginning_of_last(most, Some(next), after) {
                let left_out = moments.passed(Some(next), from);
                self.missed += left_out.count;
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
        match self.overlap {
            _ if self.is_free() => self.fire(instant),
            Overlap::QueueOne if self.progress.queued.is_none() => self.progress.queued = Some(instant),
            _ => self.skipped += 1,
        }
    }
}
