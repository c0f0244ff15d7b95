//! Runs calls in transactions of diesel.

use super::error::CallError;
use super::raised::sqlstate_of;
use super::statement::{Call, Value};
use diesel::connection::LoadConnection;
use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::query_dsl::RunQueryDsl as _;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_types::{Binary, Nullable, Text};

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Nullable<Text>)]
    answer: Option<String>,
}

impl<A> Call<A> {
    /// Runs the call in the connection's transaction. The connection may be any connection of diesel to PostgreSQL,
    /// such as `PgConnection`. `PgConnection` needs the library libpq, but this crate does not.
    ///
    /// diesel does not report the SQLSTATE of an error. So this method derives the kind of the error from diesel's own
    /// kind, or from the server's message.
    ///
    /// # Errors
    ///
    /// Fails for the reasons in [`CallErrorKind`](crate::CallErrorKind). The source is the [`diesel::result::Error`].
    ///
    /// # Examples
    ///
    /// ```
    /// use diesel::connection::LoadConnection;
    /// use diesel::pg::Pg;
    /// use tourbillon_postgres::Transactional;
    ///
    /// fn pay(connection: &mut impl LoadConnection<Backend = Pg>) -> Result<(), Box<dyn std::error::Error>> {
    ///     connection.transaction(|connection| {
    ///         connection.batch_execute("UPDATE orders SET state = 'paid' WHERE number = 17")?;
    ///         Transactional::default().cancel("order 17")?.with_diesel(connection)?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "diesel")))]
    pub fn with_diesel(&self, connection: &mut impl LoadConnection<Backend = Pg>) -> Result<A, CallError> {
        let mut query = diesel::sql_query(self.text()).into_boxed::<Pg>();
        for value in self.values() {
            query = match value {
                Value::Text(text) => query.bind::<Nullable<Text>, _>(text.as_deref()),
                Value::Bytes(bytes) => query.bind::<Binary, _>(&**bytes),
            };
        }
        let rows: Vec<Row> = query.load(connection).map_err(failed)?;
        self.answer(rows.into_iter().next().and_then(|row| row.answer).as_deref())
    }
}

fn failed(error: Error) -> CallError {
    let answer = match &error {
        Error::DatabaseError(kind, answer) => {
            let code = match kind {
                DatabaseErrorKind::UniqueViolation => Some("23505"),
                DatabaseErrorKind::SerializationFailure => Some("40001"),
                _ => sqlstate_of(answer.message()),
            };
            code.map(|code| (code, answer.message().to_owned()))
        }
        _ => None,
    };
    CallError::of_driver(error, answer)
}
