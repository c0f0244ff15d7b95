//! The thread that commits: batches, syncs, and the way back from an error.

use super::backend::{Places, Shared};
use super::error::converted;
use super::journal::{self, Journal};
use super::queue::{Receiver, Waited};
use super::request::{Pending, Request};
use super::stats::StoreStats;
use super::tables::{Reading, Writing};
use crate::store::Durability;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::failpoints::{Point, reach};
use crate::store::ledger::Ledger;
use crate::store::memory::Wakers;
use crate::store::tables::{Table, Tables};
use crate::utc::UtcMillis;
use core::time::Duration;
use redb::{Database, ReadableDatabase, StorageBackend, WriteTransaction};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;
use tourbillon::Clock;

/// The version of the tables and records that this crate writes.
pub(super) const SCHEMA: u64 = 3;
/// The version without the numbers of timers by hour.
const WITHOUT_HOURS: u64 = 2;
const SCHEMA_NAME: &[u8] = b"schema";
/// The number by which a journal knows its database.
const STORE_NAME: &[u8] = b"store";
/// The number of the last batch that the database has.
const SEQUENCE_NAME: &[u8] = b"sequence";
/// The number of the last batch when the store was closed: if it is still the last one, the journal has nothing to add.
const CLOSED_NAME: &[u8] = b"closed";

/// The time after which a change that nobody waits for is durable.
const LATE: Duration = Duration::from_millis(20);
/// The most operations of one batch, unless one request has more.
const MOST_OPERATIONS: usize = 10_000;
/// The time after which the database itself is made durable, and the length of the journal at which that is done
/// sooner. A restart makes the operations of the journal again, some 40,000 a second.
const CHECKPOINT: Duration = Duration::from_secs(10);
const LONGEST_JOURNAL: usize = 4 * 1024 * 1024;
/// The time after which a checkpoint that failed is tried again.
const CHECKPOINT_AGAIN: Duration = Duration::from_secs(1);
/// The time that a batch waits for callers of the last batch to come back.
const GATHERING: Duration = Duration::from_micros(200);
/// Leases that are ended in one transaction at the start.
const ENDED_AT_ONCE: u32 = 10_000;
/// The first and the longest pause between attempts to open the database again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// The time that a compaction waits for readers.
const COMPACTION_WAITS: Duration = Duration::from_secs(2);

/// What the thread that commits and the callers share.
pub(super) struct Common {
    pub(super) clock: Box<dyn Clock>,
    pub(super) wakers: Wakers,
    /// `None` while the database is closed after an error.
    pub(super) database: RwLock<Option<Database>>,
    pub(super) stats: Mutex<StoreStats>,
    /// The places of the bytes, for their lengths.
    pub(super) lengths: Mutex<(Option<Shared>, u64)>,
}

impl Common {
    pub(super) fn now(&self) -> UtcMillis {
        UtcMillis::from_timestamp(self.clock.true_now())
    }

    /// A transaction that reads.
    pub(super) fn reading(&self) -> Result<Ledger<Reading>, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or_else(being_opened)?;
        Ok(Ledger::new(Reading::new(database.begin_read().map_err(converted)?), self.now()))
    }

    /// The length of the database's file.
    pub(super) fn database_len(&self) -> Result<u64, StoreError> {
        let place = self.lengths.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        Ok(place.map_or(Ok(0), |place| place.len())?)
    }

    fn count(&self, count: impl FnOnce(&mut StoreStats)) {
        count(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn being_opened() -> StoreError {
    StoreError::new(StoreErrorKind::Io, "the database is being opened again after an error")
}

fn without_journal(path: &Path) -> StoreError {
    let message = format!(
        "{} is missing, the file with the operations since the last checkpoint: the store was not closed. To go on \
         without these operations, make an empty file in its place",
        path.display()
    );
    StoreError::new(StoreErrorKind::Corrupt, message)
}

fn number_of(bytes: Option<Vec<u8>>) -> Option<u64> {
    bytes.and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes)
}

/// The way to open the database.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) places: Places,
    pub(super) cache: usize,
}

/// A database that is open, with its numbers.
struct Opened {
    database: Database,
    place: Shared,
    store: u64,
    sequence: u64,
    /// Whether the store was closed after the last batch.
    is_closed: bool,
    /// Whether the database was made by this opening.
    is_new: bool,
}

