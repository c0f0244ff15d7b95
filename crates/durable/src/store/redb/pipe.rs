//! Brings batches to the disk, with a thread that syncs the journal.
//!
//! Two threads share this part. The thread that commits makes batches, writes them, and decides when a sync begins. On
//! a slow disk, the thread that syncs makes the sync, and then answers the callers that waited for it. So the next
//! batch can be made during the sync. Requests that need not wait for the disk, such as claims and ends of deliveries,
//! are answered at once.
//!
//! On a quick disk, a switch between the threads takes about as long as a sync. So the thread that commits syncs the
//! journal itself when callers wait for a sync, and makes no batch until the sync has ended. After a sync that fails or
//! takes more than a millisecond, the disk counts as slow for sixty times the duration of the sync. So a disk that
//! stalls now and then delays the thread that commits for at most a sixtieth of the time.
//!
//! # The states of a batch
//!
//! | state | begins with | the requests that are answered then |
//! |---|---|---|
//! | made | its transaction in the database's memory; it is noted in the journal's memory, and readers see it | a request of [`Volatile`](crate::store::Durability::Volatile), if no request of the batch asks for more |
//! | written | the note is with the operating system | a request of [`ProcessCrash`](crate::store::Durability::ProcessCrash) or less |
//! | syncing | a sync that begins after the write | |
//! | synced | the success of that sync, or of a checkpoint | all |
//!
//! Batches reach each state in the order of their numbers. A sync covers all batches that were written before it began.
//! One sync is under way at a time.
//!
//! # When a sync begins
//!
//! The thread that commits starts a sync once a caller waits for the disk, or 20 ms after the first unsynced batch.
//! During a sync it makes further batches. If a request need not wait for the disk, the thread makes a batch at once.
//! Otherwise it makes the batch halfway through the expected duration of the sync, because the next sync cannot begin
//! before this sync ends. After the sync, the thread waits briefly for the next requests of the answered callers, so
//! that the next sync includes them.
//!
//! # A sync that fails
//!
//! After an error, the state of the written bytes is unknown, so all notes since the checkpoint count as not written.
//! The thread that commits makes a checkpoint. Then the database has the batches without the journal, and all callers
//! are answered. If the checkpoint fails, too, all callers that wait for the disk get
//! [`Unknown`](crate::store::StoreErrorKind::Unknown), even if their batches were made after the failed sync. The
//! batches are kept: they are replayed when the database is opened again, and their notes are written again. A batch
//! whose note was written cannot be undone, because later batches, some of which were answered, depend on it. For
//! example, a timer may have been claimed while its creation still waits for the disk.
//!
//! # Checkpoints
//!
//! The thread that commits makes a checkpoint, which commits the database to the disk. No batch is made during a
//! checkpoint. A checkpoint makes all batches durable, so it answers all waiting callers and clears the journal. A sync
//! that is under way at that time belongs to an earlier *epoch*. Its success is ignored, because later records may not
//! be part of it. Its failure may concern later records, since these have the place of the earlier records in the file.
//! So the next sync first writes all records again.
//!
//! # Invariants
//! P1. A waiting answer is kept in a single place, and is sent once: after the sync, the checkpoint or the error that
//!     decides the result of its batch.
//! P2. No code of a caller runs under the lock. The thread that sends an answer also calls the caller's waker, so a
//!     waker that blocks delays all other callers.
//! P3. A thread that syncs changes the journal only under the lock, and waits for the disk outside of it.

use super::backend::WatchedBackend;
use super::common::Common;
use super::journal::{Journal, Record};
use super::queue::Bell;
use super::request::Pending;
use crate::panics::survive;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::failpoints::{Point, reach};
use core::time::Duration;
use redb::StorageBackend;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_words::UtcMillis;

/// The longest time from a change to the start of the sync that brings the change to the disk. This time applies if no
/// caller waits for the disk. Otherwise the sync starts earlier.
const LATE: Duration = Duration::from_millis(20);

