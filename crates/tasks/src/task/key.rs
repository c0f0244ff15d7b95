//! Keys that name timers and tasks.

use core::hash::Hash;

/// The traits that a key must have. A key is hashed, compared and cloned under the lock of its bucket in a map.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}

/// Decides which entry wins if a key is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfPresent {
    /// The new entry replaces the present entry.
    #[default]
    Replace,
    /// The present entry stays. The new entry is handed back.
    Keep,
    /// The present entry stays, and the call fails.
    Reject,
}
