//! Gives access to the bytes of a store, in two files or in a test's replacements of the files.
//!
//! # A sync that fails
//!
//! After a failed sync, the operating system may consider bytes synced that are not on the disk. Readers see these
//! bytes, and a later sync succeeds without writing them. So no bytes that were written since the last successful sync
//! can be trusted. Before the database is opened again, these bytes are written again and synced ([`Places::settle`]).
//! Until this has succeeded, the database is not read. The journal writes all its records again by itself.

use super::error::converted;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::failpoints::{Point, reach};
use crate::store::place::path_of_file;
use core::ops::Bound;
use core::{fmt, mem};
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A part of a store's bytes. Each part has its own file, or its own replacement in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The database with the timers.
    Timers,
    /// The journal, with the operations that are not yet in the database's file.
    Operations,
}

/// The greatest number of bytes that are written again in one call after a failed sync.
const WRITTEN_AT_ONCE: usize = 1 << 20;

pub(super) type Make = dyn Fn(Part) -> io::Result<Box<dyn StorageBackend>> + Send + Sync;

/// Opens the database and the journal of a store. Also keeps the byte ranges of the database that must be written again
/// if a sync fails ([`Unsynced`]). All clones share these ranges.
#[derive(Clone)]
pub(super) struct Places {
    way: Way,
    /// The ranges of the database that were written after the last successful sync.
    unsynced: Arc<Mutex<Unsynced>>,
}

#[derive(Clone)]
enum Way {
    Files { path: PathBuf, without_locks: bool },
    Made(Arc<Make>),
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Files { path, .. } => f.debug_tuple("Files").field(path).finish(),
            Way::Made(_) => f.write_str("Made"),
        }
    }
}

impl Places {
    /// Gives access to a store in files, with the database at `path`. From here on, the database has a single path,
    /// which also determines the path of the journal ([`path_of_file`]).
    pub(super) fn files(path: &Path, without_locks: bool) -> Result<Self, StoreError> {
        let path = path_of_file(path)?;
        Ok(Self { way: Way::Files { path, without_locks }, unsynced: Arc::default() })
    }

    /// Gives access to a store whose files a test replaces. `make` returns the replacement of each file.
    pub(super) fn made(make: Arc<Make>) -> Self {
        Self { way: Way::Made(make), unsynced: Arc::default() }
    }

