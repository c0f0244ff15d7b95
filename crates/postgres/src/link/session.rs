//! A session: a connection that a call uses alone.

use super::error::Failure;
use super::shelf::Shelf;
use core::fmt;
use core::future::Future;
use core::pin::{Pin, pin};
use core::time::Duration;
use futures_util::StreamExt as _;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, RowStream};

/// The longest time for which a session that has given an answer up waits for the end of the statement at the server.
const LONGEST_CANCEL: Duration = Duration::from_secs(1);

/// The wait for the answer to a rollback, if the answer to an earlier statement was given up.
const LONGEST_ROLLBACK: Duration = Duration::from_millis(100);

/// A value of a statement, with its type. Since the types are given, the driver need not prepare the statement first.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The longest time for which a statement of a transaction waits for a lock of another transaction. A longer wait fails
/// with [`Failure::Held`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum LockWait {
    /// A time in milliseconds.
    Short(u32),
    /// Nine tenths of the response timeout. The server ends the wait for the lock before this process stops waiting for
    /// the answer. So the server does not go on to wait for a lock after this process has given up.
    Long,
}

/// Returns the milliseconds of a [`LockWait::Long`]. They are at least 1, because 0 would mean a wait without a limit.
pub(super) fn long_wait(response_timeout: Duration) -> u32 {
    let millis = u32::try_from(response_timeout.as_millis()).unwrap_or(u32::MAX);
    // `i32::MAX` is the longest time that the server accepts.
    (millis - millis / 10).clamp(1, i32::MAX.cast_unsigned())
}

/// A connection that a call uses alone. When the session is dropped, the connection goes back to the pool. If a
/// transaction is open then, or the last answer was not received completely, the connection is closed instead.
pub(crate) struct Session {
    shelf: Arc<Shelf>,
    client: Option<Client>,
    /// The permits with which the pool limits the connections in use. They are released after the connection has gone
    /// back to the pool.
    _permits: Vec<OwnedSemaphorePermit>,
    /// The longest wait for the answer to a statement.
    limit: Duration,
    /// Whether the last answer was received completely. If not, the connection does not go back to the pool.
    is_clean: bool,
    is_in_transaction: bool,
    /// Whether the server has refused a write, because the session is read-only. A session keeps the setting
    /// `default_transaction_read_only` that applied at the start of the session. The setting may have changed since,
    /// and a new session may then accept writes. So the connection does not go back to the pool.
    is_read_only: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("is_in_transaction", &self.is_in_transaction).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let is_fit = self.is_clean && !self.is_in_transaction && !self.is_read_only;
        let client = self.client.take().filter(|_| is_fit);
        if let Some(client) = client {
            self.shelf.put(client);
        }
    }
}

impl Session {
    pub(super) fn new(shelf: Arc<Shelf>, client: Client, permits: Vec<OwnedSemaphorePermit>) -> Self {
        let (_permits, limit) = (permits, shelf.response_timeout());
        Self {
            shelf,
            client: Some(client),
            _permits,
            limit,
            is_clean: true,
            is_in_transaction: false,
            is_read_only: false,
        }
    }

    /// Shortens the longest wait for an answer to `limit`.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = self.limit.min(limit);
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

    /// Records the level of isolation at which the server runs a statement outside a transaction. If this level is not
    /// READ COMMITTED, all sessions of the pool begin a transaction at READ COMMITTED for each statement that may
    /// change data.
    pub(crate) fn set_default_level(&self, level: &str) {
        self.shelf.set_other_level(!matches!(level, "read committed" | "read uncommitted"));
    }

    /// Runs a statement that changes nothing, and returns its rows.
    pub(crate) async fn read(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        self.ask(sql, params, false).await
    }

