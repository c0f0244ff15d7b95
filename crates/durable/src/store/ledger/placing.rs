//! New timers: placed, put back, imported, or the next of their series.

use super::changes::PAUSED;
use super::entries::id_bytes;
use super::limits::admit_timer;
use super::timers::{Ledger, is_withdrawn};
use crate::state::{State, Withdrawal};
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::tables::{Table, Tables};
use crate::store::{IfPresent, Outcome};
use crate::timer::{Timer, TimerId};
use core::time::Duration;

/// A timer that was made later than this from now on was made by a clock that was ahead. The clocks of processes that
/// share a store differ by less.
const AHEAD: Duration = Duration::from_secs(1);

impl<T: Tables> Ledger<T> {
    pub(super) fn place(&mut self, mut timer: Timer, if_present: IfPresent) -> Result<Outcome, StoreError> {
        let id = timer.id;
        self.forget()?;
        if self.tables.get(Table::Timers, &id_bytes(id))?.is_some() || self.is_remembered(id)? {
            return Ok(Outcome::Repeated(id));
        }
        timer.created = self.now;
        let old = match &timer.key {
            Some(key) => self.load_owner(&timer.namespace, key)?,
            None => None,
        };
        let Some(old) = old else {
            if let IfPresent::ReplaceOnly(_) = if_present {
                return Ok(Outcome::NotFound);
            }
            self.insert(&timer)?;
            return Ok(Outcome::Created(id));
        };
        match if_present {
            IfPresent::ReplaceOnly(only) if only == old.id => {}
            IfPresent::Reject | IfPresent::ReplaceOnly(_) => {
                return Ok(Outcome::KeyExists { holder: old.id, refused: Box::new(timer) });
            }
            IfPresent::Keep => return Ok(Outcome::Kept { id: old.id, was: old.state.phase() }),
            IfPresent::Replace => {}
            IfPresent::ReplaceKeepDue => (timer.due, timer.scheduled) = (old.due, old.scheduled),
        }
        let was = old.state.phase();
        self.withdraw(&old, Withdrawal::Replaced)?;
        self.insert(&timer)?;
        Ok(Outcome::Replaced { new: id, old: old.id, was })
    }

    pub(super) fn put_back(&mut self, mut timer: Timer) -> Result<Outcome, StoreError> {
        let id = timer.id;
        if self.tables.get(Table::Timers, &id_bytes(id))?.is_some() {
            return Ok(Outcome::Repeated(id));
        }
        if timer.has_chosen_id {
            self.forget_end(id)?;
        }
        // The series has gone on, and has the key.
        timer.series = None;
        if let Some(key) = &timer.key
            && self.load_owner(&timer.namespace, key)?.is_some()
        {
            timer.key = None;
        }
        self.insert(&timer)?;
        Ok(Outcome::Created(id))
    }

    /// Stores the timers of a backup. A timer whose id is stored, or whose key is another timer's, is an error.
    pub(crate) fn import(&mut self, timers: Vec<Timer>) -> Result<(), StoreError> {
        for mut timer in timers {
            admit_timer(&timer)?;
            if is_withdrawn(&timer) {
                continue;
            }
            if let State::Leased(_) = timer.state {
                let is_paused = timer.series.as_ref().is_some_and(|series| series.paused);
                timer.state = if is_paused { State::Parked(PAUSED.into()) } else { State::Pending };
            }
            let taken =
                |part: &str| StoreError::new(StoreErrorKind::Limit, format!("{part} is stored already"));
            if self.tables.get(Table::Timers, &id_bytes(timer.id))?.is_some() {
                return Err(taken(&format!("timer {}", timer.id)));
            }
            if let Some(key) = timer.key.as_ref().filter(|_| timer.owns_key())
                && self.load_owner(&timer.namespace, key)?.is_some()
            {
                return Err(taken(&format!("the key {key:?}")));
            }
            self.insert(&timer)?;
        }
        Ok(())
    }

    /// Stores the occurrence of the timer's series that follows the timer, unless the timer was withdrawn.
    pub(super) fn place_following(&mut self, timer: &Timer) -> Result<(Option<TimerId>, u64), StoreError> {
        let Some(series) = timer.series.as_ref().filter(|_| !is_withdrawn(timer)) else {
            return Ok((None, 0));
        };
        // An occurrence that was made by a clock that was ahead does not keep the series there.
        let made_ahead = timer.created > self.now + AHEAD;
        let from = if made_ahead { timer.scheduled.min(self.now) } else { timer.scheduled };
        let following = series.following(from, self.now);
        let Some(instant) = following.instant else { return Ok((None, following.skipped)) };
        let (mut instant, mut skipped) = (instant, following.skipped);
        let mut id = TimerId::of_occurrence(series.id, instant);
        // A series that was placed a second time finds the timers of its first life, dead ones for example. An instant
        // that has its timer gets no second one.
        while self.tables.get(Table::Timers, &id_bytes(id))?.is_some() {
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
            has_chosen_id: false,
            ..timer.clone()
        };
        self.insert(&next)?;
        Ok((Some(id), skipped))
    }
}
