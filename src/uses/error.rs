//! Why something was not taken, with it handed back, and why nothing was received.

use crate::error::ScheduleErrorKind;
use core::fmt;

/// Why a connection was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// There is a connection with this id.
    Present,
    /// The engine refused the timer.
    Refused(ScheduleErrorKind),
}

impl fmt::Display for ConnectErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("there is a connection with this id"),
            Self::Refused(kind) => kind.fmt(f),
        }
    }
}

/// A connection that was not inserted; it has the id.
pub struct ConnectError<I> {
    /// Why.
    pub kind: ConnectErrorKind,
    /// What would have been inserted.
    pub id: I,
}

/// Why an item was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushErrorKind {
    /// The queue was closed.
    Closed,
    /// The engine refused the timer.
    Refused(ScheduleErrorKind),
}

impl fmt::Display for PushErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the queue was closed"),
            Self::Refused(kind) => kind.fmt(f),
        }
    }
}

/// An item that was not pushed.
pub struct PushError<T> {
    /// Why.
    pub kind: PushErrorKind,
    /// What would have been pushed.
    pub item: T,
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoItem {
    /// Nothing has come due, or not in time.
    Yet,
    /// The queue was closed, or its engine shut down, and all that had come due was received.
    Ever,
}

impl fmt::Display for NoItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yet => "no item is due",
            Self::Ever => "the queue has ended",
        })
    }
}

impl std::error::Error for NoItem {}

// Errors are printed whether or not ids and items can be.
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
