//! Keeps a store in a database of redb, with a thread that commits and a thread that syncs.
//!
//! # Group commit
//!
//! Requests that change the store go to one thread. The thread takes all waiting requests as one *batch*, and runs them
//! in order in one transaction of redb. It answers a request after this transaction, or after a sync of the journal,
//! depending on the durability for which the request asks. Requests that arrive during a sync share the next sync, so
//! the number of syncs does not grow with the number of callers. If a request fails, only its own changes are undone,
//! and the rest of the batch is kept. `pipe.rs` describes the states of a batch on its way to the disk.
//!
//! # What readers see
//!
//! Reads wait neither for batches nor for syncs. Only a compaction of the database makes them wait. They see the state
//! after the last batch: every change that was answered, and also changes whose callers still wait for the disk. A loss
//! of power can undo changes whose callers still wait. A caller that must not act on such a change first calls
//! [`TimerStore::apply`] without operations and with [`Durability::PowerLoss`]: after the answer, everything that was
//! read before is on the disk. A read of a page that is not in memory waits until the disk has read it.
//!
//! Reads fail from an error of the disk until the database is open again and has all batches.
//!
//! # The journal
//!
//! redb commits a batch only in its memory. A commit to the disk would need two syncs and write each changed page, and
//! the creation of a single timer changes three pages in different places of the file. Instead, the batch is noted in
//! the journal, the file `<path>.ops`: its requests, in order, with the number and the time of the batch.
//!
//! | a request asks for | before its answer | 20 ms later; if a sync is under way then, after that sync |
//! |---|---|---|
//! | [`Durability::PowerLoss`] | the journal is written and synced | |
//! | [`Durability::ProcessCrash`] | the journal is written | the journal is synced |
//! | [`Durability::Volatile`], or it claims timers, renews leases or reaps (ends) expired leases | | the journal is written and synced |
//!
//! So claims and ends of deliveries can be answered before creations that wait for a slow disk, although the store
//! makes all changes in the order of the requests. On a quick disk, the thread that commits makes the syncs itself, so
//! the answers to claims wait for a sync, too.
//!
//! A *checkpoint* commits redb to the disk. The thread that commits makes a checkpoint 10 s after the first change
//! since the last checkpoint, or earlier if the notes exceed 4 MiB. An import also makes a checkpoint. No batch runs
//! during a checkpoint. Afterwards, the journal begins again at the start of its file.
//!
//! The next opening replays the noted requests that follow the last batch in the database, with their noted times.
//! *All* requests since the checkpoint are noted, including claims, renewals and reaps. The effect of a request depends
//! only on the stored timers and the time, so a replayed request finds the store as it was at the first run. For
//! example, an acknowledgement finds the lease of its claim, although the claim did not have to be durable. A creation
//! finds its key free if an earlier cancellation with [`Durability::Volatile`] had freed the key. A crash can lose
//! notes only from the end of the journal, so the remaining notes have no gaps.
//!
//! Each noted request has a digest of its outcome. If a replayed request has another outcome, the opening fails and
//! changes nothing. The cause is that this version of the crate gives the notes another meaning, or that the notes
//! belong to another database.
//!
//! # Damage to the journal
//!
//! After a loss of power, any sectors of the unsynced records may be on the disk. Such a torn tail is not an error, and
//! is cut off. Damage to a synced record, for example by a flipped bit, makes the opening fail. An opening can
//! distinguish a torn tail from damage, because each record notes how far the journal had been synced when the record
//! was written. No record follows the last sync, so a *seal* after the last record notes that the record is synced.
//! `journal.rs` describes the states of a record, and the damage that cannot be detected.
//!
//! When a store is closed, its last checkpoint notes in the database that the store was closed. Without the note, the
//! journal may have operations that the database lacks, so the next opening needs the journal's file. After the opening
//! of a closed store, the first batch is committed to the disk in the database, which invalidates the note.
//!
//! # Damage to the database
//!
//! Each record of a timer has a checksum of its id and its bytes, which every read verifies. A damaged record is set
//! aside with its bytes, and the other timers are not affected. If an index entry names a missing timer, an empty
//! record is set aside under the timer's id. An index entry that does not belong to its timer is removed, and the
//! timer's own entry is restored. A batch that has found damage is not noted, but committed to the disk in the database
//! at once, because a replay might not find the damage. The *scrub* (`scrub.rs`) is a thread that searches all records
//! and index entries for damage, and `verify.rs` verifies redb's own checksums of pages. redb can panic on bytes that
//! are not a page. The caller then gets an error of the kind [`Corrupt`](super::StoreErrorKind::Corrupt).
//!
//! # Errors
//!
//! After an error of the disk, redb must be opened again. The thread that commits tries this at once, and then with
//! pauses of 10 ms to 1 s. A read that fails wakes the thread for this. Until the database is open again, requests fail
//! with the error that closed it. Batches that redb had only in memory are replayed from the notes. If the database
//! shows that the failed batch has had no effect, its callers get the error with its own kind. Otherwise they get
//! [`StoreErrorKind::Unknown`](super::StoreErrorKind::Unknown).
//!
//! # Invariants
//! B1. The transaction of a batch also stores the batch's number in the database. Batches have consecutive numbers.
//! B2. The journal has the notes of all batches since the checkpoint. A batch is noted after its commit in memory and
//!     before its answers.
//! B3. The file `<path>.ops` is locked while the store is open, even while the database is closed after an error. So no
//!     other store can change the database.