impl Opener {
    fn builder(&self) -> redb::Builder {
        let mut builder = Database::builder();
        builder.set_cache_size(self.cache);
        builder
    }

    /// Opens the database, or makes it. redb makes a database in several steps, and a crash between them leaves a file
    /// that is none: the journal's file shows that, and the file is made again.
    fn open_or_make(&self, operations: &Shared) -> Result<Opened, StoreError> {
        let is_new = self.places.timers()?.len()? == 0;
        let was_making = journal::is_making(operations)?;
        if is_new && !was_making {
            journal::making(operations)?;
            reach(Point::MakingNoted);
        }
        let opened = match self.open() {
            Err(error) if was_making && error.kind() == StoreErrorKind::Corrupt => {
                self.places.timers()?.set_len(0)?;
                self.open()?
            }
            opened => opened?,
        };
        if is_new || was_making {
            reach(Point::DatabaseMade);
            journal::made(operations)?;
        }
        Ok(opened)
    }

    fn open(&self) -> Result<Opened, StoreError> {
        self.refuse_newer()?;
        let place = self.places.timers()?;
        // redb may panic on a file that was changed by others.
        let database = catch_unwind(AssertUnwindSafe(|| self.builder().create_with_backend(place.clone())))
            .map_err(|_| StoreError::new(StoreErrorKind::Corrupt, "the database cannot be read"))?
            .map_err(converted)?;
        let Numbers { store, sequence, is_closed, is_new } = numbers(&database)?;
        Ok(Opened { database, place, store, sequence, is_closed, is_new })
    }

    /// Looks at the schema's version without a change of the file. A database that needs a repair is not looked at.
    fn refuse_newer(&self) -> Result<(), StoreError> {
        let place = self.places.timers()?;
        if place.len()? == 0 {
            return Ok(());
        }
        let opened = catch_unwind(AssertUnwindSafe(|| self.builder().open_read_only_with_backend(place)));
        match opened {
            Ok(Ok(database)) => {
                let tables = Reading::new(database.begin_read().map_err(converted)?);
                schema_of(&tables).map(drop)
            }
            Ok(Err(redb::DatabaseError::RepairAborted)) | Err(_) => Ok(()),
            Ok(Err(error)) => Err(converted(error)),
        }
    }
}

/// The schema's version, if the database has one.
fn schema_of(tables: &Reading) -> Result<Option<u64>, StoreError> {
    let schema = number_of(tables.get(Table::Meta, SCHEMA_NAME)?);
    match schema {
        Some(schema) if schema > SCHEMA => {
            let message = format!("version {schema} of the schema, and {SCHEMA} is the last one known");
            Err(StoreError::new(StoreErrorKind::NewerSchema, message))
        }
        Some(schema) if schema < WITHOUT_HOURS => {
            // No release wrote it.
            let message = format!("version {schema} of the schema is not read any more, {SCHEMA} is");
            Err(StoreError::new(StoreErrorKind::Corrupt, message))
        }
        schema => Ok(schema),
    }
}

/// The numbers of a database.
struct Numbers {
    store: u64,
    sequence: u64,
    is_closed: bool,
    is_new: bool,
}

/// The store's number and that of its last batch. A new database gets its tables.
fn numbers(database: &Database) -> Result<Numbers, StoreError> {
    let tables = Reading::new(database.begin_read().map_err(converted)?);
    let schema = schema_of(&tables)?;
    if schema == Some(WITHOUT_HOURS) {
        count_hours(database)?;
    }
    let store = number_of(tables.get(Table::Meta, STORE_NAME)?);
    let sequence = number_of(tables.get(Table::Meta, SEQUENCE_NAME)?);
    if let (Some(_), Some(store), Some(sequence)) = (schema, store, sequence) {
        let is_closed = number_of(tables.get(Table::Meta, CLOSED_NAME)?) == Some(sequence);
        return Ok(Numbers { store, sequence, is_closed, is_new: false });
    }
    if tables.has_tables()? {
        return Err(StoreError::new(StoreErrorKind::Corrupt, "the database is no store of timers"));
    }
    drop(tables);
    let mut transaction = database.begin_write().map_err(converted)?;
    transaction.set_quick_repair(true);
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the one at random")]
    let store = crate::timer::TimerId::fresh().as_u128() as u64;
    let mut tables = Writing::new(&transaction);
    tables.open_all()?;
    for (name, value) in [(SCHEMA_NAME, SCHEMA), (STORE_NAME, store), (SEQUENCE_NAME, 0)] {
        tables.put(Table::Meta, name, &value.to_be_bytes())?;
    }
    drop(tables);
    transaction.commit().map_err(converted)?;
    Ok(Numbers { store, sequence: 0, is_closed: false, is_new: true })
}

