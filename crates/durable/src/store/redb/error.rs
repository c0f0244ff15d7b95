//! Converts redb's errors to errors of a store.

use crate::panics::message_of;
use crate::store::error::{StoreError, StoreErrorKind};
use core::any::Any;
use std::io;

/// Converts an error of redb to an error of a store.
pub(super) fn converted(error: impl Into<redb::Error>) -> StoreError {
    use redb::Error;
    let kind = match error.into() {
        // redb uses this kind of error for files that are not a database of redb.
        Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            return StoreError::caused_by(StoreErrorKind::Corrupt, error);
        }
        Error::Io(error) => return error.into(),
        error @ (Error::DatabaseAlreadyOpen | Error::WouldBlock) => (StoreErrorKind::Locked, error),
        error @ Error::UpgradeRequired(_) => (StoreErrorKind::NewerSchema, error),
        error @ Error::ValueTooLarge(_) => (StoreErrorKind::Limit, error),
        // After most of these errors, redb works only once the database is opened again. The kind `Io` makes a failed
        // read ask for this.
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

/// Makes the error for a panic of redb. redb panics on bytes that are not a page of a database.
pub(super) fn damaged_pages(panic: &(dyn Any + Send)) -> StoreError {
    let text = message_of(panic).unwrap_or("without a message");
    let message =
        format!("the database stopped at pages that are damaged, or by a fault of this program: {text}");
    StoreError::new(StoreErrorKind::Corrupt, message)
}

pub(super) fn closed() -> StoreError {
    StoreError::new(StoreErrorKind::Closed, "the store was closed")
}

pub(super) fn lost() -> StoreError {
    StoreError::new(StoreErrorKind::Unknown, "the thread that commits gave no answer")
}
