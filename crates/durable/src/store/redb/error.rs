//! redb's errors in the words of stores.

use crate::store::error::{StoreError, StoreErrorKind};
use std::io;

/// The error of a store for one of redb's.
pub(super) fn converted(error: impl Into<redb::Error>) -> StoreError {
    use redb::Error;
    let kind = match error.into() {
        // redb has this kind for files that are no databases.
        Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            return StoreError::caused_by(StoreErrorKind::Corrupt, error);
        }
        Error::Io(error) => return error.into(),
        error @ (Error::DatabaseAlreadyOpen | Error::WouldBlock) => (StoreErrorKind::Locked, error),
        error @ Error::UpgradeRequired(_) => (StoreErrorKind::NewerSchema, error),
        error @ Error::ValueTooLarge(_) => (StoreErrorKind::Limit, error),
        error @ (Error::PreviousIo
        | Error::DatabaseClosed
        | Error::TransactionPoisoned
        | Error::TransactionInProgress
        | Error::LockPoisoned(_)
        | Error::Backend(_)) => (StoreErrorKind::Io, error),
        error => (StoreErrorKind::Corrupt, error),
    };
    StoreError::caused_by(kind.0, kind.1)
}

/// The error of an operation on a store that was closed.
pub(super) fn closed() -> StoreError {
    StoreError::new(StoreErrorKind::Closed, "the store was closed")
}

/// The error of an operation whose answer was lost.
pub(super) fn lost() -> StoreError {
    StoreError::new(StoreErrorKind::Unknown, "the thread that commits gave no answer")
}
