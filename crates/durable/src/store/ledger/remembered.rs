//! The ids of ended timers that are remembered for a while.

use super::entries::{id_at_end, id_bytes, moment_bytes, moment_of};
use super::timers::Ledger;
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use crate::timer::{Timer, TimerId};
use core::time::Duration;

/// The time for which the id of an ended timer is remembered, if its caller chose the id.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(3_600);
/// Ids that are forgotten in one transaction, so that none takes long.
const FORGOTTEN_AT_ONCE: usize = 100;

impl<T: Tables> Ledger<T> {
    pub(super) fn forget_later(&mut self, timer: &Timer) -> Result<(), StoreError> {
        if timer.has_chosen_id {
            let until = self.now + REMEMBERED;
            let id = id_bytes(timer.id);
            self.tables.put(Table::Recent, &id, &moment_bytes(until))?;
            self.tables.put(Table::Forget, &[&moment_bytes(until)[..], &id].concat(), &[])?;
        }
        Ok(())
    }

    /// Whether the id of an ended timer is remembered. An id whose time is over is forgotten, lest a later end of its
    /// next timer be forgotten with it.
    pub(super) fn is_remembered(&mut self, id: TimerId) -> Result<bool, StoreError> {
        let id = id_bytes(id);
        let Some(until) = self.tables.get(Table::Recent, &id)? else { return Ok(false) };
        let is_over = moment_of(&until) <= self.now;
        if is_over {
            self.tables.remove(Table::Recent, &id)?;
            self.tables.remove(Table::Forget, &[&until[..], &id].concat())?;
        }
        Ok(!is_over)
    }

    /// Forgets the end of a timer that is stored again. It would end the memory of a later end too soon.
    pub(super) fn forget_end(&mut self, id: TimerId) -> Result<(), StoreError> {
        let id = id_bytes(id);
        if let Some(until) = self.tables.remove(Table::Recent, &id)? {
            self.tables.remove(Table::Forget, &[&until[..], &id].concat())?;
        }
        Ok(())
    }

    /// Forgets a few ids whose time is over.
    pub(super) fn forget(&mut self) -> Result<(), StoreError> {
        let mut over = Vec::new();
        self.tables.scan(Table::Forget, &[], &mut |key, _| {
            let is_over = moment_of(key) <= self.now && over.len() < FORGOTTEN_AT_ONCE;
            if is_over {
                over.push(key.to_vec());
            }
            is_over
        })?;
        for key in over {
            self.tables.remove(Table::Forget, &key)?;
            if let Some(id) = id_at_end(&key) {
                self.tables.remove(Table::Recent, &id_bytes(id))?;
            }
        }
        Ok(())
    }
}
