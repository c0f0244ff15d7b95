//! The store and its options.

use crate::act::{Act, Check, Leases, Lists, Rotation, Turns};
use crate::committer::{Committer, Shared, lock};
use crate::error::{Result, failed};
use crate::owner::{Owner, make_missing};
use crate::queue::Call;
use crate::schema::migrate;
use crate::transactional::Transactional;
use core::fmt;
use core::time::Duration;
use futures_channel::oneshot;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tourbillon::Clock;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit, Op, Outcome, Page,
    Reaped, Reasons, Renewal, Room, Shares, StoreError, StoreErrorKind, StoreFuture, TimerStore, dry_run,
    path_of_file,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};
use tourbillon_durable::{UtcMillis, WallClock};

/// The default interval at which a store looks for changes of other connections. [`SqliteBuilder::look_every`] sets a
/// different interval.
pub const LOOK: Duration = Duration::from_millis(50);

/// The longest time for which SQLite waits for another connection. SQLite takes the milliseconds as an `i32`.
const LONGEST_BUSY: Duration = Duration::from_millis(i32::MAX.unsigned_abs() as u64);

/// The number of statements that a connection of the store keeps prepared.
const STATEMENTS: usize = 64;

/// A store of timers in an SQLite database, which may also contain a program's own tables.
///
/// One store at a time delivers the timers of a database. A second store on the same file, in any process, fails to
/// open with [`StoreErrorKind::Locked`]. Any number of other connections and processes can create, cancel and end
/// timers with a [`Transactional`].
///
/// ```
/// use tourbillon_durable::Durable;
/// use tourbillon_durable::store::StoreErrorKind;
/// use tourbillon_sqlite::SqliteStore;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.db");
/// let durable = Durable::builder(SqliteStore::open(&path)?).start()?;
/// let second = SqliteStore::open(&path).map_err(|error| error.kind());
/// assert_eq!(second.err(), Some(StoreErrorKind::Locked));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteStore {
    shared: Arc<Shared>,
    /// The connection for reads. If the database is in memory, this is also the connection for writes.
    reader: Arc<Mutex<Connection>>,
    /// The path of the database, or `None` if the database is in memory.
    path: Option<PathBuf>,
    rotation: Arc<Mutex<Rotation>>,
    /// The leases that the opening of the store has ended, until the runtime takes them.
    ended: Mutex<Reaped>,
    /// The thread that writes, or `None` once the store is being closed.
    thread: Option<JoinHandle<Result<()>>>,
}

/// The options of a [`SqliteStore`].
///
/// ```
/// use std::time::Duration;
/// use tourbillon_sqlite::SqliteStore;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.db");
/// let store = SqliteStore::builder().cache(64 << 20).look_every(Duration::from_millis(20)).open(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteBuilder {
    clock: Arc<dyn Clock>,
    cache: usize,
    busy: Duration,
    look: Option<Duration>,
    keep_free: u64,
    waits: bool,
}

impl fmt::Debug for SqliteBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cache, busy, look, .. } = self;
        f.debug_struct("SqliteBuilder")
            .field("cache", cache)
            .field("busy", busy)
            .field("look", look)
            .finish_non_exhaustive()
    }
}

