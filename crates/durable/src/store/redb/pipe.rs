//! Brings batches to the disk, with a thread that syncs the journal.
//!
//! Two threads share this part. The thread that commits makes batches, writes them, and says when a sync begins. On a
//! slow disk the second thread waits for the sync, and answers the callers that waited. So a batch is made while the
//! batch before it is synced. Requests that need not wait for the disk are answered at once: claims and ends of
//! deliveries, for example.
//!
//! On a quick disk the change from one thread to the other takes about as long as the sync. So the thread that commits
//! syncs the journal itself when callers wait for a sync. It makes no batch until the disk has answered. A sync that
//! fails or takes more than a millisecond makes the disk count as slow, for sixty times the sync's length. So a disk
//! that stalls now and then delays the thread that commits for at most a sixtieth of the time.
//!
//! # The states of a batch
//!
//! | state | begins with | and is answered then |
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
//! The thread that commits orders a sync once a caller waits for the disk. For batches without such a caller it does so
//! 20 ms after the first. While a sync is under way it makes further batches. It does so at once if a request need not
//! wait for the disk. Otherwise it makes a batch in the middle of the sync, since no other sync could begin earlier.
//! When the sync has ended, its callers get a moment to send their next requests. These requests are in the next sync.
//!
//! # A sync that fails
//!
//! After an error nothing is known of the written bytes. So all notes since the checkpoint count as not written. The
//! thread that commits makes a checkpoint: then the database has the batches without the journal, and all callers are
//! answered. If the checkpoint fails, too, all callers that wait for the disk get
//! [`Unknown`](crate::store::StoreErrorKind::Unknown). This includes the callers of batches that were made after the
//! failed sync. Their batches stay: they are run again in the database that is opened again, and their notes are
//! written again. A batch whose note was written cannot be taken back. Later batches, some of them answered, depend on
//! it: the claim of a timer, for example, whose creation waits for the disk.
//!
//! # Checkpoints
//!
//! The thread that commits makes a checkpoint, and no batch is made during that time. A checkpoint makes all batches
//! durable, so it answers all callers that wait, and clears the journal. If a sync is under way then, its result is
//! ignored: it belongs to an earlier *epoch*.
//!
//! # Invariants
//! P1. An answer that waits is kept in a single place, and is sent once: after the sync, the checkpoint or the error
//!     that decides about its batch.
//! P2. No caller's code runs under the lock. The thread that sends an answer also wakes the caller. So a waker that
//!     blocks holds up all other callers.
//! P3. A thread that syncs changes the journal only under the lock, and waits for the disk outside of it.

use super::backend::WatchedBackend;
use super::common::Common;
use super::journal::{Journal, Record};
use super::queue::Bell;
use super::request::Pending;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::failpoints::{Point, reach};
use core::time::Duration;
use redb::StorageBackend;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_words::UtcMillis;

/// The time after which a sync begins for changes whose callers do not wait for the disk.
const LATE: Duration = Duration::from_millis(20);

/// The length of a sync beyond which the disk counts as slow.
const QUICK: Duration = Duration::from_millis(1);
/// The greatest length of a sync that counts for [`PipeState::slow_until`]. A longer sync counts as a sync of this
/// length.
const LONGEST: Duration = Duration::from_secs(60);
/// The factor by which the length of a slow sync is multiplied. The product is the time for which the disk counts as
/// slow after the sync.
const WARY: u32 = 60;

/// Keeps the batches on their way to the disk. The thread that commits adds batches. The thread that syncs brings the
/// batches to the disk.
pub(super) struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
}

