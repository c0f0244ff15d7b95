//! What the thread that commits and the callers share.

use super::backend::Shared;
use super::error::converted;
use super::stats::StoreStats;
use super::tables::Reading;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::ledger::Ledger;
use crate::store::memory::Wakers;
use crate::utc::UtcMillis;
use redb::{Database, ReadableDatabase, StorageBackend};
use std::sync::{Mutex, PoisonError, RwLock};
use tourbillon::Clock;

/// What the thread that commits and the callers share.
pub(super) struct Common {
    pub(super) clock: Box<dyn Clock>,
    pub(super) wakers: Wakers,
    /// `None` while the database is closed after an error.
    pub(super) database: RwLock<Option<Database>>,
    pub(super) stats: Mutex<StoreStats>,
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

    pub(super) fn count(&self, count: impl FnOnce(&mut StoreStats)) {
        count(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

pub(super) fn being_opened() -> StoreError {
    StoreError::new(StoreErrorKind::Io, "the database is being opened again after an error")
}
