//! Runs calls in transactions of tokio-postgres.

use super::error::CallError;
use super::statement::{Call, Value};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, GenericClient};

impl<A> Call<A> {
    /// Runs the call in a transaction of tokio-postgres: on a `Transaction`, or on a `Client` after its `BEGIN`. The
    /// statement is not prepared under a name, so the connection may go through a pooler in transaction mode.
    ///
    /// # Errors
    ///
    /// Fails for the reasons in [`CallErrorKind`](crate::CallErrorKind). The source is the [`tokio_postgres::Error`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tourbillon_postgres::Transactional;
    ///
    /// # async fn pay(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = client.transaction().await?;
    /// transaction.execute("UPDATE orders SET state = 'paid' WHERE number = 17", &[]).await?;
    /// Transactional::default().cancel("order 17")?.with_tokio_postgres(&transaction).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio-postgres")))]
    pub async fn with_tokio_postgres(&self, client: &(impl GenericClient + Sync)) -> Result<A, CallError> {
        let values = self.values().iter();
        let values: Vec<(&(dyn ToSql + Sync), Type)> = values
            .map(|value| match value {
                Value::Text(text) => (text as &(dyn ToSql + Sync), Type::TEXT),
                Value::Bytes(bytes) => (bytes as &(dyn ToSql + Sync), Type::BYTEA),
            })
            .collect();
        let rows = client.query_typed(self.text(), &values).await.map_err(failed)?;
        let answer = rows.first().map(|row| row.try_get::<_, Option<&str>>(0)).transpose().map_err(failed)?;
        self.answer(answer.flatten())
    }
}

fn failed(error: Error) -> CallError {
    let answer = error.as_db_error().map(|answer| (answer.code().clone(), answer.message().to_owned()));
    let answer = answer.as_ref().map(|(code, message)| (code.code(), message.clone()));
    CallError::of_driver(error, answer)
}