impl SqliteBuilder {
    /// Sets the clock that decides which timers are due. The clock counts from the start of 1970. The default is the
    /// [`WallClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the number of bytes of the database that each of the store's two connections keeps in memory. The default
    /// is 16 MiB.
    #[must_use]
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache = bytes;
        self
    }

    /// Sets the longest time for which the store waits for another connection's transaction that writes. The default is
    /// 5 s. After this time, the waiting calls fail with [`StoreErrorKind::Io`]. SQLite does not report the end of
    /// other transactions, so the store waits in sleeps of up to 100 ms.
    #[must_use]
    pub fn busy(mut self, longest: Duration) -> Self {
        self.busy = longest;
        self
    }

    /// Sets the interval at which the store looks for changes of other connections. The default is [`LOOK`]. A look
    /// that finds no change reads no page and no file. [`Transactional::wake`] makes the store look at once.
    #[must_use]
    pub fn look_every(mut self, interval: Duration) -> Self {
        self.look = Some(interval.max(Duration::from_millis(1)));
        self
    }

    /// Makes the store look for changes of other connections only after [`Transactional::wake`]. Without a wake, the
    /// store notices a new timer of another connection only at its next claim. So this option is for programs in which
    /// only this store creates timers, or in which each transaction is followed by a wake.
    #[must_use]
    pub fn look_when_asked(mut self) -> Self {
        self.look = None;
        self
    }

    /// Sets the number of bytes that the store leaves free on the file system. While fewer bytes are free, operations
    /// that store new timers fail with [`StoreErrorKind::Full`]. Claims, ends of deliveries, cancellations and moves
    /// still succeed. The limit does not apply to a [`Transactional`]. On a small file system, the number is reduced as
    /// [`Room::kept_free`] describes. The default is zero, which sets no limit.
    ///
    /// The store reserves half of the bytes in a file `<path>-reserve`. It removes the file when other programs have
    /// filled the file system, and recreates the file later. The limit works on Linux only.
    #[must_use]
    pub fn keep_free(mut self, bytes: u64) -> Self {
        self.keep_free = bytes;
        self
    }

    /// Makes [`open`](Self::open) wait while another store delivers the timers of the database. By default, `open`
    /// fails. The wait uses no processor time.
    #[must_use]
    pub fn wait_for_owner(mut self) -> Self {
        self.waits = true;
        self
    }

    /// Opens a store, and creates its tables if they are missing. Timers whose deliveries were under way when the last
    /// store ended are due again at once.
    ///
    /// The file of a new database can be read only by the user that owns the file. The database gets the journal mode
    /// WAL, which the file keeps. On a file system without shared memory, such as most network file systems, opening
    /// fails.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Locked`] if another store has the database open, and with
    /// [`StoreErrorKind::NewerSchema`] if a later version of this crate has migrated the database. Fails with
    /// [`StoreErrorKind::Limit`] if the file has several hard links, because SQLite would have a log for each name.
    /// Fails if the file is damaged, or cannot be read and written.
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore> {
        // Symbolic links are resolved, so two names of a database have the same lock.
        let path = path_of_file(path.as_ref())?;
        make_missing(&path)?;
        let mut writer = connect(&path)?;
        let owner = Owner::take(&path, self.waits)?;
        self.prepare(&writer)?;
        let mode: String =
            writer.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
        if mode != "wal" {
            let message = format!("the journal mode WAL is not possible here, the mode is {mode}");
            return Err(StoreError::new(StoreErrorKind::Io, message));
        }
        migrate(&mut writer)?;
        let reader = connect(&path)?;
        self.prepare(&reader)?;
        reader.execute_batch("PRAGMA query_only = ON").map_err(failed)?;
        self.start(writer, Some(reader), Some(path), Some(owner))
    }

    /// Opens a store in memory, for tests. All timers are lost when the store is dropped, and no other connection can
    /// use them.
    ///
    /// # Errors
    ///
    /// Fails if memory or a thread cannot be allocated.
    pub fn in_memory(self) -> Result<SqliteStore> {
        let mut writer = Connection::open_in_memory().map_err(failed)?;
        self.prepare(&writer)?;
        migrate(&mut writer)?;
        Self { look: None, ..self }.start(writer, None, None, None)
    }

    fn prepare(&self, connection: &Connection) -> Result<()> {
        connection.busy_timeout(self.busy.min(LONGEST_BUSY)).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let kibibytes = i64::try_from(self.cache / 1_024).unwrap_or(i64::MAX).max(64);
        connection
            .execute_batch(&format!(
                "PRAGMA cache_size = -{kibibytes}; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;
                 PRAGMA checkpoint_fullfsync = ON; PRAGMA journal_size_limit = 67108864;"
            ))
            .map_err(failed)
    }

    fn start(
        self,
        writer: Connection,
        reader: Option<Connection>,
        path: Option<PathBuf>,
        owner: Option<Owner>,
    ) -> Result<SqliteStore> {
        let room = Room::new(path.clone(), "-reserve", self.keep_free);
        // These files exist while a connection is open, since SQLite removes them with its last connection.
        room.note_opened(&["-wal", "-shm"]);
        let shared = Shared::new(self.clock, room);
        let mut ended = Reaped::default();
        match end_leases(&writer, shared.now(), &mut ended) {
            // On a full disk, the leases end when they expire.
            Err(error) if error.kind() == StoreErrorKind::Full => {}
            is_done => is_done?,
        }
        let writer = Arc::new(Mutex::new(writer));
        let reader = reader.map_or_else(|| Arc::clone(&writer), |reader| Arc::new(Mutex::new(reader)));
        let committer = Committer::new(writer, Arc::clone(&shared), self.look);
        let thread = std::thread::Builder::new().name("tourbillon-sqlite".to_owned()).spawn(move || {
            let served = committer.serve();
            // The next store must not deliver before this thread has made its last changes.
            drop(owner);
            served
        })?;
        let (rotation, ended) = (Arc::default(), Mutex::new(ended));
        Ok(SqliteStore { shared, reader, path, rotation, ended, thread: Some(thread) })
    }
}

