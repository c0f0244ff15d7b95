//! The thread that writes: runs the jobs that wait at the same time in one transaction.
//!
//! # Durability
//! A commit with `synchronous = FULL` is on the disk when it returns. All earlier commits are then on the disk, too,
//! because the log (WAL) is one file. After a commit with `NORMAL`, the operating system has the changes, but the disk
//! may not have them yet. So a transaction is committed with `FULL` if one of its jobs requires it. About 20 ms after a
//! commit with `NORMAL`, one more commit syncs its changes to the disk.
//!
//! After a failed sync, the operating system may have dropped bytes that are not on the disk. The thread then moves the
//! whole log to the database before it confirms another change as durable.
//!
//! # Other connections
//! Other connections write to the same database. The thread sees by `PRAGMA data_version` that they have committed, and
//! then reads the due moment of the first pending timer. It looks for commits at each call of [`Queue::look`], and at a
//! fixed interval. Each claim reads the index from its start, so it also finds a timer that was committed late.

use crate::act::Act;
use crate::error::{Result, failed, failed_commit};
use crate::queue::{Job, Queue, Work};
use core::time::Duration;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;
use tourbillon::Clock;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Durability, Room, StoreError, StoreErrorKind};

/// The greatest number of jobs in a transaction.
const MOST_JOBS: usize = 512;
/// The time after which a transaction takes no further job, so that other connections can write.
const LONGEST: Duration = Duration::from_millis(20);
/// The time from a commit without a sync to the sync of its changes. Until this sync, the operating system has the
/// changes, but the disk may not have them.
const SYNC_AFTER: Duration = Duration::from_millis(20);

type Wake = Box<dyn Fn() + Send + Sync>;

/// A job that has run, with the result for its caller.
type Done = (Box<dyn Job>, Result<()>);

/// The parts of a store that its thread and its callers share.
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) room: Room,
    wakes: RwLock<Vec<Wake>>,
}

impl Shared {
    pub(crate) fn new(clock: Arc<dyn Clock>, room: Room) -> Arc<Self> {
        let shared = Arc::new(Self { queue: Queue::default(), clock, room, wakes: RwLock::default() });
        let on_step = Arc::downgrade(&shared);
        let wake = move || on_step.upgrade().inspect(|shared| shared.wake()).is_some();
        shared.clock.subscribe(Box::new(wake));
        shared
    }

    pub(crate) fn now(&self) -> UtcMillis {
        UtcMillis::from_nanos(self.clock.true_now().as_nanos())
    }

    pub(crate) fn subscribe(&self, wake: Wake) {
        self.wakes.write().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    pub(crate) fn wake(&self) {
        for wake in &*self.wakes.read().unwrap_or_else(PoisonError::into_inner) {
            survive(wake);
        }
    }
}

/// Calls foreign code, for example the waker of a caller. Its panic must not end the thread that writes.
fn survive(call: impl FnOnce()) {
    // The payload of the panic is leaked, since its drop may panic, too.
    let _panic = catch_unwind(AssertUnwindSafe(call)).map_err(Box::leak);
}

pub(crate) fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of the thread that writes.
pub(crate) struct Committer {
    connection: Arc<Mutex<Connection>>,
    shared: Arc<Shared>,
    /// The interval at which the thread looks for changes of other connections, or `None` if it looks only when asked.
    every: Option<Duration>,
    last_look: Instant,
    data_version: i64,
    /// The earliest due moment of the timers that the last claim left pending. The inner option is `None` if no timer
    /// is pending. The outer option is `None` if the moment is unknown, in which case each new timer wakes the runtime.
    first: Option<Option<UtcMillis>>,
    is_full_sync: bool,
    /// The moment since which the disk lacks changes that the operating system has, or `None` if the disk has all
    /// changes.
    unsynced: Option<Instant>,
    /// True if a sync has failed, so that SQLite's log (the WAL file) on the disk may lack changes. False again once
    /// the changes in the log have been written to the database's file.
    is_suspect: bool,
    /// True if the disk was full at the last transaction. Each job is then a transaction of its own, so that ends of
    /// deliveries do not fail together with new timers.
    was_full: bool,
}

impl Committer {
    pub(crate) fn new(
        connection: Arc<Mutex<Connection>>,
        shared: Arc<Shared>,
        every: Option<Duration>,
    ) -> Self {
        Self {
            connection,
            shared,
            every,
            last_look: Instant::now(),
            data_version: -1,
            first: None,
            is_full_sync: true,
            unsynced: None,
            is_suspect: false,
            was_full: false,
        }
    }

