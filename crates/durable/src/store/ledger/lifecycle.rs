//! Applies transitions to timers: a timer ends, becomes pending again, or is followed by the next occurrence of its
//! series.
//!
//! [`step`] computes a transition. This part stores its result, and all changes that follow from it.

use super::remembered::Remembered;
use super::timers::Timers;
use crate::phase::PAUSED;
use crate::state::{Death, DeathReason, End, Event, Lease, Next, Phase, Refusal, State, Withdrawal, step};
use crate::store::Outcome;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::tables::Tables;
use crate::timer::{Timer, TimerId};
use core::fmt;
use core::time::Duration;
use tourbillon_words::UtcMillis;

/// The greatest difference that is normal between the clocks of processes that share a store. If the creation time of a
/// timer is further in the future, the clock of the timer's creator was ahead.
const AHEAD: Duration = Duration::from_secs(1);

/// Changes the states of timers within one transaction. The transaction happens at the moment `now`. The module
/// `placing` adds the methods that store new timers, and the module `changes` adds the methods by which callers change
/// stored timers, for example cancel them.
pub(super) struct Lifecycle<T> {
    pub(super) timers: Timers<T>,
    pub(super) remembered: Remembered,
    pub(super) now: UtcMillis,
}

pub(super) fn is_withdrawn(timer: &Timer) -> bool {
    matches!(timer.state, State::Leased(Lease { withdrawn: Some(_), .. }))
}

/// Makes an error for a refusal that only a bug in this crate can cause.
pub(super) fn bug(refusal: impl fmt::Debug) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("a transition was refused: {refusal:?}"))
}

impl<T: Tables> Lifecycle<T> {
    pub(super) fn new(tables: T, now: UtcMillis) -> Self {
        Self { timers: Timers::new(tables), remembered: Remembered::at(now), now }
    }