struct PipeState {
    journal: Journal<WatchedBackend>,
    /// The answers that wait until the disk has the changes, with the numbers of their batches.
    waiting: VecDeque<(u64, Vec<Pending>)>,
    /// The moment by which a sync must begin, because the disk lacks records of the journal. `None` if no sync must
    /// begin.
    sync_at: Option<Instant>,
    is_ordered: bool,
    /// The moment at which the present sync began. `None` while no sync is under way.
    under_way: Option<Instant>,
    /// The length of the last sync. Zero before the first sync.
    last: Duration,
    /// The moment until which the disk counts as slow.
    slow_until: Instant,
    /// The number of times that the journal was cleared. A sync that began before the last clearing does not cover the
    /// present records.
    epoch: u64,
    failed: Option<StoreError>,
    is_over: bool,
}

/// A sync of the journal's file that is under way.
struct Sync {
    file: WatchedBackend,
    /// The number of the last batch that the file had when the sync began.
    last: u64,
    epoch: u64,
}

impl PipeState {
    /// Begins a sync: writes the records of all batches to the journal's file. Returns `None` if the write fails. A
    /// failed write counts as a failed sync.
    fn begin(&mut self) -> Option<Sync> {
        (self.is_ordered, self.sync_at) = (false, None);
        // A file that the caller supplies may panic, and the thread that syncs must go on.
        let write = || self.journal.reserve().and_then(|()| self.journal.write_out());
        let written = catch_unwind(AssertUnwindSafe(write))
            .unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Io, "a write to the journal panicked")));
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

