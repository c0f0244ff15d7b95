//! Keeps a store in one file: a database of redb, with a thread that commits and a thread that syncs.
//!
//! # Group commit
//!
//! Requests that change the store go to one thread. The thread takes all requests that wait as one batch: one
//! transaction of redb, in which the requests are run in order. The answer to a request comes then, or once the journal
//! is synced, as the request asks. Requests that come while a batch is synced are in the next sync. So the number of
//! syncs does not grow with the number of callers. A request that fails is taken back, and the others of its batch
//! stay. `pipe.rs` has the states of a batch on its way to the disk.
//!
//! # What readers see
//!
//! Reads wait neither for batches nor for syncs. They see the last batch that was made: every change that was answered,
//! and also changes whose callers still wait for the disk. The loss of power can take back the latter changes. A caller
//! that must not act on such a change makes a call without operations first ([`TimerStore::apply`], with
//! [`Durability::PowerLoss`]): after its answer the disk has everything that was read before. A read of a page that is
//! not in memory waits for the disk to read it.
//!
//! Between an error and the next opening of the database reads fail.
//!
//! # The journal
//!
//! redb commits a batch in its memory. A commit to the disk would wait for two syncs and write each page that the
//! batch touched; a creation touches three, all over the file. The batch is therefore noted in the journal, the file
//! `<path>.ops`: its requests, in order, with the batch's number and time.
//!
//! | a request asks for | before its answer | 20 ms later, or after the sync that is under way then |
//! |---|---|---|
//! | [`Durability::PowerLoss`], or it claims a timer that is delivered at most once | the journal is written and synced | |
//! | [`Durability::ProcessCrash`] | the journal is written | the journal is synced |
//! | [`Durability::Volatile`], or it claims, renews or reaps | | the journal is written and synced |
//!
//! So claims and ends of deliveries can be answered before creations that wait for a slow disk. The order of the
//! changes stays. On a disk that has been quick up to now the answers to claims wait for a sync, too.
//!
//! A *checkpoint* commits redb to the disk, after 10 s or 4 MiB of notes, and for an import. No batch is made during a
//! checkpoint. Afterwards the journal begins again at the start of its file.
//!
//! The next opening runs the noted requests again that follow the last batch in the database. It runs them at their
//! noted times. *All* requests since the checkpoint are noted, also claims, renewals and reaps. The effect of a request
//! follows from the stored timers and the time alone. So a request finds the same store as when it was first run. For
//! example, an acknowledgement finds the lease of its claim, though that claim was never durable by itself. And a
//! creation finds the key free that an earlier cancellation of [`Durability::Volatile`] had freed. A crash takes notes
//! from the end only: no note that is left has a gap before it.
//!
//! Each noted request has a digest of its outcome. The request must have the same outcome when it is run again.
//! Otherwise the opening fails and changes nothing. Either this version of the crate gives these notes another meaning,
//! or they were made for another database.
//!
//! # Damage to the journal
//!
//! A loss of power may leave any sectors of the records that were not synced. Such a torn tail is not an error, and is
//! cut off. Damage to a record that was synced, by a flipped bit for example, makes the opening fail. An opening can
//! tell the two apart, because each record notes how far the journal had been synced before. For the last sync, a seal
//! behind the last record notes this. `journal.rs` has the states, and the damage that cannot be noticed.
//!
//! When a store is closed, a checkpoint notes in the database that it was closed. Without this note the journal may
//! have operations that the database lacks, so the journal's file must be there. After the opening of a closed store,
//! the first batch is committed to the disk in the database. This removes the note.
//!
//! # Damage to the database
//!
//! Each record has a checksum of its id and its bytes, which is compared whenever it is read. A damaged record is set
//! aside with its bytes, and the other timers go on. If an entry names a missing timer, an empty record for the timer's
//! id is set aside. An entry that does not belong to its timer is removed, and the timer gets its own entry again. A
//! request that has met damage is not noted, but committed to the disk in the database at once: the damage may not be
//! there when the request is run again. `scrub.rs` looks for damage that nobody has met, and `verify.rs` compares
//! redb's own checksums of pages. redb can panic on bytes that are not a page. For the caller this is an error of the
//! kind [`Corrupt`](super::StoreErrorKind::Corrupt).
//!
//! # Errors
//!
//! After an error of the disk, redb must be opened again. The thread that commits does that by itself: at once, and
//! then with pauses of 10 ms to 1 s. A read that fails wakes the thread for that. Requests fail until then, with the
//! kind of the error. Batches that were answered, and that redb had only in memory, are run again from the notes. If
//! the database shows that the failed batch has had no effect, its callers get the error's own kind. Otherwise they get
//! [`StoreErrorKind::Unknown`](super::StoreErrorKind::Unknown).
//!
//! # Invariants
//! B1. The database has the number of the last batch in the transaction of that batch. Batches have consecutive
//!     numbers.
//! B2. The notes are those of all batches since the checkpoint. A batch is noted after its commit in memory and before
//!     its answers.
//! B3. The file `<path>.ops` is locked as long as the store is open, also while the database is opened again: no other
//!     store changes the database in between.

