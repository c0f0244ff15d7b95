//! Keeps the counts of timers by namespace and phase (L3).

use super::deltas::Deltas;
use super::entries::count_key;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use std::collections::BTreeMap;

/// The changes that a transaction makes to the stored counts of timers. Each count is for the timers of the same
/// namespace and phase. The transaction writes the changes at its end.
#[derive(Debug, Default)]
pub(super) struct PhaseCounts {
    changes: Deltas<(Box<str>, Phase)>,
}

impl PhaseCounts {
    pub(super) fn add(&mut self, namespace: &str, phase: Phase, change: i64) {
        self.changes.add((namespace.into(), phase), change);
    }

    /// Adds the changes of a later request of the same transaction.
    pub(super) fn absorb(&mut self, later: Self) {
        self.changes.absorb(later.changes);
    }

    /// Adds the changes to the stored counts.
    pub(super) fn write(&mut self, tables: &mut impl Tables) -> Result<(), StoreError> {
        self.changes.settle(|(namespace, phase), change| {
            let key = count_key(&namespace, phase);
            // A damaged count may be smaller than the change. A count of zero must not stay stored: `Check` counts the
            // timers in the records, and compares all entries.
            match Self::at(tables, &key)?.saturating_add_signed(change) {
                0 => tables.remove(Table::Counts, &key).map(drop),
                count => tables.put(Table::Counts, &key, &count.to_be_bytes()).map(drop),
            }
        })
    }

    /// Returns the stored count of a namespace and phase, without the changes of this transaction.
    pub(super) fn stored(tables: &impl Tables, namespace: &str, phase: Phase) -> Result<u64, StoreError> {
        Self::at(tables, &count_key(namespace, phase))
    }

    fn at(tables: &impl Tables, key: &[u8]) -> Result<u64, StoreError> {
        let count = tables.get(Table::Counts, key)?;
        Ok(count.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
    }

    /// Returns all stored counts, without the changes of this transaction.
    pub(super) fn all(tables: &impl Tables) -> Result<BTreeMap<(Box<str>, Phase), u64>, StoreError> {
        let mut counts = BTreeMap::new();
        tables.scan(Table::Counts, &[], &mut |key, value| {
            let phase_of = |byte: &u8| {
                // No stored timer is done or withdrawn.
                let phases = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead];
                phases.into_iter().find(|phase| *phase as u8 == *byte)
            };
            if let Some((phase, namespace)) = key.split_last()
                && let Some(phase) = phase_of(phase)
                && let Ok(count) = value.try_into().map(u64::from_be_bytes)
            {
                counts.insert((String::from_utf8_lossy(namespace).into(), phase), count);
            }
            true
        })?;
        Ok(counts)
    }
}
