//! Counts the running handlers of each namespace, for claims that divide the handlers between namespaces.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The namespaces of the handlers that have not returned, with the number of handlers of each namespace.
#[derive(Debug, Default)]
pub(super) struct Occupants {
    /// The namespaces of the timers whose handlers have not returned, by the number of the delivery.
    namespaces: HashMap<u64, Box<str>>,
    /// The number of running handlers of each namespace. The store reads this map during a claim.
    counts: Arc<BTreeMap<Box<str>, usize>>,
}

impl Occupants {
    pub(super) fn enter(&mut self, number: u64, namespace: &str) {
        // If a claim at the store still reads the map, `make_mut` changes a copy.
        *Arc::make_mut(&mut self.counts).entry(namespace.into()).or_default() += 1;
        self.namespaces.insert(number, namespace.into());
    }

    pub(super) fn leave(&mut self, number: u64) {
        // Without the setting `in_turn`, no delivery has entered.
        let Some(namespace) = self.namespaces.remove(&number) else { return };
        let counts = Arc::make_mut(&mut self.counts);
        if let Some(count) = counts.get_mut(&namespace) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&namespace);
            }
        }
    }

    /// Returns the number of running handlers of each namespace. A namespace without running handlers is left out.
    pub(super) fn counts(&self) -> Arc<BTreeMap<Box<str>, usize>> {
        Arc::clone(&self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_counted_as_long_as_it_has_handlers() {
        let mut occupants = Occupants::default();
        for (number, namespace) in [(1, "a"), (2, "b"), (3, "a")] {
            occupants.enter(number, namespace);
        }
        let during_a_claim = occupants.counts();
        occupants.leave(1);
        occupants.leave(2);
        occupants.leave(2);
        assert_eq!(*during_a_claim, BTreeMap::from([("a".into(), 2), ("b".into(), 1)]));
        assert_eq!(*occupants.counts(), BTreeMap::from([("a".into(), 1)]));
    }
}