mod backend;
mod batch;
mod committer;
mod common;
mod compaction;
mod digest;
mod error;
mod journal;
mod opening;
mod pipe;
mod queue;
mod recovery;
mod request;
mod room;
mod scrub;
mod stats;
mod tables;
mod verify;

pub use backend::Part;
pub use stats::StoreStats;

use self::backend::Places;
use self::committer::Committer;
use self::common::Common;
use self::error::{closed, damaged_pages, lost};
use self::opening::Opener;
use self::queue::{Sender, queue};
use self::request::{Reply, Request};
use self::room::Room;
use self::scrub::Scrubber;
use super::error::{StoreError, StoreErrorKind};
use super::fault::Fault;
use super::horizon::Horizon;
use super::ledger::{LOOKS, Ledger};
use super::{
    Answer, Claimant, Claimed, Counts, Cursor, Durability, Filter, Leased, Limit, Op, Outcome, Page, Reaped,
    Reasons, Scrub, Shares, TimerStore,
};
use crate::clock::WallClock;
use crate::state::Token;
use crate::timer::{Address, Timer, TimerId};
use core::fmt;
use core::time::Duration;
use futures_channel::oneshot;
use redb::StorageBackend;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use tourbillon::Clock;
use tourbillon_words::UtcMillis;

/// The default number of bytes of the database that redb keeps in memory.
const CACHE: usize = 128 * 1024 * 1024;

/// The default number of entries that the scrub, the search for damage, checks in a second.
const SCRUB: u32 = 250;

/// The pause between two checks of the progress of the scrub, the search for damage.
const LOOK: Duration = Duration::from_millis(5);

type Threads = (JoinHandle<Result<(), StoreError>>, JoinHandle<()>);

/// A store in one file.
///
/// The file is a database of [redb](https://docs.rs/redb). Beside the database is a small file `<path>.ops`, the
/// journal of the store. Only one `RedbStore` in one process can have the file open at a time. Dropping the store makes
/// all changes durable.
///
/// A read runs on the caller's thread, in the call, and may wait until the disk has read a page. No read waits for
/// writes to the disk. A read sees every change that was answered. A read also sees changes whose answers still wait
/// for the disk. A loss of power can take back unanswered changes. A call of [`apply`](TimerStore::apply) without
/// operations, with [`Durability::PowerLoss`], makes everything durable that earlier reads have seen.
///
/// A thread of the store makes the changes in the order of the calls, even if the futures are not awaited. While some
/// callers wait for the disk, others get their answers: to claims, ends of deliveries, and creations with
/// [`Durability::ProcessCrash`].
///
/// ```
/// use tourbillon_durable::Durable;
/// use tourbillon_durable::store::{RedbStore, StoreErrorKind};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("timers.redb");
/// let durable = Durable::builder(RedbStore::open(&path)?).start()?;
/// let second = RedbStore::open(&path).map_err(|error| error.kind());
/// assert_eq!(second.err(), Some(StoreErrorKind::Locked));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RedbStore {
    common: Arc<Common>,
    places: Places,
    /// The queue of requests to the thread that commits. `None` once the store is being closed.
    requests: Option<Arc<Sender>>,
    scrubber: Option<Scrubber>,
    /// The thread that commits, and the thread that syncs. `None` once the store is being closed.
    threads: Option<Threads>,
}

