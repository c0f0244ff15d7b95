//! Computes the progress of a schedule while the occurrences of a decision are being stored, and after a decision that
//! was carried out in part. The module [`schedule`](super) has the table of these states.

use super::decide::Decision;
use super::instants::ScheduleInstants;
use super::progress::{MILLISECOND, SLACK, less};
use super::{CatchUp, Progress};
use crate::id::TimerId;
use core::time::Duration;
use tourbillon_words::UtcMillis;

/// The time for which the id of an occurrence tells whether the occurrence was stored. The store remembers the id for
/// an hour after the occurrence has ended. The rest of the hour is for calls that take long.
pub(super) const KNOWN: Duration = Duration::from_secs(50 * 60);

impl Decision {
    /// Returns the progress after this decision while its occurrences are being stored, from the moment `now` on.
    pub(super) fn storing(&self, now: UtcMillis) -> Progress {
        let fired = self.progress.fired.saturating_sub(self.fire.len() as u64);
        let since = (!self.fire.is_empty()).then_some(now);
        Progress { storing: self.fire.clone(), storing_since: since, fired, ..self.progress.clone() }
    }

    /// Returns the progress after this decision if the store has not stored all of its occurrences. Those of the
    /// instants `stored` are stored, that of `unknown` may be stored, and the others are not. `before` is the progress
    /// from which the decision was made. An occurrence is due at its instant plus `offset`.
    pub(super) fn in_part(
        &self,
        moments: &ScheduleInstants,
        before: &Progress,
        (stored, unknown): (&[UtcMillis], Option<UtcMillis>),
        offset: Duration,
        now: UtcMillis,
    ) -> Progress {
        let mut progress = before.clone();
        let fired: Vec<_> = stored.iter().copied().chain(unknown).collect();
        let _left_out = progress.note_decided(moments, before, self, &fired, offset, now);
        if let Some(unknown) = unknown {
            progress.storing.push(unknown);
            progress.storing_since = Some(now);
            progress.fired = progress.fired.saturating_sub(1);
        }
        progress
    }
}

impl Progress {
    /// Notes a decision of which only the occurrences of the instants `fired` are stored. `before` is the progress from
    /// which the decision was made. This progress is `before`, or follows from it by changes of other processes.
    /// Returns how many instants the decision has left out here as missed and as skipped.
    ///
    /// The instants that the decision left out stay left out. They came before the fired ones, or at the same time, so
    /// a later decision must not give them occurrences. All other instants wait as before.
    pub(super) fn note_decided(
        &mut self,
        moments: &ScheduleInstants,
        before: &Self,
        decision: &Decision,
        fired: &[UtcMillis],
        offset: Duration,
        now: UtcMillis,
    ) -> (u64, u64) {
        *self = self.clone().without_future(offset, now);
        self.let_come(moments, decision.progress.settled, None);
        for instant in fired {
            if self.queued == Some(*instant) {
                self.queued = None;
            } else if self.take_out(moments, only(*instant)) == 0 {
                // The change has left the instant out.
                let left_out =
                    if before.queued == Some(*instant) { &mut self.skipped } else { &mut self.missed };
                *left_out = left_out.saturating_sub(1);
            }
            self.fired += 1;
            self.last_scheduled = self.last_scheduled.max(Some(*instant));
            self.last_occurrence = Some(TimerId::of_occurrence(self.id, *instant));
            self.last_fired = Some(now);
        }
        let (mut missed, mut skipped) = (0, 0);
        let skipped_spans: Vec<_> = decision.left_out.skipped.iter().map(|instant| only(*instant)).collect();
        for (spans, number) in [(&decision.left_out.missed, &mut missed), (&skipped_spans, &mut skipped)] {
            for span in spans {
                let taken = self.take_out(moments, *span);
                *number += taken;
                self.last_scheduled = self.last_scheduled.max((taken > 0).then_some(span.last));
            }
        }
        self.missed = self.missed.saturating_add(missed);
        self.skipped = self.skipped.saturating_add(skipped);
        (missed, skipped)
    }

    /// Takes instants out of [`storing`](Self::storing). Returns those of them that were in it. The caller counts them.
    pub(super) fn take_stored(&mut self, instants: &[UtcMillis]) -> Vec<UtcMillis> {
        let storing = core::mem::take(&mut self.storing).into_iter();
        let (taken, left) = storing.partition(|instant| instants.contains(instant));
        self.storing = left;
        if self.storing.is_empty() {
            self.storing_since = None;
        }
        taken
    }

    /// Notes the results of a later attempt to store the occurrences of [`storing`](Self::storing). The instants
    /// `fired` have their occurrences, and those of `missed` get none. The store has failed for the instant `failed`,
    /// so the next attempt begins with the instants after it.
    pub(super) fn note_completed(
        &mut self,
        fired: &[UtcMillis],
        missed: &[UtcMillis],
        failed: Option<UtcMillis>,
    ) {
        self.fired = self.fired.saturating_add(self.take_stored(fired).len() as u64);
        self.missed = self.missed.saturating_add(self.take_stored(missed).len() as u64);
        if let Some(at) = self.storing.iter().position(|instant| Some(*instant) == failed) {
            self.storing[..].rotate_left(at + 1);
        }
    }

    /// Returns whether the store surely remembers at `now` the ids of the occurrences that it got since
    /// [`storing_since`](Self::storing_since). If so, an attempt to store them again makes no second occurrence.
    pub(super) fn knows_stored(&self, now: UtcMillis) -> bool {
        // If the moment is in the future, the store's clock was ahead then, and nobody knows how long ago that was.
        self.storing_since.is_some_and(|since| since <= now + SLACK && now <= since + KNOWN)
    }

    /// Takes the instants of the span `out` out of the spans of instants that wait. Returns the number of instants that
    /// were in one of them.
    fn take_out(&mut self, moments: &ScheduleInstants, out: CatchUp) -> u64 {
        let mut taken = 0;
        let mut without = |span: CatchUp| -> [Option<CatchUp>; 2] {
            let last = span.last.min(out.last);
            let first = span.next.max(out.next);
            let Some(first) = (first <= last).then(|| moments.first_from(first)).flatten() else {
                return [Some(span), None];
            };
            if first > last {
                return [Some(span), None];
            }
            taken += CatchUp { next: first, last }.count(moments);
            let before = Some(CatchUp { next: span.next, last: less(first, MILLISECOND) });
            let after = moments.next_after(last).map(|next| CatchUp { next, last: span.last });
            [before, after].map(|part| part.filter(|part| part.next <= part.last))
        };
        let catch_up = core::mem::take(&mut self.catch_up).into_iter();
        self.catch_up = catch_up.flat_map(&mut without).flatten().collect();
        let undecided = core::mem::take(&mut self.undecided).into_iter();
        self.undecided = undecided
            .flat_map(|span| without(span.span()).map(|part| part.map(|part| span.with(part))))
            .flatten()
            .collect();
        taken
    }
}

/// Returns the span that has only this instant.
fn only(instant: UtcMillis) -> CatchUp {
    CatchUp { next: instant, last: instant }
}
