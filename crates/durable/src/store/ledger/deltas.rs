//! Sums up the changes that a transaction makes to stored counts, until the end of the transaction.

use crate::store::error::StoreError;
use std::collections::BTreeMap;

/// The changes that a transaction makes to stored counts, for example to the count of pending timers that are due in an
/// hour. A key `K` identifies a count, for example by its hour. The map has the sum of the changes of each count.
#[derive(Debug)]
pub(super) struct Deltas<K>(BTreeMap<K, i64>);

impl<K: Ord> Deltas<K> {
    pub(super) fn add(&mut self, key: K, change: i64) {
        *self.0.entry(key).or_default() += change;
    }

    /// Adds the changes of a later request of the same transaction.
    pub(super) fn absorb(&mut self, later: Self) {
        for (key, change) in later.0 {
            self.add(key, change);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Calls `write` for each count that has changed, with the count's key and the sum of its changes. Skips a count
    /// whose changes add up to zero. Forgets all changes.
    pub(super) fn settle(
        &mut self,
        mut write: impl FnMut(K, i64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let differing = core::mem::take(&mut self.0).into_iter().filter(|(_, change)| *change != 0);
        for (key, change) in differing {
            write(key, change)?;
        }
        Ok(())
    }
}

impl<K> Default for Deltas<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}
