//! A session: a connection that a call uses alone.

use super::error::Failure;
use super::shelf::Shelf;
use core::fmt;
use core::pin::Pin;
use core::time::Duration;
use futures_util::StreamExt as _;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, RowStream};

/// A value of a statement, with its type. The types are named, so the server prepares no statement.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The time for which a statement of a transaction waits for the lock of another transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LockWait {
    /// A time in milliseconds. A wait that takes longer fails by [`Failure::Again`].
    Short(u32),
    /// Nine tenths of the time for an answer. A wait that takes longer fails by [`Failure::Lost`], as a late answer
    /// does. The server ends the wait itself, so no session stays there that nobody listens to.
    Long,
}

/// Returns the time of a long wait in milliseconds, for a time for an answer. Zero would mean a wait without end.
fn long_wait(response_timeout: Duration) -> u32 {
    let millis = u32::try_from(response_timeout.as_millis()).unwrap_or(u32::MAX);
    // The server knows no longer time than this.
    (millis - millis / 10).clamp(1, i32::MAX.cast_unsigned())
}

/// A connection that a call uses alone. Goes back to the pool when it is dropped, unless a statement has failed or a
/// transaction is open.
pub(crate) struct Session {
    shelf: Arc<Shelf>,
    client: Option<Client>,
    /// The place among the connections that may be open, and the place among those of calls. They are free after the
    /// connection has gone back.
    _places: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
    /// Whether the connection may go back to the pool.
    is_clean: bool,
    is_in_transaction: bool,
    /// Whether the waits of the open transaction are long ones.
    waits_long: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("is_in_transaction", &self.is_in_transaction).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let client = self.client.take().filter(|_| self.is_clean && !self.is_in_transaction);
        if let Some(client) = client {
            self.shelf.put(client);
        }
    }
}

impl Session {
    pub(super) fn new(shelf: Arc<Shelf>, client: Client, place: OwnedSemaphorePermit) -> Self {
        let _places = (place, None);
        Self {
            shelf,
            client: Some(client),
            _places,
            is_clean: true,
            is_in_transaction: false,
            waits_long: false,
        }
    }

    /// Keeps a place among the connections of calls, too.
    pub(super) fn keep(mut self, place: OwnedSemaphorePermit) -> Self {
        self._places.1 = Some(place);
        self
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("the connection goes back at the drop only")
    }

    /// Runs a statement, and returns its rows. A statement outside a transaction is committed by this call.
    pub(crate) async fn query(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        if self.is_in_transaction || !self.shelf.has_other_level() {
            return self.ask(sql, params, !self.is_in_transaction).await;
        }
        self.begin().await?;
        match self.ask(sql, params, false).await {
            Ok(rows) => self.commit().await.map(|()| rows),
            Err(failure) => {
                self.roll_back().await;
                Err(failure)
            }
        }
    }

    /// Sets the level of isolation at which the server runs a statement that is sent alone. All sessions of the pool
    /// avoid another level than READ COMMITTED: they begin a transaction for the statement.
    pub(crate) fn set_default_level(&self, level: &str) {
        self.shelf.set_other_level(!matches!(level, "read committed" | "read uncommitted"));
    }

    /// Runs a statement that changes nothing, and returns its rows.
    pub(crate) async fn read(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        self.ask(sql, params, false).await
    }

    async fn ask(&mut self, sql: &str, params: &[Param<'_>], commits: bool) -> Result<Vec<Row>, Failure> {
        let sql = self.shelf.named(sql);
        self.is_clean = false;
        let answer = timeout(self.shelf.response_timeout(), self.client().query_typed(&sql, params)).await;
        let failure = match answer {
            Ok(Ok(rows)) => {
                self.is_clean = true;
                return Ok(rows);
            }
            Ok(Err(error)) => {
                // A statement that the server refused leaves a session without a transaction as it was.
                self.is_clean = error.code().is_some();
                self.failure(error, commits)
            }
            Err(_) => Failure::lost("the server has not answered in time".to_owned(), commits),
        };
        Err(failure)
    }

    /// Returns the failure of a statement. The end of a long wait for a lock is what a late answer is.
    fn failure(&self, error: Error, commits: bool) -> Failure {
        let ends_wait = error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE);
        match Failure::of(error, commits) {
            Failure::Again(error) if ends_wait && self.is_in_transaction && self.waits_long => {
                Failure::Lost(error)
            }
            failure => failure,
        }
    }