    /// Returns the path of the database's file. `None` if a test replaces the files.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match &self.way {
            Way::Files { path, .. } => Some(path.clone()),
            Way::Made(_) => None,
        }
    }

    /// If the last sync of the database has failed, writes the unsynced bytes again and syncs them.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        if lock(&self.unsynced).is_in_doubt {
            let place = self.timers()?;
            // The ranges are copied, because each write below takes the lock to note its range again.
            let ranges = lock(&self.unsynced).ranges(place.len()?);
            for (start, end) in ranges {
                write_again(&place, start, end)?;
            }
            place.sync_data()?;
        }
        Ok(())
    }

    /// Opens the database's file, or its replacement.
    pub(super) fn timers(&self) -> Result<WatchedBackend, StoreError> {
        let bytes: Arc<dyn StorageBackend> = match &self.way {
            Way::Files { path, .. } => Arc::new(FileBackend::new(open(path)?).map_err(converted)?),
            Way::Made(make) => make(Part::Timers)?.into(),
        };
        Ok(WatchedBackend { bytes, part: Part::Timers, unsynced: Some(Arc::clone(&self.unsynced)) })
    }

    /// Opens the journal's file, or its replacement. The file is locked against other stores while it is open.
    pub(super) fn operations(&self) -> Result<WatchedBackend, StoreError> {
        let bytes: Arc<dyn StorageBackend> = match &self.way {
            Way::Files { path, without_locks } => {
                let beside = beside(path);
                let file = open(&beside)?;
                admit(path, file.try_lock(), *without_locks)?;
                // An earlier process may have made the files, and died before it synced the names of the files.
                sync_folder(path)?;
                Arc::new(FileBackend::new(file).map_err(converted)?)
            }
            Way::Made(make) => make(Part::Operations)?.into(),
        };
        Ok(WatchedBackend { bytes, part: Part::Operations, unsynced: None })
    }

    /// Returns the number of bytes that the files take on the disk. `None` on a system other than Unix, or if a test
    /// replaces the files. The files can be longer than this number: redb doubles the length of its file in advance,
    /// and on most file systems the added length takes no room until redb uses it.
    pub(super) fn taken(&self) -> Option<io::Result<u64>> {
        #[cfg(unix)]
        if let Way::Files { path, .. } = &self.way {
            use std::os::unix::fs::MetadataExt;
            // `blocks` counts units of 512 bytes, whatever the size of the file system's own blocks.
            let taken = |path: &Path| Ok(std::fs::metadata(path)?.blocks() * 512);
            return Some(taken(path).and_then(|timers| Ok(timers + taken(&beside(path))?)));
        }
        None
    }

    /// Returns the name of the database's file, for a message to the user.
    pub(super) fn name(&self) -> String {
        match &self.way {
            Way::Files { path, .. } => path.display().to_string(),
            Way::Made(_) => "the database".to_owned(),
        }
    }

    /// Returns the path of the journal's file if the file is missing. `None` if it exists, or if a test replaces the
    /// files.
    pub(super) fn missing_operations(&self) -> Option<PathBuf> {
        match &self.way {
            Way::Files { path, .. } => Some(beside(path)).filter(|path| !path.exists()),
            Way::Made(_) => None,
        }
    }

    /// Removes the journal file after the store has failed to open.
    pub(super) fn remove_operations(&self) {
        if let Way::Files { path, .. } = &self.way {
            // If the removal fails, an empty file stays.
            drop(std::fs::remove_file(beside(path)));
        }
    }
}

/// Fails unless the store at `path` may be opened. `locked` is the result of the attempt to lock the journal's file.
/// The store may be opened if the attempt has succeeded. If the file system has no locks, the store may be opened only
/// if `without_locks` is true.
fn admit(path: &Path, locked: Result<(), TryLockError>, without_locks: bool) -> Result<(), StoreError> {
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let message = format!("{} is in use", path.display());
            Err(StoreError::new(StoreErrorKind::Locked, message))
        }
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            let message = format!(
                "the file system of {} has no locks, so another process could open the store as well, and each would \
                 lose timers of the other. Use another folder, or permit a store without locks in the settings",
                path.display()
            );
            if without_locks { Ok(()) } else { Err(StoreError::new(StoreErrorKind::Locked, message)) }
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// The suffix that makes the name of the journal's file from the name of the database's file.
pub(super) const OPERATIONS: &str = ".ops";

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(OPERATIONS);
    beside.into()
}

/// Opens or creates a file of the store. Only the owner of a new file has access to it, because payloads may contain
/// secrets.
fn open(path: &Path) -> io::Result<File> {
    let was_there = path.exists();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    // The name of a new file is on the disk only once its folder is synced.
    if !was_there {
        sync_folder(path)?;
    }
    Ok(file)
}

/// Syncs the folder of a file, so that the file's directory entry is on the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        // `File::open` cannot open a folder on Windows.
        Some(folder) if cfg!(unix) => {
            // The folder of a bare file name is the empty path, which cannot be opened.
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder)?.sync_all()
        }
        _ => Ok(()),
    }
}

/// The byte ranges of a file that were written after the last successful sync. After a failed sync, the bytes in these
/// ranges are written again, because they may be missing on the disk.
#[derive(Debug, Default)]
struct Unsynced {
    /// The ranges, as a map from start to end, in bytes. They neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
    /// Whether the last sync of the file has failed.
    is_in_doubt: bool,
}

