//! Checks the pages of the database without changing the file.
//!
//! redb stores a checksum of each page, but verifies the checksums only on request. If it finds a damaged page, it goes
//! back to the previous commit. So redb runs on an overlay here, which keeps all changes in memory. redb's check stops
//! at the first damaged page, so this page is the last that redb has read.

use super::backend::{Places, WatchedBackend};
use super::error::{converted, damaged_pages};
use super::opening::{WITHOUT_NAMESPACES, schema_of};
use super::tables::Reading;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::fault::Fault;
use crate::store::ledger::Ledger;
use crate::store::tables::Table;
use redb::{Database, ReadableDatabase, StorageBackend};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use tourbillon_words::UtcMillis;

/// The number of bytes of the database that redb keeps in memory during a verification.
const CACHE: usize = 16 * 1024 * 1024;

/// The text that a [`Fault`] of a damaged page has in place of a table's name.
const PAGES: &str = "pages";

/// A backend that reads a file but does not change it: the backend keeps in memory all bytes that redb writes.
#[derive(Clone, Debug)]
struct Overlay {
    file: WatchedBackend,
    state: Arc<Mutex<Changed>>,
}

#[derive(Debug, Default)]
struct Changed {
    len: u64,
    writes: BTreeMap<u64, Vec<u8>>,
    /// The offset and the length in bytes of the last read.
    last: (u64, usize),
}

impl Overlay {
    fn new(file: WatchedBackend) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self { file, state: Arc::new(Mutex::new(Changed { len, ..Changed::default() })) })
    }

    fn with<R>(&self, act: impl FnOnce(&mut Changed) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|changed| changed.len))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        if end > self.len()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The file may be shorter than the overlay.
        let there = self.file.len()?.clamp(offset, end) - offset;
        let (old, new) = out.split_at_mut(usize::try_from(there).unwrap_or(usize::MAX));
        new.fill(0);
        if !old.is_empty() {
            self.file.read(offset, old)?;
        }
        self.with(|changed| {
            changed.last = (offset, out.len());
            // A write that begins before the range may reach into it.
            for (start, bytes) in changed.writes.range(..end) {
                let bytes_end = start + bytes.len() as u64;
                if bytes_end <= offset {
                    continue;
                }
                for (at, byte) in (*start..).zip(bytes) {
                    if let Some(place) = at.checked_sub(offset).and_then(|at| usize::try_from(at).ok())
                        && let Some(out) = out.get_mut(place)
                    {
                        *out = *byte;
                    }
                }
            }
        });
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|changed| changed.len = len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|changed| {
            changed.len = changed.len.max(offset + data.len() as u64);
            let old = changed.writes.insert(offset, data.to_vec());
            // Pages are written whole. A shorter write at an offset keeps the rest of an earlier, longer write.
            if let (Some(old), Some(new)) = (old, changed.writes.get_mut(&offset))
                && old.len() > new.len()
            {
                new.extend_from_slice(&old[new.len()..]);
            }
        });
        Ok(())
    }
}

/// Checks the pages of the database. If a page is damaged, returns the first damaged page as a fault, followed by the
/// faults of the records. If no page is damaged, does not check the records, and returns no faults. In this case the
/// store can be opened, and [`TimerStore::check`](crate::store::TimerStore::check) then finds the faults of the
/// records.
pub(super) fn verify(places: &Places) -> Result<Vec<Fault>, StoreError> {
    // The lock is kept until the end, so that no store opens the files during the verification.
    let _operations = match places.missing_operations() {
        None => Some(places.operations()?),
        // Opening the missing journal would create an empty file, with which the store would start without the lost
        // operations.
        Some(_) => None,
    };
    let file = places.timers()?;
    if file.len()? == 0 {
        return Ok(Vec::new());
    }
    let overlay = Overlay::new(file.clone())?;
    let Err(error) = open(overlay.clone(), true).map(drop) else { return Ok(Vec::new()) };
    // These errors do not show damage.
    if matches!(error.kind(), StoreErrorKind::NewerSchema | StoreErrorKind::Locked) {
        return Err(error);
    }
    let (offset, length) = overlay.with(|changed| changed.last);
    let name = places.name();
    let text = format!(
        "the {length} bytes at offset {offset} of {name} are damaged, or name others that are: {error}"
    );
    let mut faults = vec![Fault::new(PAGES, None, text)];
    // The faults of the records name the damaged timers, as far as redb can read the pages. The first check may have
    // gone back to an earlier commit in its overlay, so the records are read through a new overlay.
    let records = open(Overlay::new(file)?, false).and_then(check);
    match records {
        Ok(records) => faults.extend(records),
        Err(error) => faults.push(Fault::new(PAGES, None, format!("the records cannot be read: {error}"))),
    }
    Ok(faults)
}

fn open(overlay: Overlay, checks: bool) -> Result<Database, StoreError> {
    let open = || {
        Database::builder()
            .set_cache_size(CACHE)
            .set_check_integrity_on_open(checks)
            .create_with_backend(overlay)
    };
    match catch_unwind(AssertUnwindSafe(open)) {
        Ok(opened) => opened.map_err(converted),
        Err(panic) => Err(damaged_pages(&*panic)),
    }
}

fn check(database: Database) -> Result<Vec<Fault>, StoreError> {
    // The closure owns the database, because redb may also panic when a damaged database is dropped.
    let check = move || {
        let tables = Reading::new(database.begin_read().map_err(converted)?);
        let lacking: &[Table] = match schema_of(&tables)? {
            Some(WITHOUT_NAMESPACES) => &[Table::Keyless, Table::Stopped],
            _ => &[],
        };
        Ledger::new(tables, UtcMillis::ZERO).check_without(lacking)
    };
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| Err(damaged_pages(&*panic)))
}
