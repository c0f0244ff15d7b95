//! A due chunk on its way to the workers.
//!
//! # Invariants
//! H1. Each ticket of a chunk is taken by exactly one worker: `cursor` gives each place out once.
//! H2. A chunk whose last ticket was not taken is in `Underway` until it is, and is sent again when nobody works on it.
//!
//! # Synchronisation
//! | pair | release side | acquire side | what is handed over | model |
//! |------|--------------|--------------|---------------------|-------|
//! | H1   | the executor's queue | its worker | the chunk      | not ours |

use super::{Dispatcher, Fire};
use crate::sync::{AtomicU32, Ordering, StdArc};
use crate::ticket::Ticket;
use crate::wheel::Chunk;

/// A chunk, and how far its workers have come.
#[derive(Debug)]
pub(crate) struct Handover {
    shard: usize,
    tickets: Chunk,
    cursor: AtomicU32,
    /// Workers that are at it.
    running: AtomicU32,
}

impl Handover {
    pub(crate) fn new(shard: usize, tickets: Chunk) -> Self {
        Self { shard, tickets, cursor: AtomicU32::new(0), running: AtomicU32::new(0) }
    }

    /// Fires the tickets that no other worker takes.
    pub(crate) fn run<F: Fire>(&self, fire: &StdArc<F>) {
        // Ordering: Relaxed, here and below. Only a measure, see `has_idle_job`.
        self.running.fetch_add(1, Ordering::Relaxed);
        fire.look_ahead(&self.tickets);
        fire.fire(self.shard, &mut core::iter::from_fn(|| self.next()));
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a job for this chunk waits for its worker. The shard has a reference, and so has each job.
    fn has_idle_job(self: &StdArc<Self>) -> bool {
        StdArc::strong_count(self) - 1 > self.running.load(Ordering::Relaxed) as usize
    }

    /// Whether all jobs for this chunk have ended or were dropped.
    fn is_left_alone(self: &StdArc<Self>) -> bool {
        StdArc::strong_count(self) == 1
    }

    fn next(&self) -> Option<Ticket> {
        // Ordering: Relaxed [H1]. The chunk came with the job and does not change.
        let place = self.cursor.fetch_add(1, Ordering::Relaxed);
        self.tickets.get(place as usize).copied()
    }

    fn taken(&self) -> usize {
        // Ordering: Relaxed. A stale value postpones help by one look.
        (self.cursor.load(Ordering::Relaxed) as usize).min(self.tickets.len())
    }
}

/// The chunks of a shard that workers may still be at.
#[derive(Debug, Default)]
pub(crate) struct Underway {
    chunks: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    handover: StdArc<Handover>,
    taken_at_last_look: usize,
}

impl Underway {
    pub(crate) fn push(&mut self, handover: StdArc<Handover>) {
        self.chunks.push(Entry { handover, taken_at_last_look: 0 });
    }

    /// Sends help to chunks that were begun and have not moved since the last look, unless help is on its way, and
    /// sends those again that were dropped; how many it sent. To be called at most once a tick or so.
    pub(crate) fn look<F: Fire>(&mut self, dispatcher: &Dispatcher, fire: &StdArc<F>) -> u64 {
        let mut sent = 0;
        self.chunks.retain_mut(|entry| {
            let taken = entry.handover.taken();
            if taken == entry.handover.tickets.len() {
                return false;
            }
            let held_up = taken > 0 && taken == entry.taken_at_last_look && !entry.handover.has_idle_job();
            if held_up || entry.handover.is_left_alone() {
                dispatcher.dispatch(fire, &entry.handover);
                sent += 1;
            }
            entry.taken_at_last_look = taken;
            true
        });
        sent
    }

    /// Whether a slow handler could be holding others up: the shard should look again soon.
    pub(crate) fn wants_a_look(&self) -> bool {
        self.chunks.iter().any(|entry| {
            let Entry { handover, .. } = entry;
            handover.taken() < handover.tickets.len()
                && (handover.tickets.len() > 1 || handover.is_left_alone())
        })
    }
}