/// The duration of a sync above which the disk counts as slow.
const QUICK: Duration = Duration::from_millis(1);
/// The greatest duration of a sync in the computation of [`PipeState::slow_until`]. A sync that takes longer counts as
/// this long.
const LONGEST: Duration = Duration::from_secs(60);
/// After a slow sync, the disk counts as slow for the duration of the sync, multiplied by this factor.
const WARY: u32 = 60;

/// Has the journal, with the records of the batches that must still reach the disk, and the answers to the callers that
/// wait for the disk. The thread that commits and the thread that syncs share this value.
pub(super) struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
}

struct PipeState {
    journal: Journal<WatchedBackend>,
    /// The answers that wait for the disk, with the numbers of their batches, in order.
    waiting: VecDeque<(u64, Vec<Pending>)>,
    /// The moment by which a sync must begin. `None` if all records of the journal are on the disk or in the sync that
    /// is under way.
    sync_at: Option<Instant>,
    is_ordered: bool,
    /// The moment at which the current sync began. `None` while no sync is under way.
    under_way: Option<Instant>,
    /// The duration of the last sync. Zero before the first sync.
    last: Duration,
    /// The moment until which the disk counts as slow.
    slow_until: Instant,
    /// The number of times that the journal was cleared. A sync that began before the journal was last cleared does not
    /// cover the current records.
    epoch: u64,
    failed: Option<StoreError>,
    is_over: bool,
}

/// A sync of the journal's file that is under way.
struct Sync {
    file: WatchedBackend,
    /// The number of the last batch that was in the file when the sync began.
    last: u64,
    epoch: u64,
}

impl PipeState {
    /// Begins a sync: writes the records of all batches to the journal's file. If the write fails, returns `None`, and
    /// notes a failed sync.
    fn begin(&mut self) -> Option<Sync> {
        // The flags are cleared even if the write fails. The thread that commits then makes a checkpoint, or sets the
        // time of the next sync.
        (self.is_ordered, self.sync_at) = (false, None);
        // A file that the caller supplies may panic, and must not end the thread that syncs.
        let write = || self.journal.reserve().and_then(|()| self.journal.write_out());
        let written = survive(write)
            .unwrap_or_else(|| Err(StoreError::new(StoreErrorKind::Io, "a write to the journal panicked")));
        if let Err(error) = written {
            self.failed = Some(error);
            return None;
        }
        self.under_way = Some(Instant::now());
        Some(Sync { file: self.journal.file(), last: self.journal.last_written(), epoch: self.epoch })
    }

    /// Takes the waiting answers to the batches up to number `synced`.
    fn answers(&mut self, synced: u64) -> Vec<Pending> {
        let count = self.waiting.iter().take_while(|(sequence, _)| *sequence <= synced).count();
        self.waiting.drain(..count).flat_map(|(_, answers)| answers).collect()
    }
}

/// Sends answers to their callers. If `error` is given, each caller gets the error instead of the result. Catches
/// panics of the callers' wakers.
pub(super) fn send(answers: Vec<Pending>, error: Option<&StoreError>) {
    for answer in answers {
        survive(|| answer(error.cloned()));
    }
}

