//! The operations that the database has only in memory.
//!
//! ```text
//! record: length of the body (4 bytes) | checksum of the rest (4) | version (1) | store (8) | sequence (8) | now (8) | body
//! ```
//! All numbers are little-endian. The body is the batch's requests, after postcard. The file has the records since the
//! database's last durable commit, from offset 0 on; behind them it has what earlier records left. A reader stops at the
//! first record that is not whole, is another store's, or does not have the next sequence number.

use super::request::Logged;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::utc::UtcMillis;
use redb::StorageBackend;

const VERSION: u8 = 1;
const HEAD: usize = 4 + 4 + 1 + 8 + 8 + 8;
/// The file grows by so much, with zeros: a sync of bytes that the file has already waits for nothing else.
const GROWTH: usize = 256 * 1024;
/// A longer file is cut after a durable commit.
const LONG: u64 = 8 * 1024 * 1024;

/// The bytes at the start of the file while the database is made: they are no record.
const MAKING: [u8; 16] = *b"\xff\xff\xff\xffmaking......";

/// Notes that the database is being made. It holds nothing that counts until [`made`] is called.
pub(super) fn making(file: &impl StorageBackend) -> Result<(), StoreError> {
    if file.len()? < MAKING.len() as u64 {
        file.set_len(MAKING.len() as u64)?;
    }
    file.write(0, &MAKING)?;
    Ok(file.sync_data()?)
}

/// Whether a database was being made and that did not end.
pub(super) fn is_making(file: &impl StorageBackend) -> Result<bool, StoreError> {
    let mut found = [0; MAKING.len()];
    if file.len()? >= MAKING.len() as u64 {
        file.read(0, &mut found)?;
    }
    Ok(found == MAKING)
}

/// Notes that the database is whole.
pub(super) fn made(file: &impl StorageBackend) -> Result<(), StoreError> {
    file.write(0, &[0; MAKING.len()])?;
    Ok(file.sync_data()?)
}

/// A batch of requests that changed the store.
pub(super) struct Record {
    pub(super) sequence: u64,
    pub(super) now: UtcMillis,
    pub(super) requests: Vec<Logged>,
}

/// The records since the last durable commit: all of them in memory, and the first ones in a file.
pub(super) struct Journal<B> {
    file: B,
    store: u64,
    records: Vec<u8>,
    /// The length of the records that the file has.
    written: usize,
    /// Whether the disk has the records that were written.
    is_synced: bool,
    file_len: u64,
}

impl<B: StorageBackend> Journal<B> {
    /// Reads the journal of a store. Its records are those that follow the batch `last`.
    pub(super) fn open(file: B, store: u64, last: u64) -> Result<Self, StoreError> {
        let file_len = file.len()?;
        let mut records = vec![0; usize::try_from(file_len).unwrap_or(0)];
        file.read(0, &mut records)?;
        let mut at = 0;
        let mut expected = last + 1;
        // The records up to the last durable commit are skipped.
        let mut begin = None;
        while let Some((sequence, next)) = whole(&records, at, store) {
            if sequence == expected {
                begin = begin.or(Some(at));
                expected += 1;
            } else if sequence > last || begin.is_some() {
                break;
            }
            at = next;
        }
        let begin = begin.unwrap_or(at);
        records.truncate(at);
        records.drain(..begin);
        // They are written again, from offset 0 on, if the store goes on with them.
        Ok(Self { file, store, records, written: 0, is_synced: true, file_len })
    }

    /// The length of the records since the last durable commit.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The length of the file.
    pub(super) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The records since the last durable commit that follow the batch `last`.
    pub(super) fn records(&self, last: u64) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        let mut at = 0;
        while let Some((sequence, next)) = whole(&self.records, at, self.store) {
            if sequence > last {
                let record = &self.records[at..next];
                if record[8] > VERSION {
                    let message = format!("operations of version {}", record[8]);
                    return Err(StoreError::new(StoreErrorKind::NewerSchema, message));
                }
                let now = UtcMillis::from_millis(number(record, 25));
                records.push(Record { sequence, now, requests: requests(&record[HEAD..])? });
            }
            at = next;
        }
        Ok(records)
    }

    /// Notes a batch, in memory.
    pub(super) fn append(&mut self, sequence: u64, now: UtcMillis, body: &[u8]) {
        let start = self.records.len();
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        self.records.extend_from_slice(&length.to_le_bytes());
        self.records.extend_from_slice(&[0; 4]);
        self.records.push(VERSION);
        self.records.extend_from_slice(&self.store.to_le_bytes());
        self.records.extend_from_slice(&sequence.to_le_bytes());
        self.records.extend_from_slice(&now.as_millis().to_le_bytes());
        self.records.extend_from_slice(body);
        let checksum = checksum(&self.records[start..]);
        self.records[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Takes the last record back, which began at this length. It has not been written.
    pub(super) fn retract(&mut self, len: usize) {
        self.records.truncate(len);
    }

    /// Makes room in the file for all records.
    pub(super) fn reserve(&mut self) -> Result<(), StoreError> {
        let end = self.records.len() as u64;
        while end > self.file_len {
            let file_len = self.file_len + GROWTH as u64;
            self.file.set_len(file_len)?;
            self.file.write(self.file_len, &vec![0; GROWTH])?;
            self.file_len = file_len;
        }
        Ok(())
    }

    /// Writes all records to the file, which has room for them. They are with the operating system then.
    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        if self.written < self.records.len() {
            self.file.write(self.written as u64, &self.records[self.written..])?;
            self.written = self.records.len();
            self.is_synced = false;
        }
        Ok(())
    }

    /// Waits until the disk has all records that were written.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        if !self.is_synced {
            // After a sync that failed, the system may take bytes for synced that are not: all are written again.
            let written = core::mem::take(&mut self.written);
            self.file.sync_data()?;
            (self.written, self.is_synced) = (written, true);
        }
        Ok(())
    }

    /// Forgets all records: the database has them.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.written = 0;
        self.is_synced = true;
        if self.file_len > LONG && self.file.set_len(GROWTH as u64).is_ok() {
            self.file_len = GROWTH as u64;
        }
    }
}

fn number(record: &[u8], at: usize) -> u64 {
    record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn checksum(record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&record[..4]);
    hasher.update(&record[8..]);
    hasher.finalize()
}

/// The sequence number of the record at `at`, if it is whole and this store's, and the place after it.
fn whole(records: &[u8], at: usize, store: u64) -> Option<(u64, usize)> {
    let rest = records.get(at..)?;
    let length: [u8; 4] = rest.get(..4)?.try_into().ok()?;
    let length = HEAD.checked_add(usize::try_from(u32::from_le_bytes(length)).ok()?)?;
    let record = rest.get(..length)?;
    let stored: [u8; 4] = record[4..8].try_into().ok()?;
    let is_ours = u32::from_le_bytes(stored) == checksum(record) && number(record, 9) == store;
    is_ours.then(|| (number(record, 17), at + length))
}

fn requests(mut body: &[u8]) -> Result<Vec<Logged>, StoreError> {
    let mut requests = Vec::new();
    while !body.is_empty() {
        let (request, rest) = postcard::take_from_bytes(body).map_err(|error| {
            StoreError::new(StoreErrorKind::Corrupt, format!("an operation cannot be read: {error}"))
        })?;
        requests.push(request);
        body = rest;
    }
    Ok(requests)
}