/// Sends answers to their callers. If `error` is given, each caller gets the error in place of the result. A panic of a
/// caller's waker is caught.
pub(super) fn send(answers: Vec<Pending>, error: Option<&StoreError>) {
    for answer in answers {
        let _panic = catch_unwind(AssertUnwindSafe(|| answer(error.cloned())));
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
            // Nothing is known of the disk yet.
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

    /// Returns the number of bytes of the journal's records that follow the last checkpoint, the commit of the database
    /// to the disk.
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

    /// Adds the record of a batch to the journal, in memory. Returns the number of bytes of all earlier records.
    pub(super) fn note(&self, sequence: u64, now: UtcMillis, notes: &[u8]) -> usize {
        let mut state = self.lock();
        let len = state.journal.len();
        state.journal.append(sequence, now, notes);
        state.sync_at.get_or_insert(Instant::now() + LATE);
        len
    }

    /// Removes the record of the last batch from the journal's memory, unless the file has the record. `len` is the
    /// number of bytes of all earlier records. Returns whether the record was removed.
    pub(super) fn retract(&self, sequence: u64, len: usize) -> bool {
        let mut state = self.lock();
        let may_retract = state.journal.last_written() < sequence;
        if may_retract {
            state.journal.retract(len);
        }
        may_retract
    }

    /// Writes the records of all batches to the journal's file. Beside an error, returns whether a byte of the last
    /// record may be in the file.
    pub(super) fn write_out(&self) -> Result<(), (StoreError, bool)> {
        let mut state = self.lock();
        state.journal.reserve().map_err(|error| (error, false))?;
        state.journal.write_out().map_err(|error| (error, true))
    }

    /// Keeps answers until the disk has the records of all batches up to `sequence`. Returns the answers if the disk
    /// already has the records.
    pub(super) fn wait_for_disk(&self, sequence: u64, answers: Vec<Pending>) -> Vec<Pending> {
        let mut state = self.lock();
        if answers.is_empty() || state.journal.has_synced(sequence) {
            return answers;
        }
        state.waiting.push_back((sequence, answers));
        Vec::new()
    }

    /// Starts a sync if the journal needs a sync and none is under way. If callers wait and the disk is quick, makes
    /// the sync on this thread. Otherwise the thread that syncs gets the order.
    pub(super) fn sync_if_wanted(&self, common: &Common, bell: &Bell) {
        let mut state = self.lock();
        let is_late = state.sync_at.is_some_and(|at| at <= Instant::now());
        let is_wanted = is_late || !state.waiting.is_empty();
        if !is_wanted || state.under_way.is_some() || state.is_ordered || state.failed.is_some() {
            return;
        }
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

    /// Returns the moment until which the thread that commits gathers requests for a batch. `None` if no sync is under
    /// way or ordered.
    pub(super) fn gathers_until(&self) -> Option<Instant> {
        let state = self.lock();
        match state.under_way {
            Some(since) => Some(since + state.last / 2),
            // The sync was ordered, and begins in a moment.
            None => state.is_ordered.then(|| Instant::now() + state.last / 2),
        }
    }

    /// Returns whether answers wait until the disk has their changes.
    pub(super) fn has_waiting(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Returns the moment at which the next sync must begin. `None` if the journal needs no sync, or if the last sync
    /// has failed. Also `None` while a sync is ordered or under way.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        let state = self.lock();
        let may_begin = state.under_way.is_none() && !state.is_ordered && state.failed.is_none();
        state.sync_at.filter(|_| may_begin)
    }

    /// Takes the error of the last sync if that sync has failed.
    pub(super) fn take_failure(&self) -> Option<StoreError> {
        self.lock().failed.take()
    }

    /// Takes all answers that wait for the disk. The caller sends an error in their place.
    pub(super) fn give_up(&self) -> Vec<Pending> {
        self.lock().answers(u64::MAX)
    }

    /// Sets the moment of the next sync to the time `rest` from now.
    pub(super) fn retry_in(&self, rest: Duration) {
        let mut state = self.lock();
        state.sync_at = state.sync_at.or(Some(Instant::now())).map(|_| Instant::now() + rest);
    }

    /// Forgets the journal's records, because the database on the disk has all batches up to `durable`. Returns the
    /// answers that waited for these batches.
    pub(super) fn clear(&self, durable: u64) -> Vec<Pending> {
        let mut state = self.lock();
        state.journal.clear(durable);
        state.epoch += 1;
        (state.sync_at, state.is_ordered, state.failed) = (None, false, None);
        state.answers(durable)
    }

    /// Tells the thread that syncs to end.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_one();
    }

    // --- For a thread that syncs ---

    /// Syncs the journal whenever a sync is ordered, until the store is closed. The thread that syncs runs this method.
    pub(super) fn run(&self, common: &Common, bell: &Bell) {
        while let Some(begun) = self.await_order() {
            self.sync(begun, common, bell);
        }
    }

    /// Waits until a sync is ordered, and begins the sync. The inner `None` says that the sync could not begin. The
    /// outer `None` says that the thread must end.
    fn await_order(&self) -> Option<Option<Sync>> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if state.is_ordered {
                return Some(state.begin());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the disk has the written records. Then sends the answers that waited for the records.
    fn sync(&self, begun: Option<Sync>, common: &Common, bell: &Bell) {
        let Some(Sync { file, last, epoch }) = begun else { return bell.ring(true) };
        let started = Instant::now();
        let synced = catch_unwind(AssertUnwindSafe(|| file.sync_data()));
        let synced = synced.unwrap_or_else(|_| Err(std::io::Error::other("the sync panicked")));
        let took = started.elapsed();
        let mut state = self.lock();
        common.synced(took, state.journal.file_len());
        state.under_way = None;
        state.last = took;
        if took > QUICK || synced.is_err() {
            state.slow_until = Instant::now() + took.min(LONGEST) * WARY;
        }
        let mut answers = Vec::new();
        if state.epoch == epoch {
            match synced {
                Ok(()) => {
                    // The seal is only for the next start. A file that a caller supplies may panic when the seal is
                    // written.
                    let seal = AssertUnwindSafe(|| state.journal.synced(last));
                    let _panic = catch_unwind(seal);
                    answers = state.answers(last);
                }
                Err(error) => {
                    state.journal.distrust();
                    state.failed = Some(error.into());
                }
            }
        }
        let is_more = !state.waiting.is_empty() || state.sync_at.is_some() || state.failed.is_some();
        drop(state);
        if !answers.is_empty() {
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
