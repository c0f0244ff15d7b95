//! Opens or creates the database, and checks its version and its stored numbers. If the creation of a database was
//! interrupted, creates it again.

use super::backend::{Places, WatchedBackend};
use super::error::converted;
use super::journal;
use super::tables::{Reading, Writing};
use crate::panics::survive;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::failpoints::{Point, reach};
use crate::store::ledger::Ledger;
use crate::store::tables::{Table, Tables};
use redb::{Database, ReadableDatabase, StorageBackend};
use std::path::Path;
use tourbillon_words::UtcMillis;

/// The version of the tables and records that this crate writes.
pub(super) const SCHEMA: u64 = 5;
const SCHEMA_NAME: &[u8] = b"schema";
/// The key in [`Table::Meta`] under which the database has the store's random number. A journal recognizes its database
/// by this number.
const STORE_NAME: &[u8] = b"store";
/// The key in [`Table::Meta`] under which the database has the number of the last batch that it contains. A batch is
/// one transaction for several requests, and the store numbers its batches in their order.
pub(super) const SEQUENCE_NAME: &[u8] = b"sequence";
/// The key in [`Table::Meta`] under which a store notes the number of its last batch when it is closed. If the number
/// under [`SEQUENCE_NAME`] is the same, the store has run no batch since then. So the database contains all changes,
/// and the next opening does not need the journal's file.
pub(super) const CLOSED_NAME: &[u8] = b"closed";

/// The length, in bytes, of the signature at the start of a redb file.
const FIRST_BYTES: usize = 9;

/// Makes the error for two files that do not belong together: the journal's file says that a database is being created,
/// but the database belongs to another store, which was not closed.
fn beside_a_note(path: Option<&Path>) -> StoreError {
    let message = format!(
        "{0}.ops is from the creation of a store, and {0} is another store, which was not closed. To go on without the \
         operations since its last checkpoint, make an empty file in place of {0}.ops",
        path.unwrap_or(Path::new("timers")).display()
    );
    StoreError::new(StoreErrorKind::Corrupt, message)
}

/// Makes the error for a journal whose database is missing.
fn without_database(path: Option<&Path>) -> StoreError {
    let path = path.unwrap_or(Path::new("timers"));
    let message = format!(
        "{0} is missing or empty, and {0}.ops beside it is the journal of a store: the timers were in the missing file. \
         To begin with an empty store, remove {0}.ops as well",
        path.display()
    );
    StoreError::new(StoreErrorKind::Corrupt, message)
}

pub(super) fn without_journal(path: &Path) -> StoreError {
    let message = format!(
        "{} is missing, the file with the operations since the last checkpoint: the store was not closed. To go on \
         without these operations, make an empty file in its place",
        path.display()
    );
    StoreError::new(StoreErrorKind::Corrupt, message)
}

fn checksum(name: &[u8], number: [u8; 8]) -> [u8; 4] {
    crc32fast::hash(&[name, &number].concat()).to_le_bytes()
}

/// Returns the value under which a number is stored in [`Table::Meta`]: the number, and a checksum of its name and
/// value. Without the checksum, a damaged batch number could make an opening skip batches of the journal.
pub(super) fn number_value(name: &[u8], number: u64) -> Vec<u8> {
    let number = number.to_be_bytes();
    [&number[..], &checksum(name, number)].concat()
}

fn number_of(tables: &Reading, name: &[u8]) -> Result<Option<u64>, StoreError> {
    let Some(bytes) = tables.get(Table::Meta, name)? else { return Ok(None) };
    match bytes.split_first_chunk::<8>() {
        Some((number, sum)) if *sum == checksum(name, *number) => Ok(Some(u64::from_be_bytes(*number))),
        _ => {
            let message = format!("the number {:?} of the store is damaged", String::from_utf8_lossy(name));
            Err(StoreError::new(StoreErrorKind::Corrupt, message))
        }
    }
}

/// Opens the database of a store, with the same settings each time.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) places: Places,
    pub(super) cache: usize,
}

