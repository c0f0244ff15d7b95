//! The index entries of a namespace that claims have passed over: due timers that wait until their namespace may take
//! more.

use std::collections::BTreeSet;

/// The greatest number of entries that are kept in memory for a namespace. The entries belong to due timers that claims
/// have passed over.
const EXACT: usize = 1_024;

/// The key of an entry in the index by due moment.
pub(super) type Key = Vec<u8>;

/// The index entries of a namespace that claims have read and passed over. The namespace had used up its share, its
/// part of a claim.
#[derive(Debug)]
pub(super) enum Waiting {
    /// All passed-over entries of the namespace.
    Exactly(BTreeSet<Key>),
    /// The first passed-over entry only. A claim reads the index from this entry on to find later entries.
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

/// The tests of claims in turn are in `tourbillon-conformance`.
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
