//! Keys that name timers and tasks.

use core::hash::Hash;

/// The traits that a key must implement. Maps hash, compare and clone a key while they hold a lock.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}

/// Decides which entry stays if a call adds an entry for a key that already has an entry. An entry is a value of
/// [`Keyed`](crate::keyed::Keyed) or a task of [`NamedTasks`](crate::NamedTasks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfPresent {
    /// The new entry replaces the key's present entry.
    #[default]
    Replace,
    /// The present entry stays, and the new entry is not added. [`Keyed`](crate::keyed::Keyed) gives the new value back
    /// to its caller. [`NamedTasks`](crate::NamedTasks) drops the new closure, and returns the present task.
    Keep,
    /// The present entry stays, and the call that would add the new entry fails.
    Reject,
}
