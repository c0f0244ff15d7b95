//! Changes timers in the transactions of a program's own connections.

use crate::act::Act;
use crate::committer::{Shared, within_savepoint};
use crate::error::{Result, failed};
use crate::schema::require;
use core::fmt;
use rusqlite::Connection;
use std::sync::Arc;
use tourbillon::Clock;
use tourbillon_durable::state::{Phase, Refusal, Token};
use tourbillon_durable::store::{Op, Outcome, StoreError, StoreErrorKind, dry_run};
use tourbillon_durable::timer::{Address, Timer, TimerId};
use tourbillon_durable::{
    Cancelled, Changed, Kind, Limits, Placed, Rejection, ScheduleError, Spec, UtcMillis, WallClock,
};

/// Creates, cancels and ends timers in transactions of a program's own connections to the database.
///
/// A timer that a transaction creates exists only if the transaction commits, and no delivery of the timer begins
/// before the commit. So a program stores an order and its timeout together or not at all.
///
/// Each method makes its changes in a savepoint of the connection's transaction, or in a transaction of its own if the
/// connection has none. A method that fails has changed nothing, and the connection's transaction goes on. After a
/// transaction of its own, the error may be [`StoreErrorKind::Unknown`]: the sync of the commit has failed, and the
/// disk may have the changes.
///
/// SQLite has one writer at a time. If another connection commits after a transaction's first read, the transaction
/// cannot write any more: the method fails with [`StoreErrorKind::Io`], and the program must repeat the transaction. A
/// transaction that begins with `BEGIN IMMEDIATE` waits for the other writer instead. The store waits, too: while a
/// transaction that has written is open, no timer is claimed and no delivery ends.
///
/// [`wake`](Self::wake) notifies the store in this process of the commit, so that the timer is delivered within
/// milliseconds of its due moment. Without a wake, and in other processes, the store finds the timer at its next look,
/// at most [`LOOK`](crate::LOOK) later by default.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Durable, Kind, Spec};
/// use tourbillon_sqlite::{SqliteStore, rusqlite::Connection};
///
/// #[derive(Debug, serde::Serialize, serde::Deserialize)]
/// struct PaymentTimeout {
///     order: u64,
/// }
///
/// impl Kind for PaymentTimeout {
///     const NAME: &'static str = "payment timeout";
/// }
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.db");
/// let store = SqliteStore::open(&path)?;
/// let timers = store.transactional();
/// let durable = Durable::builder(store).handler(async |_: PaymentTimeout, _| {}).start()?;
///
/// let mut connection = Connection::open(&path)?;
/// connection.execute_batch("CREATE TABLE orders (number INTEGER PRIMARY KEY, state TEXT)")?;
/// let transaction = connection.transaction()?;
/// transaction.execute("INSERT INTO orders VALUES (17, 'open')", [])?;
/// let timeout = Spec::new(PaymentTimeout { order: 17 }).key("order 17");
/// timers.schedule(&transaction, timeout.after(Duration::from_secs(30 * 86_400)))?;
/// transaction.commit()?;
/// timers.wake();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Transactional {
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// The store in this process that [`wake`](Self::wake) notifies of commits, or `None` without a store.
    store: Option<Arc<Shared>>,
}

/// The default is a handle for a process without a store, with the [`WallClock`].
impl Default for Transactional {
    fn default() -> Self {
        Self { clock: Arc::new(WallClock::new()), limits: Limits::default(), store: None }
    }
}

impl Transactional {
    pub(crate) fn of(store: &Arc<Shared>) -> Self {
        Self { clock: Arc::clone(&store.clock), limits: Limits::default(), store: Some(Arc::clone(store)) }
    }

