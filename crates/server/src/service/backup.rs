//! Makes backups while the service runs.

use crate::state::{Map, files, now};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tourbillon_api::Moment;
use tourbillon_durable::backup::{self, BackupError};
use tourbillon_durable::store::TimerStore;

/// The greatest number of backups at a time. Each backup keeps the pages of the store as they were at the backup's
/// moment.
const MOST_BACKUPS: usize = 2;

/// The part of a backup that is stored beside the timers.
#[derive(Serialize, Deserialize)]
pub(super) struct Attached {
    pub(super) namespaces: Map,
}

/// Limits the number of running backups, and knows the moment of the last backup.
pub(crate) struct Backups {
    room: Arc<Semaphore>,
    last: Arc<LastBackup>,
}

impl Backups {
    /// Reads the moment of the last backup from the file `path`, which remembers it over a restart.
    pub(super) fn open(path: PathBuf) -> Self {
        // Without the file, or with a damaged file, no backup is known, and an alarm asks for a backup.
        let known = files::read::<Remembered>(&path).ok().flatten().map(|remembered| remembered.last);
        let last = Arc::new(LastBackup { path, known: Mutex::new(known) });
        Self { room: Arc::new(Semaphore::new(MOST_BACKUPS)), last }
    }

    /// Returns the moment of the last backup that a client has received completely.
    pub(super) fn last(&self) -> Option<Moment> {
        *self.last.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a backup. Returns `None` if too many backups run.
    pub(super) fn begin(&self, store: Arc<dyn TimerStore>, namespaces: &Arc<Map>) -> Option<Backup> {
        let place = Arc::clone(&self.room).try_acquire_owned().ok()?;
        let attached = Attached { namespaces: Map::clone(namespaces) };
        Some(Backup { store, attached, begun: now(), last: Arc::clone(&self.last), _place: place })
    }
}

/// The contents of the file that remembers the last backup.
#[derive(Serialize, Deserialize)]
struct Remembered {
    last: Moment,
}

struct LastBackup {
    path: PathBuf,
    known: Mutex<Option<Moment>>,
}

impl LastBackup {
    /// Remembers a backup of this moment, unless a later backup is known. Blocks.
    fn note(&self, moment: Moment) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none_or(|known| known < moment) {
            *known = Some(moment);
            // If the file cannot be written, the moment is known until the next start.
            let _best_effort = files::replace(&self.path, &Remembered { last: moment });
        }
    }
}

/// A backup that runs. Dropping this value makes room for another backup.
pub(crate) struct Backup {
    store: Arc<dyn TimerStore>,
    attached: Attached,
    begun: Moment,
    last: Arc<LastBackup>,
    _place: OwnedSemaphorePermit,
}

impl Backup {
    /// Writes all timers as they are at one moment, which is after the call. Blocks.
    pub(crate) fn write(&self, to: impl io::Write + Send) -> Result<u64, BackupError> {
        backup::write_with(&*self.store, &self.attached, to)
    }

    /// Notes that the client has received the whole backup. Blocks.
    pub(crate) fn succeeded(&self) {
        self.last.note(self.begun);
    }
}
