//! The limits of a connection's life, and the limit that a connection has reached.

use core::time::Duration;
use tourbillon::Timestamp;

/// The limits of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    idle: Duration,
    max_age: Duration,
}

impl Limits {
    /// The connection expires when it was silent for `idle`.
    #[must_use]
    pub const fn idle(idle: Duration) -> Self {
        Self { idle, max_age: Duration::MAX }
    }

    /// The connection expires `max_age` after it was inserted at the latest, whatever its activity.
    #[must_use]
    pub const fn max_age(self, max_age: Duration) -> Self {
        Self { max_age, ..self }
    }
}

/// The limit that a connection has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The idle limit: the connection was silent.
    Idle,
    /// The maximum age: the connection was old.
    MaxAge,
}

/// A connection that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired<I> {
    /// The connection's id, which another connection may have by now.
    pub id: I,
    /// The limit that the connection reached; the maximum age if it reached both at the same moment.
    pub limit: Limit,
    /// The moment at which the connection reached the limit.
    pub deadline: Timestamp,
    /// The time from the deadline to the start of the callback.
    pub lateness: Duration,
}

/// The limits of a connection as deadlines.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// The idle limit, in nanoseconds.
    idle: u64,
    /// The moment of the maximum age.
    pub(super) last: Timestamp,
}

impl Bounds {
    /// The bounds of a connection that is inserted at `now`.
    pub(super) fn new(limits: Limits, now: Timestamp) -> Self {
        Self { idle: (Timestamp::ZERO + limits.idle).as_nanos(), last: now + limits.max_age }
    }

    /// The deadline of a connection whose last activity is at `now`.
    #[inline]
    pub(super) fn deadline(self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(now.as_nanos().saturating_add(self.idle)).min(self.last)
    }
}
