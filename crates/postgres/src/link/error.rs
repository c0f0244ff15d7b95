//! Classifies errors: whether the transaction may have had an effect, and whether it should be repeated.

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The reason why a statement or a transaction failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// A conflict with other transactions. The transaction has had no effect, and may be repeated at once.
    Again(StoreError),
    /// The server has ended the wait for a lock of another transaction. The transaction has had no effect.
    Held(StoreError),
    /// The connection was lost before the commit was sent. The transaction has had no effect.
    Lost(StoreError),
    /// The connection was lost after the commit was sent, or after a statement that commits by itself. The transaction
    /// may have had its effect.
    Unknown(StoreError),
    /// Another error. The transaction has had no effect.
    Failed(StoreError),
}

/// Makes an error of the kind [`StoreErrorKind::Io`].
pub(crate) fn io(message: impl Into<Box<str>>) -> StoreError {
    StoreError::new(StoreErrorKind::Io, message)
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Failure {
    /// Returns the failure of a statement. `commits` says whether the statement may have committed.
    pub(crate) fn of(error: Error, commits: bool) -> Self {
        let Some(code) = error.code().cloned() else {
            let message = error.to_string();
            return Self::lost(message, commits);
        };
        // A pooler answers with an error of the class 08 if it loses its own connection to the server. After an error
        // of the severity FATAL the server ends the session, and after PANIC all sessions. In all these cases a commit
        // that was sent may have had its effect.
        let severity = error.as_db_error().and_then(DbError::parsed_severity);
        if code.code().starts_with("08") || matches!(severity, Some(Severity::Fatal | Severity::Panic)) {
            return Self::lost(described(&error), commits);
        }
        let failed = |kind| Self::Failed(StoreError::new(kind, described(&error)));
        match code {
            SqlState::LOCK_NOT_AVAILABLE => Self::Held(io(described(&error))),
            SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::UNIQUE_VIOLATION => Self::Again(io(described(&error))),
            SqlState::ADMIN_SHUTDOWN
            | SqlState::CRASH_SHUTDOWN
            | SqlState::CANNOT_CONNECT_NOW
            | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            | SqlState::TRANSACTION_RESOLUTION_UNKNOWN => Self::lost(described(&error), commits),
            SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => failed(StoreErrorKind::Full),
            SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::INSUFFICIENT_PRIVILEGE => {
                failed(StoreErrorKind::ReadOnly)
            }
            SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => failed(StoreErrorKind::Corrupt),
            SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_FUNCTION | SqlState::INVALID_SCHEMA_NAME => {
                failed(StoreErrorKind::Closed)
            }
            _ => failed(StoreErrorKind::Io),
        }
    }

    /// Returns the failure of a statement if the connection was lost, or the answer did not come in time. This is
    /// [`Failure::Unknown`] if `commits` says that the statement may have committed, and [`Failure::Lost`] otherwise.
    pub(crate) fn lost(message: String, commits: bool) -> Self {
        if commits {
            return Self::Unknown(StoreError::new(StoreErrorKind::Unknown, message));
        }
        Self::Lost(io(message))
    }

    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Self::Again(error)
            | Self::Held(error)
            | Self::Lost(error)
            | Self::Unknown(error)
            | Self::Failed(error) => error,
        }
    }
}

/// Returns the server's message with its SQLSTATE.
fn described(error: &Error) -> String {
    match error.as_db_error() {
        Some(answer) => format!("{} ({})", answer.message(), answer.code().code()),
        None => error.to_string(),
    }
}
