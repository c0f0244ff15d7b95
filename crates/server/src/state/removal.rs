//! Removes a namespace without timers in steps, because creations that were admitted earlier may still store timers in
//! it:
//!
//! 1. [`mark`] marks the namespace with the number of the removal, which is random. The namespace stays stored with its
//!    limits and secrets. This node's copy has it apart from the others. All requests about it are refused with
//!    [`being_removed`], at every node that has read the mark: the client may send them again after the removal.
//! 2. The removal waits for the creations, and counts the timers.
//! 3. If there are none, [`remove_marked`] removes the namespace. Otherwise [`unmark`] removes the mark, and the
//!    namespace is there again.
//!
//! The third step has an effect only if the namespace still has the mark of this removal. So these events are possible
//! between the first step and the third:
//!
//! - A request makes, changes or removes the namespace: [`present`] refuses it.
//! - The process ends: the mark stays. A file has no other users, so the next start ignores its marks. In a shared
//!   document, another node removes each mark that its copy has had for the time [`STALE`]. So the namespace is there
//!   again, with its limits and secrets.
//! - Another node does so although the removal is only slow: the third step finds no mark, and the removal fails.
//! - A node of an earlier version changes the shared document: it does not know marks, and loses them. It may have
//!   created timers in the meantime. The third step finds no mark, and the removal fails.

use super::namespaces::{Map, Namespace, Namespaces, being_removed};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use tourbillon_api::Problem;

/// The time after which a node takes the process of a removal for dead, and removes its mark from the namespace. Many
/// times as long as a removal takes.
pub(crate) const STALE: Duration = Duration::from_secs(60);

/// Returns the namespace `name`, or `None` if it does not exist. Fails if it is being removed.
pub(crate) fn present<'a>(map: &'a Map, name: &str) -> Result<Option<&'a Arc<Namespace>>, Problem> {
    match map.get(name) {
        Some(namespace) if namespace.removal.is_some() => Err(being_removed()),
        found => Ok(found),
    }
}

/// Marks the namespace `name` with the number of its removal. Returns the namespace as it was, or `None` if it does not
/// exist. Fails if it is being removed already.
pub(crate) fn mark(map: &mut Map, name: &str, removal: u64) -> Result<Option<Arc<Namespace>>, Problem> {
    let Some(before) = present(map, name)?.cloned() else { return Ok(None) };
    let Namespace { limits, secrets, .. } = (*before).clone();
    // The marked namespace does not count as a holder of the namespace as it was: see `Namespace::is_held`.
    let marked = Namespace { limits, secrets, removal: Some(removal), former: Arc::default() };
    map.insert(name.into(), Arc::new(marked));
    Ok(Some(before))
}

/// Returns the namespace `name` if it has the mark of this removal.
fn marked<'a>(map: &'a mut Map, name: &str, removal: u64) -> Option<&'a mut Arc<Namespace>> {
    map.get_mut(name).filter(|namespace| namespace.removal == Some(removal))
}

/// Removes the namespace `name` if it has the mark of this removal. Returns whether it had the mark.
pub(crate) fn remove_marked(map: &mut Map, name: &str, removal: u64) -> bool {
    let is_marked = marked(map, name, removal).is_some();
    if is_marked {
        map.remove(name);
    }
    is_marked
}

/// Removes the mark of this removal from the namespace `name`, if it has the mark. Puts `before`, the namespace as it
/// was before the mark, back in its place if the caller has it. Returns whether the namespace had the mark.
pub(crate) fn unmark(map: &mut Map, name: &str, removal: u64, before: Option<&Arc<Namespace>>) -> bool {
    let Some(namespace) = marked(map, name, removal) else { return false };
    match before {
        Some(before) => *namespace = Arc::clone(before),
        None => Arc::make_mut(namespace).removal = None,
    }
    true
}

