//! Keeps the state that callers share with the threads of a store.

use super::backend::WatchedBackend;
use super::error::converted;
use super::stats::StoreStats;
use super::tables::Reading;
use crate::store::Reaped;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::ledger::Ledger;
use crate::store::memory::Wakers;
use crate::store::room::Room;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use redb::{Database, ReadTransaction, ReadableDatabase, StorageBackend};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tourbillon::Clock;
use tourbillon_words::UtcMillis;

/// The shared state of a store.
pub(super) struct Common {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) room: Arc<Room>,
    pub(super) wakers: Wakers,
    /// The database. `None` while it is closed after an error. Readers use the snapshot instead if there is one,
    /// because the thread that commits may hold this lock for the duration of a sync. Readers do not use the database
    /// while [`is_behind`](Self::is_behind) is true.
    pub(super) database: RwLock<Option<Database>>,
    /// The state of the database after the last batch, for readers. The thread that commits begins this read
    /// transaction for the readers, because the beginning of a read transaction needs a lock that redb may hold during
    /// a sync. `None` while readers use the database itself.
    pub(super) snapshot: Mutex<Option<Arc<ReadTransaction>>>,
    /// Whether the database was opened again after an error and still lacks the batches since its last checkpoint. The
    /// thread that commits replays these batches from the journal. Until then a read fails, because it would lack
    /// changes that were answered.
    is_behind: AtomicBool,
    /// The number of times that the database was opened again after an error, and got all batches.
    reopenings: AtomicU64,
    pub(super) stats: Mutex<StoreStats>,
    /// The value of `reopenings` at the start of the last read that has failed, plus one. Zero if no read has failed.
    failed_read: AtomicU64,
    /// The database's file, and the length of the journal's file in bytes. The length of the database's file is read
    /// from the file when it is needed.
    pub(super) lengths: Mutex<(Option<WatchedBackend>, u64)>,
    /// The leases that the opening of the store has ended, until the runtime takes them.
    pub(super) ended: Mutex<Reaped>,
}