    /// Serves the queue until it is closed.
    pub(crate) fn serve(mut self) -> Result<()> {
        let _fails_the_rest = FailsTheRest(Arc::clone(&self.shared));
        loop {
            // The clock cannot represent the end of a very long interval. Such a look never comes.
            let look = self.every.and_then(|every| self.last_look.checked_add(every));
            let sync = self.unsynced.map(|since| since + SYNC_AFTER);
            let until = [look, sync].into_iter().flatten().min();
            let most = if self.was_full { 1 } else { MOST_JOBS };
            let Work { jobs, must_look, is_over } = self.shared.queue.wait(until, most);
            if is_over {
                return if self.unsynced.is_some() { self.sync() } else { Ok(()) };
            }
            if !jobs.is_empty() {
                self.run(jobs);
            }
            let now = Instant::now();
            if self.unsynced.is_some_and(|since| now >= since + SYNC_AFTER) {
                // A failed sync is repeated. No caller waits for this sync, so no caller gets the error.
                if self.sync().is_err() {
                    self.unsynced = Some(now);
                }
            }
            if must_look || self.every.is_some_and(|every| now.duration_since(self.last_look) >= every) {
                self.last_look = now;
                self.look();
            }
        }
    }

    /// If another connection has committed, reads the due moment of the first pending timer. Wakes the runtime if this
    /// moment is earlier than the due moment of each timer that the last claim left pending.
    fn look(&mut self) {
        let connection = lock(&self.connection);
        let version = connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut query| query.query_row([], |row| row.get::<_, i64>(0)));
        let is_other = version.as_ref().map_or(true, |version| *version != self.data_version);
        let first = if is_other { Act::new(&connection, UtcMillis::ZERO).first_pending() } else { Ok(None) };
        drop(connection);
        match first {
            Ok(first) => {
                self.data_version = version.unwrap_or(-1);
                if is_other && first.is_some_and(|first| self.is_earlier(first)) {
                    self.shared.wake();
                }
            }
            // The next look reads again. If the error lasts, the runtime's own calls report it.
            Err(_) => self.data_version = -1,
        }
    }

    fn is_earlier(&self, due: UtcMillis) -> bool {
        match self.first {
            None | Some(None) => true,
            Some(Some(first)) => due < first,
        }
    }

    /// Runs jobs in as few transactions as possible, and answers each job after its transaction.
    fn run(&mut self, jobs: Vec<Box<dyn Job>>) {
        let mut jobs: std::collections::VecDeque<_> = jobs.into();
        while !jobs.is_empty() {
            let (done, wakes) = self.transact(&mut jobs);
            if wakes {
                self.shared.wake();
            }
            for (job, result) in done {
                survive(|| job.answer(result));
            }
        }
    }

    /// Runs as many of the jobs as fit into a transaction. Returns these jobs with their results, and true if the
    /// runtime must be woken.
    fn transact(&mut self, jobs: &mut std::collections::VecDeque<Box<dyn Job>>) -> (Vec<Done>, bool) {
        let wanted = jobs.iter().map(|job| job.durability()).max().unwrap_or_default();
        let connection = Arc::clone(&self.connection);
        let connection = lock(&connection);
        let begun = self.begin(&connection, wanted);
        if let Err(error) = begun {
            return (jobs.drain(..).map(|job| (job, Err(error.clone()))).collect(), false);
        }
        let (begin, changes) = (Instant::now(), connection.total_changes());
        let now = self.shared.now();
        let (mut done, mut wakes) = (Vec::new(), false);
        let mut first = self.first;
        let mut lost = None;
        while let Some(mut job) = jobs.pop_front() {
            let act = Act::new(&connection, now);
            match within_savepoint(&connection, || job.run(&act)) {
                Ok(()) => {
                    if let Some(due) = act.first_due() {
                        self.first = first;
                        wakes |= self.is_earlier(due);
                    }
                    first = act.claimed().or(first);
                    done.push((job, Ok(())));
                }
                Err(error) => done.push((job, Err(error.clone()))),
            }
            if connection.is_autocommit() {
                // SQLite has rolled the whole transaction back.
                lost = done.last().and_then(|(_, result)| result.as_ref().err().cloned());
                break;
            }
            if begin.elapsed() > LONGEST || self.was_full {
                break;
            }
        }
        let committed = match lost {
            Some(error) => Err(error),
            None => self.commit(&connection, changes, wanted),
        };
        drop(connection);
        self.was_full = match &committed {
            Err(error) => error.kind() == StoreErrorKind::Full,
            Ok(()) => done
                .iter()
                .any(|(_, result)| matches!(result, Err(error) if error.kind() == StoreErrorKind::Full)),
        };
        if self.was_full {
            self.shared.room.release();
        }
        match committed {
            Ok(()) => {
                self.first = first;
                (done, wakes)
            }
            Err(error) => {
                self.first = None;
                let failed = done.into_iter().map(|(job, result)| (job, result.and(Err(error.clone()))));
                (failed.collect(), true)
            }
        }
    }

