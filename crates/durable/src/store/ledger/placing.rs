//! Stores timers that callers supply: new timers and imported timers.

use super::lifecycle::{Lifecycle, is_withdrawn};
use super::limits::admit_import;
use crate::phase::PAUSED;
use crate::state::{State, Withdrawal};
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::tables::Tables;
use crate::store::{IfPresent, Outcome};
use crate::timer::Timer;

impl<T: Tables> Lifecycle<T> {
    pub(super) fn place(&mut self, mut timer: Timer, if_present: IfPresent) -> Result<Outcome, StoreError> {
        let id = timer.id;
        // Each creation removes some remembered ids whose time is over, because no other operation does.
        self.remembered.forget_some(self.timers.tables())?;
        // This check comes before the check of the key. The first attempt of a repeated creation may have stored the
        // timer that has the key.
        if self.timers.has(id)? || self.remembered.has(self.timers.tables(), id)? {
            return Ok(Outcome::Repeated(id));
        }
        timer.created = self.now;
        let old = match &timer.key {
            Some(key) => self.timers.load_owner(&timer.namespace, key)?,
            None => None,
        };
        let Some(old) = old else {
            if let IfPresent::ReplaceOnly(_) = if_present {
                return Ok(Outcome::NotFound);
            }
            self.timers.insert(&timer)?;
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
        // The old timer gives up the key before the new timer takes it (L2).
        self.withdraw(&old, Withdrawal::Replaced)?;
        self.timers.insert(&timer)?;
        Ok(Outcome::Replaced { new: id, old: old.id, was })
    }

    /// Stores a timer of a backup, unless it was withdrawn. Fails if a stored timer has the same id or key.
    pub(super) fn import(&mut self, mut timer: Timer) -> Result<(), StoreError> {
        admit_import(&timer)?;
        // A withdrawn timer would become pending below, and would be delivered.
        if is_withdrawn(&timer) {
            return Ok(());
        }
        // The holder of the lease reports to the store from which the backup was made, and not to this store.
        if let State::Leased(_) = timer.state {
            let is_paused = timer.series.as_ref().is_some_and(|series| series.paused);
            timer.state = if is_paused { State::Parked(PAUSED.into()) } else { State::Pending };
        }
        let taken = |part: &str| StoreError::new(StoreErrorKind::Limit, format!("{part} is stored already"));
        if self.timers.has(timer.id)? {
            return Err(taken(&format!("timer {}", timer.id)));
        }
        // A dead timer has lost its key, so another timer of the backup may own the key.
        if let Some(key) = timer.key.as_ref().filter(|_| timer.owns_key())
            && self.timers.load_owner(&timer.namespace, key)?.is_some()
        {
            return Err(taken(&format!("the key {key:?}")));
        }
        if timer.has_chosen_id {
            self.remembered.forget(self.timers.tables(), timer.id)?;
        }
        self.timers.insert(&timer)
    }
}
