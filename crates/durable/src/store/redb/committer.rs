//! Runs the thread that commits. The thread runs batches (groups of requests in one transaction), makes checkpoints,
//! and starts syncs.

use super::backend::OPERATIONS;
use super::batch::Batch;
use super::common::{Common, being_opened};
use super::compaction;
use super::error::{converted, damaged_pages};
use super::journal::{Journal, unrepeatable};
use super::opening::{CLOSED_NAME, Opener, SEQUENCE_NAME, number_value, without_journal};
use super::pipe::{Pipe, send};
use super::queue::{Bell, Receiver, Waited, Wanted};
use super::recovery::Recovery;
use super::request::Request;
use super::tables::Writing;
use crate::panics::survive_or;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::failpoints::{Point, reach};
use crate::store::ledger::{Ledger, Turns};
use crate::store::room::Room;
use crate::store::tables::{Table, Tables};
use crate::store::{Durability, Reaped};
use core::time::Duration;
use redb::{StorageBackend, WriteTransaction};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tourbillon::Clock;
use tourbillon_words::UtcMillis;

/// The number of operations after which a batch (one transaction for several requests) takes no further request. The
/// last request of a batch may exceed the number.
const MOST_OPERATIONS: usize = 10_000;
/// The longest time between a change and the next checkpoint, which commits the database to the disk. A checkpoint
/// comes earlier if the journal exceeds [`LONGEST_JOURNAL`]. A restart replays the operations of the journal, about
/// 40,000 in a second.
const CHECKPOINT: Duration = Duration::from_secs(10);
const LONGEST_JOURNAL: usize = 4 * 1024 * 1024;
/// The pause between a failed checkpoint and the next attempt.
const CHECKPOINT_AGAIN: Duration = Duration::from_secs(1);
/// The longest time for which the thread that commits waits for more requests before it makes a batch. Callers that
/// have just got an answer often send their next requests within this time. During a sync, the thread may wait longer:
/// see [`Committer::gather`].
const GATHERING: Duration = Duration::from_micros(200);
/// The greatest number of leases that one transaction ends at the opening of a store.
const ENDED_AT_ONCE: u32 = 10_000;

/// The state of the thread that commits batches of requests to the database.
pub(super) struct Committer {
    common: Arc<Common>,
    recovery: Recovery,
    pipe: Arc<Pipe>,
    /// The number of the last batch that the database has. The database has the batches since the last checkpoint only
    /// in memory.
    sequence: u64,
    /// The time of the next checkpoint. `None` if the database on the disk has all changes.
    checkpoint_at: Option<Instant>,
    /// The moment at which the next timer is due, from the answers to the last claims. If the claims of a batch have
    /// different answers, this is the latest moment. `None` if an answer had no such moment.
    next_due: Option<UtcMillis>,
    turns: Turns,
    /// The number of requests in the last batch.
    last_batch: usize,
    /// Whether the database contains a note that the store was closed after the last batch. The next batch makes this
    /// note invalid. For this reason, the next batch is committed to the database on the disk, and not written to the
    /// journal.
    is_closed: bool,
}

