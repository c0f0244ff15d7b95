//! The output of a shard's turn: batches of due chunks. They are sent to workers, or the leader runs a batch itself.

use super::backlog::Waiting;
use super::station_shared::StationShared;
use crate::base::sync::StdArc;
use crate::base::tick::Timestamp;
use crate::base::ticket::Ticket;
use crate::dispatch::{BATCH_CHUNKS, Batch, BatchJob, DueChunk, Fire, InFlight, dispatch};

/// The greatest number of tickets (requests to check timers) that one turn of a shard's thread hands out or moves: some
/// hundred µs of work. Then the shard drains its lanes (threads' queues to it) again.
const TURN_BUDGET: usize = 16_384;

/// Collects the due tickets of a shard's turn in batches, and sends the batches to workers.
pub(crate) struct Output {
    /// The greatest number of tickets that the turn hands out or moves for one station, an engine's part of the shard.
    budget: usize,
    /// The only batch (group of due timers) of the turn so far. The thread that leads the shard may run it. `None` if
    /// the turn has no batch or several.
    own: Option<BatchJob>,
    has_sent: bool,
}

impl Default for Output {
    fn default() -> Self {
        Self::with_budget(TURN_BUDGET)
    }
}

impl Output {
    pub(super) fn with_budget(budget: usize) -> Self {
        Self { budget, own: None, has_sent: false }
    }

    /// Sends a batch (group of due timers) of the turn to workers. If the turn has a single batch and the set's workers
    /// run the handlers, keeps the batch for the leader, the thread that runs the shard. Returns false if the executor
    /// panicked.
    fn send(&mut self, engine: &StdArc<dyn Fire>, batch: &StdArc<Batch>) -> bool {
        if engine.dispatcher().own_workers().is_none() {
            self.has_sent = true;
            return dispatch(engine, batch);
        }
        if !self.has_sent && self.own.is_none() {
            self.own = Some(BatchJob::new(batch, engine));
            return true;
        }
        self.has_sent = true;
        let first = self.own.take().is_none_or(BatchJob::send);
        dispatch(engine, batch) && first
    }

    /// Returns the greatest number of tickets that the turn hands out or moves for one station, an engine's part of the
    /// shard.
    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    /// Returns whether a batch of the turn is kept for the thread that leads the shard to run.
    pub(super) fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns whether the turn (a pass of the shard's loop) has produced no batch yet.
    fn is_unused(&self) -> bool {
        self.own.is_none() && !self.has_sent
    }

    /// Returns the batch that is kept for the thread that leads the shard to run; `None` if no batch is kept.
    pub(super) fn into_own(self) -> Option<BatchJob> {
        self.own
    }
}

/// Gathers due chunks (groups of due tickets) into batches for the workers. A station, an engine's part of the shard,
/// finds the chunks in a turn.
pub(super) struct Batching<'a> {
    shard: usize,
    shared: &'a StationShared,
    engine: &'a StdArc<dyn Fire>,
    out: &'a mut Output,
    in_flight: &'a mut InFlight,
    due: Vec<DueChunk>,
}

impl<'a> Batching<'a> {
    /// Starts to gather the due chunks of `engine` at the shard numbered `shard`.
    pub(super) fn new(
        shard: usize,
        shared: &'a StationShared,
        engine: &'a StdArc<dyn Fire>,
        out: &'a mut Output,
        in_flight: &'a mut InFlight,
    ) -> Self {
        Self { shard, shared, engine, out, in_flight, due: Vec::new() }
    }

    /// Returns whether another chunk of due tickets may go to the workers.
    pub(super) fn has_room(&self) -> bool {
        !self.due.is_empty() || self.in_flight.has_room()
    }

    /// Adds the due tickets of one-shots. Moves the tickets of owned timers to `to_check`.
    pub(super) fn add_scheduled(&mut self, mut waiting: Waiting, to_check: &mut Vec<Ticket>) {
        if waiting.tickets.iter().any(|ticket| ticket.is_owned()) {
            to_check.extend(waiting.tickets.extract_if(.., |ticket| ticket.is_owned()));
        }
        self.add(waiting);
    }

    pub(super) fn add(&mut self, Waiting { tickets, found }: Waiting) {
        if tickets.is_empty() {
            return;
        }
        self.due.push(DueChunk::new(tickets, found));
        if self.due.len() == BATCH_CHUNKS {
            self.flush(found);
        }
    }

    /// Hands over the last chunks of a turn. If these chunks are the turn's only batch, a single thread fires them, and
    /// `sort` puts their tickets in order first.
    pub(super) fn flush_in_order(&mut self, now: Timestamp, sort: impl FnOnce(&mut [DueChunk])) {
        if self.due.len() > 1 && self.out.is_unused() {
            sort(&mut self.due);
        }
        self.flush(now);
    }

    pub(super) fn flush(&mut self, now: Timestamp) {
        if self.due.is_empty() {
            return;
        }
        let tickets: usize = self.due.iter().map(|chunk| chunk.tickets().len()).sum();
        self.shared.counters.hand_over(self.due.len() as u64, tickets as u64, now);
        let batch = StdArc::new(Batch::new(self.shard, core::mem::take(&mut self.due)));
        if !self.out.send(self.engine, &batch) {
            self.shared.counters.panics.add(1);
        }
        if !self.engine.dispatcher().is_inline() {
            self.in_flight.push(batch);
        }
    }
}
