//! Due chunks on their way to the workers.
//!
//! What one turn finds due is handed over together, up to [`HANDOVER_CHUNKS`]: a job for each chunk would wake a worker
//! for every 32 timers.
//!
//! # Invariants
//! H1. Each ticket is taken by exactly one worker: the cursor of its chunk gives each place out once.
//! H2. A handover with tickets that were not taken is in `Underway`, and is sent again when nobody works on it.

use super::{Dispatcher, Fire};
use crate::sync::{AtomicU32, Ordering, StdArc};
use crate::ticket::Ticket;
use crate::wheel::Chunk;

/// Chunks in one handover at most: 512 tickets.
pub(crate) const HANDOVER_CHUNKS: usize = 16;

/// A chunk, and how far its workers have come.
#[derive(Debug)]
pub(crate) struct DueChunk {
    tickets: Chunk,
    cursor: AtomicU32,
}

impl DueChunk {
    pub(crate) fn new(tickets: Chunk) -> Self {
        Self { tickets, cursor: AtomicU32::new(0) }
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
    /// Workers that are at it.
    workers: AtomicU32,
}

impl Handover {
    pub(crate) fn new(shard: usize, chunks: Vec<DueChunk>) -> Self {
        Self { shard, chunks: chunks.into_boxed_slice(), workers: AtomicU32::new(0) }
    }

    /// Fires the tickets that no other worker takes.
    pub(crate) fn run<F: Fire>(&self, fire: &StdArc<F>) {
        // Ordering: Relaxed, here and in `has_idle_job`. Only a measure.
        self.workers.fetch_add(1, Ordering::Relaxed);
        for chunk in self.chunks.iter().filter(|chunk| !chunk.is_taken()) {
            fire.fire(self.shard, chunk);
        }
        self.workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a job for it waits for its worker. `Underway` has one reference, and each job one.
    fn has_idle_job(self: &StdArc<Self>) -> bool {
        StdArc::strong_count(self) - 1 > self.workers.load(Ordering::Relaxed) as usize
    }

    /// Whether each job for it has ended or was dropped.
    fn is_left_alone(self: &StdArc<Self>) -> bool {
        StdArc::strong_count(self) == 1
    }

    fn taken(&self) -> usize {
        self.chunks.iter().map(DueChunk::taken).sum()
    }

    fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.tickets.len()).sum()
    }
}

/// The handovers of a shard that workers may still be at.
#[derive(Debug, Default)]
pub(crate) struct Underway {
    handovers: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    handover: StdArc<Handover>,
    taken_at_last_look: usize,
}

impl Underway {
    pub(crate) fn push(&mut self, handover: StdArc<Handover>) {
        self.handovers.push(Entry { handover, taken_at_last_look: 0 });
    }

    /// Sends help to handovers that were begun and have not moved since the last look, unless help is on its way, and
    /// sends those again that were dropped. To be called at most once a tick or so.
    pub(crate) fn look<F: Fire>(&mut self, dispatcher: &Dispatcher, fire: &StdArc<F>) {
        self.handovers.retain_mut(|entry| {
            let taken = entry.handover.taken();
            if taken == entry.handover.len() {
                return false;
            }
            let held_up = taken > 0 && taken == entry.taken_at_last_look && !entry.handover.has_idle_job();
            if held_up || entry.handover.is_left_alone() {
                dispatcher.dispatch(fire, &entry.handover);
            }
            entry.taken_at_last_look = taken;
            true
        });
    }

    /// Whether a slow handler could be holding others up: the shard should look again soon.
    pub(crate) fn wants_a_look(&self) -> bool {
        self.handovers.iter().any(|entry| {
            let len = entry.handover.len();
            (len > 1 || entry.handover.is_left_alone()) && entry.handover.taken() < len
        })
    }
}