/// The options of a [`RedbStore`].
///
/// ```
/// use tourbillon_durable::store::RedbStore;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("timers.redb");
/// let store = RedbStore::builder().cache(16 << 20).scrub(0).open(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RedbBuilder {
    clock: Arc<dyn Clock>,
    cache: usize,
    keep_free: u64,
    without_locks: bool,
    scrub: u32,
}

impl fmt::Debug for RedbBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cache, scrub, .. } = self;
        f.debug_struct("RedbBuilder").field("cache", cache).field("scrub", scrub).finish_non_exhaustive()
    }
}

impl RedbBuilder {
    /// Sets the clock by which timers are due. The clock counts from the start of 1970. The default is the
    /// [`WallClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the number of bytes of the database that the store keeps in memory. 128 MiB by default.
    #[must_use]
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache = bytes;
        self
    }

    /// Sets the number of bytes that the store leaves free on the file system. While fewer bytes are free, operations
    /// that store new timers fail with [`StoreErrorKind::Full`]. Claims, the ends of deliveries, cancellations and
    /// moves go on, and so do schedules. On a small file system the number is reduced to an eighth of its size, but not
    /// below 24 MiB. The default is zero, which sets no limit.
    ///
    /// The store reserves half of the number in a file `<path>.reserve`. The store removes the file when other programs
    /// have filled the file system, and makes the file again later. The limit works on Linux only.
    #[must_use]
    pub fn keep_free(mut self, bytes: u64) -> Self {
        self.keep_free = bytes;
        self
    }

    /// Returns the number of bytes that [`keep_free`](Self::keep_free) leaves free on a file system of `size` bytes.
    ///
    /// ```
    /// use tourbillon_durable::store::RedbBuilder;
    ///
    /// let wanted = 64 << 20;
    /// assert_eq!(RedbBuilder::kept_free(wanted, 1 << 40), wanted);
    /// assert_eq!(RedbBuilder::kept_free(wanted, 256 << 20), 32 << 20, "an eighth of a small file system");
    /// ```
    #[must_use]
    pub fn kept_free(wanted: u64, size: u64) -> u64 {
        room::mark(wanted, size)
    }

    /// Sets whether the store is opened on a file system without locks, such as some network file systems. If so, the
    /// caller must ensure that no other process opens the store, because two processes would lose each other's timers.
    /// By default, the store is not opened on such a file system.
    #[must_use]
    pub fn without_locks(mut self, is_permitted: bool) -> Self {
        self.without_locks = is_permitted;
        self
    }

    /// Sets the number of entries that the scrub, the search for damage, checks in a second. The scrub takes 1,000
    /// entries in a step. The default is 250. With 0 there is no scrub.
    ///
    /// A store has a record for each timer, and two to four entries by which the timer is found. The scrub reads all
    /// records and entries, again and again. It sets damaged records aside, and mends entries. Without a scrub, damage
    /// is noticed when the timer is read, or not found. [`StoreStats`] says how far the scrub has come.
    #[must_use]
    pub fn scrub(mut self, entries_per_second: u32) -> Self {
        self.scrub = entries_per_second;
        self
    }

    /// Reads all pages of the database at `path`, and compares their checksums. Changes nothing. Leaves out the
    /// journal, because each opening compares the checksums of its records. Takes time in proportion to the length of
    /// the file.
    ///
    /// Returns the first damaged page, with its offset in the file. Also returns the damaged timers, as far as they can
    /// be read. If all pages are undamaged, returns no faults: [`TimerStore::check`] looks at the structure.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Locked`] if the store is open. Also fails if the file cannot be read.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::store::RedbStore;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("timers.redb");
    /// RedbStore::open(&path)?.close()?;
    /// assert_eq!(RedbStore::builder().verify(&path)?, []);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(&self, path: impl AsRef<Path>) -> Result<Vec<Fault>, StoreError> {
        let path = path.as_ref();
        // This fails if the file is missing. Otherwise the check would make an empty file.
        std::fs::metadata(path)?;
        verify::verify(&Places::files(path.to_owned(), self.without_locks))
    }

    /// Verifies a database as [`verify`](Self::verify) does. `make` gives access to the store's bytes, which are not in
    /// files.
    ///
    /// # Errors
    ///
    /// Fails as [`verify`](Self::verify) does.
    pub fn verify_with(
        &self,
        make: impl Fn(Part) -> io::Result<Box<dyn StorageBackend>> + Send + Sync + 'static,
    ) -> Result<Vec<Fault>, StoreError> {
        verify::verify(&Places::made(Arc::new(make)))
    }

    /// Removes the damaged records that the store at `path` has set aside. Call this method once the lost timers were
    /// made again, or if nobody wants them. Afterwards [`TimerStore::check`] does not name the records, and
    /// [`Counts::quarantined`] is zero. First opens the store, and scrubs all of it as [`scrub`](Self::scrub)
    /// describes. Returns the number of removed records.
    ///
    /// # Errors
    ///
    /// Fails as [`open`](Self::open) does. Also fails with [`StoreErrorKind::Corrupt`] if the scrub finds damaged
    /// records that were not set aside before. Then the method removes nothing, so that a check can name the new
    /// records first.
    pub fn forget_damaged(self, path: impl AsRef<Path>) -> Result<u64, StoreError> {
        let places = Places::files(path.as_ref().to_owned(), self.without_locks);
        let opener = Opener { places: places.clone(), cache: self.cache };
        let known = opening::set_aside(&opener.open()?)?;
        let store = self.scrub(u32::MAX).start(places)?;
        // The scrub removes the entries that lost timers have left in the indexes. It needs the records that were set
        // aside for that.
        while store.stats().scrub.walks == 0 {
            thread::sleep(LOOK);
        }
        store.close()?;
        let opened = opener.open()?;
        if opening::set_aside(&opened)? > known {
            let message = "more records are damaged than were set aside before: a check names them now";
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        opening::forget_set_aside(&opened)
    }

    /// Opens the store at `path`, or makes a new store there.
    ///
    /// All leases end, because their holders are gone. The time that an opening takes depends on the number of leases
    /// and the number of operations in the journal. It does not depend on the number of timers.
    ///
    /// # Errors
    ///
    /// Fails at once with [`StoreErrorKind::Locked`] if the store is open elsewhere. If the process starts a program
    /// while it closes the store, the lock may last until the program begins. Fails with
    /// [`NewerSchema`](StoreErrorKind::NewerSchema) if a later version of this crate wrote the database, and leaves the
    /// database as it is. Fails with [`ReadOnly`](StoreErrorKind::ReadOnly) if the files cannot be written, and with
    /// [`Corrupt`](StoreErrorKind::Corrupt) if they are damaged or not a store. Fails with
    /// [`Full`](StoreErrorKind::Full) or [`Io`](StoreErrorKind::Io) after an error of the system.
    ///
    /// If acknowledged operations cannot be read, the opening fails with `Corrupt`. The message names the first damaged
    /// record. A store that was not closed cannot be opened without the file `<path>.ops`, and the message names the
    /// file. With an empty file in that place, the store opens as it was at the last checkpoint, up to 10 s before.
    /// Operations that were acknowledged after the checkpoint are lost. A store that was closed can be opened without
    /// the file.
    pub fn open(self, path: impl AsRef<Path>) -> Result<RedbStore, StoreError> {
        let places = Places::files(path.as_ref().to_owned(), self.without_locks);
        self.start(places)
    }

    /// Opens a store whose bytes are not in files, for tests of faults. The store calls `make` for each part at the
    /// start. For [`Part::Timers`], the store calls `make` several times before the first use, and at each later
    /// opening of the database.
    ///
    /// # Errors
    ///
    /// Fails as [`open`](Self::open) does.
    pub fn open_with(
        self,
        make: impl Fn(Part) -> io::Result<Box<dyn StorageBackend>> + Send + Sync + 'static,
    ) -> Result<RedbStore, StoreError> {
        self.start(Places::made(Arc::new(make)))
    }

    fn start(self, places: Places) -> Result<RedbStore, StoreError> {
        let room = Arc::new(Room::new(places.path(), self.keep_free));
        let open = || {
            let opener = Opener { places: places.clone(), cache: self.cache };
            let open = || Committer::open(opener, Arc::clone(&self.clock), Arc::clone(&room));
            // redb may panic on damaged pages.
            catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|panic| Err(damaged_pages(&*panic)))
        };
        let (common, committer) = match open() {
            Err(error) if error.kind() == StoreErrorKind::Full && room.release() => open()?,
            opened => opened?,
        };
        let (requests, receiver, bell) = queue();
        let requests = Arc::new(requests);
        let (pipe, shared, its_bell) = (committer.pipe(), Arc::clone(&common), bell.clone());
        let committer = thread::Builder::new()
            .name("tourbillon-commit".to_owned())
            .spawn(move || committer.run(&receiver, &its_bell))?;
        // If this thread does not start, the queue is closed, and the thread that commits ends.
        let syncer = thread::Builder::new()
            .name("tourbillon-sync".to_owned())
            .spawn(move || pipe.run(&shared, &bell))?;
        let on_step = Arc::downgrade(&common);
        let subscribed = Arc::clone(&common);
        let wake = move || on_step.upgrade().inspect(|common| common.wakers.wake()).is_some();
        subscribed.clock.subscribe(Box::new(wake));
        let mut store = RedbStore {
            common,
            places,
            requests: Some(requests),
            scrubber: None,
            threads: Some((committer, syncer)),
        };
        if let (1.., Some(requests)) = (self.scrub, &store.requests) {
            let (common, requests) = (Arc::clone(&store.common), Arc::clone(requests));
            store.scrubber = Some(Scrubber::start(common, requests, self.scrub)?);
        }
        Ok(store)
    }
}

