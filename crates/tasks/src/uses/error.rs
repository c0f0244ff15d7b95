//! The reasons why a connection, an item or a rate was refused, and why nothing was received.

use core::fmt;
use tourbillon::Refusal;

/// The reason why a connection was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// A connection has this id already.
    Present,
    /// The engine refused the timer.
    Refused(Refusal),
}

impl fmt::Display for ConnectErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("there is a connection with this id"),
            Self::Refused(kind) => kind.fmt(f),
        }
    }
}

/// The error for a connection that was not inserted. The error returns the id.
pub struct ConnectError<I> {
    /// The reason why the connection was not inserted.
    pub kind: ConnectErrorKind,
    /// The id that would have been inserted.
    pub id: I,
}

/// The reason why an item was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushErrorKind {
    /// The queue was closed.
    Closed,
    /// The engine refused the timer.
    Refused(Refusal),
}

impl fmt::Display for PushErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the queue was closed"),
            Self::Refused(kind) => kind.fmt(f),
        }
    }
}

/// The error for an item that was not pushed. The error returns the item.
pub struct PushError<T> {
    /// The reason why the item was not pushed.
    pub kind: PushErrorKind,
    /// The item that would have been pushed.
    pub item: T,
}

/// The reason why no item was received at once, or in time.
///
/// There are only two reasons, so a `match` needs no other arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// No item is due, or no item came due in time.
    Empty,
    /// The queue has ended: it was closed, or its engine was shut down. All items that had come due were received.
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no item is due",
            Self::Closed => "the queue has ended",
        })
    }
}

impl std::error::Error for TryRecvError {}

/// The error for a queue that has ended: it was closed, or its engine was shut down. All items that had come due were
/// received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TryRecvError::Closed.fmt(f)
    }
}

impl std::error::Error for RecvError {}

impl From<RecvError> for TryRecvError {
    fn from(_: RecvError) -> Self {
        Self::Closed
    }
}

/// The reason why a rate limiter was not made: its rate is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateError {
    /// The interval of the rate is zero, so the limiter would limit nothing.
    ZeroInterval,
    /// The burst is zero, so the limiter would never give out a permit.
    ZeroBurst,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroInterval => "the interval between two permits is zero",
            Self::ZeroBurst => "the burst is zero permits",
        })
    }
}

impl std::error::Error for RateError {}

// The errors implement `Debug` and `Display` for every type of id and item.
macro_rules! of_its_kind {
    ($($error:ident)*) => { $(
        impl<T> fmt::Debug for $error<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($error)).field("kind", &self.kind).finish_non_exhaustive()
            }
        }

        impl<T> fmt::Display for $error<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.kind.fmt(f)
            }
        }

        impl<T> std::error::Error for $error<T> {}
    )* };
}

of_its_kind!(ConnectError PushError);
