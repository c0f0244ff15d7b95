//! Defines a call: a statement with its values, and the function that reads the answer.

use super::error::{CallError, CallErrorKind};
use crate::layout::SchemaName;
use core::fmt;

/// The value of a parameter of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A value of the type `text`, or NULL.
    Text(Option<String>),
    /// A value of the type `bytea`.
    Bytes(Vec<u8>),
}

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(Some(text.into()))
    }
}

/// A call of an SQL function in a transaction: a statement, whose answer is read as a value of the type `A`.
///
/// The statement is one `SELECT`. A call may be run again in a new transaction, for example after a conflict.
///
/// With the features `sqlx`, `tokio-postgres` and `diesel`, a call has methods that run it. A program with another
/// driver runs a call in three steps:
///
/// 1. It sends [`text`](Self::text) with the [`values`](Self::values) for the parameters `$1`, `$2` and so on.
/// 2. It passes the answer to [`answer`](Self::answer).
/// 3. If the server has answered with an error, it passes the error to [`CallError::of_sqlstate`] instead.
///
/// ```
/// use tourbillon_postgres::{Transactional, Value};
/// use tourbillon_postgres::tourbillon_api::CancelResult;
///
/// let cancel = Transactional::default().cancel("order 17")?;
/// assert!(cancel.text().starts_with("SELECT tourbillon.cancel("));
/// assert_eq!(cancel.values()[0], Value::Text(Some("order 17".into())));
/// // The driver sends both. The server answers with a row, whose only column is a text.
/// assert_eq!(cancel.answer(Some("cancelled"))?, CancelResult::Cancelled);
/// # Ok::<(), tourbillon_postgres::CallError>(())
/// ```
#[must_use = "a call has no effect until it is run on a connection"]
pub struct Call<A> {
    text: Box<str>,
    values: Vec<Value>,
    read: fn(Option<&str>) -> Option<Result<A, CallError>>,
}

impl<A> fmt::Debug for Call<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("text", &self.text).finish_non_exhaustive()
    }
}

impl<A> Call<A> {
    /// Makes a call, which is not run yet. In the statement `text`, the name of `schema` replaces the name
    /// `tourbillon`. The function `read` reads the server's answer. It returns `None` if the text is not a possible
    /// answer of the SQL function.
    pub(super) fn new(
        schema: &SchemaName,
        text: &str,
        values: Vec<Value>,
        read: fn(Option<&str>) -> Option<Result<A, CallError>>,
    ) -> Self {
        Self { text: schema.put_into(text).into(), values, read }
    }

    /// Checks that PostgreSQL accepts the values.
    ///
    /// # Errors
    ///
    /// Fails if a text has a zero byte.
    pub(super) fn admit(self) -> Result<Self, CallError> {
        let has_zero = |value: &Value| matches!(value, Value::Text(Some(text)) if text.contains('\0'));
        if self.values.iter().any(has_zero) { Err(zero_byte()) } else { Ok(self) }
    }

    /// Returns the statement.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the values for the parameters `$1`, `$2` and so on, in this order.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Reads the answer to the statement: the text in the only column of the only row. Pass `None` if the answer has no
    /// row.
    ///
    /// # Errors
    ///
    /// Fails if the answer means that nothing was done. The [kind](CallErrorKind) of the error is the reason. Fails
    /// with [`CallErrorKind::Database`] if the answer cannot be an answer to this call.
    pub fn answer(&self, answer: Option<&str>) -> Result<A, CallError> {
        (self.read)(answer).unwrap_or_else(|| {
            let message = format!("the answer cannot be read: {answer:?}");
            Err(CallError::new(CallErrorKind::Database, message))
        })
    }
}

/// Returns the error for a text with a zero byte, which PostgreSQL cannot store.
pub(super) fn zero_byte() -> CallError {
    CallError::new(CallErrorKind::Invalid, "a text in PostgreSQL has no zero byte")
}
