//! Keeps the counts of pending timers by the hour of UTC in which they are due (L4).

use super::deltas::Deltas;
use super::entries::{hour_key, moment_of};
use super::reader::Reader;
use crate::store::error::StoreError;
use crate::store::horizon::hour_of;
use crate::store::tables::{Table, Tables};
use std::collections::BTreeMap;
use tourbillon_words::UtcMillis;

/// The changes that a transaction makes to the stored counts of pending timers. Each count is for the timers that are
/// due in the same hour of UTC. The transaction writes the changes at its end.
#[derive(Debug, Default)]
pub(super) struct Hours {
    changes: Deltas<u32>,
}

impl Hours {
    /// Adds `change` to the count of the hour that contains the moment `due`.
    pub(super) fn add(&mut self, due: UtcMillis, change: i64) {
        self.changes.add(hour_of(due), change);
    }

    /// Adds the changes of a later request of the same transaction.
    pub(super) fn absorb(&mut self, later: Self) {
        self.changes.absorb(later.changes);
    }

    /// Adds the changes to the stored counts.
    pub(super) fn write(&mut self, tables: &mut impl Tables) -> Result<(), StoreError> {
        self.changes.settle(|hour, change| {
            let key = hour_key(hour);
            let count = tables.get(Table::Hours, &key)?.map_or(0, |count| number_of(&count));
            // A damaged count may be smaller than the change. Entries of zero would collect as hours pass, and a
            // horizon reads a limited number of hours.
            match count.saturating_add_signed(change) {
                0 => tables.remove(Table::Hours, &key).map(drop),
                count => tables.put(Table::Hours, &key, &count.to_be_bytes()).map(drop),
            }
        })
    }

    /// Reads the index by due moment, counts the pending timers of each hour again, and stores the new counts. The
    /// index already contains the changes of this transaction. So the method clears `changes`, because
    /// [`write`](Self::write) would count them a second time.
    pub(super) fn recount(&mut self, tables: &mut impl Tables) -> Result<(), StoreError> {
        self.changes.clear();
        let counted = Self::counted(tables)?;
        for key in Reader::new(tables).keys(Table::Hours, &[], &[], usize::MAX)? {
            let hour = u32::try_from(number_of(&key)).unwrap_or(u32::MAX);
            if !counted.contains_key(&hour) {
                tables.remove(Table::Hours, &key)?;
            }
        }
        for (hour, count) in counted {
            tables.put(Table::Hours, &hour_key(hour), &count.to_be_bytes())?;
        }
        Ok(())
    }

    /// Reads the index by due moment, and counts the pending timers that are due in each hour.
    fn counted(tables: &impl Tables) -> Result<BTreeMap<u32, u64>, StoreError> {
        let mut hours = BTreeMap::new();
        tables.scan(Table::Due, &[], &mut |key, _| {
            *hours.entry(hour_of(moment_of(key))).or_default() += 1;
            true
        })?;
        Ok(hours)
    }

    /// Calls `each` with each hour and its stored count. Stops once `each` returns false.
    pub(super) fn each(
        tables: &impl Tables,
        mut each: impl FnMut(u32, u64) -> bool,
    ) -> Result<(), StoreError> {
        tables.scan(Table::Hours, &[], &mut |key, count| {
            each(u32::try_from(number_of(key)).unwrap_or(u32::MAX), number_of(count))
        })
    }

    /// Returns an hour whose stored count is wrong, with the stored count and the right count. `None` if all counts are
    /// right.
    pub(super) fn first_wrong(tables: &impl Tables) -> Result<Option<(u32, u64, u64)>, StoreError> {
        let counted = Self::counted(tables)?;
        let mut stored = BTreeMap::new();
        Self::each(tables, |hour, count| {
            stored.insert(hour, count);
            true
        })?;
        let numbers = |hour: &u32| {
            let number = |hours: &BTreeMap<u32, u64>| hours.get(hour).copied().unwrap_or(0);
            (*hour, number(&stored), number(&counted))
        };
        let wrong =
            stored.keys().chain(counted.keys()).map(numbers).find(|(_, stored, counted)| stored != counted);
        Ok(wrong)
    }
}

/// Decodes a big-endian number of at most eight bytes.
fn number_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
