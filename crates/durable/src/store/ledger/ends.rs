//! The ends of deliveries.

use super::changes::PAUSED;
use super::timers::{Ledger, is_withdrawn};
use crate::state::{Death, DeathReason, End, Event, Next, Phase, Refusal, State, step};
use crate::store::Outcome;
use crate::store::error::StoreError;
use crate::store::tables::Tables;
use crate::timer::{Timer, TimerId};

impl<T: Tables> Ledger<T> {
    pub(super) fn end_delivery(&mut self, id: TimerId, event: Event) -> Result<Outcome, StoreError> {
        let Some(timer) = self.load(id)? else { return Ok(Outcome::Refused(Refusal::Stale)) };
        match step(&timer, event, self.now) {
            Ok(Next::Stays(next)) => self.settle(&timer, next),
            Ok(Next::Ends(end)) => self.end(&timer, end),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    /// Stores a timer whose delivery has ended and that stays.
    pub(super) fn settle(&mut self, timer: &Timer, mut next: Timer) -> Result<Outcome, StoreError> {
        let is_paused = next.series.as_ref().is_some_and(|series| series.paused);
        if is_paused && next.state == State::Pending {
            next.state = State::Parked(PAUSED.into());
        }
        let phase = next.state.phase();
        // The series goes on without its dead occurrence.
        let follows = phase == Phase::Dead && next.series.take().is_some();
        self.change(timer, &next)?;
        let (next, skipped) = if follows { self.place_following(timer)? } else { (None, 0) };
        Ok(Outcome::Ended { id: timer.id, phase, next, skipped })
    }

    /// Removes a timer that has ended, and stores the next occurrence of its series.
    pub(super) fn end(&mut self, timer: &Timer, end: End) -> Result<Outcome, StoreError> {
        let goes_on = matches!(end, End::Done | End::Skipped) && !is_withdrawn(timer);
        if goes_on && timer.series.as_ref().is_some_and(|series| series.plan.validate().is_err()) {
            // The series must not end unseen.
            let state = State::Dead(Death { reason: DeathReason::Plan, at: self.now });
            self.change(timer, &Timer { state, series: None, ..timer.clone() })?;
            return Ok(Outcome::Ended { id: timer.id, phase: Phase::Dead, next: None, skipped: 0 });
        }
        self.forget_later(timer)?;
        self.delete(timer)?;
        let (phase, (next, skipped)) = match end {
            End::Done | End::Skipped => (Phase::Done, self.place_following(timer)?),
            End::Withdrawn(_) => (Phase::Withdrawn, (None, 0)),
        };
        Ok(Outcome::Ended { id: timer.id, phase, next, skipped })
    }
}
