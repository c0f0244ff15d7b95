//! Removes a namespace without timers in steps. A single step would not suffice, because creations that began before
//! the removal may still store timers in the namespace:
//!
//! 1. [`mark`] marks the namespace with the random number of the removal. The namespace stays stored with its limits
//!    and secrets. Each node that has read the mark refuses all requests about the namespace with [`being_removed`].
//!    The client may repeat them after the removal.
//! 2. The removal waits for the end of these creations, and counts the timers.
//! 3. If there are none, [`remove_marked`] removes the namespace. Otherwise [`unmark`] removes the mark, and the
//!    namespace is there again.
//!
//! The third step has an effect only if the namespace still has the mark of this removal. The states of a namespace:
//!
//! | state | event | next state | the client of the removal |
//! |---|---|---|---|
//! | there | the first step | marked | waits |
//! | there | the first step fails: another removal, no namespace | there | is refused |
//! | there | the answer to the first step is lost | there, or marked; the removal unmarks | gets an error with an unknown outcome |
//! | marked | a request makes, changes or removes the namespace: [`present`] | marked; the request is refused | waits |
//! | marked | no timers: the third step | gone | success |
//! | marked | timers, a creation that does not end, an error, a panic, or the service stops: the third step | there | is refused |
//! | marked | the answer to the third step is lost, or the store does not answer | gone, there, or marked; the removal tries once to unmark | gets an error with an unknown outcome |
//! | marked | the copy of any node has had the mark for the time [`STALE`] | there | is refused, if its removal is only slow |
//! | marked | `tourbillond restore` stores the namespaces and the timers of a backup | there | is refused, if its process comes back |
//!
//! If the namespaces are in a file, the marks are only in memory. So removals end with the process, and a full disk
//! does not prevent the removal of a mark. In a shared document, the last line of the table also ends the removals of
//! processes that have died, and of those that could not remove their marks. The namespace is then there again, with
//! its limits and secrets.

use super::namespace::Namespace;
use super::namespaces::{Namespaces, being_removed};
use super::stored_namespaces::StoredNamespaces;
use core::time::Duration;
use std::io;
use tourbillon_api::{Problem, ProblemKind};

/// The age at which the mark of a removal counts as abandoned, so that a node removes it. The two waits of a removal
/// take ten seconds at most. If a removal takes longer than this time, it fails, and the client may repeat it. So a
/// short time is safe.
pub(crate) const STALE: Duration = Duration::from_secs(30);

/// Returns the namespace `name`, or `None` if it does not exist. Fails if it is being removed.
pub(crate) fn present<'a>(
    stored: &'a StoredNamespaces,
    name: &str,
) -> Result<Option<&'a Namespace>, Problem> {
    match stored.removals.contains_key(name) {
        true => Err(being_removed()),
        false => Ok(stored.namespaces.get(name)),
    }
}

/// Marks the namespace `name` with the number of its removal. Fails if it does not exist, or if it is being removed
/// already.
pub(crate) fn mark(stored: &mut StoredNamespaces, name: &str, removal: u64) -> Result<(), Problem> {
    if present(stored, name)?.is_none() {
        return Err(Problem::new(ProblemKind::NotFound, "there is no such namespace"));
    }
    stored.removals.insert(name.into(), removal);
    Ok(())
}

/// Removes the namespace `name` if it has the mark of the removal `removal`. Returns whether it had this mark.
pub(crate) fn remove_marked(stored: &mut StoredNamespaces, name: &str, removal: u64) -> bool {
    let was_marked = unmark(stored, name, removal);
    if was_marked {
        stored.namespaces.remove(name);
    }
    was_marked
}

/// Removes the mark of the removal `removal` from the namespace `name`. Returns whether the namespace had this mark.
pub(crate) fn unmark(stored: &mut StoredNamespaces, name: &str, removal: u64) -> bool {
    let is_marked = stored.removals.get(name) == Some(&removal);
    if is_marked {
        stored.removals.remove(name);
    }
    is_marked
}

/// Ends removals, so that their namespaces stay. `removals` has the name of each namespace and the number of its
/// removal. Blocks the calling thread.
pub(crate) fn end_removals(namespaces: &Namespaces, removals: &[(Box<str>, u64)]) -> io::Result<()> {
    namespaces.change(|stored| {
        for (name, removal) in removals {
            let _had_mark = unmark(stored, name, *removal);
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

    fn insert(namespaces: &Namespaces, max_timers: u64) {
        let limits = NamespaceLimits { max_timers: Some(max_timers), ..NamespaceLimits::default() };
        let namespace = Namespace { limits, ..Namespace::default() };
        namespaces.change(|stored| drop(stored.namespaces.insert("a".into(), namespace.clone()))).unwrap();
    }

    fn max_timers(namespaces: &Namespaces) -> Option<u64> {
        namespaces.get("a").unwrap().limits.max_timers
    }

    #[test]
    fn a_removal_whose_process_has_died_is_ended_by_another_node() {
        let documents = Documents::default();
        let (one, other) = (node(&documents, 1), node(&documents, 2));
        insert(&one, 7);
        one.try_change(|stored| mark(stored, "a", 5)).unwrap().unwrap();
        block_on(other.renew()).unwrap();
        for node in [&one, &other] {
            assert!(node.get("a").is_none() && !node.all().contains_key("a"));
            node.change(|stored| assert!(mark(stored, "a", 6).is_err() && present(stored, "a").is_err()))
                .unwrap();
        }
        assert_eq!(other.stale_removals(STALE), [], "the removal may still be under way");
        let stale = other.stale_removals(Duration::ZERO);
        assert_eq!(stale, [("a".into(), 5)]);
        end_removals(&other, &stale).unwrap();
        assert_eq!(max_timers(&other), Some(7));
        // The process of the removal was only slow.
        assert!(!one.change(|stored| remove_marked(stored, "a", 5)).unwrap());
        assert_eq!(max_timers(&one), Some(7));
        one.try_change(|stored| mark(stored, "a", 6)).unwrap().unwrap();
        assert!(!one.change(|stored| remove_marked(stored, "a", 5)).unwrap());
        assert!(one.change(|stored| remove_marked(stored, "a", 6)).unwrap());
        assert!(one.get("a").is_none());
        assert_eq!(one.stale_removals(Duration::ZERO), []);
    }

    #[test]
    fn a_removal_finds_the_holders_from_before_an_earlier_mark_that_any_node_has_removed() {
        let documents = Documents::default();
        let (one, other) = (node(&documents, 1), node(&documents, 2));
        let mark = |node: &Namespaces, removal| {
            node.try_change(|stored| mark(stored, "a", removal)).unwrap().unwrap();
        };
        let renew = |node: &Namespaces| block_on(node.renew()).unwrap();
        insert(&one, 7);
        let holder = one.get("a").unwrap();
        // The node removes its own mark.
        mark(&one, 1);
        assert!(one.is_held("a"));
        assert!(one.change(|stored| unmark(stored, "a", 1)).unwrap());
        // Another node sets a mark and removes it. This node reads both changes.
        mark(&other, 2);
        renew(&one);
        end_removals(&other, &other.stale_removals(Duration::ZERO)).unwrap();
        renew(&one);
        // Another node changes the namespace under a mark of this node, as far as this node can see.
        mark(&one, 3);
        assert!(other.change(|stored| unmark(stored, "a", 3)).unwrap());
        insert(&other, 8);
        renew(&one);
        assert_eq!(max_timers(&one), Some(8));
        mark(&one, 4);
        assert!(one.is_held("a"));
        drop(holder);
        assert!(!one.is_held("a"));
    }
}