impl Pipe {
    pub(super) fn new(journal: Journal<WatchedBackend>) -> Self {
        let state = PipeState {
            journal,
            waiting: VecDeque::new(),
            sync_at: None,
            is_ordered: false,
            under_way: None,
            last: Duration::ZERO,
            // The speed of the disk is not known yet.
            slow_until: Instant::now() + LATE * WARY,
            epoch: 0,
            failed: None,
            is_over: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- For the thread that commits ---

    /// Returns the number of bytes of the journal's records since the last checkpoint.
    pub(super) fn len(&self) -> usize {
        self.lock().journal.len()
    }

    /// Returns the length of the journal's file, in bytes.
    pub(super) fn file_len(&self) -> u64 {
        self.lock().journal.file_len()
    }

    /// Returns the records of the journal that follow batch `last`.
    pub(super) fn records(&self, last: u64) -> Result<Vec<Record>, StoreError> {
        self.lock().journal.records(last)
    }

    /// Adds the record of a batch to the journal, in memory. Returns the number of bytes of all earlier records, for
    /// [`retract`](Self::retract).
    pub(super) fn note(&self, sequence: u64, now: UtcMillis, notes: &[u8]) -> usize {
        let mut state = self.lock();
        let len = state.journal.len();
        state.journal.append(sequence, now, notes);
        state.sync_at.get_or_insert(Instant::now() + LATE);
        len
    }

    /// Removes the record of the last batch from the journal's memory, unless the file has the record. `len` is the
    /// result of [`note`](Self::note). Returns whether the record was removed.
    pub(super) fn retract(&self, sequence: u64, len: usize) -> bool {
        let mut state = self.lock();
        // The thread that syncs may have written the record since the call of `note`.
        let may_retract = state.journal.last_written() < sequence;
        if may_retract {
            state.journal.retract(len);
        }
        may_retract
    }

    /// Writes the records of all batches to the journal's file. An error comes with a flag: true if a part of the last
    /// record may be in the file.
    pub(super) fn write_out(&self) -> Result<(), (StoreError, bool)> {
        let mut state = self.lock();
        // A failed `reserve` has added zeros at most, so the file has no part of the record.
        state.journal.reserve().map_err(|error| (error, false))?;
        state.journal.write_out().map_err(|error| (error, true))
    }

    /// Keeps answers until the disk has the records of all batches up to `sequence`. If the disk already has these
    /// records, returns the answers instead.
    pub(super) fn wait_for_disk(&self, sequence: u64, answers: Vec<Pending>) -> Vec<Pending> {
        let mut state = self.lock();
        // An empty entry would count as a waiting caller, and would start a sync.
        if answers.is_empty() || state.journal.has_synced(sequence) {
            return answers;
        }
        state.waiting.push_back((sequence, answers));
        Vec::new()
    }

    /// Starts a sync if one is due. Does nothing while a sync is ordered (assigned to the thread that syncs) or under
    /// way, or while the error of a failed sync waits for [`take_failure`](Self::take_failure). If callers wait and the
    /// disk is quick, the calling thread makes the sync. Otherwise the thread that syncs makes it.
    pub(super) fn sync_if_wanted(&self, common: &Common, bell: &Bell) {
        let mut state = self.lock();
        let is_late = state.sync_at.is_some_and(|at| at <= Instant::now());
        let is_wanted = is_late || !state.waiting.is_empty();
        if !is_wanted || state.under_way.is_some() || state.is_ordered || state.failed.is_some() {
            return;
        }
        // If no caller waits, the thread that commits leaves even a quick sync to the other thread, and stays free for
        // requests.
        if !state.waiting.is_empty() && state.slow_until <= Instant::now() {
            let begun = state.begin();
            drop(state);
            self.sync(begun, common, bell);
        } else {
            state.is_ordered = true;
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Returns the moment until which the thread that commits waits for more requests. The moment is the start of the
    /// current sync plus half the duration of the last sync. If a sync is ordered but has not begun, the current time
    /// takes the place of its start. `None` if no sync is under way or ordered.
    pub(super) fn gathers_until(&self) -> Option<Instant> {
        let state = self.lock();
        match state.under_way {
            Some(since) => Some(since + state.last / 2),
            // The sync is ordered, and begins soon.
            None => state.is_ordered.then(|| Instant::now() + state.last / 2),
        }
    }

    /// Returns whether answers wait for the disk.
    pub(super) fn has_waiting(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Returns the moment by which the next sync must begin. `None` if the journal needs no sync, if the last sync has
    /// failed, or while a sync is ordered or under way.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        let state = self.lock();
        let may_begin = state.under_way.is_none() && !state.is_ordered && state.failed.is_none();
        state.sync_at.filter(|_| may_begin)
    }

    /// Takes the error of the last sync. `None` if that sync has not failed, or if the error was already taken.
    pub(super) fn take_failure(&self) -> Option<StoreError> {
        self.lock().failed.take()
    }

    /// Takes all answers that wait for the disk, so that the caller can send an error instead.
    pub(super) fn give_up(&self) -> Vec<Pending> {
        self.lock().answers(u64::MAX)
    }

    /// Schedules the next sync for the time `rest` from now.
    pub(super) fn retry_in(&self, rest: Duration) {
        let mut state = self.lock();
        state.sync_at = state.sync_at.or(Some(Instant::now())).map(|_| Instant::now() + rest);
    }

    /// Clears the journal, because the database on the disk has all batches up to `durable`. Returns the answers that
    /// waited for these batches.
    pub(super) fn clear(&self, durable: u64) -> Vec<Pending> {
        let mut state = self.lock();
        state.journal.clear(durable);
        state.epoch += 1;
        // `under_way` stays set, because a sync of the former epoch may still run, and only one sync may run at a time.
        (state.sync_at, state.is_ordered, state.failed) = (None, false, None);
        state.answers(durable)
    }

    /// Makes the thread that syncs end.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_one();
    }

    // --- For a thread that syncs ---

    /// Runs the thread that syncs: syncs the journal whenever the thread that commits orders a sync, until the store is
    /// closed.
    pub(super) fn run(&self, common: &Common, bell: &Bell) {
        while let Some(begun) = self.await_order() {
            self.sync(begun, common, bell);
        }
    }

    /// Waits until the thread that commits orders a sync, and begins the sync. Returns `Some(None)` if the sync could
    /// not begin, and `None` if the thread must end.
    fn await_order(&self) -> Option<Option<Sync>> {
        let mut state = self.lock();
        loop {
            // An ordered sync is dropped. The closing store makes a checkpoint, or fails and answers the callers.
            if state.is_over {
                return None;
            }
            if state.is_ordered {
                return Some(state.begin());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Finishes a sync that [`PipeState::begin`] has begun: waits until the disk has the records, and then sends the
    /// answers that waited for them. `begun` is `None` if the sync could not begin.
    fn sync(&self, begun: Option<Sync>, common: &Common, bell: &Bell) {
        // The thread that commits handles the error of a sync that could not begin.
        let Some(Sync { file, last, epoch }) = begun else { return bell.ring(true) };
        let started = Instant::now();
        let synced = survive(|| file.sync_data());
        let synced = synced.unwrap_or_else(|| Err(std::io::Error::other("the sync panicked")));
        let took = started.elapsed();
        let mut state = self.lock();
        common.synced(took, state.journal.file_len());
        state.under_way = None;
        state.last = took;
        if took > QUICK || synced.is_err() {
            state.slow_until = Instant::now() + took.min(LONGEST) * WARY;
        }
        let mut answers = Vec::new();
        let is_current = state.epoch == epoch;
        match synced {
            Ok(()) if is_current => {
                // The seal is needed only at the next opening. A file that a caller supplies may panic when the seal is
                // written.
                survive(|| state.journal.synced(last));
                answers = state.answers(last);
            }
            Ok(()) => {}
            Err(error) => {
                // The system may now count records of the current epoch as synced, too, although the disk lacks them.
                state.journal.distrust();
                if is_current {
                    state.failed = Some(error.into());
                }
            }
        }
        // During the sync, `wakes_at` has left out `sync_at`. So the thread that commits must look at `sync_at` now.
        let is_more = !state.waiting.is_empty() || state.sync_at.is_some() || state.failed.is_some();
        drop(state);
        if !answers.is_empty() {
            // The callers are counted before they are answered. Their next requests may arrive at once, and would be
            // counted twice.
            bell.expect(answers.len());
            reach(Point::BeforeAnswers);
        }
        send(answers, None);
        bell.ring(is_more);
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let left = self.give_up();
        let error =
            StoreError::new(StoreErrorKind::Unknown, "the store was closed before the disk had the change");
        send(left, Some(&error));
    }
}
