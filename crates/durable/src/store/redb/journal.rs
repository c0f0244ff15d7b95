//! The journal: a file with the operations that the database has only in memory.
//!
//! # Layout
//!
//! ```text
//! record: head (56 bytes) | body
//! head:   "tbj" (3) | version (1) | length of the body (4) | store (8) | generation (8) | sequence (8) | durable (8)
//!         | now (8) | checksum of the body (4) | checksum of the head up to here (4)
//! seal:   a head without a body, whose `durable` is its own sequence number
//! ```
//!
//! All numbers are little-endian. The body has the requests of a batch, each encoded by postcard and followed by the
//! digest of its outcome (4), a CRC-32 of the bytes that postcard writes for the outcome. The version covers the head,
//! the requests and the outcomes. A test fixes the bytes of all three, and a change of these bytes needs a new version.
//! All later versions keep the layout of the head.
//!
//! The file has the records since the last checkpoint, which commits the database to the disk, from offset 0 on. Once
//! the records are synced, a *seal* after the last record marks this. A copy of the seal follows 512 bytes later, so
//! the loss of a single sector cannot destroy both the last record and the seal. The next record overwrites the seal.
//! After the seals there may be parts of earlier records.
//!
//! # The states of a record
//!
//! A reader goes from record to record, from offset 0 on, while the records are whole, belong to one generation, and
//! have consecutive sequence numbers. The first record for which this fails is in one of these states:
//!
//! | the bytes in the record's place | the heads elsewhere in the file | state of the record | the opening |
//! |---|---|---|---|
//! | a seal, or a record of another generation | no head shows the record as synced | never written | ends the journal before the record |
//! | a part of the record | no head shows the record as synced | *torn*: the power was lost before the record was synced | ends the journal before the record |
//! | anything | a head shows the record as synced: its `durable` is at least the record's sequence number | *damaged*, or missing | fails |
//!
//! A disk may write the sectors of a torn tail in any order, so whole records can follow a torn record. Their heads
//! show how far the journal was synced when they were written. A head has its own checksum, so even a record with a
//! torn body shows this. The reader searches for heads at each byte after the last whole record, because the damage may
//! have changed a length. It trusts a length only if the checksum of its head is right.
//!
//! # What is not noticed
//!
//! Damage is noticed only if an undamaged head was written after the sync of the damaged record. There is no such head
//! for
//! - the records of the last sync, if a loss of power has destroyed their seal. The seal is not synced by itself: it
//!   reaches the disk with the next sync, or when the operating system writes it;
//! - the records of a sync during which other records were written. The other records take the place of the seal, and
//!   their heads do not show the sync yet. The records or the seal after the next sync show it;
//! - records that were not synced yet: those of the last 20 ms, and those of a sync that is under way;
//! - damage that extends from a record to the end of the file. The loss of the whole file is noticed, because the
//!   database shows whether the store was closed.
//!
//! # Invariants
//! J1. The `durable` of a head is the number of a batch. When the head was written, the disk had that batch and all
//!     earlier batches, in the database or in synced records. So the number stays correct forever, in every generation.
//! J2. A record's `durable` is below its sequence number.
//! J3. Each opening chooses a random generation, and a sequence number is reused only in another generation. So a whole
//!     record of a torn tail does not count as the successor of a record of a later opening.
//! J4. The first record of the file follows the last batch in the database's last durable commit, or an earlier batch.

use super::request::{DIGEST, Logged};
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::failpoints::{Point, reach};
use crate::timer::TimerId;
use redb::StorageBackend;
use tourbillon_words::UtcMillis;

/// The first bytes of a record's head. A search for heads looks for these bytes.
const MARK: [u8; 3] = *b"tbj";
/// The version of the journal's format. No release has written an earlier version.
pub(super) const VERSION: u8 = 6;
const HEAD: usize = 56;
/// The number of bytes from the start of a seal (a mark that the records before it are synced) to the end of its copy.
/// There are zeros between the seal and the copy. The copy begins 512 bytes after the start of the seal. So no sector
/// of the disk has bytes of both the last record and the copy.
const SEALS: usize = 512 + HEAD;
/// The number of bytes by which the journal's file grows at a time. The new bytes are zeros. So most syncs need not
/// store a new length of the file.
const GROWTH: usize = 256 * 1024;
/// The length of a sector of the disk, in bytes. Once the database is created, the journal's file grows by whole
/// sectors.
const SECTOR: u64 = 512;
/// The length, in bytes, above which a checkpoint truncates the journal's file.
const LONG: u64 = 8 * 1024 * 1024;

/// A note at the start of the journal's file, which says that the database is being created. These bytes differ from
/// the start of any record.
const MAKING: [u8; 16] = *b"\xff\xff\xff\xffmaking......";

