//! Checks the pages of the database without changing the file.
//!
//! redb stores a checksum of each page, but verifies the checksums only on request. If it finds a damaged page, it goes
//! back to the previous commit. So redb runs on an overlay here, which keeps all changes in memory. redb's check stops
//! at the first damaged page, so the last page that redb has read is the damaged page.

use super::backend::{Places, WatchedBackend};
use super::error::{converted, damaged_pages};
use super::opening::has_schema;
use super::tables::Reading;
use crate::panics::survive_or;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::fault::Fault;
use crate::store::ledger::Ledger;
use redb::{Database, ReadableDatabase, StorageBackend};
use std::collections::BTreeMap;
use std::io;
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
    /// The number of bytes at the start of the file that the overlay still shows. If redb truncates the overlay and
    /// then extends it, the added bytes are zeros.
    shown: u64,
    /// The written bytes by offset. The ranges do not overlap.
    writes: BTreeMap<u64, Vec<u8>>,
    /// The offset and the length in bytes of the last read.
    last: (u64, usize),
}

impl Changed {
    /// Stores written bytes in place of earlier writes in the same range. Earlier writes may overlap only a part of the
    /// range: redb uses the room of a large page again for small pages, and the other way round.
    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.len = self.len.max(end);
        self.remove(offset, end);
        // An empty write would take the place of the rest of an earlier write.
        if !data.is_empty() {
            self.writes.insert(offset, data.to_vec());
        }
    }

    fn set_len(&mut self, len: u64) {
        self.remove(len, u64::MAX);
        (self.len, self.shown) = (len, self.shown.min(len));
    }

    /// Removes the written bytes from `start` to `end`. Keeps the other bytes of a write that is partly in the range.
    fn remove(&mut self, start: u64, end: u64) {
        while let Some((&first, bytes)) = self.writes.range_mut(..end).next_back()
            && first + bytes.len() as u64 > start
        {
            let after = bytes.split_off(bytes.len().min(distance(first, end)));
            bytes.truncate(distance(first, start));
            if bytes.is_empty() {
                self.writes.remove(&first);
            }
            if !after.is_empty() {
                self.writes.insert(end, after);
            }
        }
    }
}

/// Returns the number of bytes from `start` to `end`, or zero if `end` is not later.
fn distance(start: u64, end: u64) -> usize {
    usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX)
}

impl Overlay {
    fn new(file: WatchedBackend) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self { file, state: Arc::new(Mutex::new(Changed { len, shown: len, ..Changed::default() })) })
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
        // The overlay may be longer than the bytes of the file that it shows.
        let there = self.with(|changed| changed.shown).clamp(offset, end) - offset;
        let (old, new) = out.split_at_mut(usize::try_from(there).unwrap_or(usize::MAX));
        new.fill(0);
        if !old.is_empty() {
            self.file.read(offset, old)?;
        }
        self.with(|changed| {
            changed.last = (offset, out.len());
            // A write that begins before the range may reach into it. No two writes overlap.
            for (start, bytes) in changed.writes.range(..end).rev() {
                if start + bytes.len() as u64 <= offset {
                    break;
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
        self.with(|changed| changed.set_len(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|changed| changed.write(offset, data));
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
    survive_or(open, damaged_pages)?.map_err(converted)
}

fn check(database: Database) -> Result<Vec<Fault>, StoreError> {
    // The closure owns the database, because redb may also panic when a damaged database is dropped.
    let check = move || {
        let tables = Reading::new(database.begin_read().map_err(converted)?);
        has_schema(&tables)?;
        Ledger::new(tables, UtcMillis::ZERO).check()
    };
    survive_or(check, damaged_pages).unwrap_or_else(Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;

    /// Makes an overlay over a file whose bytes are all 9.
    fn overlay(len: usize) -> Overlay {
        let places = Places::made(Arc::new(move |_| {
            let file = InMemoryBackend::new();
            file.set_len(len as u64)?;
            file.write(0, &vec![9; len])?;
            Ok(Box::new(file))
        }));
        Overlay::new(places.timers().unwrap()).unwrap()
    }

    fn bytes(overlay: &Overlay) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(overlay.len().unwrap()).unwrap()];
        overlay.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_later_write_to_the_overlay_hides_an_earlier_one_at_any_offset() {
        let overlay = overlay(8);
        overlay.write(4, &[1, 1]).unwrap();
        overlay.write(2, &[2, 2, 2, 2]).unwrap();
        assert_eq!(bytes(&overlay), [9, 9, 2, 2, 2, 2, 9, 9]);
        overlay.write(3, &[3]).unwrap();
        overlay.write(5, &[4, 4, 4, 4, 4]).unwrap();
        assert_eq!(bytes(&overlay), [9, 9, 2, 3, 2, 4, 4, 4, 4, 4]);
        overlay.write(2, &[5, 5]).unwrap();
        assert_eq!(bytes(&overlay), [9, 9, 5, 5, 2, 4, 4, 4, 4, 4]);
    }

    #[test]
    fn bytes_that_were_cut_off_the_overlay_are_zeros_afterwards() {
        let overlay = overlay(4);
        overlay.write(2, &[1, 1, 1, 1]).unwrap();
        overlay.set_len(3).unwrap();
        overlay.set_len(6).unwrap();
        assert_eq!(bytes(&overlay), [9, 9, 1, 0, 0, 0]);
        overlay.set_len(1).unwrap();
        overlay.set_len(3).unwrap();
        assert_eq!(bytes(&overlay), [9, 0, 0]);
    }
}