impl Committer {
    /// Opens the store, replays the operations of the journal, and ends all leases.
    pub(super) fn open(
        opener: Opener,
        clock: Arc<dyn Clock>,
        room: Arc<Room>,
    ) -> Result<(Arc<Common>, Self), StoreError> {
        // This check comes before the opening of the journal, which creates a missing file.
        let missing = opener.places.missing_operations();
        let operations = opener.places.operations()?;
        let is_empty = || opener.places.timers().and_then(|timers| Ok(timers.len()? == 0)).ok();
        let was_empty = is_empty() == Some(true);
        let opened = opener.open_or_make(&operations).and_then(|opened| match &missing {
            Some(missing) if !opened.is_new && !opened.is_closed => Err(without_journal(missing)),
            _ => Ok(opened),
        });
        let opened = opened.inspect_err(|_| {
            // An empty journal counts as the user's consent to lose the missing operations. The file that this opening
            // has created must not give this consent at the next attempt. But if this opening has also begun to create
            // the database, there were no operations, and the next opening needs the file to complete the creation.
            let has_begun = was_empty && is_empty() != Some(true);
            if missing.is_some() && !has_begun {
                opener.places.remove_operations();
            }
        })?;
        let journal = Journal::open(operations, opened.store, opened.sequence)?;
        room.note_opened(&[OPERATIONS]);
        let common = Common::new(clock, room, opened.database, opened.place, journal.file_len());
        let common = Arc::new(common);
        let mut committer = Self {
            common: Arc::clone(&common),
            recovery: Recovery::new(Arc::clone(&common), opener, opened.store),
            pipe: Arc::new(Pipe::new(journal)),
            sequence: opened.sequence,
            checkpoint_at: None,
            next_due: None,
            turns: Turns::default(),
            last_batch: 0,
            is_closed: opened.is_closed,
        };
        // The next records overwrite the replayed records, so the database must have the replayed batches first.
        committer.sequence = committer.repeat(opened.sequence)?;
        if committer.sequence > opened.sequence {
            committer.checkpoint()?;
        }
        // No caller waits yet, so there are no answers to send.
        drop(committer.pipe.clear(committer.sequence));
        let mut ended = Reaped::default();
        while committer.end_leases(&mut ended)? {}
        *common.ended.lock().unwrap_or_else(PoisonError::into_inner) = ended;
        common.publish();
        Ok((common, committer))
    }

    /// Begins a transaction that writes to the database. Releases the lock of `Common::database` before it returns.
    fn begin(&self) -> Result<WriteTransaction, StoreError> {
        let database = self.common.database.read().unwrap_or_else(PoisonError::into_inner);
        database.as_ref().ok_or_else(being_opened)?.begin_write().map_err(converted)
    }

