//! Counts the timers and deliveries of each namespace since the start of the service, for the page of metrics.
//!
//! Callers choose the names of namespaces, and must not make the page grow without bound. So only the first namespaces
//! have their own counts, and all others share one set of counts.

use super::by_word::ByWord;
use crate::state::Counter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

/// The greatest number of namespaces that have their own counts.
const MOST: usize = 50;

/// The counts of a namespace. All namespaces beyond the first [`MOST`] share one value of this type.
#[derive(Debug)]
pub(crate) struct Tenant {
    /// The number of timers that were created in the namespace.
    pub(crate) created: Counter,
    /// The number of timers that were cancelled in the namespace.
    pub(crate) cancelled: Counter,
    /// The number of ended deliveries of the namespace's timers, by their outcome.
    pub(crate) fired: ByWord<Counter, 4>,
}

impl Default for Tenant {
    fn default() -> Self {
        // `ByWord` counts each outcome without a word of its own under the last word, so `other` must stay last.
        let fired = ByWord::new(["delivered", "failed", "dead", "other"]);
        Self { created: Counter::default(), cancelled: Counter::default(), fired }
    }
}

/// The counts of timers and deliveries, for each namespace.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    own: RwLock<BTreeMap<Box<str>, Arc<Tenant>>>,
    others: Arc<Tenant>,
}

impl Tenants {
    /// The name that the page of metrics shows for the shared counts. No namespace can have this name.
    pub(crate) const OTHERS: &str = "(other)";

    /// Returns the counts of a namespace. If [`MOST`] other namespaces already have their own counts, returns the
    /// counts that all further namespaces share.
    pub(crate) fn of(&self, namespace: &str) -> Arc<Tenant> {
        // The read lock is released at the end of this statement. In a single expression with the next line, the thread
        // would still hold the read lock when `enter` waits for the write lock.
        let known = self.own.read().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned();
        known.unwrap_or_else(|| self.enter(namespace))
    }

    fn enter(&self, namespace: &str) -> Arc<Tenant> {
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have entered the namespace between the two locks.
        if own.len() >= MOST && !own.contains_key(namespace) {
            return Arc::clone(&self.others);
        }
        Arc::clone(own.entry(namespace.into()).or_default())
    }

    /// Returns the name and the counts of each namespace that has its own counts. The last entry has the name
    /// [`OTHERS`](Self::OTHERS), and the counts that all other namespaces share. A namespace that is not in `existing`
    /// loses its own counts, which makes room for another namespace.
    pub(crate) fn all(&self, existing: &BTreeSet<&str>) -> Vec<(Box<str>, Arc<Tenant>)> {
        let exists = |name: &str| existing.contains(name);
        self.own.write().unwrap_or_else(PoisonError::into_inner).retain(|name, _| exists(name));
        // Existing namespaces get the free places now, so that their series begin with zero and not with the first
        // change.
        existing.iter().for_each(|name| drop(self.of(name)));
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        let own = own.iter().map(|(name, tenant)| (name.clone(), Arc::clone(tenant)));
        own.chain([(Self::OTHERS.into(), Arc::clone(&self.others))]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_beyond_the_places_counts_to_the_others_until_one_is_removed() {
        let tenants = Tenants::default();
        let names: Vec<String> = (0..MOST + 2).map(|n| format!("n{n:02}")).collect();
        for name in &names {
            tenants.of(name).created.add(1);
        }
        let numbers = |names: &[String]| {
            let all = tenants.all(&names.iter().map(String::as_str).collect()).into_iter();
            all.map(|(name, tenant)| (name, tenant.created.get())).collect::<BTreeMap<_, _>>()
        };
        let all = numbers(&names);
        assert_eq!((all.len(), all[Tenants::OTHERS], all.get("n51")), (MOST + 1, 2, None));
        let left = numbers(&names[1..]);
        assert_eq!(
            (left.len(), left.get("n00"), left.get("n50"), left.get("n51")),
            (MOST + 1, None, Some(&0), None)
        );
    }
}
