//! Keeps the index entries that claims have skipped: due timers that wait because their namespace had used up its share
//! (its part of the deliveries under way).

use std::collections::BTreeSet;

/// The greatest number of a namespace's skipped index entries that are kept in memory. If claims have skipped more
/// entries of the namespace, only the first entry is kept.
const EXACT: usize = 1_024;

/// The key of an entry in the index by due moment.
pub(super) type Key = Vec<u8>;

/// The due timers of one namespace that wait for a later claim, although claims have already read the index beyond the
/// entries of these timers. Usually the namespace had used up its share.
#[derive(Debug)]
pub(super) enum Waiting {
    /// The index entries of all waiting timers of the namespace.
    Exactly(BTreeSet<Key>),
    /// Only the index entry of the first waiting timer. If more than [`EXACT`] timers of the namespace wait, all their
    /// entries would take too much memory. To find the other timers, a claim reads the index from this entry on.
    From(Key),
}

impl Default for Waiting {
    fn default() -> Self {
        Self::Exactly(BTreeSet::new())
    }
}

impl Waiting {
    pub(super) fn first(&self) -> Option<&Key> {
        match self {
            Self::Exactly(entries) => entries.first(),
            Self::From(first) => Some(first),
        }
    }

    pub(super) fn add(&mut self, entry: Key) {
        match self {
            Self::Exactly(entries) => {
                entries.insert(entry);
                if entries.len() > EXACT
                    && let Some(first) = entries.pop_first()
                {
                    *self = Self::From(first);
                }
            }
            Self::From(first) if entry < *first => *first = entry,
            Self::From(_) => {}
        }
    }
}

/// The crate `tourbillon-conformance` has the tests of claims that skip entries.
#[cfg(test)]
mod tests {
    use super::super::entries::{due_entry, id_at_end};
    use super::*;
    use crate::timer::TimerId;
    use tourbillon_words::UtcMillis;

    #[test]
    fn the_entries_that_wait_are_bounded() {
        let mut waiting = Waiting::default();
        for number in 0..3 * EXACT as u128 {
            waiting.add(due_entry(UtcMillis::from_millis(1_000_000), TimerId::from_u128(number)));
        }
        assert!(matches!(waiting, Waiting::From(first) if id_at_end(&first) == Some(TimerId::from_u128(0))));
    }
}
