//! Batches of due tickets on their way to the workers.
//!
//! The tickets that a turn of a shard finds due are handed over together, in batches of up to [`BATCH_CHUNKS`] chunks.
//! If each chunk had a job of its own, every 32 timers would wake a worker.
//!
//! # Invariants
//! H1. Each ticket is taken by exactly one worker: the cursor of its chunk passes over each place once. A batch whose
//!     handlers run inline stays with one thread, which moves the cursor by plain stores (`DueChunk::take_alone`; model
//!     `alone::an_inline_batch_is_fired_on_the_thread_of_its_turn`).
//! H2. A batch with tickets that were not taken is in `InFlight`. The shard sends it again if no job for the batch is
//!     waiting. A job that was run in part waits again.
//!
//! # Synchronisation
//! The cursor of a shared chunk and the count of waiting jobs are changed by read-modify-writes. They publish nothing,
//! since the tickets come with the job and do not change. So their orderings are Relaxed. Other words carry the facts
//! that a shard must not miss when it goes to sleep:
//!
//! | pair | one side                          | other side                    | handed over or ruled out         | model |
//! |------|-----------------------------------|-------------------------------|----------------------------------|-------|
//! | H3   | a job's drop, `want_check`         | `take_check_wanted`, `check`   | the fact that no job waits       | `batch::a_job_that_is_dropped_is_sent_again` |
//! | F1 of `parker` | the last `take`, `made_room` | held back, announced, `is_taken` | both miss                | `batch::a_taken_batch_makes_room` |

use super::dispatcher::Dispatcher;
use super::executor::Work;
use crate::base::sync::{AtomicU32, Ordering, StdArc};
use crate::base::tick::Timestamp;
use crate::base::ticket::{Chunk, Ticket};
use std::collections::VecDeque;

/// The interface of an engine for its shards: it runs the handlers of the timers whose tickets (requests to check
/// timers) are due.
pub(crate) trait Fire: Send + Sync + 'static {
    fn dispatcher(&self) -> &Dispatcher;

    /// Fires the timers of the tickets in `batch` that no other worker has taken. Stops after `most` calls of handlers,
    /// or when no ticket is left. Returns the number of calls.
    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize;

    /// Tells `shard` that workers have taken tickets of a batch. The shard may then hand over more tickets.
    fn batch_taken(&self, shard: usize);

    /// Tells `shard` that an executor has dropped a job. The shard then checks its batches.
    fn job_dropped(&self, shard: usize);
}

/// Runs `batch`, a group of due timers, on the threads on which the engine's handlers run. Returns false if the
/// executor panicked.
pub(crate) fn dispatch(engine: &StdArc<dyn Fire>, batch: &StdArc<Batch>) -> bool {
    if engine.dispatcher().is_inline() {
        batch.run(engine, usize::MAX);
        return true;
    }
    BatchJob::new(batch, engine).send()
}

/// The greatest number of chunks (groups of due tickets) in a batch. Such a batch has 1,024 tickets. If a turn of a
/// shard has only one batch, the shard's own thread runs the batch. For more timers, a second thread is worth its
/// wake-up.
pub(crate) const BATCH_CHUNKS: usize = 32;

/// A chunk of due tickets, and the number of its tickets that workers have taken.
#[derive(Debug)]
pub(crate) struct DueChunk {
    tickets: Chunk,
    handed_over: Timestamp,
    cursor: AtomicU32,
}

impl DueChunk {
    pub(crate) fn new(tickets: Chunk, handed_over: Timestamp) -> Self {
        Self { tickets, handed_over, cursor: AtomicU32::new(0) }
    }

    /// Returns the moment at which the shard found the chunk due.
    pub(crate) fn handed_over(&self) -> Timestamp {
        self.handed_over
    }

