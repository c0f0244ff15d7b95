//! Due chunks on their way to the workers.
//!
//! What one turn finds due is handed over together, up to [`HANDOVER_CHUNKS`]: a job for each chunk would wake a worker
//! for every 32 timers.
//!
//! # Invariants
//! H1. Each ticket is taken by exactly one worker: the cursor of its chunk gives each place out once.
//! H2. A handover with tickets that were not taken is in `Underway`, and is sent again while no job waits for it.
//!
//! # Synchronisation
//! The cursor and the count of waiting jobs are changed by read-modify-writes and hand nothing over: tickets come with the
//! job, and do not change. So they are Relaxed. What a shard that goes to sleep must not miss comes by other words:
//!
//! | pair | one side                          | other side                    | what is handed over or ruled out | model |
//! |------|-----------------------------------|-------------------------------|----------------------------------|-------|
//! | H3   | a job's drop, `want_look`         | `take_look_wanted`, `look`    | that no job waits                | `handover::a_job_that_is_dropped_is_sent_again` |
//! | F1   | the last `take`, `made_room`      | held back, announced, `is_taken` | both miss                     | `handover::a_taken_handover_makes_room` |

use super::{Dispatcher, Fire};
use crate::sync::{AtomicU32, Ordering, StdArc};
use crate::tick::Timestamp;
use crate::ticket::{Chunk, Ticket};
use std::collections::VecDeque;

/// Chunks in one handover at most: 512 tickets.
pub(crate) const HANDOVER_CHUNKS: usize = 16;

/// A chunk, and how far its workers have come.
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

    /// When its shard found it due.
    pub(crate) fn handed_over(&self) -> Timestamp {
        self.handed_over
    }

    pub(crate) fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }

    /// A ticket that no other worker gets, and whether it is the chunk's first.
    pub(crate) fn take(&self) -> Option<(Ticket, bool)> {
        // Ordering: Relaxed [H1]. The tickets came with the job and do not change.
        let place = self.cursor.fetch_add(1, Ordering::Relaxed);
        self.tickets.get(place as usize).map(|&ticket| (ticket, place == 0))
    }

    fn taken(&self) -> usize {
        // Ordering: Relaxed. A stale value postpones help by one look.
        (self.cursor.load(Ordering::Relaxed) as usize).min(self.tickets.len())
    }

    fn is_taken(&self) -> bool {
        self.taken() == self.tickets.len()
    }
}

/// Due chunks of one shard.
#[derive(Debug)]
pub(crate) struct Handover {
    shard: usize,
    chunks: Box<[DueChunk]>,
    /// Jobs that were sent for it and have neither begun nor been dropped.
    waiting_jobs: AtomicU32,
}

impl Handover {
    pub(crate) fn new(shard: usize, chunks: Vec<DueChunk>) -> Self {
        Self { shard, chunks: chunks.into_boxed_slice(), waiting_jobs: AtomicU32::new(0) }
    }

    /// Fires the tickets that no other worker takes.
    pub(super) fn run<F: Fire>(&self, fire: &StdArc<F>) {
        for chunk in self.chunks.iter().filter(|chunk| !chunk.is_taken()) {
            fire.fire(self.shard, chunk);
        }
        fire.handover_taken(self.shard);
    }

    fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.tickets.len()).sum()
    }

    fn is_taken(&self) -> bool {
        self.chunks.iter().all(DueChunk::is_taken)
    }

    fn has_waiting_jobs(&self) -> bool {
        // Ordering: Relaxed. A stale count postpones help by one look, or sends a job that finds nothing to do. That the
        // job of a look that `want_look` asked for is not counted any more comes with the flag (H3).
        self.waiting_jobs.load(Ordering::Relaxed) > 0
    }
}

/// One job for a handover, on its way through an executor, or in the hands of the shard's leader.
pub(crate) struct Errand<F: Fire> {
    handover: StdArc<Handover>,
    fire: StdArc<F>,
    begun: bool,
}

impl<F: Fire> Errand<F> {
    pub(crate) fn new(handover: &StdArc<Handover>, fire: &StdArc<F>) -> Self {
        // Ordering: Relaxed. A count that orders nothing.
        handover.waiting_jobs.fetch_add(1, Ordering::Relaxed);
        Self { handover: StdArc::clone(handover), fire: StdArc::clone(fire), begun: false }
    }

    pub(crate) fn run(mut self) {
        self.begun = true;
        self.wait_no_longer();
        self.handover.run(&self.fire);
    }

    fn wait_no_longer(&self) {
        // Ordering: Relaxed. As in `new`; `job_dropped` hands it over to a look (H3).
        self.handover.waiting_jobs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<F: Fire> Drop for Errand<F> {
    fn drop(&mut self) {
        if !self.begun {
            self.wait_no_longer();
            self.fire.job_dropped(self.handover.shard);
        }
    }
}

/// Handovers that a shard has on their way at most, which bounds what waits in the workers' queue. What is due beyond them
/// is held back (`shard::backlog`). In full ones there is work for some tens of milliseconds.
const MOST_UNDERWAY: usize = 256;

/// The handovers of a shard that workers may still be at, the longest one in front.
#[derive(Debug, Default)]
pub(crate) struct Underway {
    handovers: VecDeque<StdArc<Handover>>,
}

impl Underway {
    /// Whether one more may be handed over.
    pub(crate) fn has_room(&self) -> bool {
        self.handovers.len() < MOST_UNDERWAY
    }

    #[cfg(all(test, tourbillon_loom))]
    pub(crate) fn is_empty(&self) -> bool {
        self.handovers.is_empty()
    }

    pub(crate) fn push(&mut self, handover: StdArc<Handover>) {
        if !self.has_room() {
            // Owned timers that are held cannot be held back: of one turn they may go beyond.
            self.forget_taken();
        }
        self.handovers.push_back(handover);
    }

    /// Makes room where workers have taken everything.
    pub(crate) fn forget_taken(&mut self) {
        self.handovers.retain(|handover| !handover.is_taken());
    }

    /// Sends one more worker to each handover that has tickets left and no job waiting: its workers are slow, or its job
    /// was dropped. To be called once in a while; what a worker does at once is finished by then.
    pub(crate) fn look<F: Fire>(&mut self, dispatcher: &Dispatcher, fire: &StdArc<F>) {
        self.forget_taken();
        for handover in self.handovers.iter().filter(|handover| !handover.has_waiting_jobs()) {
            // Nothing is lost by a panic here: the next look finds no job waiting.
            let _sent = dispatcher.dispatch(fire, handover);
        }
    }

    /// Whether a slow handler could be holding others up, or a job was dropped: the shard should look again soon.
    pub(crate) fn wants_a_look(&self) -> bool {
        self.handovers
            .iter()
            .any(|handover| !handover.is_taken() && (handover.len() > 1 || !handover.has_waiting_jobs()))
    }
}