/// Opens an existing database.
fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(failed)
}

/// Ends the leases of earlier stores, whose processes are gone. Adds them to `ended`.
fn end_leases(connection: &Connection, now: UtcMillis, ended: &mut Reaped) -> Result<()> {
    loop {
        let sql = "SELECT 1 FROM tourbillon_timers WHERE phase = 1 LIMIT 1";
        if !connection.prepare_cached(sql).and_then(|mut query| query.exists([])).map_err(failed)? {
            return Ok(());
        }
        connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        let page = Leases(&Act::new(connection, now)).end_leases();
        let end = if page.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let committed = connection.execute_batch(end).map_err(failed);
        let Some(page) = page? else { return committed };
        committed?;
        ended.add(page);
    }
}

impl SqliteStore {
    /// Opens a store with the default options, as [`SqliteBuilder::open`] does.
    ///
    /// # Errors
    ///
    /// Fails as [`SqliteBuilder::open`] does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().open(path)
    }

    /// Returns a builder with the default options.
    #[must_use]
    pub fn builder() -> SqliteBuilder {
        SqliteBuilder {
            clock: Arc::new(WallClock::new()),
            cache: 16 << 20,
            busy: Duration::from_secs(5),
            look: Some(LOOK),
            keep_free: 0,
            waits: false,
        }
    }

    /// Returns a handle that creates, cancels and ends timers in transactions of the program's own connections.
    #[must_use]
    pub fn transactional(&self) -> Transactional {
        Transactional::of(&self.shared)
    }

    /// Closes the store. All changes are on the disk afterwards. Dropping the store does the same, and ignores errors.
    ///
    /// # Errors
    ///
    /// Fails if the last changes could not be written to the disk.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    /// Removes the records that are set aside because they cannot be read. Returns their number.
    #[must_use]
    pub fn forget_damaged(&self) -> StoreFuture<'_, u64> {
        self.ask(Durability::PowerLoss, |act| act.forget_set_aside())
    }

    fn end(&mut self) -> Result<()> {
        self.shared.queue.close();
        let panicked =
            |_| Err(StoreError::new(StoreErrorKind::Closed, "the thread that writes has panicked"));
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // A waker may drop the last reference to the store on the store's own thread, which cannot wait for itself. The
        // thread ends after its present work.
        if thread.thread().id() == std::thread::current().id() {
            return Ok(());
        }
        thread.join().unwrap_or_else(panicked)
    }

    /// Makes the thread that writes call `function` in a transaction. The future resolves to the function's result.
    fn ask<'a, T: Send + 'static>(
        &self,
        durability: Durability,
        function: impl FnOnce(&Act<'_>) -> Result<T> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.send(Box::new(Call { durability, function: Some(function), result: None, reply }));
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(crate::queue::closed())) })
    }

    /// Reads in the calling thread. In a database on disk, the read does not wait for transactions that write. A store
    /// in memory has one connection for all, so the read waits.
    fn read<'a, T: Send + 'a>(&self, read: impl FnOnce(&Act<'_>) -> Result<T>) -> StoreFuture<'a, T> {
        let connection = lock(&self.reader);
        let result = read_on(&connection, self.now(), read);
        drop(connection);
        Box::pin(core::future::ready(result))
    }

    /// Runs a function that reads the whole store. The function gets a new connection, so that other reads do not wait
    /// for it. A store in memory has only one connection, so there the other reads wait.
    fn read_all<T>(&self, read: impl FnOnce(&Act<'_>) -> Result<T>) -> Result<T> {
        match &self.path {
            Some(path) => read_on(&connect(path)?, self.now(), read),
            None => read_on(&lock(&self.reader), self.now(), read),
        }
    }
}

/// Runs a read in a transaction, so that it sees the database at a single moment.
fn read_on<T>(
    connection: &Connection,
    now: UtcMillis,
    read: impl FnOnce(&Act<'_>) -> Result<T>,
) -> Result<T> {
    let run = |sql| connection.prepare_cached(sql).and_then(|mut run| run.execute([])).map_err(failed);
    run("BEGIN")?;
    let result = read(&Act::reading(connection, now));
    if !connection.is_autocommit() {
        run("COMMIT")?;
    }
    result
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // `close` reports the error.
        let _ignored = self.end();
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

fn ready<'a, T: Send + 'a>(result: Result<T>) -> StoreFuture<'a, T> {
    Box::pin(core::future::ready(result))
}

impl TimerStore for SqliteStore {
    fn now(&self) -> UtcMillis {
        self.shared.now()
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> StoreFuture<'_, Vec<Outcome>> {
        if let Err(error) = ops.iter().try_for_each(dry_run::admit) {
            return ready(Err(error));
        }
        if let Some(error) = self.shared.room.refusal(&ops) {
            return ready(Err(error));
        }
        self.ask(durability, |act| ops.into_iter().map(|op| act.apply(op)).collect())
    }

    fn claim(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        shares: Option<Shares>,
    ) -> StoreFuture<'_, Claimed> {
        if let Some(error) = self.shared.room.absence() {
            return ready(Err(error));
        }
        let rotation = Arc::clone(&self.rotation);
        self.ask(Durability::Volatile, move |act| {
            let Some(shares) = shares else { return Leases(act).claim(by, claim, limit) };
            let mut rotation = rotation.lock().unwrap_or_else(PoisonError::into_inner);
            Turns(act).claim(by, claim, limit, &shares, &mut rotation)
        })
    }

    fn recover(&self, by: Claimant, claim: u64) -> StoreFuture<'_, Vec<Leased>> {
        self.ask(Durability::Volatile, move |act| Leases(act).recover(by, claim))
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> StoreFuture<'_, Renewal> {
        self.ask(Durability::Volatile, move |act| Leases(act).renew(by, leases))
    }

    fn reap(&self, limit: u32) -> StoreFuture<'_, Reaped> {
        self.ask(Durability::Volatile, move |act| Leases(act).reap(limit))
    }

    fn ended_at_opening(&self) -> Reaped {
        core::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(UtcMillis, TimerId)>> {
        self.read(|act| Leases(act).upcoming(from, until, limit))
    }

    fn get(&self, at: Address) -> StoreFuture<'_, Option<Timer>> {
        self.read(|act| act.get(&at))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> StoreFuture<'_, Page> {
        self.read(|act| Lists(act).list(&filter, cursor.as_ref(), limit))
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> StoreFuture<'_, Reasons> {
        self.read(|act| Lists(act).reasons(after.as_ref(), limit))
    }

    fn counts(&self) -> StoreFuture<'_, Counts> {
        self.read(|act| Lists(act).counts())
    }

    fn horizon(&self) -> StoreFuture<'_, Horizon> {
        self.read(|act| Lists(act).horizon())
    }

    fn check(&self) -> StoreFuture<'_, Vec<Fault>> {
        ready(self.read_all(|act| Check(act).run()))
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> StoreFuture<'a, ()> {
        ready(self.read_all(|act| Lists(act).each(each)))
    }

    fn import(&self, timers: Vec<Timer>) -> StoreFuture<'_, ()> {
        if let Some(error) = self.refuses_new() {
            return ready(Err(error));
        }
        self.ask(Durability::PowerLoss, |act| act.import(timers))
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.shared.subscribe(wake);
    }

    fn lists_parked_by_due(&self) -> bool {
        true
    }

    fn refuses_new(&self) -> Option<StoreError> {
        self.shared.room.reason()
    }
}
