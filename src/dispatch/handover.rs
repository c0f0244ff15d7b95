//! Due chunks on their way to the workers.
//!
//! What one turn finds due is handed over together, up to [`HANDOVER_CHUNKS`]: a job for each chunk would wake a worker
//! for every 32 timers.
//!
//! # Invariants
//! H1. Each ticket is taken by exactly one worker: the cursor of its chunk gives each place out once.
//! H2. A handover with tickets that were not taken is in `Underway`, and is sent again while no job waits for it.

use super::{Dispatcher, Fire};
use crate::sync::{AtomicU32, Ordering, StdArc};
use crate::tick::Timestamp;
use crate::ticket::Ticket;
use crate::wheel::Chunk;
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
    }

    fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.tickets.len()).sum()
    }

    fn is_taken(&self) -> bool {
        self.chunks.iter().all(DueChunk::is_taken)
    }
}

/// One job for a handover, on its way through an executor.
pub(super) struct Errand<F: Fire> {
    handover: StdArc<Handover>,
    fire: StdArc<F>,
    begun: bool,
}

impl<F: Fire> Errand<F> {
    pub(super) fn new(handover: &StdArc<Handover>, fire: &StdArc<F>) -> Self {
        // Ordering: Relaxed. A count that orders nothing.
        handover.waiting_jobs.fetch_add(1, Ordering::Relaxed);
        Self { handover: StdArc::clone(handover), fire: StdArc::clone(fire), begun: false }
    }

    pub(super) fn run(mut self) {
        self.begun = true;
        self.wait_no_longer();
        self.handover.run(&self.fire);
    }

    fn wait_no_longer(&self) {
        // Ordering: Relaxed. As in `new`.
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

/// Handovers that one look goes through at most.
const LOOKS: usize = 256;

/// The handovers of a shard that workers may still be at, the longest one in front.
#[derive(Debug, Default)]
pub(crate) struct Underway {
    handovers: VecDeque<StdArc<Handover>>,
}

impl Underway {
    pub(crate) fn push(&mut self, handover: StdArc<Handover>) {
        self.handovers.push_back(handover);
    }

    /// Sends one more worker to each handover that has tickets left and no job waiting: its workers are slow, or its job
    /// was dropped. To be called once in a while; what a worker does at once is finished by then.
    pub(crate) fn look<F: Fire>(&mut self, dispatcher: &Dispatcher, fire: &StdArc<F>) {
        for _ in 0..self.handovers.len().min(LOOKS) {
            let Some(handover) = self.handovers.pop_front() else { break };
            if handover.is_taken() {
                continue;
            }
            // Ordering: Relaxed. A stale count postpones help by one look, or sends a job that finds nothing to do.
            if handover.waiting_jobs.load(Ordering::Relaxed) == 0 {
                // Nothing is lost by a panic here: the next look finds no job waiting.
                let _sent = dispatcher.dispatch(fire, &handover);
            }
            self.handovers.push_back(handover);
        }
    }

    /// Whether a slow handler could be holding others up, or a job was dropped: the shard should look again soon.
    pub(crate) fn wants_a_look(&self) -> bool {
        self.handovers.iter().take(LOOKS).any(|handover| {
            let waits = handover.waiting_jobs.load(Ordering::Relaxed) > 0;
            !handover.is_taken() && (handover.len() > 1 || !waits)
        })
    }
}