impl RedbStore {
    /// Opens the store at `path` with the system's clock, or makes a new store there.
    ///
    /// # Errors
    ///
    /// Fails as [`RedbBuilder::open`] does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder().open(path)
    }

    /// Returns the options of a store, with their default values.
    #[must_use]
    pub fn builder() -> RedbBuilder {
        RedbBuilder {
            clock: Arc::new(WallClock::new()),
            cache: CACHE,
            keep_free: 0,
            without_locks: false,
            scrub: SCRUB,
        }
    }

    /// Returns the due moment of the first pending timer. `None` if no timer is pending.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::store::RedbStore;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("timers.redb");
    /// assert_eq!(RedbStore::open(&path)?.next_due()?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_due(&self) -> Result<Option<UtcMillis>, StoreError> {
        self.read_now(Ledger::next_due)
    }

    /// Moves the free pages of the file to its end and cuts them off. Returns whether the file has become shorter.
    /// Other changes wait until the compaction has ended. The compaction of a longer file takes longer.
    pub fn compact(&self) -> Answer<'_, bool> {
        self.ask(Request::Compact)
    }

    /// Returns the number of bytes that the store has on the disk, in both files.
    ///
    /// # Errors
    ///
    /// Fails if the system does not say.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::store::RedbStore;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("timers.redb");
    /// assert!(RedbStore::open(&path)?.size_on_disk()? > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn size_on_disk(&self) -> Result<u64, StoreError> {
        if let Some(taken) = self.places.taken() {
            return Ok(taken?);
        }
        let operations = self.common.lengths.lock().unwrap_or_else(PoisonError::into_inner).1;
        Ok(self.common.database_len()? + operations)
    }

    /// Returns the counts of the store's work from its opening on.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        *self.common.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all changes durable and closes the store.
    ///
    /// # Errors
    ///
    /// Fails if a change whose caller did not wait could not be made durable.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::store::RedbStore;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("timers.redb");
    /// RedbStore::open(&path)?.close()?;
    /// // Another value may open it now.
    /// RedbStore::open(&path)?.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(mut self) -> Result<(), StoreError> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), StoreError> {
        // The scrubber also has the queue, so the scrubber must end before the queue can close.
        self.scrubber = None;
        self.requests = None;
        let Some((committer, syncer)) = self.threads.take() else { return Ok(()) };
        // A waker may drop the last reference to the store on one of the store's own threads. Such a thread cannot wait
        // for itself.
        let present = thread::current().id();
        if [committer.thread().id(), syncer.thread().id()].contains(&present) {
            return Ok(());
        }
        let end = committer.join().unwrap_or_else(|_| Err(lost()));
        // The thread that syncs has the journal's file until it ends.
        let _panic = syncer.join();
        end
    }

    fn ask<T: Send + 'static>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Answer<'_, T> {
        let (reply, answer) = oneshot::channel();
        let is_sent = self.requests.as_ref().is_some_and(|requests| requests.send(request(reply)));
        Box::pin(
            async move { if is_sent { answer.await.unwrap_or_else(|_| Err(lost())) } else { Err(closed()) } },
        )
    }

    fn read<'a, T: Send + 'a>(
        &self,
        read: impl FnOnce(&Ledger<tables::Reading>) -> Result<T, StoreError>,
    ) -> Answer<'a, T> {
        Box::pin(core::future::ready(self.read_now(read)))
    }

    fn read_now<T>(
        &self,
        read: impl FnOnce(&Ledger<tables::Reading>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let look = || self.common.reading().and_then(|ledger| read(&ledger));
        // redb may panic on damaged pages.
        let answer = catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|panic| Err(damaged_pages(&*panic)));
        if let Err(error) = &answer
            && self.common.note_read_error(error)
        {
            // This empty request wakes the thread that commits. That thread opens the database again before it serves a
            // request. Nobody waits for the answer.
            drop(self.ask(|reply| Request::Apply(Vec::new(), Durability::Volatile, reply)));
        }
        answer
    }
}

