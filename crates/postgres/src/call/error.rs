//! Defines the errors of calls, and finds the kind of an error by its SQLSTATE.

use core::error::Error;
use core::fmt;
use tourbillon_durable::Rejection;
use tourbillon_durable::timer::TimerId;

/// The error of a call in a transaction.
///
/// If the error has a [`sqlstate`](Self::sqlstate), the server has refused the statement. PostgreSQL then takes no
/// further statement in the transaction, and the caller rolls it back. Without a SQLSTATE and with another kind than
/// [`Database`](CallErrorKind::Database), the transaction is as before the call, and goes on.
#[derive(Debug)]
pub struct CallError {
    kind: CallErrorKind,
    message: Box<str>,
    sqlstate: Option<Box<str>>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The kind of a [`CallError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// Another timer has the key. The value is the id of that timer, if the server's message names it.
    KeyExists(Option<TimerId>),
    /// No timer has the key of a creation with
    /// [`IfPresent::ReplaceOnly`](tourbillon_durable::store::IfPresent::ReplaceOnly).
    NotFound,
    /// The lease of the delivery was lost: its time is over, or the delivery has already ended.
    Lost,
    /// Other transactions have changed the same timer. The caller repeats its transaction.
    Conflict,
    /// An argument is not valid.
    Invalid,
    /// An argument is too long, or there are too many labels.
    TooLong,
    /// The due moment is too far away.
    DueTooFar,
    /// The functions cannot do this: a series, a jitter.
    Unsupported,
    /// The database or the connection has failed. So does a database without the schema, and a user without the right
    /// to use it.
    Database,
}

impl CallError {
    pub(super) fn new(kind: CallErrorKind, message: impl Into<Box<str>>) -> Self {
        Self { kind, message: message.into(), sqlstate: None, source: None }
    }

    /// Makes the error that a server's answer means, for drivers without a feature of this crate.
    ///
    /// | SQLSTATE | kind |
    /// |---|---|
    /// | 23505 | [`KeyExists`](CallErrorKind::KeyExists) |
    /// | TB001 | [`Lost`](CallErrorKind::Lost) |
    /// | 40001, 40P01 | [`Conflict`](CallErrorKind::Conflict) |
    /// | 22023 | [`Invalid`](CallErrorKind::Invalid) |
    /// | 22001, 54000 | [`TooLong`](CallErrorKind::TooLong) |
    /// | 22008 | [`DueTooFar`](CallErrorKind::DueTooFar) |
    /// | 0A000 | [`Unsupported`](CallErrorKind::Unsupported) |
    /// | any other | [`Database`](CallErrorKind::Database) |
    ///
    /// ```
    /// use tourbillon_postgres::{CallError, CallErrorKind};
    ///
    /// let error = CallError::of_sqlstate("TB001", "the lease of the timer is lost");
    /// assert_eq!(error.kind(), CallErrorKind::Lost);
    /// ```
    #[must_use]
    pub fn of_sqlstate(sqlstate: &str, message: &str) -> Self {
        let kind = match sqlstate {
            "23505" => CallErrorKind::KeyExists(holder(message)),
            "TB001" => CallErrorKind::Lost,
            "40001" | "40P01" => CallErrorKind::Conflict,
            "22023" => CallErrorKind::Invalid,
            "22001" | "54000" => CallErrorKind::TooLong,
            "22008" => CallErrorKind::DueTooFar,
            "0A000" => CallErrorKind::Unsupported,
            _ => CallErrorKind::Database,
        };
        Self { sqlstate: Some(sqlstate.into()), ..Self::new(kind, message) }
    }

    /// Makes the error of a driver. `answer` has the SQLSTATE and the message of the server. `None` if the server has
    /// not answered.
    #[cfg(any(feature = "sqlx", feature = "tokio-postgres", feature = "diesel"))]
    pub(super) fn of_driver(
        source: impl Error + Send + Sync + 'static,
        answer: Option<(&str, String)>,
    ) -> Self {
        let error = match answer {
            Some((sqlstate, message)) => Self::of_sqlstate(sqlstate, &message),
            None => Self::new(CallErrorKind::Database, source.to_string()),
        };
        Self { source: Some(Box::new(source)), ..error }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> CallErrorKind {
        self.kind
    }

    /// Returns the SQLSTATE of the server's answer. `None` if the call was not sent, and if the connection has failed.
    /// diesel does not tell all of them.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }
}

/// Returns the id in the message of an error 23505 that the functions raise.
fn holder(message: &str) -> Option<TimerId> {
    message.strip_prefix("the timer ")?.split(' ').next()?.parse().ok()
}

impl From<Rejection> for CallError {
    fn from(rejection: Rejection) -> Self {
        let kind = match &rejection {
            Rejection::KeyExists(holder) => CallErrorKind::KeyExists(Some(*holder)),
            Rejection::TooLong(_) | Rejection::PayloadTooLong(_) => CallErrorKind::TooLong,
            Rejection::DueTooFar => CallErrorKind::DueTooFar,
            _ => CallErrorKind::Invalid,
        };
        Self::new(kind, rejection.to_string())
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.sqlstate.as_ref().map_or(Ok(()), |sqlstate| write!(f, " ({sqlstate})"))
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