mod backend;
mod batch;
mod committer;
mod common;
mod compaction;
mod error;
mod journal;
mod opening;
mod pipe;
mod queue;
mod recovery;
mod request;
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
use self::request::{Claim, Reply, Request};
use self::scrub::Scrubber;
use super::error::{StoreError, StoreErrorKind};
use super::fault::Fault;
use super::horizon::Horizon;
use super::ledger::{Chosen, LOOKS, Ledger};
use super::room::Room;
use super::{
    Claimant, Claimed, Counts, Cursor, Durability, Filter, Leased, Limit, Op, Outcome, Page, Reaped, Reasons,
    Renewal, Scrub, Shares, StoreFuture, TimerStore,
};
use crate::clock::WallClock;
use crate::panics::survive_or;
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

/// The default number of entries that the scrub (the search for damage) checks in a second.
const SCRUB: u32 = 250;

/// The pause between two checks of the progress of the scrub (the search for damage).
const LOOK: Duration = Duration::from_millis(5);

type Threads = (JoinHandle<Result<(), StoreError>>, JoinHandle<()>);

/// A store in a file.
///
/// The file is a database of [redb](https://docs.rs/redb). Next to it is a smaller file `<path>.ops`, the journal of
/// the store. Only one `RedbStore` can have the files open at a time, in any process. Dropping the store makes all
/// changes durable.
///
/// A read runs on the caller's thread, during the call, and may wait until the disk has read a page. No read waits for
/// writes to the disk, except during a call of [`compact`](Self::compact). A read sees every change that was answered,
/// and also changes whose answers still wait for the disk. A loss of power can undo unanswered changes. After a call of
/// [`apply`](TimerStore::apply) without operations and with [`Durability::PowerLoss`], all changes that earlier reads
/// have seen are durable.
///
/// A thread of the store makes the changes in the order of the calls, even if the futures are not awaited. Some calls
/// are answered while callers of other changes still wait for the disk: claims, ends of deliveries, and creations with
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
    /// Sets the store's clock, which counts from the start of 1970. The default is the [`WallClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the size of the cache, in bytes, in which the store keeps parts of the database in memory. The default is
    /// 128 MiB.
    #[must_use]
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache = bytes;
        self
    }

    /// Sets the number of bytes that the store leaves free on the file system. While fewer bytes are free, operations
    /// that store new timers fail with [`StoreErrorKind::Full`]. Claims, ends of deliveries, cancellations, moves and
    /// schedules still work. On a small file system, the store leaves fewer bytes free: an eighth of the file system's
    /// size, but at least 24 MiB ([`Room::kept_free`]). The default is zero, which means no limit.
    ///
    /// The store reserves half of these bytes in a file `<path>.reserve`. When other programs have filled the file
    /// system, the store removes the file, and creates it again once there is room. The limit works only on Linux.
    #[must_use]
    pub fn keep_free(mut self, bytes: u64) -> Self {
        self.keep_free = bytes;
        self
    }

    /// Sets whether the store may be opened on a file system without locks, such as some network file systems. If
    /// `is_permitted` is true, the caller must ensure that no other process opens the store, because two processes
    /// would lose each other's timers. The default is false.
    #[must_use]
    pub fn without_locks(mut self, is_permitted: bool) -> Self {
        self.without_locks = is_permitted;
        self
    }

    /// Sets the number of entries that the scrub checks in a second. The default is 250, and 0 turns the scrub off.
    ///
    /// The scrub is a thread that searches the store for damage. A store has a record for each timer, and two to four
    /// entries by which the timer is found. The scrub repeatedly checks all of these, 1,000 at a time. It sets damaged
    /// records aside, and repairs entries. Without the scrub, damage is noticed only when a damaged timer is read or
    /// cannot be found. [`StoreStats::scrub`] shows the progress of the scrub.
    #[must_use]
    pub fn scrub(mut self, entries_per_second: u32) -> Self {
        self.scrub = entries_per_second;
        self
    }

    /// Reads all pages of the database at `path` and verifies their checksums, in time proportional to the length of
    /// the file. Changes nothing. Does not read the journal, because each opening verifies the checksums of its
    /// records.
    ///
    /// If a page is damaged, returns the first damaged page with its offset in the file, and the damaged timers as far
    /// as the pages are readable. If all pages are undamaged, returns no faults, even if [`TimerStore::check`] would
    /// find faults in the structure.
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
        // This fails if the file is missing. Otherwise the verification would create an empty file.
        std::fs::metadata(path)?;
        verify::verify(&Places::files(path, self.without_locks)?)
    }

    /// Verifies a database whose bytes are not in files, as [`verify`](Self::verify) does for a file. `make` gives
    /// access to the bytes of each part.
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

    /// Removes the damaged records that the store at `path` has set aside, and returns their number. Call this method
    /// after the lost timers were created again, or if they are not needed. First opens the store, and scrubs all of it
    /// as [`scrub`](Self::scrub) describes. Afterwards, [`TimerStore::check`] no longer reports the records, and
    /// [`Counts::quarantined`] is zero.
    ///
    /// # Errors
    ///
    /// Fails as [`open`](Self::open) does, and if there is no file at `path`. Also fails with
    /// [`StoreErrorKind::Corrupt`] if the scrub sets further damaged records aside. Then the method removes nothing, so
    /// that a check can report these records first.
    pub fn forget_damaged(self, path: impl AsRef<Path>) -> Result<u64, StoreError> {
        let path = path.as_ref();
        // The opener would make a database without a journal, which no later opening accepts.
        let is_empty = std::fs::metadata(path)?.len() == 0;
        let places = Places::files(path, self.without_locks)?;
        let opener = Opener { places: places.clone(), cache: self.cache };
        let known = if is_empty { 0 } else { opening::set_aside(&opener.open()?)? };
        let store = self.scrub(u32::MAX).start(places)?;
        // The scrub removes the entries that lost timers have left in the indexes. For this it needs the records that
        // were set aside.
        while store.stats().scrub.walks == 0 {
            thread::sleep(LOOK);
        }
        // The scrub does not wait for its repairs. The close waits for them, because the thread that commits first
        // serves all requests.
        store.close()?;
        let opened = opener.open()?;
        if opening::set_aside(&opened)? > known {
            let message = "more records are damaged than were set aside before: a check names them now";
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        opening::forget_set_aside(&opened)
    }

    /// Opens the store at `path`, or creates a store if there is none.
    ///
    /// The path is made absolute, and its symbolic links are resolved, once at this call. So each name of the file
    /// opens the same store, and the process may change its working folder afterwards. A file with several hard links
    /// is refused with [`StoreErrorKind::Limit`].
    ///
    /// All leases end, because their holders are gone. The time that this method takes depends on the number of leases
    /// and the number of operations in the journal, but not on the number of timers.
    ///
    /// # Errors
    ///
    /// Fails at once with [`StoreErrorKind::Locked`] if the store is already open, in this process or another. A store
    /// that was just closed may still be locked for a moment: if its process was starting a child process at the time,
    /// the child process keeps the lock until it runs its own program. Fails with
    /// [`NewerSchema`](StoreErrorKind::NewerSchema) if a later version of this crate wrote the database, and does not
    /// change the database. Fails with [`ReadOnly`](StoreErrorKind::ReadOnly) if the files are not writable, and with
    /// [`Corrupt`](StoreErrorKind::Corrupt) if they are damaged or do not belong to a store. Fails with
    /// [`Full`](StoreErrorKind::Full) or [`Io`](StoreErrorKind::Io) if the operating system reports an error.
    ///
    /// If acknowledged operations in the journal are unreadable, the opening fails with `Corrupt`, and the message
    /// names the first damaged record. If the store was not closed and the file `<path>.ops` is missing, the opening
    /// fails, and the message names the file. If an empty file is put in its place, the store opens as it was at the
    /// last checkpoint, up to 10 s earlier. Operations that were acknowledged after the checkpoint are then lost. A
    /// store that was closed can be opened without the file.
    pub fn open(self, path: impl AsRef<Path>) -> Result<RedbStore, StoreError> {
        let places = Places::files(path.as_ref(), self.without_locks)?;
        self.start(places)
    }

    /// Opens a store whose bytes are not in files, for tests of faults. `make` gives access to the bytes of each part.
    /// The store calls `make` once for [`Part::Operations`]. It calls `make` for [`Part::Timers`] several times during
    /// this opening, and whenever it opens the database again after an error.
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
        let room = Arc::new(Room::new(places.path(), ".reserve", self.keep_free));
        let open = || {
            let opener = Opener { places: places.clone(), cache: self.cache };
            let open = || Committer::open(opener, Arc::clone(&self.clock), Arc::clone(&room));
            // redb may panic on damaged pages.
            survive_or(open, damaged_pages).unwrap_or_else(Err)
        };
        let (common, committer) = match open() {
            // An opening writes to the disk, too. So on a full disk, the opening gets the bytes of the reserve.
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
        // The clock may outlive the store. The clock drops the function once the function has returned false.
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
    /// Opens the store at `path` with the default options, or creates a store if there is none.
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

    /// Compacts the database: moves the free pages to the end of its file and truncates the file. Returns whether the
    /// file has become shorter. Other changes and all reads wait until the compaction has ended. A compaction takes
    /// longer for a larger file.
    pub fn compact(&self) -> StoreFuture<'_, bool> {
        self.ask(Request::Compact)
    }

    /// Returns the number of bytes that the database and the journal take on the disk.
    ///
    /// # Errors
    ///
    /// Fails if the operating system does not report the size of a file.
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

    /// Returns the counts of the work that the store has done since it was opened.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        *self.common.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all changes durable and closes the store.
    ///
    /// # Errors
    ///
    /// Fails if the last changes cannot be made durable. Their callers may already have been answered.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::store::RedbStore;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("timers.redb");
    /// RedbStore::open(&path)?.close()?;
    /// // Another `RedbStore` may open the files now.
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
        // A waker may drop the last reference to the store on one of the store's own threads, which cannot wait for
        // itself.
        let present = thread::current().id();
        if [committer.thread().id(), syncer.thread().id()].contains(&present) {
            return Ok(());
        }
        let end = committer.join().unwrap_or_else(|_| Err(lost()));
        // The thread that syncs keeps the journal's file open until it ends.
        let _panic = syncer.join();
        end
    }

    fn ask<T: Send + 'static>(&self, request: impl FnOnce(Reply<T>) -> Request) -> StoreFuture<'_, T> {
        let (reply, answer) = oneshot::channel();
        // The request is sent now, not at the first poll of the future, so changes are made in the order of the calls.
        let is_sent = self.requests.as_ref().is_some_and(|requests| requests.send(request(reply)));
        Box::pin(
            async move { if is_sent { answer.await.unwrap_or_else(|_| Err(lost())) } else { Err(closed()) } },
        )
    }

    fn read<'a, T: Send + 'a>(
        &self,
        read: impl FnOnce(&Ledger<tables::Reading>) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        Box::pin(core::future::ready(self.read_now(read)))
    }

    fn read_now<T>(
        &self,
        read: impl FnOnce(&Ledger<tables::Reading>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let reopenings = self.common.reopenings();
        let look = || self.common.reading().and_then(|ledger| read(&ledger));
        // redb may panic on damaged pages.
        let answer = survive_or(look, damaged_pages).unwrap_or_else(Err);
        if let Err(error) = &answer
            && self.common.note_read_error(error, reopenings)
        {
            // This empty request wakes the thread that commits, which opens the database again before it serves the
            // request. The answer is not needed.
            drop(self.ask(|reply| Request::Apply(Vec::new(), Durability::Volatile, reply)));
        }
        answer
    }
}

