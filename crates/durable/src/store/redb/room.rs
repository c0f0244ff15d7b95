//! Watches the free bytes of the file system, and whether the store's files are still in their places.
//!
//! A store that has filled its disk can neither claim timers nor end deliveries nor cancel: each change is written
//! before it is answered. So two amounts of bytes are kept back for these changes:
//!
//! - the *mark*: while fewer bytes than this are free, no new timer is stored;
//! - the *reserve*: a file beside the database, half as long as the mark. It helps if other programs fill the disk to
//!   the last byte. It is removed when almost nothing is free, or when a change fails for want of room. It is made
//!   again once there is room for it.
//!
//! On a small file system the mark is reduced to an eighth of its size, but not below 24 MiB. A checkpoint writes as
//! many bytes as the journal has, and half the mark must suffice for that. The mark is never more than half of the file
//! system. Quotas and limits of file sizes are not seen in advance. They show when a change fails.

use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::{IfPresent, Op};
use core::time::Duration;
use std::fs::Metadata;
#[cfg(target_os = "linux")]
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The time for which the last reading of the file system's free bytes counts.
const LOOK: Duration = Duration::from_millis(5);
/// The time for which a check counts that the database's file is still in its place.
const IN_PLACE: Duration = Duration::from_millis(500);
/// The pause between attempts to make the reserve, a file that keeps bytes of the disk.
const AGAIN: Duration = Duration::from_secs(10);
/// The divisor for the mark, the number of bytes to keep free, on a small file system. The mark is at most the size of
/// the file system divided by this number. But the mark is at least [`LEAST`].
const PART: u64 = 8;
const LEAST: u64 = 24 << 20;

/// Decides whether the disk has room for the changes of a store.
#[derive(Debug)]
pub(super) struct Room {
    /// The path of the database's file. `None` for a store without files.
    path: Option<PathBuf>,
    /// The number of bytes that the user wants to keep free (the mark). Zero sets no limit.
    mark: u64,
    state: Mutex<RoomState>,
}

#[derive(Debug, Default)]
struct RoomState {
    looked: Option<Instant>,
    /// The number of free bytes, and the mark (the number of bytes to keep free). `None` while the number of free bytes
    /// is at least the mark.
    low: Option<(u64, u64)>,
    tried: Option<Instant>,
    /// The metadata of the database's file from the last opening. `None` before the first opening.
    file: Option<Metadata>,
    seen: Option<Instant>,
    is_gone: bool,
}

impl Room {
    pub(super) fn new(path: Option<PathBuf>, mark: u64) -> Self {
        let room = Self { path, mark, state: Mutex::default() };
        drop(room.look());
        room
    }

    /// Notes the metadata of the database's file, which the store has just opened.
    pub(super) fn is_opened(&self) {
        let mut state = self.lock();
        state.file = self.path.as_ref().and_then(|path| std::fs::metadata(path).ok());
        (state.seen, state.is_gone) = (None, false);
    }

    /// Returns the reason for which the store refuses the operations. `None` if the store permits the operations.
    pub(super) fn refusal(&self, ops: &[Op]) -> Option<StoreError> {
        let state = self.look();
        self.gone(&state).or_else(|| has_new(ops).then(|| low(&state)).flatten())
    }

    /// Returns the reason for which the store refuses every change: the database's file is gone. `None` if the file is
    /// still there.
    pub(super) fn absence(&self) -> Option<StoreError> {
        self.gone(&self.look())
    }

    /// Returns the reason for which the store refuses new timers. `None` if the store permits new timers.
    pub(super) fn reason(&self) -> Option<StoreError> {
        let state = self.look();
        self.gone(&state).or_else(|| low(&state))
    }

    /// Removes the reserve, a file beside the database, to free its bytes. Returns whether the reserve existed.
    pub(super) fn release(&self) -> bool {
        let mut state = self.lock();
        (state.looked, state.tried) = (None, Some(Instant::now()));
        self.path.as_deref().is_some_and(|path| self.mark > 0 && std::fs::remove_file(reserve(path)).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the state of the file system, unless the last reading still counts.
    fn look(&self) -> MutexGuard<'_, RoomState> {
        let mut state = self.lock();
        let Some(path) = &self.path else { return state };
        let now = Instant::now();
        if state.looked.is_some_and(|looked| now - looked < LOOK) {
            return state;
        }
        state.looked = Some(now);
        if state.seen.is_none_or(|seen| now - seen >= IN_PLACE) {
            state.seen = Some(now);
            state.is_gone = state.file.as_ref().is_some_and(|file| !is_same(path, file));
        }
        if self.mark > 0
            && let Some((free, all)) = free(path)
        {
            self.judge(&mut state, path, free, all, now);
        }
        state
    }

    fn judge(&self, state: &mut RoomState, path: &Path, mut free: u64, all: u64, now: Instant) {
        let mark = mark(self.mark, all);
        let kept = mark / 2;
        let reserve = reserve(path);
        if free < kept / 4 && std::fs::remove_file(&reserve).is_ok() {
            state.tried = Some(now);
            free += kept;
        }
        state.low = (free < mark).then_some((free, mark));
        let has_room = free >= mark + kept + mark / 4;
        if has_room && state.tried.is_none_or(|tried| now - tried >= AGAIN) {
            state.tried = Some(now);
            if !reserve.exists() && make(&reserve, kept).is_err() {
                // On a file system that cannot reserve bytes, only the mark keeps bytes free.
                drop(std::fs::remove_file(&reserve));
            }
        }
    }

    fn gone(&self, state: &RoomState) -> Option<StoreError> {
        let path = self.path.as_ref().filter(|_| state.is_gone)?;
        let message = format!(
            "{} was removed or replaced while the store has it open: what is stored now would be lost. Start the \
             process again once the file is in its place",
            path.display()
        );
        Some(StoreError::new(StoreErrorKind::Io, message))
    }
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

/// Returns whether the operations store a new timer that does not follow from stored timers. The occurrences of a
/// schedule follow from the schedule's timer. Such occurrences come in one batch with an operation that replaces the
/// schedule's timer.
fn has_new(ops: &[Op]) -> bool {
    let follows = |op: &Op| matches!(op, Op::Place(_, IfPresent::ReplaceOnly(_)));
    ops.iter().any(|op| matches!(op, Op::Place(..))) && !ops.iter().any(follows)
}

/// Returns the mark, the number of bytes to keep free, on a file system of `all` bytes. `wanted` is the user's number.
pub(super) fn mark(wanted: u64, all: u64) -> u64 {
    wanted.min((all / PART).max(LEAST).min(all / 2))
}

fn reserve(path: &Path) -> PathBuf {
    let mut reserve = path.as_os_str().to_owned();
    reserve.push(".reserve");
    reserve.into()
}

/// Makes a file, and reserves `len` bytes for the file on the file system.
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

/// Returns the number of free bytes and the number of all bytes of the file system that has the file `path`.
#[cfg(target_os = "linux")]
fn free(path: &Path) -> Option<(u64, u64)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = rustix::fs::statvfs(folder).ok()?;
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
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(not(unix))]
fn is_same(path: &Path, _file: &Metadata) -> bool {
    path.exists()
}
