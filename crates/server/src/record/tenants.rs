//! Numbers by namespace since the start, for machines.
//!
//! A page for machines must not grow with the names that callers choose. So only some namespaces have numbers of their
//! own: those that were seen first. The others share one set of numbers.

use super::by_word::ByWord;
use crate::state::Counter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

/// The greatest number of namespaces with numbers of their own.
const MOST: usize = 50;

/// The numbers of a namespace.
#[derive(Debug)]
pub(crate) struct Tenant {
    /// Timers that were made.
    pub(crate) created: Counter,
    /// Timers that were cancelled.
    pub(crate) cancelled: Counter,
    /// Deliveries that have ended, by their outcome.
    pub(crate) fired: ByWord<Counter, 4>,
}

impl Default for Tenant {
    fn default() -> Self {
        let fired = ByWord::new(["delivered", "failed", "dead", "other"]);
        Self { created: Counter::default(), cancelled: Counter::default(), fired }
    }
}

/// The numbers of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    own: RwLock<BTreeMap<Box<str>, Arc<Tenant>>>,
    others: Arc<Tenant>,
}

impl Tenants {
    /// The word for the namespaces without numbers of their own. No namespace can have this name.
    pub(crate) const OTHERS: &str = "(other)";

    /// The numbers to which a namespace counts.
    pub(crate) fn of(&self, namespace: &str) -> Arc<Tenant> {
        let known = self.own.read().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned();
        known.unwrap_or_else(|| self.enter(namespace))
    }

    fn enter(&self, namespace: &str) -> Arc<Tenant> {
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        if own.len() >= MOST && !own.contains_key(namespace) {
            return Arc::clone(&self.others);
        }
        Arc::clone(own.entry(namespace.into()).or_default())
    }

    /// The namespaces with numbers of their own, then the others together. A namespace that is not in `existing` loses
    /// its numbers, and makes room for another namespace.
    pub(crate) fn all(&self, existing: &BTreeSet<&str>) -> Vec<(Box<str>, Arc<Tenant>)> {
        let exists = |name: &str| existing.contains(name);
        self.own.write().unwrap_or_else(PoisonError::into_inner).retain(|name, _| exists(name));
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