impl Unsynced {
    /// Adds an unsynced range, and merges it with ranges that overlap or touch it.
    fn add(&mut self, mut start: u64, mut end: u64) {
        // The stored ranges do not overlap. If the last range up to `end` does not reach `start`, no earlier range
        // does.
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back()
            && last >= start
        {
            self.ranges.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.ranges.insert(start, end);
    }

    /// Returns the unsynced ranges of a file of `len` bytes, cut off at the end of the file.
    fn ranges(&self, len: u64) -> Vec<(u64, u64)> {
        let within = self.ranges.iter().map(|(start, end)| (*start, (*end).min(len)));
        within.filter(|(start, end)| start < end).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the bytes of a file from `start` to `end`, and writes the same bytes again.
fn write_again(file: &WatchedBackend, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let mut bytes =
            vec![0; usize::try_from(end - at).map_or(WRITTEN_AT_ONCE, |left| left.min(WRITTEN_AT_ONCE))];
        file.read(at, &mut bytes)?;
        file.write(at, &bytes)?;
        at += bytes.len() as u64;
    }
    Ok(())
}

/// Access to the bytes of the database or the journal, for redb and the store. Notes which byte ranges of the database
/// were written since the last successful sync, because these must be written again if the next sync fails.
#[derive(Clone, Debug)]
pub(super) struct WatchedBackend {
    bytes: Arc<dyn StorageBackend>,
    part: Part,
    /// The byte ranges of the database that were written since the last successful sync. `None` for the journal, which
    /// needs no ranges: after a failed sync, it writes all its records again.
    unsynced: Option<Arc<Mutex<Unsynced>>>,
}

impl StorageBackend for WatchedBackend {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if let Some(unsynced) = &self.unsynced
            && len > 0
        {
            // If the last byte is written again after a failed sync, the file gets this length again.
            lock(unsynced).add(len - 1, len);
        }
        self.bytes.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let Some(unsynced) = &self.unsynced else { return self.bytes.sync_data() };
        // The sync might not cover writes that begin from here on.
        let before = mem::take(&mut lock(unsynced).ranges);
        let synced = self.bytes.sync_data();
        let mut unsynced = lock(unsynced);
        match &synced {
            // This success ends the doubt. After a failed sync, redb makes no other sync until the database is opened
            // again, and [`Places::settle`] writes all ranges again before that opening.
            Ok(()) => unsynced.is_in_doubt = false,
            Err(_) => {
                unsynced.is_in_doubt = true;
                before.into_iter().for_each(|(start, end)| unsynced.add(start, end));
            }
        }
        drop(unsynced);
        synced?;
        if self.part == Part::Timers {
            reach(Point::AfterDatabaseSync);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(unsynced) = &self.unsynced {
            // The range is added before the write, since a failed write may have changed a part of the range.
            lock(unsynced).add(offset, offset.saturating_add(data.len() as u64));
        }
        self.bytes.write(offset, data)?;
        if self.part == Part::Timers {
            reach(Point::InDatabaseWrite);
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.bytes.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.bytes.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.bytes.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.bytes.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.bytes.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.bytes.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.bytes.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_locks_is_refused_unless_it_is_permitted() {
        let path = Path::new("timers.redb");
        let unsupported = || Err(TryLockError::Error(io::ErrorKind::Unsupported.into()));
        let error = admit(path, unsupported(), false).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Locked);
        assert!(error.to_string().contains("has no locks"), "{error}");
        admit(path, unsupported(), true).unwrap();
        for is_permitted in [false, true] {
            admit(path, Ok(()), is_permitted).unwrap();
            let error = admit(path, Err(TryLockError::WouldBlock), is_permitted).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Locked);
        }
    }

    #[test]
    fn ranges_that_were_not_synced_are_joined_where_they_touch() {
        let mut unsynced = Unsynced::default();
        for (start, end) in [(10, 20), (40, 50), (30, 35), (20, 30), (60, 61), (0, 5), (12, 13)] {
            unsynced.add(start, end);
        }
        assert_eq!(unsynced.ranges(100), [(0, 5), (10, 35), (40, 50), (60, 61)]);
        assert_eq!(unsynced.ranges(45), [(0, 5), (10, 35), (40, 45)]);
        unsynced.add(0, 200);
        assert_eq!(unsynced.ranges(100), [(0, 100)]);
    }
}
