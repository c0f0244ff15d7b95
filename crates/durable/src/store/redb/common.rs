//! What the thread that commits and the callers share.

use super::backend::Shared;
use super::error::converted;
use super::room::Room;
use super::stats::StoreStats;
use super::tables::Reading;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::ledger::Ledger;
use crate::store::memory::Wakers;
use crate::utc::UtcMillis;
use core::sync::atomic::{AtomicBool, Ordering};
use redb::{Database, ReadableDatabase, StorageBackend};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tourbillon::Clock;

/// What the thread that commits and the callers share.
pub(super) struct Common {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) room: Arc<Room>,
    pub(super) wakers: Wakers,
    /// `None` while the database is closed after an error.
    pub(super) database: RwLock<Option<Database>>,
    pub(super) stats: Mutex<StoreStats>,
    /// A read has failed, and the database was not opened again since.
    pub(super) read_has_failed: AtomicBool,
    /// The places of the bytes, for their lengths.
    pub(super) lengths: Mutex<(Option<Shared>, u64)>,
}

impl Common {
    pub(super) fn now(&self) -> UtcMillis {
        UtcMillis::from_timestamp(self.clock.true_now())
    }

    /// A transaction that reads.
    pub(super) fn reading(&self) -> Result<Ledger<Reading>, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or_else(being_opened)?;
        Ok(Ledger::new(Reading::new(database.begin_read().map_err(converted)?), self.now()))
    }

    /// The length of the database's file.
    pub(super) fn database_len(&self) -> Result<u64, StoreError> {
        let place = self.lengths.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        Ok(place.map_or(Ok(0), |place| place.len())?)
    }

    /// Notes the error of a read, after which redb reads nothing until it is opened again. Returns whether the thread
    /// that commits is to be woken for that.
    pub(super) fn note_read_error(&self, error: &StoreError) -> bool {
        let is_of_disk = error.kind() == StoreErrorKind::Io;
        let is_open = || self.database.read().unwrap_or_else(PoisonError::into_inner).is_some();
        is_of_disk && is_open() && !self.read_has_failed.swap(true, Ordering::AcqRel)
    }

    /// Whether a read has failed since the last call.
    pub(super) fn take_read_error(&self) -> bool {
        self.read_has_failed.swap(false, Ordering::AcqRel)
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut StoreStats)) {
        count(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

pub(super) fn being_opened() -> StoreError {
    StoreError::new(StoreErrorKind::Io, "the database is being opened again after an error")
}