/// Counts the timers by hour, for a database of the version that did not.
fn count_hours(database: &Database) -> Result<(), StoreError> {
    let mut transaction = database.begin_write().map_err(converted)?;
    transaction.set_quick_repair(true);
    let mut ledger = Ledger::new(Writing::new(&transaction), UtcMillis::ZERO);
    ledger.recount_hours()?;
    ledger.tables().put(Table::Meta, SCHEMA_NAME, &SCHEMA.to_be_bytes())?;
    drop(ledger);
    transaction.commit().map_err(converted)
}

/// The state after an error: the database is closed.
struct Outage {
    error: StoreError,
    again: Instant,
    pause: Duration,
}

/// The thread that commits.
pub(super) struct Committer {
    common: Arc<Common>,
    opener: Opener,
    journal: Journal<Shared>,
    store: u64,
    /// The number of the last batch that callers have answers for.
    sequence: u64,
    /// The time at which the journal is synced, if it has a record that the disk does not have.
    sync_at: Option<Instant>,
    /// The time at which the database is made durable, if it has changes only in memory.
    checkpoint_at: Option<Instant>,
    /// The first due moment, as the last claim's answer said.
    next_due: Option<UtcMillis>,
    outage: Option<Outage>,
    /// The number of requests of the last batch.
    last_batch: usize,
    /// Whether the database says that the store was closed after the last batch. The next batch is not noted then, but
    /// made durable in the database, which does not say so any more.
    is_closed: bool,
}

/// What a batch has come to.
struct Batch {
    answers: Vec<Pending>,
    /// The answers of requests that failed and were taken back.
    refusals: Vec<Pending>,
    first_due: Option<UtcMillis>,
    /// The greatest of the moments that the answers to claims give as the next due one.
    claimed: Option<Option<UtcMillis>>,
}

impl Committer {
    /// Opens the store: makes the operations of the journal again, and ends all leases.
    pub(super) fn open(opener: Opener, clock: Box<dyn Clock>) -> Result<(Arc<Common>, Self), StoreError> {
        let missing = opener.places.missing_operations();
        let operations = opener.places.operations()?;
        let opened = opener.open_or_make(&operations).and_then(|opened| match &missing {
            Some(missing) if !opened.is_new && !opened.is_closed => Err(without_journal(missing)),
            _ => Ok(opened),
        });
        let opened = opened.inspect_err(|_| {
            if missing.is_some() {
                opener.places.remove_operations();
            }
        })?;
        let journal = Journal::open(operations, opened.store, opened.sequence)?;
        let lengths = Mutex::new((Some(opened.place), journal.file_len()));
        let database = RwLock::new(Some(opened.database));
        let common = Common { clock, wakers: Wakers::default(), database, stats: Mutex::default(), lengths };
        let common = Arc::new(common);
        let mut committer = Self {
            common: Arc::clone(&common),
            opener,
            journal,
            store: opened.store,
            sequence: opened.sequence,
            sync_at: None,
            checkpoint_at: None,
            next_due: None,
            outage: None,
            last_batch: 0,
            is_closed: opened.is_closed,
        };
        if committer.repeat(opened.sequence)? {
            committer.checkpoint()?;
        }
        committer.journal.clear(committer.sequence);
        while committer.end_leases()? {}
        Ok((common, committer))
    }

    /// A transaction that writes. It does not keep the lock.
    fn begin(&self) -> Result<WriteTransaction, StoreError> {
        let database = self.common.database.read().unwrap_or_else(PoisonError::into_inner);
        database.as_ref().ok_or_else(being_opened)?.begin_write().map_err(converted)
    }

