//! Runs calls in transactions of sqlx.

use super::error::CallError;
use super::statement::{Call, Value};
use sqlx::{AssertSqlSafe, Error, PgConnection, Postgres};

impl<A> Call<A> {
    /// Runs the call in the connection's transaction. A `&mut Transaction<'_, Postgres>` can be passed as well, since
    /// it derefs to a `PgConnection`. The statement is not prepared under a name. So the connection may go through a
    /// pooler in transaction mode, if it is in a transaction.
    ///
    /// # Errors
    ///
    /// Fails for the reasons in [`CallErrorKind`](crate::CallErrorKind). The source is the [`sqlx::Error`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use sqlx::{Connection as _, PgConnection};
    /// use tourbillon_postgres::Transactional;
    ///
    /// # async fn pay() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut connection = PgConnection::connect("postgresql://app@127.0.0.1/shop").await?;
    /// let mut transaction = connection.begin().await?;
    /// sqlx::query("UPDATE orders SET state = 'paid' WHERE number = 17").execute(&mut *transaction).await?;
    /// Transactional::default().cancel("order 17")?.with_sqlx(&mut transaction).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "sqlx")))]
    pub async fn with_sqlx(&self, connection: &mut PgConnection) -> Result<A, CallError> {
        // The text is a constant of this crate, with the checked name of a schema.
        let sql = AssertSqlSafe(self.text().to_owned());
        let mut query = sqlx::query_scalar::<Postgres, Option<String>>(sql).persistent(false);
        for value in self.values().iter().cloned() {
            query = match value {
                Value::Text(text) => query.bind(text),
                Value::Bytes(bytes) => query.bind(bytes),
            };
        }
        let answer = query.fetch_optional(connection).await.map_err(failed)?;
        self.answer(answer.flatten().as_deref())
    }
}

fn failed(error: Error) -> CallError {
    let answer = error.as_database_error();
    let code = answer.and_then(|answer| answer.code()).map(|code| code.into_owned());
    let message = answer.map(|answer| answer.message().to_owned());
    CallError::of_driver(error, code.as_deref().zip(message))
}