    pub(crate) fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }

    pub(crate) fn tickets_mut(&mut self) -> &mut [Ticket] {
        &mut self.tickets
    }

    /// Takes the chunk's next ticket. No other worker gets this ticket. The returned flag is true for the chunk's first
    /// ticket.
    #[inline]
    pub(crate) fn take(&self) -> Option<(Ticket, bool)> {
        // Ordering: Relaxed [H1]. The tickets came with the job and do not change.
        self.ticket_at(self.cursor.fetch_add(1, Ordering::Relaxed))
    }

    /// Works like [`take`](Self::take), for a chunk that no other thread has, because its handlers run inline.
    ///
    /// The turn that finds such a chunk due fires its batch at once ([`dispatch`]), under the lock of the shard.
    /// Afterwards nothing keeps the batch. So no other thread comes to the chunk:
    /// - *Help for a slow handler*, and a check after a dropped job, send batches of [`InFlight`] again. That happens
    ///   at shards with threads, of loops and of drivers. No inline batch is ever in flight (`shard::output`).
    /// - *A takeover* needs a leader that has unlocked its shard. A leader unlocks its shard only for a batch of
    ///   workers, after the turn. By then the inline batches of the turn are gone.
    /// - *Another turn* of the shard needs its lock, and finds chunks of its own. A thread that drains its full lane,
    ///   and a shutdown that takes stations out, need the lock as well. Neither of these two fires anything.
    /// - *A job* can go to any thread, but [`dispatch`] makes no job for an inline batch. The dispatcher of an engine
    ///   never changes.
    /// - *A handler of the chunk* would have to turn the shard, whose lock its own thread holds.
    ///
    /// If the user's clock panics between two handlers, the batch is dropped with its tickets.
    #[inline]
    pub(crate) fn take_alone(&self) -> Option<(Ticket, bool)> {
        // Ordering: Relaxed [H1]. One thread changes the cursor.
        let place = self.cursor.load(Ordering::Relaxed);
        // Ordering: Relaxed. As above.
        self.cursor.store(place.saturating_add(1), Ordering::Relaxed);
        self.ticket_at(place)
    }

    #[inline]
    fn ticket_at(&self, place: u32) -> Option<(Ticket, bool)> {
        self.tickets.get(place as usize).map(|&ticket| (ticket, place == 0))
    }

    fn taken(&self) -> usize {
        // Ordering: Relaxed. After a stale value, help comes one check later.
        (self.cursor.load(Ordering::Relaxed) as usize).min(self.tickets.len())
    }

    fn is_taken(&self) -> bool {
        self.taken() == self.tickets.len()
    }
}

/// Due tickets of one shard, in chunks. Several workers may fire their timers together.
#[derive(Debug)]
pub(crate) struct Batch {
    shard: usize,
    chunks: Box<[DueChunk]>,
    /// The number of jobs for this batch that wait for a thread. A job waits before its first run, and between two runs
    /// that each fire a part of the batch.
    waiting_jobs: AtomicU32,
}

impl Batch {
    pub(crate) fn new(shard: usize, chunks: Vec<DueChunk>) -> Self {
        Self { shard, chunks: chunks.into_boxed_slice(), waiting_jobs: AtomicU32::new(0) }
    }

    pub(crate) fn shard(&self) -> usize {
        self.shard
    }

    /// Returns the chunks that have tickets left. Workers have taken all tickets of the other chunks.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &DueChunk> {
        self.chunks.iter().filter(|chunk| !chunk.is_taken())
    }

    /// Fires the timers of tickets that no other worker has taken. Calls at most `most` handlers, and returns the
    /// number of called handlers.
    fn run(&self, engine: &StdArc<dyn Fire>, most: usize) -> usize {
        let called = StdArc::clone(engine).fire(self, most);
        // Notify the shard even if tickets are left. The worker that took the last ticket may not have seen the tickets
        // that were taken here.
        engine.batch_taken(self.shard);
        called
    }

    fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.tickets.len()).sum()
    }

    fn is_taken(&self) -> bool {
        self.chunks.iter().all(DueChunk::is_taken)
    }

    fn has_waiting_jobs(&self) -> bool {
        // Ordering: Relaxed. After a stale count, help comes one check later, or a job is sent that finds nothing to
        // do. If `want_check` asked for the check, its flag guarantees that the dropped job is no longer counted (H3).
        self.waiting_jobs.load(Ordering::Relaxed) > 0
    }
}

