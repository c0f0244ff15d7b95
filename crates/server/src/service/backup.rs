//! Makes backups of a running service.

use crate::clock::{millis, now};
use crate::state::{Namespace, files};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tourbillon_api::Moment;
use tourbillon_durable::backup::{self, BackupError};
use tourbillon_durable::store::TimerStore;

/// The greatest number of backups that run at the same time. The store keeps old versions of its pages while a backup
/// runs.
const MOST_BACKUPS: usize = 2;

/// If the stored moment of the last backup is further in the future than this time, it comes from a clock that was
/// wrong. The moment of the backup then counts as unknown.
const AHEAD: Duration = Duration::from_secs(3_600);

/// The data that the service adds to the timers in a backup: copies of the namespaces, with their limits and signing
/// secrets. References would delay the removal of a namespace until the end of the backup, which may take hours.
#[derive(Serialize, Deserialize)]
pub(super) struct Attached {
    pub(super) namespaces: BTreeMap<Box<str>, Namespace>,
}

/// Limits the number of running backups, and stores the moment of the last complete backup.
pub(crate) struct Backups {
    room: Arc<Semaphore>,
    last: Arc<LastBackup>,
}

impl Backups {
    /// Reads the moment of the last backup from the file `path`, which keeps the moment over restarts.
    pub(super) fn open(path: PathBuf) -> Self {
        // If the file is missing or damaged, no backup is known. An alarm then asks for a backup.
        let known = files::read::<Remembered>(&path).ok().flatten().map(|remembered| remembered.last);
        let last = Arc::new(LastBackup { path, known: Mutex::new(known) });
        Self { room: Arc::new(Semaphore::new(MOST_BACKUPS)), last }
    }

    /// Returns the moment at which the last backup began that a client has received in full. Returns `None` if no such
    /// moment is known. A moment further than [`AHEAD`] in the future counts as unknown, because an alarm on the age of
    /// the backup would stay silent until then.
    pub(super) fn last(&self) -> Option<Moment> {
        let known = *self.last.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|known| known.as_millis() <= now().as_millis().saturating_add(millis(AHEAD)))
    }

    /// Begins a backup of the store. Returns `None` if too many backups are running.
    pub(super) fn begin(&self, store: Arc<dyn TimerStore>, attached: Attached) -> Option<Backup> {
        let place = Arc::clone(&self.room).try_acquire_owned().ok()?;
        Some(Backup { store, attached, begun: now(), last: Arc::clone(&self.last), _place: place })
    }
}

/// The contents of the file that stores the moment of the last backup.
#[derive(Serialize, Deserialize)]
struct Remembered {
    last: Moment,
}

struct LastBackup {
    path: PathBuf,
    known: Mutex<Option<Moment>>,
}

impl LastBackup {
    /// Stores `moment` as the moment of the last backup. Does nothing if a later moment is stored, unless that moment
    /// is in the future. Blocks the calling thread.
    fn note(&self, moment: Moment) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Two backups may run at once, and the earlier backup may end last. The lock is held during the write, so that
        // the file keeps the later moment. A moment in the future comes from a clock that was wrong.
        if known.is_none_or(|known| known < moment || known > now()) {
            *known = Some(moment);
            // If the file cannot be written, the moment is forgotten at the next start.
            let _best_effort = files::replace(&self.path, &Remembered { last: moment });
        }
    }
}

/// A running backup. Dropping this value makes room for another backup.
pub(crate) struct Backup {
    store: Arc<dyn TimerStore>,
    attached: Attached,
    begun: Moment,
    last: Arc<LastBackup>,
    _place: OwnedSemaphorePermit,
}

impl Backup {
    /// Writes a snapshot of all timers to `to`, as of a moment after the call. Returns the number of these timers.
    /// Blocks the calling thread.
    pub(crate) fn write(&self, to: impl io::Write + Send) -> Result<u64, BackupError> {
        backup::write_with(&*self.store, &self.attached, to)
    }

    /// Records that the client has received this backup in full. Blocks the calling thread.
    pub(crate) fn succeeded(&self) {
        // The backup may lack changes after its start, so the start counts and not the end.
        self.last.note(self.begun);
    }
}