    /// Runs statements without values. They are one transaction if none is open.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<(), Failure> {
        self.execute(sql, !self.is_in_transaction).await
    }

    async fn execute(&mut self, sql: &str, commits: bool) -> Result<(), Failure> {
        let sql = self.shelf.named(sql);
        self.is_clean = false;
        let answer = timeout(self.shelf.response_timeout(), self.client().batch_execute(&sql)).await;
        match answer {
            Ok(Ok(())) => {
                self.is_clean = true;
                Ok(())
            }
            Ok(Err(error)) => {
                self.is_clean = error.code().is_some();
                Err(self.failure(error, commits))
            }
            Err(_) => Err(Failure::lost("the server has not answered in time".to_owned(), commits)),
        }
    }

    /// Begins a transaction. If it is neither committed nor rolled back, the connection is closed.
    pub(crate) async fn begin(&mut self) -> Result<(), Failure> {
        self.begin_with("", LockWait::Long).await
    }

    /// Begins a transaction with further settings. A process that stands still within the transaction may never come
    /// back. So the server ends its session after five seconds, and the timers that it holds are free.
    pub(crate) async fn begin_with(&mut self, settings: &str, wait: LockWait) -> Result<(), Failure> {
        self.is_in_transaction = true;
        let begin =
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = 5000;";
        self.waits_long = matches!(wait, LockWait::Long);
        let most = match wait {
            LockWait::Short(millis) => millis,
            LockWait::Long => long_wait(self.shelf.response_timeout()),
        };
        self.execute(&format!("{begin} SET LOCAL lock_timeout = {most}; {settings}"), false).await
    }

    pub(crate) async fn commit(&mut self) -> Result<(), Failure> {
        self.execute("COMMIT", true).await?;
        self.is_in_transaction = false;
        Ok(())
    }

    pub(crate) async fn roll_back(&mut self) {
        if self.is_in_transaction && self.execute("ROLLBACK", false).await.is_ok() {
            self.is_in_transaction = false;
        }
    }

    /// Runs a statement that changes nothing, and returns its rows one after the other. If not all rows are read, the
    /// connection is closed.
    pub(crate) async fn rows(&mut self, sql: &str) -> Result<Rows<'_>, Failure> {
        let sql = self.shelf.named(sql);
        self.is_clean = false;
        let none: [(&(dyn ToSql + Sync), Type); 0] = [];
        let rows = self.client().query_typed_raw(&sql, none).await;
        let rows = Box::pin(rows.map_err(|error| Failure::of(error, false))?);
        Ok(Rows { session: self, rows })
    }
}

/// The rows of a statement, in the order in which they arrive.
pub(crate) struct Rows<'s> {
    session: &'s mut Session,
    rows: Pin<Box<RowStream>>,
}

impl Rows<'_> {
    /// Returns the next row. `None` after the last row.
    pub(crate) async fn next(&mut self) -> Result<Option<Row>, Failure> {
        let next = timeout(self.session.shelf.response_timeout(), self.rows.next()).await;
        let next =
            next.map_err(|_| Failure::lost("the server has not answered in time".to_owned(), false))?;
        if next.is_none() {
            self.session.is_clean = true;
        }
        next.transpose().map_err(|error| Failure::of(error, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_ends_before_the_time_for_an_answer_and_never_is_one_without_end() {
        let wait = |millis| long_wait(Duration::from_millis(millis));
        assert_eq!((wait(30_000), wait(1_000), wait(10)), (27_000, 900, 9));
        assert_eq!((wait(0), wait(1)), (1, 1));
        assert_eq!(long_wait(Duration::MAX), i32::MAX.cast_unsigned());
    }
}
