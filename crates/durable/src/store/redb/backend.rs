//! The places of a store's bytes: two files, or what a test puts in their place.

use super::error::converted;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::failpoints::{Point, reach};
use core::fmt;
use core::ops::Bound;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A part of a store, which has a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The database with the timers.
    Timers,
    /// The operations that the database has only in memory.
    Operations,
}

type Make = dyn Fn(Part) -> io::Result<Box<dyn StorageBackend>> + Send + Sync;

/// The way to the parts of a store.
#[derive(Clone)]
pub(super) enum Places {
    Files(PathBuf),
    Made(Arc<Make>),
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(path) => f.debug_tuple("Files").field(path).finish(),
            Self::Made(_) => f.write_str("Made"),
        }
    }
}

impl Places {
    /// The place of the database.
    pub(super) fn timers(&self) -> Result<Shared, StoreError> {
        match self {
            Self::Files(path) => {
                Ok(Shared(Arc::new(FileBackend::new(open(path)?).map_err(converted)?), Part::Timers))
            }
            Self::Made(make) => Ok(Shared(make(Part::Timers)?.into(), Part::Timers)),
        }
    }

    /// The place of the operations. As long as it is open, no other store opens it.
    pub(super) fn operations(&self) -> Result<Shared, StoreError> {
        match self {
            Self::Files(path) => {
                let beside = beside(path);
                let file = open(&beside)?;
                match file.try_lock() {
                    Ok(()) => {}
                    Err(TryLockError::WouldBlock) => {
                        let message = format!("{} is in use", path.display());
                        return Err(StoreError::new(StoreErrorKind::Locked, message));
                    }
                    // A file system without locks: redb's own lock has to do.
                    Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                    Err(TryLockError::Error(error)) => return Err(error.into()),
                }
                Ok(Shared(Arc::new(FileBackend::new(file).map_err(converted)?), Part::Operations))
            }
            Self::Made(make) => Ok(Shared(make(Part::Operations)?.into(), Part::Operations)),
        }
    }

    /// The bytes that the files take on the disk. redb makes its file longer by as much again before it writes there,
    /// which takes no room on most file systems. `None` where the system does not say.
    pub(super) fn taken(&self) -> Option<io::Result<u64>> {
        #[cfg(unix)]
        if let Self::Files(path) = self {
            use std::os::unix::fs::MetadataExt;
            let taken = |path: &Path| Ok(std::fs::metadata(path)?.blocks() * 512);
            return Some(taken(path).and_then(|timers| Ok(timers + taken(&beside(path))?)));
        }
        None
    }

    /// The path of the file of the operations, if the file is not there.
    pub(super) fn missing_operations(&self) -> Option<PathBuf> {
        match self {
            Self::Files(path) => Some(beside(path)).filter(|path| !path.exists()),
            Self::Made(_) => None,
        }
    }

    /// Removes the file of the operations.
    pub(super) fn remove_operations(&self) {
        if let Self::Files(path) = self {
            // A file that stays is empty.
            drop(std::fs::remove_file(beside(path)));
        }
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".ops");
    beside.into()
}

/// Opens a file of the store, or makes it. Only its owner may read a new file, since payloads may have secrets.
fn open(path: &Path) -> io::Result<File> {
    let was_there = path.exists();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    // The name of a new file is on the disk when its folder is.
    if cfg!(unix)
        && !was_there
        && let Some(folder) = path.parent()
    {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

/// A backend that the store asks for its length while redb has it.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<dyn StorageBackend>, Part);

impl StorageBackend for Shared {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()?;
        if self.1 == Part::Timers {
            reach(Point::AfterDatabaseSync);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)?;
        if self.1 == Part::Timers {
            reach(Point::InDatabaseWrite);
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.query_lock_range(start, end)
    }
}
