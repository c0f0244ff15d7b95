//! Backups of a service that runs.

use crate::state::{Map, files, now};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tourbillon_api::Moment;
use tourbillon_durable::backup::{self, BackupError};
use tourbillon_durable::store::TimerStore;

/// The number of backups that are under way at most. Each keeps the pages of the store as they were at its moment.
const MOST_BACKUPS: usize = 2;

/// The part of a backup beside the timers.
#[derive(Serialize, Deserialize)]
pub(super) struct Attached {
    pub(super) namespaces: Map,
}

/// The room for backups, and the last backup.
pub(crate) struct Backups {
    room: Arc<Semaphore>,
    last: Arc<LastBackup>,
}

impl Backups {
    /// `path` is the file that remembers the last backup over a restart.
    pub(super) fn open(path: PathBuf) -> Self {
        // Without the file, or with a damaged file, no backup is known, and an alarm asks for a backup.
        let known = files::read::<Remembered>(&path).ok().flatten().map(|remembered| remembered.last);
        let last = Arc::new(LastBackup { path, known: Mutex::new(known) });
        Self { room: Arc::new(Semaphore::new(MOST_BACKUPS)), last }
    }

    /// The moment of the last backup that a reader took as a whole.
    pub(super) fn last(&self) -> Option<Moment> {
        *self.last.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a backup, if there is room for one more.
    pub(super) fn begin(&self, store: Arc<dyn TimerStore>, namespaces: &Arc<Map>) -> Option<Backup> {
        let place = Arc::clone(&self.room).try_acquire_owned().ok()?;
        let attached = Attached { namespaces: Map::clone(namespaces) };
        Some(Backup { store, attached, begun: now(), last: Arc::clone(&self.last), _place: place })
    }
}

/// The file about the last backup.
#[derive(Serialize, Deserialize)]
struct Remembered {
    last: Moment,
}

struct LastBackup {
    path: PathBuf,
    known: Mutex<Option<Moment>>,
}

impl LastBackup {
    /// Notes a backup of this moment, unless a later backup is known. Blocks.
    fn note(&self, moment: Moment) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none_or(|known| known < moment) {
            *known = Some(moment);
            // If the file cannot be written, the moment is known until the next start.
            let _best_effort = files::replace(&self.path, &Remembered { last: moment });
        }
    }
}

/// A backup that is under way.
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

    /// Notes that the reader has taken the whole backup. Blocks.
    pub(crate) fn succeeded(&self) {
        self.last.note(self.begun);
    }
}