    /// Replays the operations of the journal that follow batch `last`. Returns the number of the last batch that the
    /// database contains afterwards. A replay that fails changes nothing.
    fn repeat(&mut self, last: u64) -> Result<u64, StoreError> {
        let records = self.pipe.records(last)?;
        let Some(first) = records.first() else { return Ok(last) };
        let mut reached = last;
        if first.sequence != last + 1 {
            let message = format!("batch {} is followed by batch {}", last, first.sequence);
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        reach(Point::BeforeReplay);
        let mut transaction = self.begin()?;
        let mut tables = Writing::new(&transaction);
        for record in records {
            let mut ledger = Ledger::new(tables, record.now);
            for (nth, (request, noted)) in record.requests.into_iter().enumerate() {
                let (before, name) = (ledger.begin(), request.name());
                // A failed replay ends the whole transaction, so no old values are kept to undo a single request.
                ledger.tables().keep();
                let reason = match request.run(&mut ledger) {
                    Ok(digest) if digest == noted => {
                        ledger.keep(before);
                        continue;
                    }
                    Ok(_) => "has another outcome now than when it was acknowledged".to_owned(),
                    // An error of redb says nothing about the request, and a later attempt may succeed.
                    Err(error) if ledger.tables().has_failed() => return Err(error),
                    Err(error) => format!("was acknowledged and fails now, {error}"),
                };
                return Err(unrepeatable(record.sequence, nth, name, &reason));
            }
            tables = ledger.finish()?.0;
            reached = record.sequence;
            reach(Point::InReplay);
        }
        tables.put(Table::Meta, SEQUENCE_NAME, &number_value(SEQUENCE_NAME, reached))?;
        drop(tables);
        // The journal still has these batches, so this commit needs no sync.
        transaction
            .set_durability(redb::Durability::None)
            .map_err(|error| StoreError::caused_by(StoreErrorKind::Corrupt, redb::Error::from(error)))?;
        transaction.commit().map_err(converted)?;
        self.checkpoint_at.get_or_insert(Instant::now() + CHECKPOINT);
        reach(Point::AfterReplay);
        Ok(reached)
    }

    /// Ends at most [`ENDED_AT_ONCE`] leases, in one transaction, while the store is being opened. The holders of all
    /// leases are gone by then. Adds the leases to `ended`. Returns whether the caller must call the method again.
    fn end_leases(&mut self, ended: &mut Reaped) -> Result<bool, StoreError> {
        let mut transaction = self.begin()?;
        let mut ledger = Ledger::new(Writing::new(&transaction), self.common.now());
        let goes_on = ledger.end_leases(ENDED_AT_ONCE, ended)?;
        let (tables, _) = ledger.finish()?;
        let has_changed = tables.has_changed();
        drop(tables);
        if has_changed {
            // The journal does not get this change, so the change is committed to the disk.
            transaction.set_quick_repair(true);
            transaction.commit().map_err(converted)?;
            reach(Point::LeasesEnded);
        } else {
            transaction.abort().map_err(converted)?;
        }
        Ok(goes_on)
    }

    /// Returns the pipe (the batches on their way to the disk), for the thread that syncs.
    pub(super) fn pipe(&self) -> Arc<Pipe> {
        Arc::clone(&self.pipe)
    }

    /// Serves requests until the store is closed. Fails if the last changes could not be made durable.
    pub(super) fn run(mut self, requests: &Receiver, bell: &Bell) -> Result<(), StoreError> {
        loop {
            let waited = requests.wait(Wanted::Work, self.wakes_at());
            // The thread survives a panic of redb or of a caller's waker.
            let turn = || match waited {
                Waited::Closed => Some(self.finish()),
                Waited::Enough | Waited::Timeout => {
                    self.turn(requests, waited == Waited::Enough);
                    self.pipe.sync_if_wanted(&self.common, bell);
                    None
                }
            };
            match survive_or(turn, damaged_pages) {
                Ok(None) => {}
                Ok(Some(end)) => return end,
                Err(damage) if waited == Waited::Closed => {
                    self.recovery.close();
                    return Err(damage);
                }
                Err(damage) => self.fall(damage),
            }
        }
    }

    fn turn(&mut self, requests: &Receiver, has_work: bool) {
        if let Some(error) = self.pipe.take_failure() {
            self.mend(error);
        }
        if !has_work {
            // A checkpoint by time comes when the queue is empty. While the queue is never empty, the length of the
            // journal brings the checkpoint (`transact`).
            self.tend();
        } else if !requests.is_empty() || self.pipe.has_waiting() {
            // Without a request, the thread still gathers if answers wait for a sync. The next sync then includes the
            // requests of the callers that the last sync has answered.
            self.gather(requests);
            let requests = requests.take(MOST_OPERATIONS);
            if !requests.is_empty() {
                self.serve(requests);
            }
        }
    }

    /// Returns the moment at which the thread wakes even without a request: for the next sync or checkpoint, or while
    /// the database is closed, for the next attempt to open it. `None` if nothing is planned.
    fn wakes_at(&self) -> Option<Instant> {
        // A closed database is opened again even without a request, since readers wait for it. Until then, no
        // checkpoint can be made, and a due checkpoint would wake the thread again and again.
        self.recovery
            .again()
            .or_else(|| [self.pipe.wakes_at(), self.checkpoint_at].into_iter().flatten().min())
    }

    /// Waits for more requests before the thread makes a batch. During a sync, this wait costs nothing: the batch can
    /// reach the disk only with the next sync, which begins after the current sync. After a sync, the method also waits
    /// briefly for the next requests of the callers that were just answered. Otherwise the next sync would begin
    /// without these requests, and their callers would wait for this sync and for the sync after it.
    fn gather(&self, requests: &Receiver) {
        if let Some(until) = self.pipe.gathers_until() {
            requests.wait(Wanted::Urgent, Some(until));
        }
        // If no sync has just answered callers, the last batch shows how many requests to expect.
        let wanted = requests.gathered().unwrap_or(self.last_batch);
        requests.wait(Wanted::Requests(wanted), Some(Instant::now() + GATHERING));
    }

    fn serve(&mut self, requests: VecDeque<Request>) {
        self.last_batch = requests.len();
        if let Err(error) = self.be_open() {
            for request in requests {
                request.fail(error.clone());
            }
            return;
        }
        let (requests, compactions) = compaction::apart(requests);
        if !requests.is_empty() {
            self.commit(requests);
        }
        for reply in compactions {
            // The commit or the compaction before may have closed the database.
            let compacted = self.be_open().and_then(|()| self.compact());
            drop(reply.send(compacted));
        }
    }

    /// Runs the requests as one batch, and sends the answers that do not wait for a sync.
    fn commit(&mut self, mut requests: VecDeque<Request>) {
        let operations: u64 = requests.iter().map(|request| request.operations() as u64).sum();
        self.common.count(|stats| {
            stats.operations += operations;
            stats.largest_batch = stats.largest_batch.max(operations);
        });
        let mut batch = Batch::new();
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
                // Timers that the failed batch has claimed may be pending again, and claims have passed their places.
                self.turns.reset();
                self.fall(error.clone());
                Some(self.verdict(error, may_have_effect, attempted))
            }
        };
        for request in requests {
            // Requests are left only after an error.
            request.fail(error.clone().unwrap_or_else(super::error::lost));
        }
        batch.send(error.as_ref());
        if error.is_none() {
            let wakes = batch.is_due_earlier(self.next_due);
            self.next_due = batch.next_due(self.next_due);
            if wakes {
                self.common.wakers.wake();
            }
        }
    }

    /// Returns the error that the callers of a failed batch get. `attempted` is the number of the batch. If the batch
    /// has certainly had no effect, returns `error` itself. Otherwise returns an error of the kind `Unknown`, with
    /// `error` as its cause.
    fn verdict(&self, error: StoreError, may_have_effect: bool, attempted: u64) -> StoreError {
        let has_none = !may_have_effect || (self.recovery.is_open() && self.sequence < attempted);
        if has_none { error } else { StoreError::caused_by(StoreErrorKind::Unknown, error) }
    }

    /// Runs the requests in one transaction, and makes the changes as durable as the requests ask for. An error comes
    /// with a flag: true if the changes may still take effect.
    fn transact(
        &mut self,
        requests: &mut VecDeque<Request>,
        batch: &mut Batch,
        has_ends: bool,
    ) -> Result<(), (StoreError, bool)> {
        // An error before the commit leaves no effect.
        let before = |error| (error, false);
        let now = self.common.now();
        let sequence = self.sequence + 1;
        let mut transaction = self.begin().map_err(before)?;
        let mut ledger = Ledger::new(Writing::new(&transaction), now);
        // If the transaction fails, the turns stay empty, and the next claim reads the index from its start.
        let mut turns = core::mem::take(&mut self.turns);
        ledger.follow(turns.moment());
        let is_full = self.pipe.len() > LONGEST_JOURNAL;
        // A batch that is committed to the disk is a checkpoint, too, and clears a journal that has become too long.
        let mut must_commit = is_full || self.is_closed || requests.iter().any(Request::is_large);
        let mut notes = Vec::new();
        while let Some(mut request) = requests.pop_front() {
            if let Err(error) = request.choose(&mut ledger, &mut turns) {
                batch.refuse(request.refused(error.clone()));
                if ledger.tables().has_failed() {
                    return Err(before(error));
                }
                turns.reset();
                continue;
            }
            let noted = notes.len();
            if !must_commit && request.note(&mut notes).is_err() {
                // If a request cannot be noted, the batch becomes durable in the database itself.
                must_commit = true;
            }
            let outer = ledger.begin();
            ledger.tables().keep();
            match request.run(&mut ledger) {
                Ok(done) => {
                    ledger.keep(outer);
                    // A request that is not noted, for example a read, has no digest either.
                    if notes.len() > noted {
                        notes.extend_from_slice(&done.digest.to_le_bytes());
                    }
                    batch.add(done);
                }
                Err((error, pending)) => {
                    batch.refuse(pending);
                    if ledger.tables().has_failed() {
                        return Err(before(error));
                    }
                    notes.truncate(noted);
                    // A failed claim has passed the places of timers that are still pending.
                    turns.reset();
                    ledger.undo(outer);
                    ledger.tables().undo().map_err(before)?;
                }
            }
        }
        // The repair of damage must not be replayed. So its effect is committed to the database on the disk at once,
        // and not noted in the journal.
        must_commit |= ledger.has_met_damage();
        let (mut tables, made_due) = ledger.finish().map_err(before)?;
        batch.note_due(made_due.first);
        turns.note(made_due);
        let has_changed = tables.has_changed();
        if !has_changed {
            drop(tables);
            transaction.abort().map_err(|error| before(converted(error)))?;
            self.turns = turns;
            // A request that changes nothing may repeat an earlier request whose effect is not durable yet.
            return self.keep_promise(batch).map_err(|(error, _)| before(error));
        }
        tables.put(Table::Meta, SEQUENCE_NAME, &number_value(SEQUENCE_NAME, sequence)).map_err(before)?;
        drop(tables);
        let started = Instant::now();
        if must_commit {
            transaction.set_quick_repair(true);
        } else {
            let none = transaction.set_durability(redb::Durability::None);
            none.map_err(|error| before(converted(redb::Error::from(error))))?;
        }
        transaction.commit().map_err(|error| (converted(error), must_commit))?;
        self.turns = turns;
        if has_ends {
            reach(Point::EndsCommitted);
        }
        if batch.has_claims() {
            reach(Point::ClaimCommitted);
        }
        // After a panic, the database is opened again up to batch `sequence`. So the journal has the batch before
        // `sequence` counts it.
        let noted = (!must_commit).then(|| self.pipe.note(sequence, now, &notes));
        (self.sequence, self.is_closed) = (sequence, false);
        // A caller that is answered must find its change, so readers get the new state before the answers are sent.
        self.common.publish();
        self.common.count(|stats| stats.batches += 1);
        let Some(len) = noted else {
            self.checkpointed(started);
            return Ok(());
        };
        self.checkpoint_at.get_or_insert(started + CHECKPOINT);
        match self.keep_promise(batch) {
            Err((error, false)) => {
                // If the file already has the record, the batch stays, and is replayed at the next opening.
                if self.pipe.retract(sequence, len) {
                    self.sequence = sequence - 1;
                }
                // A failed checkpoint may have taken effect. The database shows this when it is opened again.
                Err((error, true))
            }
            promise => promise,
        }
    }

    /// Makes the batch as durable as its requests ask for: writes the journal to its file unless all requests are
    /// `Volatile`, and holds back the answers that need a sync. An error comes with a flag: true if a part of the last
    /// record may be in the file.
    fn keep_promise(&mut self, batch: &mut Batch) -> Result<(), (StoreError, bool)> {
        if batch.durability() == Durability::Volatile {
            return Ok(());
        }
        match self.pipe.write_out() {
            Ok(()) => {
                let durable = batch.take_durable();
                batch.put_durable(self.pipe.wait_for_disk(self.sequence, durable));
                Ok(())
            }
            // If the checkpoint succeeds, the changes are durable in the database.
            Err((error, is_written)) => self.checkpoint().map_err(|_| (error, is_written)),
        }
    }

    /// Finishes a checkpoint after the commit: clears the journal, and answers all callers that waited for the disk.
    /// `started` is the time at which the checkpoint began.
    fn checkpointed(&mut self, started: Instant) {
        self.checkpoint_at = None;
        reach(Point::BeforeJournalReset);
        let answers = self.pipe.clear(self.sequence);
        reach(Point::AfterCheckpoint);
        self.common.count(|stats| stats.checkpoints += 1);
        self.common.synced(started.elapsed(), self.pipe.file_len());
        send(answers, None);
    }

    /// Makes a checkpoint: commits the database to the disk.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.checkpoint_with(None)
    }

    /// Makes a checkpoint. If `name` is given, also stores the number of the last batch under the key `name` in
    /// [`Table::Meta`]. For example, the number under [`CLOSED_NAME`] shows that the store was closed after this batch.
    fn checkpoint_with(&mut self, name: Option<&[u8]>) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut transaction = self.begin()?;
        let mut tables = Writing::new(&transaction);
        for name in [Some(SEQUENCE_NAME), name].into_iter().flatten() {
            tables.put(Table::Meta, name, &number_value(name, self.sequence))?;
        }
        drop(tables);
        // Quick repair stores which pages are free, so that a start after a crash need not read the whole file.
        transaction.set_quick_repair(true);
        reach(Point::BeforeCheckpoint);
        transaction.commit().map_err(converted)?;
        self.checkpointed(started);
        Ok(())
    }

    /// Makes a checkpoint if one is due.
    fn tend(&mut self) {
        if self.be_open().is_err() {
            return;
        }
        let now = Instant::now();
        if self.checkpoint_at.is_some_and(|at| at <= now) {
            // This is the moment of the next attempt, which a successful checkpoint clears.
            self.checkpoint_at = Some(now + CHECKPOINT_AGAIN);
            if let Err(error) = self.checkpoint() {
                // The changes stay in the journal until a later checkpoint succeeds.
                self.common.count(|stats| stats.failed += 1);
                self.fall(error);
            }
        }
    }

    /// Makes a checkpoint after a failed sync of the journal. If the checkpoint fails, too, the callers that wait for
    /// the disk get an error of the kind `Unknown`.
    fn mend(&mut self, error: StoreError) {
        if self.be_open().and_then(|()| self.checkpoint()).is_ok() {
            return;
        }
        self.common.count(|stats| stats.failed += 1);
        self.fall(error.clone());
        let unknown = StoreError::caused_by(StoreErrorKind::Unknown, error);
        send(self.pipe.give_up(), Some(&unknown));
        // The batches stay in the journal until a later sync or checkpoint succeeds.
        self.pipe.retry_in(CHECKPOINT_AGAIN);
    }

    /// Makes the last changes durable, notes that the store was closed, and closes the database.
    fn finish(&mut self) -> Result<(), StoreError> {
        if self.checkpoint_at.is_some() {
            // During a pause, `be_open` would fail without an attempt, and no later attempt follows.
            self.recovery.end_pause();
            self.be_open()?;
            self.checkpoint_with(Some(CLOSED_NAME))?;
        } else if self.recovery.is_open() && !self.is_closed {
            // All changes are durable even without this note, but then the next opening needs the journal's file.
            if self.checkpoint_with(Some(CLOSED_NAME)).is_err() {
                self.recovery.close();
                return Ok(());
            }
        }
        match self.common.take_database() {
            Some(database) => database.close().map_err(converted),
            None => Ok(()),
        }
    }

    // --- After an error ---

    /// Closes the database after an error, and tries at once to open it again.
    fn fall(&mut self, error: StoreError) {
        self.recovery.fall(error);
        // If the database cannot be opened, the next request gets the error.
        drop(self.be_open());
    }

    /// If an error has closed the database, opens the database again, and replays the batches that the database had
    /// only in memory. If the database cannot be opened, a pause follows, and calls during this pause fail.
    fn be_open(&mut self) -> Result<(), StoreError> {
        if !self.recovery.must_open()? {
            return Ok(());
        }
        // redb may panic on damaged pages.
        let opened = survive_or(|| self.open_again(), damaged_pages).unwrap_or_else(Err);
        self.recovery.note_attempt(opened)
    }

    fn open_again(&mut self) -> Result<(), StoreError> {
        let (last, is_closed) = self.recovery.open()?;
        self.is_closed = is_closed;
        let expected = self.sequence;
        if last < expected {
            if self.repeat(last)? != expected {
                let message = format!("of {expected} batches all after batch {last} are lost");
                return Err(StoreError::new(StoreErrorKind::Corrupt, message));
            }
        } else {
            self.sequence = last;
            self.checkpoint_at = None;
            let answers = self.pipe.clear(self.sequence);
            let error =
                StoreError::new(StoreErrorKind::Unknown, "the database was opened again after an error");
            send(answers, Some(&error));
        }
        self.common.publish();
        Ok(())
    }

    /// Compacts the database file. Returns whether the file has become shorter.
    fn compact(&mut self) -> Result<bool, StoreError> {
        let compacted = self.try_compact();
        // The kind `Locked` only means that a reader has not ended in time.
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
        compaction::compact(&self.common)?;
        reach(Point::AfterCompaction);
        // A compacted file has no record of its free pages, which a start after a crash needs.
        self.checkpoint()?;
        Ok(self.common.database_len()? < before)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.pipe.end();
    }
}
