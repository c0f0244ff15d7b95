//! Converts the errors of SQLite.

use rusqlite::{Error, ErrorCode};
use tourbillon_durable::store::{StoreError, StoreErrorKind};

pub(crate) type Result<T> = core::result::Result<T, StoreError>;

/// SQLite's extended code `SQLITE_BUSY_SNAPSHOT`: the transaction cannot write, because another connection has
/// committed since the transaction's first read.
const SNAPSHOT: core::ffi::c_int = 5 | 2 << 8;

/// Converts an error of SQLite. A lock that another connection has held for too long becomes [`StoreErrorKind::Io`],
/// because a repetition may succeed.
pub(crate) fn failed(error: Error) -> StoreError {
    if matches!(&error, Error::SqliteFailure(cause, _) if cause.extended_code == SNAPSHOT) {
        let message = "another connection has committed after the transaction's first read: repeat the transaction, or \
                       begin it with BEGIN IMMEDIATE";
        return StoreError::new(StoreErrorKind::Io, message);
    }
    let kind = match &error {
        Error::SqliteFailure(cause, _) => match cause.code {
            ErrorCode::DiskFull => StoreErrorKind::Full,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation => {
                StoreErrorKind::Corrupt
            }
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => StoreErrorKind::ReadOnly,
            ErrorCode::TooBig => StoreErrorKind::Limit,
            _ => StoreErrorKind::Io,
        },
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::Utf8Error(..)
        | Error::InvalidColumnType(..) => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Io,
    };
    StoreError::caused_by(kind, error)
}

/// SQLite's extended codes for a file and for a folder that could not be synced.
const SYNCS: [core::ffi::c_int; 2] = [10 | 4 << 8, 10 | 5 << 8];

/// Converts the error of a commit. A failed sync becomes [`StoreErrorKind::Unknown`], because the disk may have the
/// changes.
pub(crate) fn failed_commit(error: Error) -> StoreError {
    let is_unsure = matches!(&error, Error::SqliteFailure(cause, _) if SYNCS.contains(&cause.extended_code));
    if is_unsure { StoreError::caused_by(StoreErrorKind::Unknown, error) } else { failed(error) }
}

pub(crate) fn limit(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Limit, message)
}

pub(crate) fn corrupt(message: impl Into<Box<str>>) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, message)
}
