//! Watches the free bytes of the file system, and whether the store's files are still in their places.
//!
//! A store in files on a full disk can neither claim timers, nor end deliveries, nor cancel timers, because each change
//! is written before it is answered. So two amounts of bytes are reserved for these changes:
//!
//! - the *mark*: while fewer bytes are free, the store refuses new timers;
//! - the *reserve*: a file next to the database, half as large as the mark, in case other programs fill the disk
//!   completely. It is removed when almost no bytes are free, or when a change fails because the disk is full. It is
//!   created again once there is room for it.
//!
//! On a small file system the mark is reduced to an eighth of the file system's size, but not below 24 MiB: a
//! checkpoint writes as many bytes as the journal has, and half of the mark must be enough for that. The mark is never
//! more than half of the file system. Quotas and limits of file sizes are noticed only when a change fails.

use super::error::{StoreError, StoreErrorKind};
use super::{IfPresent, Op};
use core::time::Duration;
use std::fs::Metadata;
#[cfg(target_os = "linux")]
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The time for which the last reading of the file system (its free bytes, and the presence of the store's files) is
/// used again.
const LOOK: Duration = Duration::from_millis(5);
/// The pause between attempts to create the reserve, a file whose bytes are freed when the disk is full.
const AGAIN: Duration = Duration::from_secs(10);
/// The divisor that limits the mark (the number of free bytes below which the store refuses new timers). On a file
/// system of `size` bytes, the mark is at most `size / PART`. If `size / PART` is below [`LEAST`], the limit is `LEAST`
/// instead. The mark never exceeds `size / 2`.
const PART: u64 = 8;
const LEAST: u64 = 24 << 20;

/// Decides whether the disk has room for the changes of a store in files, and notices that a file with such changes was
/// removed or replaced. For authors of stores.
///
/// A store asks for a [`refusal`](Self::refusal) before operations, for a [`reason`](Self::reason) before an import,
/// and for an [`absence`](Self::absence) before a claim. It calls [`release`](Self::release) when a change has failed
/// because the disk is full.
#[derive(Debug)]
pub struct Room {
    /// The path of the database's file. `None` for a store without files, which has no limit.
    path: Option<PathBuf>,
    /// The suffix that makes the path of the reserve, a file of reserved bytes, from the path of the database's file.
    suffix: &'static str,
    /// The mark that the user has set: while fewer bytes are free, the store refuses new timers. Zero means no limit.
    mark: u64,
    state: Mutex<RoomState>,
}

#[derive(Debug, Default)]
struct RoomState {
    looked: Option<Instant>,
    /// Set while fewer bytes are free than the mark (the number below which the store refuses new timers). The values
    /// are the number of free bytes, and the mark.
    low: Option<(u64, u64)>,
    tried: Option<Instant>,
    /// The files that have the store's changes, each with its metadata when it was opened. Empty before the opening.
    files: Vec<(PathBuf, Metadata)>,
    /// The file that is no longer in its place. `None` if all files are in their places.
    gone: Option<PathBuf>,
}

impl Room {
    /// Watches the file system of the database's file at `path`. `None` means a store without files, which refuses no
    /// operations. While fewer than `mark` bytes are free, the store refuses new timers. Zero means no limit. On a
    /// small file system, [`kept_free`](Self::kept_free) reduces the number. The reserve, a file whose bytes are freed
    /// when the disk is full, has the path `path` with `suffix` at its end.
    #[must_use]
    pub fn new(path: Option<PathBuf>, suffix: &'static str, mark: u64) -> Self {
        let room = Self { path, suffix, mark, state: Mutex::default() };
        // The first look makes the reserve before the first request comes.
        drop(room.look());
        room
    }

    /// Returns the number of bytes that a store leaves free on a file system of `size` bytes, if the user has asked for
    /// `wanted` bytes. On a small file system, the number is smaller.
    ///
    /// ```
    /// use tourbillon_durable::store::Room;
    ///
    /// let wanted = 64 << 20;
    /// assert_eq!(Room::kept_free(wanted, 1 << 40), wanted);
    /// assert_eq!(Room::kept_free(wanted, 256 << 20), 32 << 20, "an eighth of a small file system");
    /// ```
    #[must_use]
    pub fn kept_free(wanted: u64, size: u64) -> u64 {
        wanted.min((size / PART).max(LEAST).min(size / 2))
    }

    /// Stores the metadata of the files that the store has just opened: the database's file, and the files whose paths
    /// are its path with one of the suffixes in `beside`. All files that have acknowledged changes must be among these
    /// files. Later checks compare the metadata to detect that a file was removed or replaced.
    pub fn note_opened(&self, beside: &[&str]) {
        let Some(path) = &self.path else { return };
        let paths = [""].iter().chain(beside).map(|end| with_end(path, end));
        let files = paths.filter_map(|path| std::fs::metadata(&path).ok().map(|file| (path, file))).collect();
        let mut state = self.lock();
        (state.files, state.looked, state.gone) = (files, None, None);
    }

    /// Returns the error with which the store refuses the operations. `None` if the store accepts them.
    #[must_use]
    pub fn refusal(&self, ops: &[Op]) -> Option<StoreError> {
        let state = self.look();
        gone(&state).or_else(|| has_new(ops).then(|| low(&state)).flatten())
    }

    /// Returns the error with which the store refuses all changes if one of its files was removed or replaced. `None`
    /// if all files are in their places.
    #[must_use]
    pub fn absence(&self) -> Option<StoreError> {
        gone(&self.look())
    }

    /// Returns the error with which the store refuses new timers, because the disk is nearly full or a file was removed
    /// or replaced. `None` if the store accepts new timers.
    #[must_use]
    pub fn reason(&self) -> Option<StoreError> {
        let state = self.look();
        gone(&state).or_else(|| low(&state))
    }

    /// Removes the reserve (a file that the store keeps for a full disk) to free its bytes. Returns whether the reserve
    /// existed.
    pub fn release(&self) -> bool {
        let mut state = self.lock();
        // The freed bytes are for the changes that failed. So the next call reads the free bytes anew, and the reserve
        // is made again after `AGAIN` at the earliest.
        (state.looked, state.tried) = (None, Some(Instant::now()));
        let reserve = self.path.as_deref().filter(|_| self.mark > 0).map(|path| with_end(path, self.suffix));
        reserve.is_some_and(|reserve| std::fs::remove_file(reserve).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state and returns it. If the last look is longer than [`LOOK`] ago, first reads the number of free
    /// bytes again, and checks that the store's files are still in their places.
    fn look(&self) -> MutexGuard<'_, RoomState> {
        let mut state = self.lock();
        let Some(path) = &self.path else { return state };
        let now = Instant::now();
        if state.looked.is_some_and(|looked| now - looked < LOOK) {
            return state;
        }
        state.looked = Some(now);
        let gone = state.files.iter().find(|(path, file)| !is_same(path, file));
        state.gone = gone.map(|(path, _)| path.clone());
        if self.mark > 0
            && let Some((free, all)) = free(path)
        {
            self.judge(&mut state, path, free, all, now);
        }
        state
    }

    fn judge(&self, state: &mut RoomState, path: &Path, mut free: u64, all: u64, now: Instant) {
        let mark = Self::kept_free(self.mark, all);
        let kept = mark / 2;
        let reserve = with_end(path, self.suffix);
        if free < kept / 4 && std::fs::remove_file(&reserve).is_ok() {
            state.tried = Some(now);
            free += kept;
        }
        state.low = (free < mark).then_some((free, mark));
        // The new reserve takes `kept` bytes. The rest must exceed the mark by a quarter, because the reserve itself
        // must not make the store refuse new timers.
        let has_room = free >= mark + kept + mark / 4;
        if has_room && state.tried.is_none_or(|tried| now - tried >= AGAIN) {
            state.tried = Some(now);
            if !reserve.exists() && make(&reserve, kept).is_err() {
                // On a file system that cannot reserve bytes, only the mark keeps bytes free.
                drop(std::fs::remove_file(&reserve));
            }
        }
    }
}

/// Returns the path of a file beside the database: the path of the database with the suffix `end`.
fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

fn gone(state: &RoomState) -> Option<StoreError> {
    let path = state.gone.as_ref()?;
    let message = format!(
        "{} was removed or replaced while the store has it open: further changes would be lost. Put the file back; if \
         it is another file, start the process again",
        path.display()
    );
    Some(StoreError::new(StoreErrorKind::Io, message))
}

fn low(state: &RoomState) -> Option<StoreError> {
    let (free, mark) = state.low?;
    let message = format!(
        "{} KiB are free, less than the {} KiB below which nothing new is stored; deliveries, cancellations and moves \
         go on",
        free / 1024,
        mark / 1024
    );
    Some(StoreError::new(StoreErrorKind::Full, message))
}

/// Returns whether the operations store a new timer. The occurrences of a schedule do not count as new. A request that
/// stores an occurrence is recognised because it also replaces the schedule's own timer ([`IfPresent::ReplaceOnly`]).
fn has_new(ops: &[Op]) -> bool {
    let follows = |op: &Op| matches!(op, Op::Place(_, IfPresent::ReplaceOnly(_)));
    ops.iter().any(|op| matches!(op, Op::Place(..))) && !ops.iter().any(follows)
}

/// Creates a file for which `len` bytes are reserved on the file system.
#[cfg(target_os = "linux")]
fn make(path: &Path, len: u64) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn make(_path: &Path, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the number of free bytes, and the size in bytes, of the file system that contains `path`.
#[cfg(target_os = "linux")]
fn free(path: &Path) -> Option<(u64, u64)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = rustix::fs::statvfs(folder).ok()?;
    // `f_bavail` leaves out the blocks that only the root user may fill.
    Some((found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize)))
}

#[cfg(not(target_os = "linux"))]
fn free(_path: &Path) -> Option<(u64, u64)> {
    None
}

#[cfg(unix)]
fn is_same(path: &Path, file: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata(path) {
        Ok(found) => (found.dev(), found.ino()) == (file.dev(), file.ino()),
        // Other errors, for example a missing permission, do not show that the file is gone.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(not(unix))]
fn is_same(path: &Path, _file: &Metadata) -> bool {
    path.exists()
}