/// A job that fires the timers of a batch. An executor passes the job to a thread, or the thread that leads the shard
/// runs it.
pub(crate) struct BatchJob {
    batch: StdArc<Batch>,
    engine: StdArc<dyn Fire>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No thread runs the job at present. The batch counts the job among its waiting jobs.
    Waits,
    /// A thread runs the job, or the job's last run has panicked.
    Runs,
    /// The job is done: a run found no ticket left, or found that the engine has ended.
    Done,
}

impl BatchJob {
    pub(crate) fn new(batch: &StdArc<Batch>, engine: &StdArc<dyn Fire>) -> Self {
        let (batch, engine) = (StdArc::clone(batch), StdArc::clone(engine));
        let mut job = Self { batch, engine, stage: Stage::Runs };
        job.begin_to_wait();
        job
    }

    /// Sends the job to the threads on which the engine's handlers run. Returns false if the executor panicked.
    pub(crate) fn send(self) -> bool {
        let engine = StdArc::clone(&self.engine);
        engine.dispatcher().send(self)
    }

    pub(crate) fn run(mut self) {
        self.run_some(usize::MAX);
    }

    fn begin_to_wait(&mut self) {
        // Ordering: Relaxed. The count orders nothing.
        self.batch.waiting_jobs.fetch_add(1, Ordering::Relaxed);
        self.stage = Stage::Waits;
    }

    fn wait_no_longer(&mut self) {
        // Ordering: Relaxed. As in `begin_to_wait`. `job_dropped` makes the count visible to a check (H3).
        self.batch.waiting_jobs.fetch_sub(1, Ordering::Relaxed);
        self.stage = Stage::Runs;
    }
}

impl Work for BatchJob {
    fn run_some(&mut self, most: usize) -> usize {
        match self.stage {
            Stage::Waits => self.wait_no_longer(),
            Stage::Runs => {}
            Stage::Done => return 0,
        }
        let called = self.batch.run(&self.engine, most);
        if called < most || self.batch.is_taken() {
            self.stage = Stage::Done;
        } else {
            self.begin_to_wait();
        }
        called
    }

    fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }
}

impl Drop for BatchJob {
    fn drop(&mut self) {
        match self.stage {
            Stage::Waits => self.wait_no_longer(),
            Stage::Runs => {}
            Stage::Done => return,
        }
        self.engine.job_dropped(self.batch.shard);
    }
}

/// The greatest number of batches (groups of due timers) that a shard may have at the workers. The shard hands over a
/// further batch only after the workers have taken all tickets of the oldest batch. Further due tickets are held back
/// (`shard::backlog`). 128 full batches are work for some tens of milliseconds.
const MOST_IN_FLIGHT: usize = 128;

/// The batches of a shard that workers may still be running, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    batches: VecDeque<StdArc<Batch>>,
}

impl InFlight {
    /// Returns whether the shard may send another batch to the workers.
    pub(crate) fn has_room(&self) -> bool {
        self.batches.len() < MOST_IN_FLIGHT
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(crate) fn push(&mut self, batch: StdArc<Batch>) {
        if !self.has_room() {
            // Owned timers that were checked and are due cannot be held back. In a single turn their batches may exceed
            // the limit.
            self.forget_taken();
        }
        self.batches.push_back(batch);
    }

    /// Removes the batches whose tickets workers have all taken, to make room for further batches. A ticket is a
    /// request to check a timer.
    pub(crate) fn forget_taken(&mut self) {
        self.batches.retain(|batch| !batch.is_taken());
    }

    /// Sends another job for each batch that has tickets left but no waiting job. The workers of such a batch are slow,
    /// or its job was dropped. The shard calls this method rarely, so that the workers have finished quick batches
    /// before the call.
    pub(crate) fn check(&mut self, engine: &StdArc<dyn Fire>) {
        self.forget_taken();
        for batch in self.batches.iter().filter(|batch| !batch.has_waiting_jobs()) {
            // A panic here loses nothing: the next check finds that no job waits.
            let _sent = dispatch(engine, batch);
        }
    }

    /// Returns whether the shard should check the batches soon. A slow handler may hold up other tickets, or a job may
    /// have been dropped.
    pub(crate) fn wants_check(&self) -> bool {
        self.batches.iter().any(|batch| !batch.is_taken() && (batch.len() > 1 || !batch.has_waiting_jobs()))
    }
}