/// An open database, with the values that it stores about itself.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) place: WatchedBackend,
    /// The random number of the store, by which a journal recognizes its database.
    pub(super) store: u64,
    /// The number of the last batch (transaction for several requests) that the database contains.
    pub(super) sequence: u64,
    /// Whether the database has a note that the store was closed after the last batch. With this note, the database
    /// contains all changes, and the opening does not need the journal's file. A store that has crashed leaves no such
    /// note.
    pub(super) is_closed: bool,
    /// Whether this opening has created the database.
    pub(super) is_new: bool,
}

impl Opener {
    fn builder(&self) -> redb::Builder {
        let mut builder = Database::builder();
        builder.set_cache_size(self.cache);
        builder
    }

    /// Opens or creates the database. redb creates a database in several steps, and a crash between them leaves a file
    /// that is not a database. So the journal's file has a note while the database is being created. If an opening
    /// finds the note beside an unfinished database, it creates the database again. A complete database beside the note
    /// is kept: it may have been put there after the failed creation, for example as a copy of a store.
    pub(super) fn open_or_make(&self, operations: &WatchedBackend) -> Result<Opened, StoreError> {
        let is_new = self.places.timers()?.len()? == 0;
        let was_making = journal::is_making(operations)?;
        if is_new && !was_making && journal::is_used(operations)? {
            return Err(without_database(self.places.path().as_deref()));
        }
        if is_new || was_making {
            // The note is written again even if the file has it, since its sync may have failed.
            journal::making(operations)?;
            reach(Point::MakingNoted);
        }
        let opened = match self.open() {
            Err(error)
                if was_making && error.kind() == StoreErrorKind::Corrupt && self.is_unfinished()? =>
            {
                // The note is removed before the store accepts its first change, so the truncated file has no timers.
                self.places.timers()?.set_len(0)?;
                self.open()?
            }
            opened => opened?,
        };
        if was_making && opened.sequence > 0 && !opened.is_closed {
            return Err(beside_a_note(self.places.path().as_deref()));
        }
        // The removal of the note may not have reached the disk. Without a note on the disk, a store that has changes
        // is never taken for another store.
        let may_have_note = opened.sequence == 0 && !journal::is_used(operations)?;
        if is_new || was_making || may_have_note {
            reach(Point::DatabaseMade);
            journal::made(operations)?;
        }
        Ok(opened)
    }

    /// Returns whether the database file is unfinished, because its creation was interrupted. redb writes the first
    /// bytes of a new file last, so in an unfinished file they are still zero.
    fn is_unfinished(&self) -> Result<bool, StoreError> {
        let (place, mut first) = (self.places.timers()?, [0; FIRST_BYTES]);
        if place.len()? >= FIRST_BYTES as u64 {
            place.read(0, &mut first)?;
        }
        Ok(first == [0; FIRST_BYTES])
    }

    pub(super) fn open(&self) -> Result<Opened, StoreError> {
        // If the last sync has failed, the file must not be read before its unsynced bytes are written again.
        self.places.settle()?;
        self.refuse_other_schema()?;
        let place = self.places.timers()?;
        // redb may panic on a file that another program has changed.
        let database = survive(|| self.builder().create_with_backend(place.clone()))
            .ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "the database cannot be read"))?
            .map_err(converted)?;
        let Numbers { store, sequence, is_closed, is_new } = numbers(&database)?;
        Ok(Opened { database, place, store, sequence, is_closed, is_new })
    }

    /// Fails if the version of the schema is unknown, before anything is written to the file. Does not check a database
    /// that redb must repair first.
    fn refuse_other_schema(&self) -> Result<(), StoreError> {
        let place = self.places.timers()?;
        if place.len()? == 0 {
            return Ok(());
        }
        let opened = survive(|| self.builder().open_read_only_with_backend(place));
        match opened {
            Some(Ok(database)) => {
                let tables = Reading::new(database.begin_read().map_err(converted)?);
                has_schema(&tables).map(drop)
            }
            // redb does not repair a file that it opens only for reading, and may panic on damaged pages. The opening
            // that follows repairs the file and checks the version, or reports the damage.
            Some(Err(redb::DatabaseError::RepairAborted)) | None => Ok(()),
            Some(Err(error)) => Err(converted(error)),
        }
    }
}