/// Notes in the journal's file that the database is being created. The note stays until [`made`] removes it. If the
/// process dies before that, the database may be incomplete. The note then permits the next start of the store to
/// create the database again.
pub(super) fn making(file: &impl StorageBackend) -> Result<(), StoreError> {
    if file.len()? < MAKING.len() as u64 {
        file.set_len(MAKING.len() as u64)?;
    }
    file.write(0, &MAKING)?;
    Ok(file.sync_data()?)
}

/// Returns whether the journal's file has the note that the database is being created ([`making`]).
pub(super) fn is_making(file: &impl StorageBackend) -> Result<bool, StoreError> {
    let mut found = [0; MAKING.len()];
    if file.len()? >= MAKING.len() as u64 {
        file.read(0, &mut found)?;
    }
    Ok(found == MAKING)
}

/// Returns whether the journal's file has ever had records, that is, whether its first bytes are not all zero.
pub(super) fn is_used(file: &impl StorageBackend) -> Result<bool, StoreError> {
    let mut found = vec![0; usize::try_from(file.len()?).unwrap_or(0).min(HEAD)];
    file.read(0, &mut found)?;
    Ok(found.iter().any(|byte| *byte != 0))
}

/// Removes the note that the database is being created ([`making`]) from the journal's file. The caller uses this once
/// the database is complete.
pub(super) fn made(file: &impl StorageBackend) -> Result<(), StoreError> {
    file.write(0, &[0; MAKING.len()])?;
    Ok(file.sync_data()?)
}

/// The record of a batch, as read from the journal.
pub(super) struct Record {
    pub(super) sequence: u64,
    pub(super) now: UtcMillis,
    /// The requests of the batch, each with the digest of its outcome.
    pub(super) requests: Vec<(Logged<'static>, u32)>,
}

/// Keeps the records of the batches since the last checkpoint. All of these records are in memory. The first `written`
/// bytes of them were also written to the file.
pub(super) struct Journal<B> {
    file: B,
    store: u64,
    generation: u64,
    records: Vec<u8>,
    /// The number of the last record.
    last: u64,
    /// The number of the last batch that is on the disk. All earlier batches are on the disk, too.
    durable: u64,
    /// The length, in bytes, of the records in the file. `last_written` is the sequence number of the last record in
    /// the file.
    written: usize,
    last_written: u64,
    file_len: u64,
}

impl<B: StorageBackend> Journal<B> {
    /// Reads the journal of the store with the random number `store`. Keeps the records that follow batch `last`, the
    /// last batch in the database.
    ///
    /// Fails with [`StoreErrorKind::Corrupt`] if a record that was synced is damaged or missing.
    pub(super) fn open(file: B, store: u64, last: u64) -> Result<Self, StoreError> {
        let file_len = file.len()?;
        // In a new store, the note [`MAKING`] makes the file 16 bytes long. From there the file grows by whole sectors.
        if file_len % SECTOR != 0 && file_len % SECTOR != MAKING.len() as u64 {
            let message = format!(
                "the journal has {file_len} bytes, which is not a whole number of sectors: it was cut"
            );
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        let mut records = vec![0; usize::try_from(file_len).unwrap_or(0)];
        file.read(0, &mut records)?;
        let mut at = 0;
        let mut before: Option<Head> = None;
        // The records up to batch `last` are skipped.
        let mut begin = None;
        while let Some((head, next)) = whole(&records, at, store) {
            let follows = match &before {
                Some(before) => before.generation == head.generation && before.sequence + 1 == head.sequence,
                // The database must have all batches before the first record (J4).
                None => head.sequence <= last + 1,
            };
            if !follows {
                break;
            }
            if head.sequence > last {
                // The database already has the earlier records. They are not decoded, so their version does not matter.
                head.admit_version()?;
                begin = begin.or(Some(at));
            }
            (at, before) = (next, Some(head));
        }
        // All records may be older than the last batch in the database.
        let reached = before.map_or(last, |head| head.sequence.max(last));
        notice_damage(&records, at, store, reached)?;
        records.truncate(at);
        records.drain(..begin.unwrap_or(at));
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the random half")]
        let generation = TimerId::fresh().as_u128() as u64;
        // The next records overwrite the file from offset 0 on, after the database has the records that were read.
        let written = 0;
        let (durable, last_written) = (last, last);
        Ok(Self { file, store, generation, records, last: reached, durable, written, last_written, file_len })
    }

    /// Returns the number of bytes of all records.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the length of the journal's file, in bytes.
    pub(super) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Returns the records of the journal that follow batch `last`.
    pub(super) fn records(&self, last: u64) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        let mut at = 0;
        while let Some((head, next)) = whole(&self.records, at, self.store) {
            if head.sequence > last {
                let requests = requests(&self.records[at + HEAD..next])?;
                records.push(Record { sequence: head.sequence, now: head.now, requests });
            }
            at = next;
        }
        Ok(records)
    }

