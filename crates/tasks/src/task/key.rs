//! Keys that name timers and tasks.

use core::hash::Hash;

/// The traits that a key must implement. Maps hash, compare and clone a key while they hold a lock.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}

/// Decides which entry stays if a call adds an entry for a key that already has an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfPresent {
    /// The new entry replaces the key's present entry.
    #[default]
    Replace,
    /// The present entry stays. The call returns the new entry.
    Keep,
    /// The present entry stays, and the call fails.
    Reject,
}
