//! The reasons why a key was not scheduled or moved. An error about scheduling returns the key and the value.

use core::fmt;
use tourbillon::Refusal;

/// The reason why a key was not scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyedErrorKind {
    /// The key has an entry, and the caller has passed [`IfPresent::Reject`](crate::IfPresent::Reject).
    Present,
    /// The engine refused the timer.
    Refused(Refusal),
}

impl fmt::Display for KeyedErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("the key has an entry"),
            Self::Refused(kind) => kind.fmt(f),
        }
    }
}

/// The error for a key that was not scheduled. The error returns the key and its value.
pub struct KeyedError<K, V> {
    /// The reason why the key was not scheduled.
    pub kind: KeyedErrorKind,
    /// The key that was not scheduled.
    pub key: K,
    /// The value that would have been scheduled.
    pub value: V,
}

impl<K, V> fmt::Debug for KeyedError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for KeyedError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<K, V> std::error::Error for KeyedError<K, V> {}

/// The reason why the entry of a key was not moved. The entry is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveError {
    /// The key has no entry, or the handler of its entry has begun.
    Absent,
    /// The engine refused the timer.
    Refused(Refusal),
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("the key has no entry"),
            Self::Refused(kind) => kind.fmt(f),
        }
    }
}

impl std::error::Error for MoveError {}
