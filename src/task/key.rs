//! What names timers and tasks.

use core::hash::Hash;

/// What a key must be. It is hashed, compared and cloned under the lock of its bucket in a map.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}

/// What to do with a key that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfPresent {
    /// What is new replaces what is there.
    #[default]
    Replace,
    /// What is there stays, and what is new is handed back.
    Keep,
    /// As `Keep`, but as an error.
    Reject,
}
