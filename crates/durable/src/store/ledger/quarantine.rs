//! Keeps the unreadable records. They are set aside in a table of their own, so that no operation reads them again
//! (L5).

use super::entries::id_bytes;
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use crate::timer::TimerId;

/// The key in [`Table::Meta`] under which the store keeps the number of unreadable records that were set aside.
const NUMBER: &[u8] = b"quarantined";

/// Sets unreadable records aside: keeps their bytes in [`Table::Quarantine`], apart from the records of the timers.
/// `admitted` is the number of records that the current request has set aside.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    admitted: u32,
}

impl Quarantine {
    /// Returns the number of unreadable records that the current request has set aside.
    pub(super) fn admitted(&self) -> u32 {
        self.admitted
    }

    /// Adds the number of unreadable records that a later request of the same transaction has set aside.
    pub(super) fn absorb(&mut self, later: Self) {
        self.admitted += later.admitted;
    }

    /// Stores the bytes of an unreadable record in [`Table::Quarantine`]. The caller removes the record from
    /// [`Table::Timers`]. If an index entry names a timer that has no record, the caller passes an empty record.
    pub(super) fn admit(
        &mut self,
        tables: &mut impl Tables,
        id: TimerId,
        record: &[u8],
    ) -> Result<(), StoreError> {
        tables.put(Table::Quarantine, &id_bytes(id), record)?;
        self.admitted += 1;
        // The number is stored, so that `counts` need not scan the records.
        let number = Self::number(tables)?.saturating_add(1);
        tables.put(Table::Meta, NUMBER, &number.to_be_bytes()).map(drop)
    }

    /// Returns the unreadable record that was set aside under an id. `None` if there is no such record.
    pub(super) fn record(tables: &impl Tables, id: TimerId) -> Result<Option<Vec<u8>>, StoreError> {
        tables.get(Table::Quarantine, &id_bytes(id))
    }

    /// Returns the number of times that an unreadable record was set aside since the last [`forget`](Self::forget).
    pub(super) fn number(tables: &impl Tables) -> Result<u64, StoreError> {
        let number = tables.get(Table::Meta, NUMBER)?;
        Ok(number.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
    }

    /// Removes all unreadable records that were set aside, and returns their number.
    pub(super) fn forget(tables: &mut impl Tables) -> Result<u64, StoreError> {
        let mut keys = Vec::new();
        tables.scan(Table::Quarantine, &[], &mut |key, _| {
            keys.push(key.to_vec());
            true
        })?;
        for key in &keys {
            tables.remove(Table::Quarantine, key)?;
        }
        tables.put(Table::Meta, NUMBER, &0_u64.to_be_bytes())?;
        Ok(keys.len() as u64)
    }
}