    /// Ends the delivery of a timer by an event that the holder of the lease reports.
    pub(super) fn end_delivery(&mut self, id: TimerId, event: Event) -> Result<Outcome, StoreError> {
        let Some(timer) = self.timers.load(id)? else { return Ok(Outcome::Refused(Refusal::Stale)) };
        match step(&timer, event, self.now) {
            Ok(Next::Stays(next)) => self.settle(&timer, next),
            Ok(Next::Ends(end)) => self.end(&timer, end),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    /// Extends the lease of a timer. Returns false if the holder has lost the lease.
    pub(super) fn renew(&mut self, id: TimerId, event: Event) -> Result<bool, StoreError> {
        let Some(timer) = self.timers.load(id)? else { return Ok(false) };
        let Ok(Next::Stays(renewed)) = step(&timer, event, self.now) else { return Ok(false) };
        self.timers.change(&timer, &renewed)?;
        Ok(true)
    }

    /// Stores `next`, the next state of a timer that stays stored after its delivery. If `next` is a dead occurrence of
    /// a series, removes it from the series, and stores the next occurrence.
    pub(super) fn settle(&mut self, timer: &Timer, mut next: Timer) -> Result<Outcome, StoreError> {
        let is_paused = next.series.as_ref().is_some_and(|series| series.paused);
        // If the series was paused during the delivery, the leased timer got only the flag.
        if is_paused && next.state == State::Pending {
            next.state = State::Parked(PAUSED.into());
        }
        let phase = next.state.phase();
        // The series continues without its dead occurrence.
        let follows = phase == Phase::Dead && next.series.take().is_some();
        self.timers.change(timer, &next)?;
        // The dead timer has given up its key, which the next occurrence takes. `timer` still has the series.
        let (next, skipped) = if follows { self.place_following(timer)? } else { (None, 0) };
        Ok(Outcome::Ended { id: timer.id, phase, next, skipped })
    }

    /// Removes a timer that has ended, and stores the next occurrence of its series unless the timer was withdrawn.
    pub(super) fn end(&mut self, timer: &Timer, end: End) -> Result<Outcome, StoreError> {
        let goes_on = matches!(end, End::Done | End::Skipped) && !is_withdrawn(timer);
        if goes_on && timer.series.as_ref().is_some_and(|series| series.plan.validate().is_err()) {
            // The plan is invalid, so no occurrence can follow. The dead timer shows that the series has stopped.
            let state = State::Dead(Death { reason: DeathReason::Plan, at: self.now });
            self.timers.change(timer, &Timer { state, series: None, ..timer.clone() })?;
            return Ok(Outcome::Ended { id: timer.id, phase: Phase::Dead, next: None, skipped: 0 });
        }
        // The next occurrence has the same key, so this timer is removed first (L2).
        self.remove(timer)?;
        let (phase, (next, skipped)) = match end {
            End::Done | End::Skipped => (Phase::Done, self.place_following(timer)?),
            End::Withdrawn(_) => (Phase::Withdrawn, (None, 0)),
        };
        Ok(Outcome::Ended { id: timer.id, phase, next, skipped })
    }

    /// Withdraws a timer that was cancelled or replaced. If the timer is leased, it stays stored until its delivery
    /// ends, with a mark that it was withdrawn, and the method returns true. Otherwise, removes the timer and returns
    /// false.
    pub(super) fn withdraw(&mut self, timer: &Timer, withdrawal: Withdrawal) -> Result<bool, StoreError> {
        match step(timer, Event::Withdraw(withdrawal), self.now) {
            Ok(Next::Stays(marked)) => self.timers.change(timer, &marked).map(|()| true),
            Ok(Next::Ends(_)) => self.remove(timer).map(|()| false),
            Err(refusal) => Err(bug(refusal)),
        }
    }

    /// Removes a timer that has ended. Remembers the timer's id if the caller chose the id.
    fn remove(&mut self, timer: &Timer) -> Result<(), StoreError> {
        self.remembered.remember(self.timers.tables(), timer)?;
        self.timers.delete(timer)
    }

    /// Stores the next occurrence of the timer's series, unless the timer was withdrawn. Returns the id of the stored
    /// occurrence, or `None` if no occurrence was stored. Also returns the number of instants of the series that were
    /// skipped, because they had already passed or already had a timer.
    fn place_following(&mut self, timer: &Timer) -> Result<(Option<TimerId>, u64), StoreError> {
        let Some(series) = timer.series.as_ref().filter(|_| !is_withdrawn(timer)) else {
            return Ok((None, 0));
        };
        // If the clock was ahead when the occurrence was created, the series goes back to the current time.
        let made_ahead = timer.created > self.now + AHEAD;
        let from = if made_ahead { timer.scheduled.min(self.now) } else { timer.scheduled };
        let following = series.following(from, self.now);
        let Some(instant) = following.instant else { return Ok((None, following.skipped)) };
        let (mut instant, mut skipped) = (instant, following.skipped);
        let mut id = TimerId::of_occurrence(series.id, instant);
        // If a series was created again under the same id, timers of the former series may still be stored, for example
        // dead timers. An instant that has a timer gets no second timer.
        while self.timers.has(id)? {
            let following = series.following(instant, self.now);
            skipped += following.skipped + 1;
            let Some(next) = following.instant else { return Ok((None, skipped)) };
            (instant, id) = (next, TimerId::of_occurrence(series.id, next));
        }
        let jitter = timer.policy.jitter_of(id);
        let next = Timer {
            id,
            created: self.now,
            scheduled: instant,
            due: instant + jitter,
            deliveries: 0,
            failures: 0,
            last_error: None,
            state: if series.paused { State::Parked(PAUSED.into()) } else { State::Pending },
            // No caller chose this id, so no caller can repeat the creation.
            has_chosen_id: false,
            ..timer.clone()
        };
        self.timers.insert(&next)?;
        Ok((Some(id), skipped))
    }
}
