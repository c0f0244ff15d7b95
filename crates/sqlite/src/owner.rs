//! Lets one store at a time deliver the timers of a database.
//!
//! The lock is on a file beside the database, `<database>-owner`. A lock on the database itself would not do: SQLite
//! loses its own locks when a process closes another handle of the same file. The system gives the lock up when the
//! process dies.

use crate::error::Result;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The lock of the store that delivers the timers of a database. The lock ends with the value.
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
    /// Takes the lock beside a database. If another store has the lock, waits for it, or fails with
    /// [`StoreErrorKind::Locked`].
    pub(crate) fn take(database: &Path, waits: bool) -> Result<Self> {
        let path = path_beside(database);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
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