fn refused<'a, T: Send + 'a>(error: StoreError) -> Answer<'a, T> {
    Box::pin(core::future::ready(Err(error)))
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        // Callers that want the error call `close`.
        drop(self.stop());
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl TimerStore for RedbStore {
    fn now(&self) -> UtcMillis {
        self.common.now()
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> Answer<'_, Vec<Outcome>> {
        if let Some(error) = self.common.room.refusal(&ops) {
            return refused(error);
        }
        self.ask(|reply| Request::Apply(ops, durability, reply))
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed> {
        if let Some(error) = self.common.room.absence() {
            return refused(error);
        }
        self.ask(|reply| Request::Claim(by, claim, limit, reply))
    }

    fn claim_in_turn(&self, by: Claimant, claim: u64, limit: Limit, shares: Shares) -> Answer<'_, Claimed> {
        if let Some(error) = self.common.room.absence() {
            return refused(error);
        }
        self.ask(|reply| Request::ClaimInTurn(by, claim, limit, shares, reply))
    }

    /// Answers after all claims that were called before. So claim number `claim` has ended when the leases are read.
    fn recover(&self, by: Claimant, claim: u64) -> Answer<'_, Vec<Leased>> {
        self.ask(|reply| Request::Recover(by, claim, reply))
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Answer<'_, Vec<TimerId>> {
        self.ask(|reply| Request::Renew(by, leases, reply))
    }

    fn reap(&self, limit: u32) -> Answer<'_, Reaped> {
        self.ask(|reply| Request::Reap(limit, reply))
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Answer<'_, Vec<(UtcMillis, TimerId)>> {
        self.read(|ledger| ledger.upcoming(from, until, limit))
    }

    fn get(&self, at: Address) -> Answer<'_, Option<Timer>> {
        self.read(|ledger| ledger.get(&at))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page> {
        self.read(|ledger| ledger.list(&filter, cursor.as_ref(), limit))
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> Answer<'_, Reasons> {
        self.read(|ledger| ledger.reasons(after.as_ref(), limit))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.read(Ledger::counts)
    }

    fn horizon(&self) -> Answer<'_, Horizon> {
        self.read(|ledger| ledger.horizon(LOOKS))
    }

    fn check(&self) -> Answer<'_, Vec<Fault>> {
        self.read(Ledger::check)
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()> {
        let (mut each, mut theirs) = (each, None);
        let exported = self.read_now(|ledger| {
            ledger.each(|timer| {
                let goes_on = catch_unwind(AssertUnwindSafe(|| each(timer)));
                goes_on.unwrap_or_else(|panic| {
                    theirs = Some(panic);
                    false
                })
            })
        });
        // The caller's own panic does not show damage.
        match theirs {
            None => Box::pin(core::future::ready(exported)),
            Some(panic) => resume_unwind(panic),
        }
    }

    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()> {
        if let Some(error) = self.refuses_new() {
            return refused(error);
        }
        self.ask(|reply| Request::Import(timers, reply))
    }

    fn scrub(&self) -> Option<Scrub> {
        self.scrubber.as_ref().map(|_| self.stats().scrub)
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.common.wakers.add(wake);
    }

    fn refuses_new(&self) -> Option<StoreError> {
        self.common.room.reason()
    }
}
