//! Limits on how long a connection may be silent, and how old it may get.

use core::time::Duration;
use tourbillon::Timestamp;

/// Limits on how long a connection may be silent, and how old it may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    idle: Duration,
    max_age: Duration,
}

impl Limits {
    /// Lets a connection expire when it was silent for `idle`.
    #[must_use]
    pub const fn idle(idle: Duration) -> Self {
        Self { idle, max_age: Duration::MAX }
    }

    /// Lets a connection expire `max_age` after its insertion at the latest, even if it is active.
    #[must_use]
    pub const fn max_age(self, max_age: Duration) -> Self {
        Self { max_age, ..self }
    }
}

/// The limit that made a connection expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The idle limit: the connection was silent for too long.
    Idle,
    /// The maximum age: the connection was too old.
    MaxAge,
}

/// A connection that has expired, as the callback gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired<I> {
    /// The connection's id. Another connection may already have the same id.
    pub id: I,
    /// The limit that the connection reached. If the connection reached both limits at once, this is the maximum age.
    pub limit: Limit,
    /// The moment at which the connection reached the limit.
    pub deadline: Timestamp,
    /// The time from `deadline` to the start of the callback.
    pub lateness: Duration,
}

/// The limits of an inserted connection, prepared for computing deadlines.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// The time for which the connection may be silent, in nanoseconds.
    idle: u64,
    /// The moment at which the connection reaches its maximum age.
    pub(super) last: Timestamp,
}

impl Bounds {
    pub(super) fn new(limits: Limits, now: Timestamp) -> Self {
        Self { idle: (Timestamp::ZERO + limits.idle).as_nanos(), last: now + limits.max_age }
    }

    /// Returns the moment at which a connection expires if its last activity was at `now`.
    #[inline]
    pub(super) fn deadline(self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(now.as_nanos().saturating_add(self.idle)).min(self.last)
    }
}