    /// Makes the operations of the journal again that follow the batch `last`. Returns whether there were any.
    fn repeat(&mut self, last: u64) -> Result<bool, StoreError> {
        let records = self.journal.records(last)?;
        let Some(first) = records.first() else { return Ok(false) };
        if first.sequence != last + 1 {
            let message = format!("batch {} is followed by batch {}", last, first.sequence);
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        reach(Point::BeforeReplay);
        let mut transaction = self.begin()?;
        let mut tables = Writing::new(&transaction);
        for record in records {
            let mut ledger = Ledger::new(tables, record.now);
            for request in record.requests {
                let before = ledger.begin();
                ledger.tables().keep();
                match request.run(&mut ledger) {
                    Ok(()) => ledger.keep(before),
                    Err(error) if ledger.tables().has_failed() => return Err(error),
                    // It succeeded when it was noted, so this is a fault of this crate. The others are repeated.
                    Err(_) => {
                        ledger.undo(before);
                        ledger.tables().undo()?;
                    }
                }
            }
            tables = ledger.finish()?.0;
            self.sequence = record.sequence;
            reach(Point::InReplay);
        }
        tables.put(Table::Meta, SEQUENCE_NAME, &self.sequence.to_be_bytes())?;
        drop(tables);
        transaction
            .set_durability(redb::Durability::None)
            .map_err(|error| StoreError::caused_by(StoreErrorKind::Corrupt, redb::Error::from(error)))?;
        transaction.commit().map_err(converted)?;
        self.checkpoint_at.get_or_insert(Instant::now() + CHECKPOINT);
        reach(Point::AfterReplay);
        Ok(true)
    }

    /// Ends leases whose holders are gone. Returns whether there were any.
    fn end_leases(&mut self) -> Result<bool, StoreError> {
        let mut transaction = self.begin()?;
        let mut ledger = Ledger::new(Writing::new(&transaction), self.common.now());
        ledger.reap(ENDED_AT_ONCE, true)?;
        let (tables, _) = ledger.finish()?;
        let has_changed = tables.has_changed();
        drop(tables);
        if has_changed {
            transaction.set_quick_repair(true);
            transaction.commit().map_err(converted)?;
            reach(Point::LeasesEnded);
        } else {
            transaction.abort().map_err(converted)?;
        }
        Ok(has_changed)
    }

    /// Serves requests until the sender is gone. Returns the error that kept the last changes from being durable.
    pub(super) fn run(mut self, requests: &Receiver) -> Result<(), StoreError> {
        loop {
            let waited = requests.wait(1, self.wakes_at());
            // Neither a panic of redb's nor one of a caller's waker ends the thread.
            let turn = catch_unwind(AssertUnwindSafe(|| match waited {
                Waited::Enough => {
                    self.gather(requests);
                    self.serve(requests.take(MOST_OPERATIONS));
                    None
                }
                Waited::Timeout => {
                    self.tend();
                    None
                }
                Waited::Closed => Some(self.finish()),
            }));
            match turn {
                Ok(None) => {}
                Ok(Some(end)) => return end,
                Err(_) => self.fall(StoreError::new(StoreErrorKind::Io, "a panic while committing")),
            }
        }
    }

    /// The moment at which there is work without a request.
    fn wakes_at(&self) -> Option<Instant> {
        let at = [self.sync_at, self.checkpoint_at].into_iter().flatten().min()?;
        Some(self.outage.as_ref().map_or(at, |outage| outage.again.max(at)))
    }

    /// Waits until as many requests are there as the last batch had. Its callers get a moment to come back: they would
    /// otherwise wait for two syncs in turn.
    fn gather(&self, requests: &Receiver) {
        requests.wait(self.last_batch, Some(Instant::now() + GATHERING));
    }

    fn serve(&mut self, mut requests: VecDeque<Request>) {
        self.last_batch = requests.len();
        if let Err(error) = self.be_open() {
            for request in requests {
                request.fail(error.clone());
            }
            return;
        }
        let mut compactions = Vec::new();
        if requests.iter().any(|request| matches!(request, Request::Compact(_))) {
            let mut others = VecDeque::new();
            for request in requests {
                match request {
                    Request::Compact(reply) => compactions.push(reply),
                    other => others.push_back(other),
                }
            }
            requests = others;
        }
        if !requests.is_empty() {
            self.commit(requests);
        }
        for reply in compactions {
            let compacted = self.be_open().and_then(|()| self.compact());
            drop(reply.send(compacted));
        }
    }

    /// Makes a batch of the requests, and answers them.
    fn commit(&mut self, mut requests: VecDeque<Request>) {
        let operations: u64 = requests.iter().map(|request| request.operations() as u64).sum();
        self.common.count(|stats| {
            stats.operations += operations;
            stats.largest_batch = stats.largest_batch.max(operations);
        });
        let mut batch = Batch { answers: Vec::new(), refusals: Vec::new(), first_due: None, claimed: None };
        let attempted = self.sequence + 1;
        let has_ends = cfg!(feature = "failpoints") && requests.iter().any(Request::is_end);
        if has_ends {
            reach(Point::EndsReceived);
        }
        let result = self.transact(&mut requests, &mut batch, has_ends);
        reach(Point::BeforeAnswers);
        let error = match result {
            Ok(()) => None,
            Err((error, may_have_effect)) => {
                self.common.count(|stats| stats.failed += 1);
                self.fall(error.clone());
                Some(self.verdict(error, may_have_effect, attempted))
            }
        };
        for request in requests {
            request.fail(error.clone().unwrap_or_else(super::error::lost));
        }
        for answer in batch.answers.into_iter().chain(batch.refusals) {
            answer(error.clone());
        }
        if error.is_none() {
            let is_earlier = |than: Option<UtcMillis>| {
                batch.first_due.is_some_and(|first| than.is_none_or(|than| first < than))
            };
            let wakes = is_earlier(self.next_due) || batch.claimed.is_some_and(is_earlier);
            self.next_due = batch.claimed.unwrap_or(self.next_due);
            if wakes {
                self.common.wakers.wake();
            }
        }
    }

    /// The error for callers of a batch that failed: of its own kind if the batch has had no effect, for certain.
    fn verdict(&self, error: StoreError, may_have_effect: bool, attempted: u64) -> StoreError {
        let has_none = !may_have_effect || (self.outage.is_none() && self.sequence < attempted);
        if has_none { error } else { StoreError::caused_by(StoreErrorKind::Unknown, error) }
    }

    /// Makes the changes of the requests, with the durability that they ask for. An error says whether the changes may
    /// have had an effect all the same.
    fn transact(
        &mut self,
        requests: &mut VecDeque<Request>,
        batch: &mut Batch,
        has_ends: bool,
    ) -> Result<(), (StoreError, bool)> {
        let before = |error| (error, false);
        let now = self.common.now();
        let sequence = self.sequence + 1;
        let mut transaction = self.begin().map_err(before)?;
        let mut ledger = Ledger::new(Writing::new(&transaction), now);
        let mut wanted = Durability::Volatile;
        let is_full = self.journal.len() > LONGEST_JOURNAL;
        let mut must_commit = is_full || self.is_closed || requests.iter().any(Request::is_large);
        let mut notes = Vec::new();
        while let Some(request) = requests.pop_front() {
            let noted = notes.len();
            if !must_commit && request.note(&mut notes).is_err() {
                // The database itself is made durable with what cannot be noted.
                must_commit = true;
            }
            let outer = ledger.begin();
            ledger.tables().keep();
            match request.run(&mut ledger) {
                Ok(done) => {
                    ledger.keep(outer);
                    batch.answers.push(done.pending);
                    wanted = wanted.max(done.durability);
                    if let Some(next_due) = done.next_due {
                        // None is later than all moments.
                        let of = |moment: Option<UtcMillis>| moment.map_or((1, None), |at| (0, Some(at)));
                        batch.claimed = Some(match batch.claimed {
                            Some(other) if of(other) > of(next_due) => other,
                            _ => next_due,
                        });
                    }
                }
                Err((error, pending)) => {
                    batch.refusals.push(pending);
                    if ledger.tables().has_failed() {
                        return Err(before(error));
                    }
                    notes.truncate(noted);
                    ledger.undo(outer);
                    ledger.tables().undo().map_err(before)?;
                }
            }
        }
        let (mut tables, first_due) = ledger.finish().map_err(before)?;
        batch.first_due = first_due;
        let has_changed = tables.has_changed();
        if !has_changed {
            drop(tables);
            transaction.abort().map_err(|error| before(converted(error)))?;
            // The request may repeat one whose effect is not durable yet.
            return self.keep_promise(wanted).map_err(|(error, _)| before(error));
        }
        tables.put(Table::Meta, SEQUENCE_NAME, &sequence.to_be_bytes()).map_err(before)?;
        drop(tables);
        let started = Instant::now();
        if must_commit {
            transaction.set_quick_repair(true);
        } else {
            let none = transaction.set_durability(redb::Durability::None);
            none.map_err(|error| before(converted(redb::Error::from(error))))?;
        }
        transaction.commit().map_err(|error| (converted(error), must_commit))?;
        if has_ends {
            reach(Point::EndsCommitted);
        }
        if batch.claimed.is_some() {
            reach(Point::ClaimCommitted);
        }
        (self.sequence, self.is_closed) = (sequence, false);
        self.common.count(|stats| stats.batches += 1);
        if must_commit {
            self.checkpointed(started);
            return Ok(());
        }
        let len = self.journal.len();
        self.journal.append(sequence, now, &notes);
        self.checkpoint_at.get_or_insert(started + CHECKPOINT);
        self.sync_at.get_or_insert(started + LATE);
        match self.keep_promise(wanted) {
            Err((error, false)) => {
                self.journal.retract(len);
                self.sequence = sequence - 1;
                // A checkpoint that fails may have had its effect: the database will show it.
                Err((error, true))
            }
            promise => promise,
        }
    }

    /// Gives all changes a durability. An error says whether a byte of the last record may be on the disk.
    fn keep_promise(&mut self, durability: Durability) -> Result<(), (StoreError, bool)> {
        if durability == Durability::Volatile {
            return Ok(());
        }
        let Err(error) = self.journal.reserve() else {
            let Err(error) = self.write_journal(durability) else { return Ok(()) };
            return self.checkpoint().map_err(|_| (error, true));
        };
        self.checkpoint().map_err(|_| (error, false))
    }

    /// Writes the journal, which has room, and syncs it if the loss of power is to be survived.
    fn write_journal(&mut self, durability: Durability) -> Result<(), StoreError> {
        self.journal.write_out()?;
        if durability == Durability::PowerLoss {
            let started = Instant::now();
            self.journal.sync()?;
            self.sync_at = None;
            self.synced(started);
        }
        Ok(())
    }

    fn synced(&self, started: Instant) {
        let time = started.elapsed();
        self.common.count(|stats| {
            stats.syncs += 1;
            stats.sync_time += time;
            stats.longest_sync = stats.longest_sync.max(time);
        });
        let mut lengths = self.common.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        lengths.1 = self.journal.file_len();
    }

    /// Notes that the database is durable.
    fn checkpointed(&mut self, started: Instant) {
        (self.sync_at, self.checkpoint_at) = (None, None);
        reach(Point::BeforeJournalReset);
        self.journal.clear(self.sequence);
        reach(Point::AfterCheckpoint);
        self.common.count(|stats| stats.checkpoints += 1);
        self.synced(started);
    }

    /// Makes the database durable.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.checkpoint_with(None)
    }