    async fn ask(&mut self, sql: &str, params: &[Param<'_>], commits: bool) -> Result<Vec<Row>, Failure> {
        let sql = self.shelf.schema().put_into(sql);
        self.is_clean = false;
        match self.in_time(self.client().query_typed(&sql, params), commits).await? {
            Ok(rows) => {
                self.is_clean = true;
                Ok(rows)
            }
            Err(error) => {
                // The server has refused the statement. Outside a transaction this has no effect on the session.
                self.is_clean = error.code().is_some();
                Err(self.failure(error, commits))
            }
        }
    }

    /// Waits for the answer to a statement for the time `limit`, and then cancels the statement. `commits` says whether
    /// the statement may have committed.
    ///
    /// The server does not notice that its client is gone while a statement waits for a lock or for a synchronous
    /// standby. Without the cancel request, its process would keep its locks and its place among the connections.
    ///
    /// | the statement | effect of the request |
    /// |---|---|
    /// | waits for a lock, or computes | it fails, and its transaction has no effect |
    /// | has committed, and waits for a standby | it ends, and the commit stays, as far as the server itself has it |
    /// | has ended | none, because this session sends no other statement |
    ///
    /// An answer after the request counts as lost in each case: it does not say that a standby has the commit.
    async fn in_time<T>(&self, answer: impl Future<Output = T>, commits: bool) -> Result<T, Failure> {
        let mut answer = pin!(answer);
        if let Ok(answer) = timeout(self.limit, &mut answer).await {
            return Ok(answer);
        }
        let (shelf, token) = (Arc::clone(&self.shelf), self.client().cancel_token());
        let _sending = tokio::spawn(async move { shelf.cancel(&token).await });
        // A pool knows the process of the statement as long as this connection is open. A server that cannot be reached
        // ends the statement once it notices the loss of the connection.
        let _best_effort = timeout(LONGEST_CANCEL, answer).await;
        Err(Failure::lost("the server has not answered in time".to_owned(), commits))
    }

    /// Converts the error of a statement to a failure. `commits` says whether the statement may have committed. If the
    /// session is read-only, also closes the free connections of the pool, because they may be read-only, too.
    fn failure(&mut self, error: Error, commits: bool) -> Failure {
        if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
            self.is_read_only = true;
            self.shelf.clear();
        }
        Failure::of(error, commits)
    }

    /// Runs statements without values. If no transaction is open, the statements together are one transaction.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<(), Failure> {
        self.execute(sql, !self.is_in_transaction).await
    }

    async fn execute(&mut self, sql: &str, commits: bool) -> Result<(), Failure> {
        let sql = self.shelf.schema().put_into(sql);
        self.is_clean = false;
        match self.in_time(self.client().batch_execute(&sql), commits).await? {
            Ok(()) => {
                self.is_clean = true;
                Ok(())
            }
            Err(error) => {
                self.is_clean = error.code().is_some();
                Err(self.failure(error, commits))
            }
        }
    }

    /// Begins a transaction. If the session is dropped before a commit or rollback, the connection is closed.
    pub(crate) async fn begin(&mut self) -> Result<(), Failure> {
        self.begin_with("", LockWait::Long).await
    }

    /// Begins a transaction, and runs the statements `settings` in it. If this process sends no statement in the
    /// transaction for five seconds, for example because it is stopped, the server ends the session. So other
    /// transactions can lock the timers again.
    pub(crate) async fn begin_with(&mut self, settings: &str, wait: LockWait) -> Result<(), Failure> {
        self.is_in_transaction = true;
        let begin =
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = 5000;";
        let most = match wait {
            LockWait::Short(millis) => millis,
            LockWait::Long => long_wait(self.limit),
        };
        self.execute(&format!("{begin} SET LOCAL lock_timeout = {most}; {settings}"), false).await
    }

    pub(crate) async fn commit(&mut self) -> Result<(), Failure> {
        self.execute("COMMIT", true).await?;
        self.is_in_transaction = false;
        Ok(())
    }

    /// Commits the open transaction. If synchronous replication is set, the answer waits for a standby even if the
    /// transaction has written nothing.
    ///
    /// The transaction may have found the effect of an earlier one whose wait for the standby was given up. If it said
    /// so at once, a failover could lose an effect that was answered. A commit that writes nothing waits for no
    /// standby, so it writes a message that changes nothing.
    pub(crate) async fn commit_confirmed(&mut self) -> Result<(), Failure> {
        let commit = "SELECT pg_logical_emit_message(true, 'tourbillon', '')
                      WHERE current_setting('synchronous_standby_names') <> ''
                          AND pg_current_xact_id_if_assigned() IS NULL;
                      COMMIT";
        self.execute(commit, true).await?;
        self.is_in_transaction = false;
        Ok(())
    }

    /// Rolls the open transaction back. If an answer was given up, waits for a moment only, and the drop closes the
    /// connection.
    pub(crate) async fn roll_back(&mut self) {
        if !self.is_in_transaction {
            return;
        }
        if !self.is_clean {
            // Replies may be lost alone. The server then releases the locks before the caller tries again.
            let _best_effort = timeout(LONGEST_ROLLBACK, self.client().batch_execute("ROLLBACK")).await;
        } else if self.execute("ROLLBACK", false).await.is_ok() {
            self.is_in_transaction = false;
        }
    }

    /// Runs a statement that changes nothing, and returns its rows one after the other. If not all rows are read, the
    /// connection is closed.
    pub(crate) async fn rows(&mut self, sql: &str) -> Result<Rows<'_>, Failure> {
        let sql = self.shelf.schema().put_into(sql);
        self.is_clean = false;
        let none: [(&(dyn ToSql + Sync), Type); 0] = [];
        let rows = self.in_time(self.client().query_typed_raw(&sql, none), false).await?;
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
        let next = self.session.in_time(self.rows.next(), false).await?;
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
