//! Lets only one store at a time deliver the timers of a database.
//!
//! The store that delivers has a lock on the file `<database>-owner`, beside the database. The operating system
//! releases the lock when the process dies. A lock on the database itself would not work: SQLite loses its own locks
//! when a process closes another handle of the same file.

use crate::error::Result;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// Gives the file at `path` to the user that owns the database, because an administrator may have created the file.
/// Only an administrator can do this, so errors are ignored.
#[cfg(unix)]
fn give_to_owner_of(database: &Path, path: &Path) {
    use std::os::unix::fs::{MetadataExt as _, chown};
    if let (Ok(wanted), Ok(present)) = (std::fs::metadata(database), std::fs::metadata(path))
        && wanted.uid() != present.uid()
    {
        drop(chown(path, Some(wanted.uid()), Some(wanted.gid())));
    }
}

#[cfg(not(unix))]
fn give_to_owner_of(_: &Path, _: &Path) {}

/// Creates an empty file if the database does not exist. Only its owner can read the file, because payloads may be
/// secret. SQLite treats an empty file as a new database.
pub(crate) fn make_missing(database: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    options.create_new(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(database) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The lock of the store that delivers the timers of a database. Dropping this value releases the lock.
#[derive(Debug)]
pub(crate) struct Owner {
    _file: File,
}

fn path_beside(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-owner");
    path.into()
}

impl Owner {
    /// Takes the lock on the file beside a database. If another store has the lock and `waits` is true, waits for the
    /// lock. If `waits` is false, fails with [`StoreErrorKind::Locked`] instead.
    pub(crate) fn take(database: &Path, waits: bool) -> Result<Self> {
        let path = path_beside(database);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        give_to_owner_of(database, &path);
        if waits {
            file.lock()?;
            return Ok(Self { _file: file });
        }
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {
                let message = format!("another store delivers the timers of {}", database.display());
                Err(StoreError::new(StoreErrorKind::Locked, message))
            }
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}
