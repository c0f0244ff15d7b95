//! Keeps bytes of the disk free for changes that do not store new timers.
//!
//! On a full disk, SQLite can neither claim a timer nor end a delivery, because each change is written to the log
//! first. So two amounts are kept free, as the store in a file of `tourbillon-durable` does:
//!
//! - the *mark*: while fewer bytes than this are free, no new timer is stored;
//! - the *reserve*: a file beside the database, half as long as the mark. It is removed when other programs have filled
//!   the disk, and recreated once there is room for it.

use core::time::Duration;
use std::fs::Metadata;
#[cfg(target_os = "linux")]
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
#[cfg(target_os = "linux")]
use tourbillon_durable::store::RedbBuilder;
use tourbillon_durable::store::{IfPresent, Op, StoreError, StoreErrorKind};

/// The time for which the last check of the file system is valid.
const LOOK: Duration = Duration::from_millis(5);
/// The pause between attempts to create the reserve (a file that keeps bytes of the disk free).
const AGAIN: Duration = Duration::from_secs(10);

/// Decides whether the disk has room for new timers, and whether the database's file was removed or replaced.
#[derive(Debug)]
pub(crate) struct Room {
    path: PathBuf,
    /// The number of bytes that the user wants to keep free, or zero for no limit.
    wanted: u64,
    /// The metadata of the database's file when it was opened.
    file: Option<Metadata>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    looked: Option<Instant>,
    tried: Option<Instant>,
    refusal: Option<StoreError>,
}

impl Room {
    pub(crate) fn new(path: &Path, wanted: u64) -> Self {
        let file = std::fs::metadata(path).ok();
        let room = Self { path: path.to_owned(), wanted, file, state: Mutex::default() };
        let _first_look = room.reason();
        room
    }

    fn reserve(&self) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push("-reserve");
        path.into()
    }

    /// Returns the error with which the store refuses the operations, or `None` if it accepts them.
    pub(crate) fn refusal(&self, ops: &[Op]) -> Option<StoreError> {
        self.reason().filter(|error| error.kind() != StoreErrorKind::Full || has_new(ops))
    }

    /// Returns the error with which the store refuses new timers, or `None` if it accepts them. With the kind
    /// [`StoreErrorKind::Full`], the disk has no room for new timers. With any other kind, the database's file was
    /// removed or replaced, and the store refuses all operations.
    pub(crate) fn reason(&self) -> Option<StoreError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.looked.is_none_or(|looked| now - looked >= LOOK) {
            state.looked = Some(now);
            state.refusal = if self.is_gone() {
                let message = format!(
                    "{} was removed or replaced while the store has it open: further changes would be lost. Start \
                     the process again once the file is in its place",
                    self.path.display()
                );
                Some(StoreError::new(StoreErrorKind::Io, message))
            } else {
                self.judge(&mut state, now)
            };
        }
        state.refusal.clone()
    }

    /// Removes the reserve (a file beside the database), so that other changes can use its bytes. The store calls this
    /// method when a change finds no room on the disk.
    pub(crate) fn release(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.looked, state.tried) = (None, Some(Instant::now()));
        if self.wanted > 0 {
            drop(std::fs::remove_file(self.reserve()));
        }
    }

    #[cfg(unix)]
    fn is_gone(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let Some(then) = &self.file else { return false };
        match std::fs::metadata(&self.path) {
            Ok(now) => (now.dev(), now.ino()) != (then.dev(), then.ino()),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    #[cfg(not(unix))]
    fn is_gone(&self) -> bool {
        false
    }

    #[cfg(target_os = "linux")]
    fn judge(&self, state: &mut State, now: Instant) -> Option<StoreError> {
        let found = (self.wanted > 0).then(|| rustix::fs::statvfs(&self.path).ok()).flatten()?;
        let (mut free, size) = (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize);
        let mark = RedbBuilder::kept_free(self.wanted, size);
        let reserve = self.reserve();
        if free < mark / 8 && std::fs::remove_file(&reserve).is_ok() {
            state.tried = Some(now);
            free += mark / 2;
        }
        let has_room = free >= mark + mark / 2 + mark / 4;
        if has_room && state.tried.is_none_or(|tried| now - tried >= AGAIN) {
            state.tried = Some(now);
            if !reserve.exists() && make(&reserve, mark / 2).is_err() {
                // On a file system that cannot reserve bytes, only the mark keeps bytes free.
                drop(std::fs::remove_file(&reserve));
            }
        }
        (free < mark).then(|| {
            let message =
                format!("{free} bytes are free on the disk, and {mark} stay free for other changes");
            StoreError::new(StoreErrorKind::Full, message)
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn judge(&self, _: &mut State, _: Instant) -> Option<StoreError> {
        None
    }
}

/// Returns whether the operations of a request store new timers, which the store refuses on a full disk. The
/// occurrences of a schedule do not count as new timers, so they are not refused. A request that stores an occurrence
/// also replaces the schedule's own timer ([`IfPresent::ReplaceOnly`]). The function recognizes such a request by the
/// replacement.
fn has_new(ops: &[Op]) -> bool {
    let follows = |op: &Op| matches!(op, Op::Place(_, IfPresent::ReplaceOnly(_)));
    ops.iter().any(|op| matches!(op, Op::Place(..))) && !ops.iter().any(follows)
}

#[cfg(target_os = "linux")]
fn make(reserve: &Path, bytes: u64) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(reserve)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}