impl Common {
    /// Makes the shared state for an open database. `place` gives access to the database's file.
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        room: Arc<Room>,
        database: Database,
        place: WatchedBackend,
        journal_len: u64,
    ) -> Self {
        Self {
            clock,
            room,
            wakers: Wakers::default(),
            database: RwLock::new(Some(database)),
            snapshot: Mutex::default(),
            is_behind: AtomicBool::new(false),
            reopenings: AtomicU64::new(0),
            stats: Mutex::default(),
            failed_read: AtomicU64::new(0),
            lengths: Mutex::new((Some(place), journal_len)),
            ended: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> UtcMillis {
        UtcMillis::from_nanos(self.clock.true_now().as_nanos())
    }

    /// Begins a read of the store's state after the last batch: from the snapshot, or from the database if there is no
    /// snapshot.
    pub(super) fn reading(&self) -> Result<Ledger<Reading>, StoreError> {
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reading = match snapshot {
            Some(snapshot) => snapshot,
            None => {
                let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
                let current = database.as_ref().filter(|_| !self.is_behind());
                Arc::new(current.ok_or_else(being_opened)?.begin_read().map_err(converted)?)
            }
        };
        Ok(Ledger::new(Reading::of(reading), self.now()))
    }

    fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    /// Stores the database after it was opened again. Readers use it only from the next call of
    /// [`publish`](Self::publish) on, because it may lack batches that only the journal has.
    pub(super) fn put_database(&self, opened: Database) {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        self.is_behind.store(true, Ordering::Release);
        *database = Some(opened);
    }

    /// Makes a snapshot of the database, which has all batches. Readers use the snapshot from now on.
    pub(super) fn publish(&self) {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        // If the read transaction cannot begin, readers use the database directly, and get its error.
        let snapshot = database.as_ref().and_then(|database| database.begin_read().ok()).map(Arc::new);
        // The number changes last. So a read that begins with the new number is not refused.
        if self.is_behind.swap(false, Ordering::AcqRel) {
            self.reopenings.fetch_add(1, Ordering::AcqRel);
        }
        drop(database);
        self.show(snapshot);
    }

    /// Removes the snapshot. Readers use the database itself until the next call of [`publish`](Self::publish).
    pub(super) fn withdraw(&self) {
        self.show(None);
    }

    fn show(&self, snapshot: Option<Arc<ReadTransaction>>) {
        let mut shown = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let former = core::mem::replace(&mut *shown, snapshot);
        drop(shown);
        // The former snapshot is dropped after the lock is released, since the drop takes a lock of redb.
        drop(former);
    }

    /// Takes the database out of the shared state, so that no further reader can use it.
    pub(super) fn take_database(&self) -> Option<Database> {
        self.withdraw();
        self.database.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the length of the database's file, in bytes.
    pub(super) fn database_len(&self) -> Result<u64, StoreError> {
        let place = self.lengths.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        Ok(place.map_or(Ok(0), |place| place.len())?)
    }

    /// Returns the number of times that the database was opened again after an error. A reader passes the number at the
    /// start of its read to [`note_read_error`](Self::note_read_error).
    pub(super) fn reopenings(&self) -> u64 {
        self.reopenings.load(Ordering::Acquire)
    }

    /// Notes the error of a read that began after `reopenings` reopenings of the database. After an error of the disk,
    /// redb reads nothing until the database is opened again. Returns whether the caller must wake the thread that
    /// commits, so that it opens the database again.
    pub(super) fn note_read_error(&self, error: &StoreError, reopenings: u64) -> bool {
        let is_of_disk = error.kind() == StoreErrorKind::Io;
        let database = || self.database.read().unwrap_or_else(PoisonError::into_inner);
        // While the batches are replayed, the database is already being opened again.
        let is_open = || database().is_some() && !self.is_behind();
        let failed = reopenings + 1;
        is_of_disk && is_open() && self.failed_read.fetch_max(failed, Ordering::AcqRel) < failed
    }

    /// Returns whether a read of the present database has failed. An error of a read that began before the database was
    /// last opened again does not count, since it says nothing about the present database.
    pub(super) fn has_read_failed(&self) -> bool {
        self.failed_read.load(Ordering::Acquire) > self.reopenings()
    }

    /// Counts a sync that took the time `took`, and notes the length of the journal's file.
    pub(super) fn synced(&self, took: Duration, journal_len: u64) {
        self.count(|stats| {
            stats.syncs += 1;
            stats.sync_time += took;
            stats.longest_sync = stats.longest_sync.max(took);
        });
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner).1 = journal_len;
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut StoreStats)) {
        count(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

pub(super) fn being_opened() -> StoreError {
    StoreError::new(StoreErrorKind::Io, "the database is being opened again after an error")
}

#[cfg(test)]
mod tests {
    use super::super::backend::Places;
    use super::*;
    use redb::backends::InMemoryBackend;
    use tourbillon::ManualClock;

    fn database() -> Database {
        Database::builder().create_with_backend(InMemoryBackend::new()).unwrap()
    }

    #[test]
    fn a_database_that_was_opened_again_is_not_read_before_it_has_all_batches() {
        let place = Places::made(Arc::new(|_| Ok(Box::new(InMemoryBackend::new())))).timers().unwrap();
        let room = Arc::new(Room::new(None, "", 0));
        let common = Common::new(Arc::new(ManualClock::new()), room, database(), place, 0);
        common.publish();
        drop(common.take_database());
        common.put_database(database());
        let error = common.reading().err().unwrap();
        assert_eq!(error.kind(), StoreErrorKind::Io);
        assert!(!common.note_read_error(&error, common.reopenings()), "the database is being opened already");
        common.publish();
        assert!(common.reading().is_ok());
        drop(common.take_database());
        common.put_database(database());
        assert!(common.reading().is_err(), "an outage may follow another");
    }

    #[test]
    fn an_error_of_a_read_does_not_close_a_database_that_was_opened_since_the_read_began() {
        let place = Places::made(Arc::new(|_| Ok(Box::new(InMemoryBackend::new())))).timers().unwrap();
        let room = Arc::new(Room::new(None, "", 0));
        let common = Common::new(Arc::new(ManualClock::new()), room, database(), place, 0);
        common.publish();
        let error = being_opened();
        let reopen = || {
            drop(common.take_database());
            common.put_database(database());
            common.publish();
        };
        let first = common.reopenings();
        reopen();
        common.note_read_error(&error, first);
        assert!(!common.has_read_failed(), "a long read of the former database has failed");
        assert!(common.note_read_error(&error, common.reopenings()) && common.has_read_failed());
        assert!(!common.note_read_error(&error, first) && common.has_read_failed());
        reopen();
        assert!(!common.has_read_failed(), "the database was opened again after the failure");
    }
}
