//! Remembers the ids of ended timers for a while (L6).

use super::entries::{id_at_end, id_bytes, moment_bytes, moment_of};
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use crate::timer::{Timer, TimerId};
use core::time::Duration;
use tourbillon_words::UtcMillis;

/// The time for which a store remembers the id of an ended timer. A store remembers only ids that callers chose.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// The greatest number of remembered ids that one transaction forgets. The limit keeps transactions short.
const FORGOTTEN_AT_ONCE: usize = 100;

/// Remembers and forgets the ids of ended timers, at the moment `now`. Each remembered id is in two tables: `Recent` is
/// sorted by id, and `Forget` by the moment until which the id is remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remembered {
    now: UtcMillis,
}

impl Remembered {
    pub(super) fn at(now: UtcMillis) -> Self {
        Self { now }
    }

    /// Remembers the id of a timer that ends, if a caller chose the id.
    pub(super) fn remember(self, tables: &mut impl Tables, timer: &Timer) -> Result<(), StoreError> {
        if timer.has_chosen_id {
            let until = self.now + REMEMBERED;
            let id = id_bytes(timer.id);
            tables.put(Table::Recent, &id, &moment_bytes(until))?;
            tables.put(Table::Forget, &[&moment_bytes(until)[..], &id].concat(), &[])?;
        }
        Ok(())
    }

    /// Returns whether the store remembers `id` as the id of an ended timer. If the time for which the store remembers
    /// the id has passed, removes the entries of the id from the tables `Recent` and `Forget`. A later timer may have
    /// the same id, and when this timer ends, the store adds new entries. If the old entry were still in `Forget`,
    /// which tells the store when to forget the id, the store would forget the id too early.
    pub(super) fn has(self, tables: &mut impl Tables, id: TimerId) -> Result<bool, StoreError> {
        let id = id_bytes(id);
        let Some(until) = tables.get(Table::Recent, &id)? else { return Ok(false) };
        let is_over = moment_of(&until) <= self.now;
        if is_over {
            tables.remove(Table::Recent, &id)?;
            tables.remove(Table::Forget, &[&until[..], &id].concat())?;
        }
        Ok(!is_over)
    }

    /// Forgets the id of a timer that an import stores again after its end. When the timer ends again, the store adds
    /// new entries for the id. If the old entry were still in the table `Forget`, which tells the store when to forget
    /// the id, the store would forget the id too early.
    pub(super) fn forget(self, tables: &mut impl Tables, id: TimerId) -> Result<(), StoreError> {
        let id = id_bytes(id);
        if let Some(until) = tables.remove(Table::Recent, &id)? {
            tables.remove(Table::Forget, &[&until[..], &id].concat())?;
        }
        Ok(())
    }

    /// Forgets at most [`FORGOTTEN_AT_ONCE`] of the ids that need not be remembered any longer.
    pub(super) fn forget_some(self, tables: &mut impl Tables) -> Result<(), StoreError> {
        let mut over = Vec::new();
        tables.scan(Table::Forget, &[], &mut |key, _| {
            let is_over = moment_of(key) <= self.now && over.len() < FORGOTTEN_AT_ONCE;
            if is_over {
                over.push(key.to_vec());
            }
            is_over
        })?;
        for key in over {
            tables.remove(Table::Forget, &key)?;
            if let Some(id) = id_at_end(&key) {
                tables.remove(Table::Recent, &id_bytes(id))?;
            }
        }
        Ok(())
    }
}