fn refused<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
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

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> StoreFuture<'_, Vec<Outcome>> {
        if let Some(error) = self.common.room.refusal(&ops) {
            return refused(error);
        }
        self.ask(|reply| Request::Apply(ops, durability, reply))
    }

    fn claim(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        shares: Option<Shares>,
    ) -> StoreFuture<'_, Claimed> {
        // Claims use the bytes that are kept free, so a nearly full disk does not refuse them.
        if let Some(error) = self.common.room.absence() {
            return refused(error);
        }
        let claim = Claim { by, number: claim, limit, shares, chosen: Chosen::default() };
        self.ask(|reply| Request::Claim(claim, reply))
    }

    /// Sends the request through the queue of the thread that commits, although it only reads. The thread runs all
    /// earlier requests first. So the claim with the number `claim` has finished before its leases are read.
    fn recover(&self, by: Claimant, claim: u64) -> StoreFuture<'_, Vec<Leased>> {
        self.ask(|reply| Request::Recover(by, claim, reply))
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> StoreFuture<'_, Renewal> {
        self.ask(|reply| Request::Renew(by, leases, reply))
    }

    fn reap(&self, limit: u32) -> StoreFuture<'_, Reaped> {
        self.ask(|reply| Request::Reap(limit, reply))
    }

    fn ended_at_opening(&self) -> Reaped {
        core::mem::take(&mut *self.common.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(UtcMillis, TimerId)>> {
        self.read(|ledger| ledger.upcoming(from, until, limit))
    }

    fn get(&self, at: Address) -> StoreFuture<'_, Option<Timer>> {
        self.read(|ledger| ledger.get(&at))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> StoreFuture<'_, Page> {
        self.read(|ledger| ledger.list(&filter, cursor.as_ref(), limit))
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> StoreFuture<'_, Reasons> {
        self.read(|ledger| ledger.reasons(after.as_ref(), limit))
    }

    fn counts(&self) -> StoreFuture<'_, Counts> {
        self.read(Ledger::counts)
    }

    fn horizon(&self) -> StoreFuture<'_, Horizon> {
        self.read(|ledger| ledger.horizon(LOOKS))
    }

    fn check(&self) -> StoreFuture<'_, Vec<Fault>> {
        self.read(Ledger::check)
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> StoreFuture<'a, ()> {
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
        // A panic of `each` is the caller's own, and is not a sign of damage.
        match theirs {
            None => Box::pin(core::future::ready(exported)),
            Some(panic) => resume_unwind(panic),
        }
    }

    fn import(&self, timers: Vec<Timer>) -> StoreFuture<'_, ()> {
        if let Some(error) = self.refuses_new() {
            return refused(error);
        }
        self.ask(|reply| Request::Import(timers, reply))
    }

    fn scrub(&self) -> Option<Scrub> {
        self.scrubber.as_ref().map(|_| self.stats().scrub)
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.common.wakers.add(wake);
    }

    fn refuses_new(&self) -> Option<StoreError> {
        self.common.room.reason()
    }
}