    /// Adds the record of a batch, in memory only.
    pub(super) fn append(&mut self, sequence: u64, now: UtcMillis, body: &[u8]) {
        let (generation, durable) = (self.generation, self.durable);
        let head = Head { version: VERSION, generation, sequence, durable, now };
        self.records.extend_from_slice(&head.bytes(self.store, body));
        self.records.extend_from_slice(body);
        self.last = sequence;
    }

    /// Removes the last record, which begins at the offset `len`. The caller ensures that the record is not in the
    /// file.
    pub(super) fn retract(&mut self, len: usize) {
        self.records.truncate(len);
        self.last = self.last.saturating_sub(1);
    }

    /// Makes the file long enough for all records, and for the seal (a mark that the records are synced) and its copy
    /// after the last record.
    pub(super) fn reserve(&mut self) -> Result<(), StoreError> {
        let end = (self.records.len() + SEALS) as u64;
        while end > self.file_len {
            let file_len = self.file_len + GROWTH as u64;
            self.file.set_len(file_len)?;
            // A new length alone gives the file no room on the disk. Each later sync would then also have to store
            // where the written blocks are.
            self.file.write(self.file_len, &vec![0; GROWTH])?;
            self.file_len = file_len;
        }
        Ok(())
    }

    /// Writes all records to the file, so that the operating system has them. The caller must have called
    /// [`reserve`](Self::reserve).
    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        if self.written < self.records.len() {
            reach(Point::BeforeJournalWrite);
            self.file.write(self.written as u64, &self.records[self.written..])?;
            reach(Point::AfterJournalWrite);
            (self.written, self.last_written) = (self.records.len(), self.last);
        }
        Ok(())
    }

    /// Returns a clone of the file, so that another thread can sync the written records.
    pub(super) fn file(&self) -> B
    where
        B: Clone,
    {
        self.file.clone()
    }

    /// Returns the number of the last record in the journal's file.
    pub(super) fn last_written(&self) -> u64 {
        self.last_written
    }

    /// Returns whether batch `sequence` is on the disk.
    pub(super) fn has_synced(&self, sequence: u64) -> bool {
        self.durable >= sequence
    }

    /// Notes that the disk has the records up to number `last`. If the file has no later records, writes a seal, which
    /// marks the records as synced.
    pub(super) fn synced(&mut self, last: u64) {
        self.durable = self.durable.max(last);
        reach(Point::AfterJournalSync);
        // A later record takes the place of the seal.
        if self.last_written == last {
            self.seal();
        }
    }

    /// Makes the next write begin with the first record again. The caller uses this after a failed sync, because the
    /// disk may lack bytes that the operating system counts as synced.
    pub(super) fn distrust(&mut self) {
        self.written = 0;
    }

    /// Writes a seal and its copy after the records. A seal marks the records before it as synced. The next opening of
    /// the journal reads this mark.
    fn seal(&self) {
        let (generation, sequence, durable) = (self.generation, self.durable, self.durable);
        let seal = Head { version: VERSION, generation, sequence, durable, now: UtcMillis::ZERO };
        let seal = seal.bytes(self.store, &[]);
        let mut seals = [0; SEALS];
        seals[..HEAD].copy_from_slice(&seal);
        seals[SEALS - HEAD..].copy_from_slice(&seal);
        // The records are durable without the seal, so an error of its write is ignored.
        drop(self.file.write(self.written as u64, &seals));
    }

    /// Forgets all records, because the database on the disk has all batches up to `durable`.
    pub(super) fn clear(&mut self, durable: u64) {
        self.records.clear();
        self.written = 0;
        (self.last, self.last_written, self.durable) = (durable, durable, durable);
        // A file that stays long only wastes room, so an error is ignored.
        if self.file_len > LONG && self.file.set_len(GROWTH as u64).is_ok() {
            self.file_len = GROWTH as u64;
        }
    }
}

/// The numbers in the head of a record (the bytes before the record's body). The module's documentation shows their
/// layout.
struct Head {
    version: u8,
    generation: u64,
    sequence: u64,
    durable: u64,
    now: UtcMillis,
}