/// Returns whether a database has a version of the schema. A database that is being created has none. Fails if this
/// crate cannot read the version. A damaged version is nearly always an unknown version, so the version needs no
/// checksum.
pub(super) fn has_schema(tables: &Reading) -> Result<bool, StoreError> {
    let Some(bytes) = tables.get(Table::Meta, SCHEMA_NAME)? else { return Ok(false) };
    // A version of the wrong length is damaged. It counts as version 0, which is refused.
    let schema = bytes.try_into().map_or(0, u64::from_be_bytes);
    if schema == SCHEMA {
        return Ok(true);
    }
    let (kind, message) = if schema > SCHEMA {
        let message = format!(
            "the schema has version {schema}, and the latest version that this program knows is {SCHEMA}"
        );
        (StoreErrorKind::NewerSchema, message)
    } else {
        // No release of this crate has written so old a version.
        let message = format!(
            "version {schema} of the schema is not read any more, {SCHEMA} is: write a backup with the version that made \
             the store, and restore it"
        );
        (StoreErrorKind::OlderSchema, message)
    };
    Err(StoreError::new(kind, message))
}

/// Returns the number of unreadable records that the store has set aside.
pub(super) fn set_aside(opened: &Opened) -> Result<u64, StoreError> {
    let tables = Reading::new(opened.database.begin_read().map_err(converted)?);
    Ok(Ledger::new(tables, UtcMillis::ZERO).counts()?.quarantined)
}

/// Removes all unreadable records that were set aside, and returns their number. The caller must have scrubbed and
/// closed the store before. Fails if another process has used the store since then. The function recognizes this
/// because the note that the store was closed is no longer valid ([`Opened::is_closed`]).
pub(super) fn forget_set_aside(opened: &Opened) -> Result<u64, StoreError> {
    if !opened.is_closed {
        return Err(StoreError::new(
            StoreErrorKind::Locked,
            "another process has opened the store after the scrub",
        ));
    }
    let mut transaction = opened.database.begin_write().map_err(converted)?;
    transaction.set_quick_repair(true);
    let forgotten = Ledger::new(Writing::new(&transaction), UtcMillis::ZERO).forget_set_aside()?;
    // The number of the last batch does not change, so the note that the store was closed stays valid.
    transaction.commit().map_err(converted)?;
    Ok(forgotten)
}

/// The values that a database stores about itself. [`Opened`] describes the fields.
struct Numbers {
    store: u64,
    sequence: u64,
    is_closed: bool,
    is_new: bool,
}

/// Reads the values that a database stores about itself, such as the number of its last batch. If the database is new,
/// creates its tables and these values.
fn numbers(database: &Database) -> Result<Numbers, StoreError> {
    let tables = Reading::new(database.begin_read().map_err(converted)?);
    let has_schema = has_schema(&tables)?;
    let store = number_of(&tables, STORE_NAME)?;
    let sequence = number_of(&tables, SEQUENCE_NAME)?;
    if let (true, Some(store), Some(sequence)) = (has_schema, store, sequence) {
        let is_closed = number_of(&tables, CLOSED_NAME)? == Some(sequence);
        return Ok(Numbers { store, sequence, is_closed, is_new: false });
    }
    // A new database has no tables, and neither has a database whose creation was interrupted.
    if tables.has_tables()? {
        return Err(StoreError::new(StoreErrorKind::Corrupt, "the database is not a store of timers"));
    }
    drop(tables);
    let mut transaction = database.begin_write().map_err(converted)?;
    transaction.set_quick_repair(true);
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the random half")]
    let store = crate::timer::TimerId::fresh().as_u128() as u64;
    let mut tables = Writing::new(&transaction);
    tables.open_all()?;
    tables.put(Table::Meta, SCHEMA_NAME, &SCHEMA.to_be_bytes())?;
    for (name, value) in [(STORE_NAME, store), (SEQUENCE_NAME, 0)] {
        tables.put(Table::Meta, name, &number_value(name, value))?;
    }
    drop(tables);
    transaction.commit().map_err(converted)?;
    Ok(Numbers { store, sequence: 0, is_closed: false, is_new: true })
}
