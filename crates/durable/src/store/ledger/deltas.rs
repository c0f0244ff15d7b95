//! Sums up a transaction's changes of stored numbers, until the end of the transaction.

use crate::store::error::StoreError;
use std::collections::BTreeMap;

/// The changes that a transaction makes to stored numbers. The map has the sum of the changes of each number, by the
/// number's key.
#[derive(Debug)]
pub(super) struct Deltas<K>(BTreeMap<K, i64>);

impl<K: Ord> Deltas<K> {
    pub(super) fn add(&mut self, number: K, change: i64) {
        *self.0.entry(number).or_default() += change;
    }

    /// Adds the changes of a later request of the same transaction.
    pub(super) fn absorb(&mut self, later: Self) {
        for (number, change) in later.0 {
            self.add(number, change);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Calls `write` for each number that has changed, with the number's key and the sum of its changes. Skips a number
    /// whose changes add up to zero. Forgets all changes.
    pub(super) fn settle(
        &mut self,
        mut write: impl FnMut(K, i64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let differing = core::mem::take(&mut self.0).into_iter().filter(|(_, change)| *change != 0);
        for (number, change) in differing {
            write(number, change)?;
        }
        Ok(())
    }
}

impl<K> Default for Deltas<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}