    fn begin(&mut self, connection: &Connection, wanted: Durability) -> Result<()> {
        self.set_sync(connection, wanted == Durability::PowerLoss)?;
        if self.is_suspect && wanted == Durability::PowerLoss {
            self.move_log(connection)?;
        }
        run(connection, "BEGIN IMMEDIATE").map_err(busy)
    }

    /// Commits a transaction. `changes` is the number of rows that the connection had changed before the transaction.
    /// If the connection has changed no row since then, no sync is needed for this transaction.
    fn commit(&mut self, connection: &Connection, changes: u64, wanted: Durability) -> Result<()> {
        let has_changes = connection.total_changes() != changes;
        if let Err(error) = connection.prepare_cached("COMMIT").and_then(|mut run| run.execute([])) {
            let error = failed_commit(error);
            self.is_suspect |= error.kind() == StoreErrorKind::Unknown;
            if !connection.is_autocommit() {
                run(connection, "ROLLBACK")?;
            }
            return Err(error);
        }
        if has_changes && self.is_full_sync {
            self.unsynced = None;
        } else if has_changes {
            self.unsynced.get_or_insert_with(Instant::now);
        }
        if self.unsynced.is_some() && wanted == Durability::PowerLoss {
            return self.sync_on(connection);
        }
        Ok(())
    }

    fn set_sync(&mut self, connection: &Connection, is_full: bool) -> Result<()> {
        if self.is_full_sync != is_full {
            let level = if is_full { "FULL" } else { "NORMAL" };
            connection.execute_batch(&format!("PRAGMA synchronous = {level}")).map_err(failed)?;
            self.is_full_sync = is_full;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let connection = Arc::clone(&self.connection);
        let connection = lock(&connection);
        self.sync_on(&connection)
    }

    /// Makes all earlier commits durable by one more commit, with a sync. This commit only changes a counter. If an
    /// earlier sync has failed, calls [`move_log`](Self::move_log) instead.
    fn sync_on(&mut self, connection: &Connection) -> Result<()> {
        self.set_sync(connection, true)?;
        if self.is_suspect {
            return self.move_log(connection);
        }
        let sql = "UPDATE tourbillon_meta SET value = value + 1 WHERE name = 'syncs'";
        let synced = connection.prepare_cached(sql).and_then(|mut run| run.execute([]));
        if let Err(error) = synced {
            let error = failed_commit(error);
            self.is_suspect |= error.kind() == StoreErrorKind::Unknown;
            return Err(error);
        }
        self.unsynced = None;
        Ok(())
    }

    /// Writes the changes in SQLite's log (the WAL file) to the database's file, and syncs that file. Fails if another
    /// connection still reads from the log.
    fn move_log(&mut self, connection: &Connection) -> Result<()> {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = connection.query_row(sql, [], |row| row.get(0)).map_err(failed)?;
        if is_busy {
            let message = "a sync has failed, and a reader keeps the log from being written to the database";
            return Err(StoreError::new(StoreErrorKind::Io, message));
        }
        (self.is_suspect, self.unsynced) = (false, None);
        Ok(())
    }
}

/// Fails the remaining jobs when the thread ends, even by a panic.
struct FailsTheRest(Arc<Shared>);

impl Drop for FailsTheRest {
    fn drop(&mut self) {
        self.0.queue.fail();
    }
}

fn run(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql).and_then(|mut run| run.execute([])).map(drop).map_err(failed)
}

/// Returns the error of a transaction that could not begin. If another connection has the lock, the returned error has
/// a clearer message.
fn busy(error: StoreError) -> StoreError {
    if error.kind() == StoreErrorKind::Io && error.to_string().contains("locked") {
        let message = "another connection has not ended its transaction in the busy time";
        return StoreError::new(StoreErrorKind::Io, message);
    }
    error
}

/// Runs a function in a savepoint. After an error, rolls the function's changes back. A savepoint outside of a
/// transaction is one, and its release is a commit. If this commit fails, for example because another connection reads,
/// SQLite leaves the transaction open. It must not stay open: later changes of the connection would seem committed.
pub(crate) fn within_savepoint<T>(connection: &Connection, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let is_transaction = connection.is_autocommit();
    run(connection, "SAVEPOINT tourbillon")?;
    let release = || {
        let released = connection.prepare_cached("RELEASE tourbillon").and_then(|mut run| run.execute([]));
        released.map_err(if is_transaction { failed_commit } else { failed })
    };
    let result = act().and_then(|value| release().map(|_no_rows| value));
    // Some errors end the whole transaction.
    if result.is_err() && !connection.is_autocommit() {
        if is_transaction {
            // A release would be a commit again, which may fail in the same way.
            run(connection, "ROLLBACK")?;
        } else {
            run(connection, "ROLLBACK TO tourbillon")?;
            run(connection, "RELEASE tourbillon")?;
        }
    }
    result
}
