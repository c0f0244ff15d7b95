//! The keys that name timers and tasks.

use core::hash::Hash;

/// The traits that a key must have. A key is hashed, compared and cloned under the lock of its bucket in a map.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}

/// The policy for a key that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfPresent {
    /// The new entry replaces the present entry.
    #[default]
    Replace,
    /// The present entry stays, and the new entry is handed back.
    Keep,
    /// As `Keep`, but the call fails.
    Reject,
}