impl Head {
    fn bytes(&self, store: u64, body: &[u8]) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..3].copy_from_slice(&MARK);
        head[3] = self.version;
        // If a body is too long for this number, a reader considers the record damaged.
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        head[4..8].copy_from_slice(&length.to_le_bytes());
        let numbers = [store, self.generation, self.sequence, self.durable, self.now.as_millis()];
        for (place, number) in head[8..48].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        head[48..52].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        let checksum = crc32fast::hash(&head[..52]);
        head[52..].copy_from_slice(&checksum.to_le_bytes());
        head
    }

    /// Decodes the head at the offset `at`. Returns the head, and the length and the checksum of the record's body.
    /// `None` if the head is damaged or belongs to another store.
    fn read(bytes: &[u8], at: usize, store: u64) -> Option<(Self, u32, u32)> {
        let head = bytes.get(at..)?.first_chunk::<HEAD>()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let number = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let is_ours =
            head.starts_with(&MARK) && word(52) == crc32fast::hash(&head[..52]) && number(8) == store;
        let (version, now) = (head[3], UtcMillis::from_millis(number(40)));
        let (generation, sequence, durable) = (number(16), number(24), number(32));
        is_ours.then_some((Self { version, generation, sequence, durable, now }, word(4), word(48)))
    }

    fn is_seal(&self) -> bool {
        self.durable == self.sequence
    }

    fn admit_version(&self) -> Result<(), StoreError> {
        if self.version == VERSION {
            return Ok(());
        }
        if self.version < VERSION {
            let message = format!(
                "operations in a journal of version {}, and {VERSION} is read here: open and close the store with the \
                 version that wrote it",
                self.version
            );
            return Err(StoreError::new(StoreErrorKind::OlderSchema, message));
        }
        let message = format!(
            "the journal has version {}, and the latest version that this program knows is {VERSION}",
            self.version
        );
        Err(StoreError::new(StoreErrorKind::NewerSchema, message))
    }
}

/// Returns the head of the record at the offset `at`, and the offset of the record's end. `None` if there is no whole
/// record of this store.
fn whole(bytes: &[u8], at: usize, store: u64) -> Option<(Head, usize)> {
    let (head, length, checksum) = Head::read(bytes, at, store)?;
    let body = at + HEAD;
    let end = body.checked_add(usize::try_from(length).ok()?)?;
    let is_whole = !head.is_seal() && crc32fast::hash(bytes.get(body..end)?) == checksum;
    is_whole.then_some((head, end))
}

/// Fails if the record that should follow batch `reached` was synced, but is damaged or missing now. Batch `reached` is
/// the last batch that was found in the journal or the database, and `at` is the offset at which the next record would
/// begin. The heads of records at or after this offset show whether the next record was synced: each head contains the
/// number of the last batch that the disk had when the head was written. If such a number is greater than `reached`,
/// the function fails. The function also fails if the file has no heads of this store and does not begin with zeros.
fn notice_damage(bytes: &[u8], at: usize, store: u64, reached: u64) -> Result<(), StoreError> {
    let (mut durable, mut next, mut has_heads) = (0, None, at > 0);
    for place in at..bytes.len() {
        if bytes[place] != MARK[0] {
            continue;
        }
        let Some((head, ..)) = Head::read(bytes, place, store) else { continue };
        has_heads = true;
        durable = durable.max(head.durable);
        if next.is_none() && head.sequence > reached && whole(bytes, place, store).is_some() {
            next = Some((head.sequence, place));
        }
    }
    let damaged = reached + 1;
    let message = if durable >= damaged {
        let next = next.map_or_else(
            || "no record after it is whole".to_owned(),
            |(next, place)| format!("record {next} at offset {place} is whole"),
        );
        format!(
            "record {damaged} at offset {at} of the journal is damaged or missing, the disk had the records up to \
             {durable}, and {next}"
        )
    } else if !has_heads && bytes.first_chunk::<4>().is_some_and(|first| *first != [0; 4]) {
        "the journal begins with no record of this store: it is damaged, another store's, or an earlier version's"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::new(StoreErrorKind::Corrupt, message))
}

/// Returns the error for a store that cannot be opened, because an acknowledged request in its journal cannot be
/// repeated. The request is number `nth` of its batch, counted from 0.
pub(super) fn unrepeatable(sequence: u64, nth: usize, name: &str, reason: &str) -> StoreError {
    let message = format!(
        "request {} ({name}) of batch {sequence} in the journal cannot be repeated: it {reason}. Nothing was changed. The \
         program that wrote the journal may be able to repeat it. To go on without the operations since the last \
         checkpoint, make an empty file in the place of the journal",
        nth + 1
    );
    StoreError::new(StoreErrorKind::Corrupt, message)
}

fn requests(mut body: &[u8]) -> Result<Vec<(Logged<'static>, u32)>, StoreError> {
    let unread = |error: &str| {
        StoreError::new(StoreErrorKind::Corrupt, format!("an operation cannot be read: {error}"))
    };
    let mut requests = Vec::new();
    while !body.is_empty() {
        let (request, rest) = postcard::take_from_bytes(body).map_err(|error| unread(&error.to_string()))?;
        let (digest, rest) = rest.split_first_chunk::<DIGEST>().ok_or_else(|| unread("it has no digest"))?;
        requests.push((request, u32::from_le_bytes(*digest)));
        body = rest;
    }
    Ok(requests)
}