    /// Sets the limits for payloads and delays.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    fn now(&self) -> UtcMillis {
        UtcMillis::from_nanos(self.clock.true_now().as_nanos())
    }

    /// Makes the store of this process look for changes of other connections at once, after a commit. The call does not
    /// wait. It does nothing for a handle without a store.
    pub fn wake(&self) {
        if let Some(store) = &self.store {
            store.queue.look();
        }
    }

    /// Creates a timer in the connection's transaction. A delay counts from this call, not from the commit.
    ///
    /// The durability in `spec` is ignored: the transaction's commit decides the durability.
    ///
    /// # Errors
    ///
    /// Fails if `spec` is invalid, if another timer has the key, or if the database fails. The error returns the
    /// payload.
    pub fn schedule<K: Kind>(
        &self,
        connection: &Connection,
        spec: Spec<K>,
    ) -> core::result::Result<Placed, ScheduleError<K>> {
        let op = match self.place(&spec) {
            Ok(op) => op,
            Err(reason) => return Err(ScheduleError { reason, payload: spec.into_payload() }),
        };
        let placed = self.apply_one(connection, op).map_err(Rejection::Store).and_then(placed);
        placed.map_err(|reason| ScheduleError { reason, payload: spec.into_payload() })
    }

    /// Creates a timer with a payload of bytes, as [`schedule`](Self::schedule) does. The runtime chooses the handler
    /// by the name `kind`.
    ///
    /// # Errors
    ///
    /// Fails as [`schedule`](Self::schedule) does.
    pub fn schedule_bytes(
        &self,
        connection: &Connection,
        kind: &str,
        spec: Spec<Vec<u8>>,
    ) -> core::result::Result<Placed, ScheduleError<Vec<u8>>> {
        let placed = spec
            .operation(kind, spec.payload().clone(), self.now(), &self.limits)
            .and_then(|op| self.apply_one(connection, op).map_err(Rejection::Store))
            .and_then(placed);
        placed.map_err(|reason| ScheduleError { reason, payload: spec.into_payload() })
    }

    /// Cancels the timer with an id or key in the connection's transaction. If the call returns
    /// [`Cancelled::Cancelled`], no delivery of the timer begins after the commit. After a rollback, the timer is
    /// unchanged.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn cancel(&self, connection: &Connection, at: impl Into<Address>) -> Result<Cancelled> {
        cancelled(self.apply_one(connection, Op::Cancel(at.into(), None))?)
    }

    /// Moves the due moment of a timer in the connection's transaction. A timer whose delivery has begun is not moved.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn move_to(
        &self,
        connection: &Connection,
        at: impl Into<Address>,
        due: UtcMillis,
    ) -> Result<Changed> {
        changed(&self.apply_one(connection, Op::Move(at.into(), due))?)
    }

    /// Ends the delivery of a timer as successful, in the connection's transaction. Stores the next occurrence of a
    /// series in the same transaction, and returns the id of the occurrence. `id` and `token` are the id and the token
    /// of the [`Delivery`](tourbillon_durable::Delivery).
    ///
    /// If the lease was lost, the method fails, and the caller must roll its transaction back. So an effect in the same
    /// database happens once, even if two processes handle the timer. After the commit, the handler returns
    /// [`Verdict::Done`](tourbillon_durable::Verdict::Done) as usual, and the runtime finds that the delivery has
    /// ended.
    ///
    /// # Errors
    ///
    /// Fails with [`NotEnded::Lost`] if the lease with this token was lost or has ended. Fails with
    /// [`NotEnded::Store`] if the database fails.
    pub fn done(
        &self,
        connection: &Connection,
        id: TimerId,
        token: Token,
    ) -> core::result::Result<Option<TimerId>, NotEnded> {
        let ended = self.within(connection, |act| act.done(id, token)).map_err(NotEnded::Store)?;
        ended.ok_or(NotEnded::Lost(id))
    }

    /// Returns the timer with an id or key, as the connection's transaction sees it.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub fn get(&self, connection: &Connection, at: impl Into<Address>) -> Result<Option<Timer>> {
        require(connection)?;
        Act::reading(connection, self.now()).get(&at.into())
    }

    /// Applies operations in the connection's transaction, all or none of them.
    ///
    /// # Errors
    ///
    /// Fails if an operation exceeds a limit, or if the database fails. No operation then has an effect.
    pub fn apply(&self, connection: &Connection, ops: Vec<Op>) -> Result<Vec<Outcome>> {
        ops.iter().try_for_each(dry_run::admit)?;
        self.within(connection, |act| ops.into_iter().map(|op| act.apply(op)).collect())
    }

    fn apply_one(&self, connection: &Connection, op: Op) -> Result<Outcome> {
        dry_run::admit(&op)?;
        self.within(connection, |act| act.apply(op))
    }

    fn within<T>(&self, connection: &Connection, act: impl FnOnce(&Act<'_>) -> Result<T>) -> Result<T> {
        // The lock for writers is taken before the first read. Otherwise, a commit of another connection in between
        // would fail the transaction.
        let locks = connection.prepare_cached("UPDATE tourbillon_meta SET value = value WHERE FALSE");
        if locks.is_err() {
            require(connection)?;
        }
        within_savepoint(connection, || {
            let _none = locks.and_then(|mut run| run.execute([])).map_err(failed)?;
            require(connection)?;
            act(&Act::new(connection, self.now()))
        })
    }

    fn place<K: Kind>(&self, spec: &Spec<K>) -> core::result::Result<Op, Rejection> {
        spec.operation_of_kind(self.now(), &self.limits)
    }
}

impl fmt::Debug for Transactional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactional").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The reason why a delivery did not end in the caller's transaction. The caller must roll the transaction back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NotEnded {
    /// The lease of the delivery of this timer was lost: the store has ended the expired lease, or the delivery has
    /// already ended.
    Lost(TimerId),
    /// The database has failed.
    Store(StoreError),
}

impl fmt::Display for NotEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(id) => write!(f, "the lease of timer {id} was lost"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for NotEnded {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Lost(_) => None,
            Self::Store(error) => Some(error),
        }
    }
}

fn placed(outcome: Outcome) -> core::result::Result<Placed, Rejection> {
    match outcome {
        Outcome::Created(id) => Ok(Placed::Created(id)),
        Outcome::Repeated(id) => Ok(Placed::Repeated(id)),
        Outcome::Kept { id, was } => Ok(Placed::Kept { id, was }),
        Outcome::Replaced { new, old, was } => Ok(Placed::Replaced { new, old, was }),
        Outcome::KeyExists { holder, .. } => Err(Rejection::KeyExists(holder)),
        Outcome::NotFound => Err(Rejection::NotFound),
        other => Err(Rejection::Store(unexpected(&other))),
    }
}

fn cancelled(outcome: Outcome) -> Result<Cancelled> {
    match outcome {
        Outcome::Cancelled(timer) => Ok(Cancelled::Cancelled(timer)),
        Outcome::InFlight(_) => Ok(Cancelled::InFlight),
        Outcome::NotFound => Ok(Cancelled::NotFound),
        other => Err(unexpected(&other)),
    }
}

fn changed(outcome: &Outcome) -> Result<Changed> {
    match outcome {
        Outcome::Changed(_) => Ok(Changed::Changed),
        Outcome::NotFound => Ok(Changed::NotFound),
        Outcome::Refused(Refusal::State(phase)) => Ok(Changed::Refused(*phase)),
        Outcome::Refused(_) => Ok(Changed::Refused(Phase::Leased)),
        other => Err(unexpected(other)),
    }
}

fn unexpected(outcome: &Outcome) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("an operation had the outcome {outcome:?}"))
}