    /// Makes the database durable, with a note under this name of the batch with which it ends.
    fn checkpoint_with(&mut self, name: Option<&[u8]>) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut transaction = self.begin()?;
        let mut tables = Writing::new(&transaction);
        for name in [Some(SEQUENCE_NAME), name].into_iter().flatten() {
            tables.put(Table::Meta, name, &self.sequence.to_be_bytes())?;
        }
        drop(tables);
        transaction.set_quick_repair(true);
        reach(Point::BeforeCheckpoint);
        transaction.commit().map_err(converted)?;
        self.checkpointed(started);
        Ok(())
    }

    /// Does the work whose time has come.
    fn tend(&mut self) {
        if self.be_open().is_err() {
            return;
        }
        let now = Instant::now();
        let result = if self.checkpoint_at.is_some_and(|at| at <= now) {
            self.checkpoint_at = Some(now + CHECKPOINT_AGAIN);
            self.checkpoint()
        } else if self.sync_at.is_some_and(|at| at <= now) {
            self.keep_promise(Durability::PowerLoss).map_err(|(error, _)| error)
        } else {
            return;
        };
        if let Err(error) = result {
            self.common.count(|stats| stats.failed += 1);
            // The changes stay, and are tried again.
            self.sync_at = self.sync_at.map(|_| now + CHECKPOINT_AGAIN);
            self.fall(error);
        }
    }

    /// Makes the last changes durable.
    fn finish(&mut self) -> Result<(), StoreError> {
        if self.checkpoint_at.is_some() {
            self.outage.iter_mut().for_each(|outage| outage.again = Instant::now());
            self.be_open()?;
            self.checkpoint_with(Some(CLOSED_NAME))?;
        } else if self.outage.is_none() && !self.is_closed {
            // All changes are durable without this note. The journal's file has to stay beside the database then.
            if self.checkpoint_with(Some(CLOSED_NAME)).is_err() {
                self.close();
                return Ok(());
            }
        }
        let mut database = self.common.database.write().unwrap_or_else(PoisonError::into_inner);
        match database.take() {
            Some(database) => database.close().map_err(converted),
            None => Ok(()),
        }
    }

    // --- After an error ---

    /// Closes the database and opens it again at once, if that is possible.
    fn fall(&mut self, error: StoreError) {
        self.close();
        let pause = self.outage.as_ref().map_or(PAUSES.0, |outage| (outage.pause * 2).min(PAUSES.1));
        self.outage = Some(Outage { error, again: Instant::now(), pause });
        // Its error is the outage's by now.
        drop(self.be_open());
    }

    fn close(&self) {
        let mut database = self.common.database.write().unwrap_or_else(PoisonError::into_inner);
        drop(database.take());
    }

    /// Opens the database again if it is closed and a pause has passed. Batches that it had only in memory are
    /// repeated.
    fn be_open(&mut self) -> Result<(), StoreError> {
        let Some(outage) = &self.outage else { return Ok(()) };
        if Instant::now() < outage.again {
            return Err(outage.error.clone());
        }
        let pause = outage.pause;
        match self.open_again() {
            Ok(()) => {
                self.outage = None;
                self.common.count(|stats| stats.reopened += 1);
                Ok(())
            }
            Err(error) => {
                self.close();
                let (again, pause) = (Instant::now() + pause, (pause * 2).min(PAUSES.1));
                self.outage = Some(Outage { error: error.clone(), again, pause });
                Err(error)
            }
        }
    }

    fn open_again(&mut self) -> Result<(), StoreError> {
        let opened = self.opener.open()?;
        if opened.store != self.store {
            return Err(StoreError::new(StoreErrorKind::Corrupt, "another database is in its place"));
        }
        self.common.lengths.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(opened.place);
        *self.common.database.write().unwrap_or_else(PoisonError::into_inner) = Some(opened.database);
        self.is_closed = opened.is_closed;
        let last = opened.sequence;
        let expected = self.sequence;
        if last < expected {
            self.repeat(last)?;
            if self.sequence != expected {
                let message = format!("of {expected} batches the last ones after {last} are lost");
                return Err(StoreError::new(StoreErrorKind::Corrupt, message));
            }
        } else {
            self.sequence = last;
            self.journal.clear(self.sequence);
            (self.sync_at, self.checkpoint_at) = (None, None);
        }
        Ok(())
    }

    /// Compacts the database.
    fn compact(&mut self) -> Result<bool, StoreError> {
        let compacted = self.try_compact();
        if let Err(error) = &compacted
            && error.kind() != StoreErrorKind::Locked
        {
            self.common.count(|stats| stats.failed += 1);
            self.fall(error.clone());
        }
        compacted
    }

    fn try_compact(&mut self) -> Result<bool, StoreError> {
        self.checkpoint()?;
        let before = self.common.database_len()?;
        let until = Instant::now() + COMPACTION_WAITS;
        loop {
            let mut database = self.common.database.write().unwrap_or_else(PoisonError::into_inner);
            let result = database.as_mut().ok_or_else(being_opened)?.compact();
            drop(database);
            match result {
                Ok(_) => {
                    reach(Point::AfterCompaction);
                    // Compaction leaves no record of the free pages, which a start after a crash would miss.
                    self.checkpoint()?;
                    return Ok(self.common.database_len()? < before);
                }
                Err(redb::CompactionError::TransactionInProgress) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(redb::CompactionError::TransactionInProgress) => {
                    return Err(StoreError::new(StoreErrorKind::Locked, "a reader has not ended"));
                }
                Err(error) => return Err(converted(error)),
            }
        }
    }
}
