//! Changes timers in transactions of sqlx.
//!
//! sqlx and this crate link the same SQLite. So this crate runs its statements on sqlx's own handle, and the operations
//! need no second implementation. During a statement, sqlx's thread does not use the handle.
//!
//! The statements run in the thread that polls the future. Before that, sqlx takes the database's lock for writers in
//! its own thread. So the polling thread does not wait for other transactions.

use crate::error::Result;
use crate::transactional::{NotEnded, Transactional};
use rusqlite::Connection;
use sqlx::SqliteConnection;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Address, TimerId};
use tourbillon_durable::{Cancelled, Changed, Kind, Placed, Rejection, ScheduleError, Spec, UtcMillis};

/// SQLite's code for a statement that it cannot prepare, in the form in which sqlx returns it.
const SQLITE_ERROR: &str = "1";

fn failed(error: sqlx::Error) -> StoreError {
    StoreError::caused_by(StoreErrorKind::Io, error)
}

/// Takes SQLite's lock for writers on the database, and then calls `act` with a rusqlite connection that uses sqlx's
/// handle.
#[expect(unsafe_code, reason = "rusqlite borrows the handle of sqlx")]
async fn on<T>(connection: &mut SqliteConnection, act: impl FnOnce(&Connection) -> T) -> Result<T> {
    // A write without rows waits for the lock for writers, and keeps it until the end of the transaction.
    let locks = sqlx::query("UPDATE tourbillon_meta SET value = value WHERE FALSE");
    match locks.execute(&mut *connection).await {
        // The database lacks the tables of this crate. The function `act` returns the error for this.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(SQLITE_ERROR) => {}
        locked => {
            let _no_rows = locked.map_err(failed)?;
        }
    }
    let mut handle = connection.lock_handle().await.map_err(failed)?;
    // SAFETY: The handle is open, and `handle` keeps sqlx's thread off it until the end of this function. The borrowed
    // connection does not close the handle. It finalizes its statements when it is dropped, before `handle`.
    let borrowed = unsafe { Connection::from_handle(handle.as_raw_handle().as_ptr()) };
    let borrowed = borrowed.map_err(crate::error::failed)?;
    let result = act(&borrowed);
    drop(borrowed);
    drop(handle);
    Ok(result)
}

/// The methods for transactions of sqlx. A `transaction` of the type `Transaction<'_, Sqlite>` is passed as `&mut
/// *transaction`.
impl Transactional {
    /// Creates a timer in the connection's transaction, as [`schedule`](Self::schedule) does.
    ///
    /// # Errors
    ///
    /// Fails as [`schedule`](Self::schedule) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sqlx::{Connection as _, SqliteConnection};
    /// use tourbillon_durable::{Kind, Spec};
    /// use tourbillon_sqlite::SqliteStore;
    ///
    /// #[derive(Debug, serde::Serialize, serde::Deserialize)]
    /// struct PaymentTimeout(u64);
    ///
    /// impl Kind for PaymentTimeout {
    ///     const NAME: &'static str = "payment timeout";
    /// }
    ///
    /// # async fn run(path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    /// let timers = SqliteStore::open(path)?.transactional();
    /// let mut connection = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await?;
    /// let mut transaction = connection.begin().await?;
    /// let timeout = Spec::new(PaymentTimeout(17)).key("order 17").after(Duration::from_secs(3_600));
    /// timers.schedule_with_sqlx(&mut transaction, timeout).await?;
    /// transaction.commit().await?;
    /// timers.wake();
    /// # Ok(())
    /// # }
    /// # let folder = tempfile::tempdir()?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(run(&folder.path().join("shop.db")))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn schedule_with_sqlx<K: Kind>(
        &self,
        connection: &mut SqliteConnection,
        spec: Spec<K>,
    ) -> core::result::Result<Placed, ScheduleError<K>> {
        let mut spec = Some(spec);
        let placed = on(connection, |borrowed| spec.take().map(|spec| self.schedule(borrowed, spec))).await;
        match (placed, spec) {
            (Ok(Some(placed)), _) => placed,
            (Err(error), Some(spec)) => {
                Err(ScheduleError { reason: Rejection::Store(error), payload: spec.into_payload() })
            }
            _ => unreachable!("the description was used if and only if the function was called"),
        }
    }

    /// Cancels a timer in the connection's transaction, as [`cancel`](Self::cancel) does.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn cancel_with_sqlx(
        &self,
        connection: &mut SqliteConnection,
        at: impl Into<Address>,
    ) -> Result<Cancelled> {
        let at = at.into();
        on(connection, |borrowed| self.cancel(borrowed, at)).await?
    }

    /// Moves the due moment of a timer in the connection's transaction, as [`move_to`](Self::move_to) does.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn move_to_with_sqlx(
        &self,
        connection: &mut SqliteConnection,
        at: impl Into<Address>,
        due: UtcMillis,
    ) -> Result<Changed> {
        let at = at.into();
        on(connection, |borrowed| self.move_to(borrowed, at, due)).await?
    }

    /// Ends a delivery in the connection's transaction, as [`done`](Self::done) does.
    ///
    /// # Errors
    ///
    /// Fails as [`done`](Self::done) does.
    pub async fn done_with_sqlx(
        &self,
        connection: &mut SqliteConnection,
        id: TimerId,
        token: Token,
    ) -> core::result::Result<Option<TimerId>, NotEnded> {
        on(connection, |borrowed| self.done(borrowed, id, token)).await.map_err(NotEnded::Store)?
    }

    /// Applies operations in the connection's transaction, as [`apply`](Self::apply) does.
    ///
    /// # Errors
    ///
    /// Fails as [`apply`](Self::apply) does.
    pub async fn apply_with_sqlx(
        &self,
        connection: &mut SqliteConnection,
        ops: Vec<Op>,
    ) -> Result<Vec<Outcome>> {
        on(connection, |borrowed| self.apply(borrowed, ops)).await?
    }
}
