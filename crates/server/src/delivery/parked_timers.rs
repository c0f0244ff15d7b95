//! Describes parked timers by their number and their age.

use core::time::Duration;

/// Timers that are parked (kept in the store without a delivery): their number, and the age of the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParkedTimers {
    /// The number of the timers.
    pub(crate) count: u64,
    /// The greatest time since a due moment of these timers, at the last pass. A pass reads the parked timers of this
    /// node's shards from the store. Zero if these timers were parked after the last pass.
    pub(crate) age: Duration,
}

impl ParkedTimers {
    /// Adds other timers to these.
    pub(crate) fn add(&mut self, other: Self) {
        (self.count, self.age) = (self.count + other.count, self.age.max(other.age));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::parked_index::ParkedIndex;

    #[test]
    fn timers_of_other_programs_keep_the_regular_passes_going() {
        let index = ParkedIndex::default();
        assert!(index.is_empty());
        index.note_unknown(ParkedTimers { count: 1, age: Duration::from_secs(5) });
        assert!(!index.is_empty() && index.counts().is_empty());
        index.note_unknown(ParkedTimers::default());
        assert!(index.is_empty());
    }
}