/// Ends removals without an effect, so that their namespaces are there again. Each removal has the name of its
/// namespace and its number. Blocks the calling thread.
pub(crate) fn end_removals(namespaces: &Namespaces, removals: &[(Box<str>, u64)]) -> io::Result<()> {
    namespaces.change(|map| {
        for (name, removal) in removals {
            let _had_mark = unmark(map, name, *removal, None);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::NamespaceStorage;
    use crate::state::double::{self, Documents};
    use pollster::block_on;
    use tourbillon_api::NamespaceLimits;

    /// Returns the namespaces of a node of the deployment that has these documents.
    fn node(documents: &Documents, incarnation: u64) -> Namespaces {
        Namespaces::open(NamespaceStorage::Shared(double::node(documents, incarnation))).unwrap()
    }

    fn insert(namespaces: &Namespaces, limits: &NamespaceLimits) {
        let namespace = Namespace::default().changed(limits.clone(), Vec::new());
        namespaces.change(|map| drop(map.insert("a".into(), Arc::new(namespace.clone())))).unwrap();
    }

    #[test]
    fn a_removal_whose_process_has_died_is_ended_by_another_node() {
        let documents = Documents::default();
        let (one, other) = (node(&documents, 1), node(&documents, 2));
        let limits = NamespaceLimits { max_timers: Some(7), ..NamespaceLimits::default() };
        insert(&one, &limits);
        one.try_change(|map| mark(map, "a", 5)).unwrap().unwrap().unwrap();
        assert!(block_on(other.renew()).unwrap());
        for node in [&one, &other] {
            assert!(node.get("a").is_none() && !node.all().contains_key("a"));
            node.change(|map| assert!(mark(map, "a", 6).is_err() && present(map, "a").is_err())).unwrap();
        }
        assert_eq!(other.stale_removals(STALE), [], "the removal may still be under way");
        let stale = other.stale_removals(Duration::ZERO);
        assert_eq!(stale, [("a".into(), 5)]);
        end_removals(&other, &stale).unwrap();
        assert_eq!(other.get("a").unwrap().limits, limits);
        // The process of the removal was only slow.
        assert!(!one.change(|map| remove_marked(map, "a", 5)).unwrap());
        assert_eq!(one.get("a").unwrap().limits, limits);
    }

    #[test]
    fn a_namespace_that_an_earlier_version_has_made_during_its_removal_is_a_new_one_and_stays() {
        let documents = Documents::default();
        let one = node(&documents, 1);
        insert(&one, &NamespaceLimits { max_timers: Some(7), ..NamespaceLimits::default() });
        let before = one.try_change(|map| mark(map, "a", 5)).unwrap().unwrap().unwrap();
        insert(&one, &NamespaceLimits::default());
        one.change(|map| unmark(map, "a", 5, Some(&before))).unwrap();
        assert!(!one.change(|map| remove_marked(map, "a", 5)).unwrap());
        assert_eq!(one.get("a").unwrap().limits, NamespaceLimits::default());
        one.try_change(|map| mark(map, "a", 6)).unwrap().unwrap().unwrap();
        assert!(one.change(|map| remove_marked(map, "a", 6)).unwrap());
        assert!(one.get("a").is_none());
        assert_eq!(one.stale_removals(Duration::ZERO), []);
    }

    #[test]
    fn a_removal_that_finds_timers_keeps_the_namespace_and_finds_its_holders() {
        let documents = Documents::default();
        let one = node(&documents, 1);
        insert(&one, &NamespaceLimits::default());
        let holder = one.get("a").unwrap();
        let before = one.try_change(|map| mark(map, "a", 5)).unwrap().unwrap().unwrap();
        one.change(|map| unmark(map, "a", 5, Some(&before))).unwrap();
        drop(before);
        let before = one.try_change(|map| mark(map, "a", 6)).unwrap().unwrap().unwrap();
        assert!(Namespace::is_held(&before));
        drop(holder);
        assert!(!Namespace::is_held(&before));
    }
}
