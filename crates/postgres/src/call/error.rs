//! Defines the errors of calls, and finds the kind of an error by its SQLSTATE.

use core::error::Error;
use core::fmt;
use tourbillon_durable::Rejection;
use tourbillon_durable::timer::TimerId;

/// The error of a call in a transaction.
///
/// The error shows whether the transaction can go on:
///
/// | the error | the transaction |
/// |---|---|
/// | has a [`sqlstate`](Self::sqlstate) | has failed: the server has refused the statement. PostgreSQL takes no further statement, and the caller must roll back |
/// | has no SQLSTATE, and the kind [`Database`](CallErrorKind::Database) | may be lost, because the connection may have failed |
/// | has no SQLSTATE, and another kind | can go on, as it was before the call |
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
    /// The caller wanted to replace an existing timer
    /// ([`IfPresent::ReplaceOnly`](tourbillon_durable::store::IfPresent::ReplaceOnly)), but no timer has the key.
    NotFound,
    /// The caller has lost the lease (the exclusive right to deliver the timer). Either the lease has expired and a
    /// node has ended it, or the delivery has already ended.
    Lost,
    /// A serialization failure, or a deadlock with another transaction. The caller should repeat its transaction.
    Conflict,
    /// An argument is not valid.
    Invalid,
    /// An argument is too long, or there are too many labels.
    TooLong,
    /// The due moment is too far away.
    DueTooFar,
    /// The SQL functions do not support a property of the timer. For example, they cannot create a series or a timer
    /// with a [jitter](tourbillon_durable::policy::Policy::jitter), and they cannot end the delivery of an occurrence
    /// of a series. They also refuse a timer that no process would deliver: a program's timer in a schema of the
    /// service `tourbillond`, or a timer of the service in another schema.
    Unsupported,
    /// The database or the connection has failed, the database does not have the schema, or the user has no right to
    /// use the schema.
    Database,
}

impl CallError {
    pub(super) fn new(kind: CallErrorKind, message: impl Into<Box<str>>) -> Self {
        Self { kind, message: message.into(), sqlstate: None, source: None }
    }

    /// Makes an error from an error answer of the server. A program with a driver that this crate does not support
    /// calls this function.
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

    /// Makes an error from the error of a driver. `answer` is the SQLSTATE and the message of the server. `None` if the
    /// server has not answered.
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

    /// Returns the SQLSTATE of the server's answer. `None` if the call was not sent, or if the connection has failed.
    /// With diesel, some errors of the server have no SQLSTATE either.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }
}

/// Returns the id of the timer that has the key, from the message of an error 23505 of the SQL functions.
fn holder(message: &str) -> Option<TimerId> {
    message.strip_prefix("the timer ")?.split(' ').next()?.parse().ok()
}

impl From<Rejection> for CallError {
    fn from(rejection: Rejection) -> Self {
        let kind = match &rejection {
            Rejection::KeyExists(holder) => CallErrorKind::KeyExists(Some(*holder)),
            Rejection::NotFound => CallErrorKind::NotFound,
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
