//! Backups of a service that runs.

use super::namespaces::Map;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tourbillon_durable::backup::{self, BackupError};
use tourbillon_durable::store::TimerStore;

/// The number of backups that are under way at most. Each keeps the pages of the store as they were at its moment.
pub(super) const MOST_BACKUPS: usize = 2;

/// What the service adds to the timers of a backup.
#[derive(Serialize, Deserialize)]
pub(super) struct Attached {
    pub(super) namespaces: Map,
}

/// A backup that is under way.
pub(crate) struct Backup {
    store: Arc<dyn TimerStore>,
    attached: Attached,
    _place: OwnedSemaphorePermit,
}

impl Backup {
    /// Begins a backup, if there is room for one more.
    pub(super) fn begin(
        room: &Arc<Semaphore>,
        store: Arc<dyn TimerStore>,
        namespaces: &Arc<Map>,
    ) -> Option<Self> {
        let place = Arc::clone(room).try_acquire_owned().ok()?;
        Some(Self { store, attached: Attached { namespaces: Map::clone(namespaces) }, _place: place })
    }

    /// Writes all timers as they are at one moment, which is after the call. Blocks.
    pub(crate) fn write(&self, to: impl io::Write + Send) -> Result<u64, BackupError> {
        backup::write_with(&*self.store, &self.attached, to)
    }
}
