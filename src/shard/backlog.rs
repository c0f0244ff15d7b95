//! The backlog: due tickets that a shard holds back while the greatest allowed number of batches is in flight.
//!
//! While workers block, due tickets wait here, and not in the workers' queue. A due timer that is cancelled leaves its
//! ticket behind. So the workers' queue could grow without bound, even with few timers. Here, the shard finds the stale
//! tickets: for each ticket that comes, the shard checks two tickets that wait.
//!
//! # Bound
//! During a pass over all waiting tickets, half as many new tickets come. So the number of waiting tickets is at most
//! twice the number of live timers, plus the tickets that a turn finds due.
//!
//! ```text
//!  handed over ◄── swept: looked at in this pass │ rest: not yet ◄── due
//! ```
//! Tickets of owned timers wait here before the timers are checked (`state::owned`). So these tickets still count as
//! out.

use crate::base::limits::CHUNK_TICKETS;
use crate::base::tick::Timestamp;
use crate::base::ticket::{Chunk, Ticket};
use std::collections::VecDeque;

/// A chunk of due tickets (requests to check timers) that the shard holds back. `found` is the moment at which the
/// shard found the chunk's first ticket due.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) tickets: Chunk,
    pub(super) found: Timestamp,
}

/// The due tickets (requests to check timers) that a shard holds back, the longest due first.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    swept: VecDeque<Waiting>,
    rest: VecDeque<Waiting>,
    tickets: usize,
    /// The number of tickets that have come after the last check of waiting tickets.
    unpaid: usize,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.tickets == 0
    }

    pub(super) fn len(&self) -> usize {
        self.tickets
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.tickets += waiting.tickets.len();
        self.unpaid += waiting.tickets.len();
        append(&mut self.rest, waiting);
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.swept.pop_front().or_else(|| self.rest.pop_front())?;
        self.tickets -= waiting.tickets.len();
        if self.is_empty() {
            // This frees the memory of a large backlog.
            *self = Self::default();
        }
        Some(waiting)
    }

    /// Checks two waiting tickets for each ticket that has come after the last call. Drops the stale tickets among the
    /// checked tickets. Returns the number of dropped tickets.
    pub(super) fn sweep(&mut self, mut is_live: impl FnMut(&Ticket) -> bool) -> usize {
        let before = self.tickets;
        let mut looks = (2 * core::mem::take(&mut self.unpaid)).min(before);
        while looks > 0 {
            let Some(mut waiting) = self.next_to_sweep() else { break };
            looks = looks.saturating_sub(waiting.tickets.len());
            self.tickets -= waiting.tickets.len();
            waiting.tickets.retain(&mut is_live);
            self.tickets += waiting.tickets.len();
            append(&mut self.swept, waiting);
        }
        before - self.tickets
    }

    /// Returns the next waiting chunk to check for stale tickets. At the end of a pass, starts a new pass.
    fn next_to_sweep(&mut self) -> Option<Waiting> {
        if self.rest.is_empty() {
            core::mem::swap(&mut self.rest, &mut self.swept);
        }
        self.rest.pop_front()
    }
}

/// Appends `waiting` to `queue`. Merges it with the last chunk if the tickets of both fit into one chunk.
fn append(queue: &mut VecDeque<Waiting>, mut waiting: Waiting) {
    if waiting.tickets.is_empty() {
        return;
    }
    match queue.back_mut() {
        Some(last) if last.tickets.len() + waiting.tickets.len() <= CHUNK_TICKETS => {
            last.tickets.append(&mut waiting.tickets);
        }
        _ => queue.push_back(waiting),
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use crate::base::tick::Tick;
    use core::time::Duration;

    fn tickets(indices: impl Iterator<Item = u32>) -> Chunk {
        indices.map(|index| Ticket::new(Tick(0), index, 0)).collect()
    }

    fn at(millis: u32) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(u64::from(millis))
    }

    #[test]
    fn what_waits_comes_out_in_its_order_whatever_is_swept() {
        let mut backlog = Backlog::default();
        for n in 0..100 {
            backlog.push(Waiting { tickets: tickets(7 * n..7 * n + 7), found: at(n) });
            backlog.sweep(|ticket| !ticket.index().is_multiple_of(3));
        }
        let (mut came, mut found) = (Vec::new(), Vec::new());
        while let Some(waiting) = backlog.pop() {
            came.extend(waiting.tickets.iter().map(|ticket| ticket.index()));
            found.push(waiting.found);
        }
        assert!(came.is_sorted() && found.is_sorted());
        assert!((0..700_u32).filter(|index| !index.is_multiple_of(3)).all(|index| came.contains(&index)));
        assert_eq!(backlog.len(), 0);
        assert!(backlog.pop().is_none());
    }

    #[test]
    fn tickets_that_become_stale_while_they_wait_take_no_more_room_than_live_ones() {
        const LIVE: u32 = 1_000;
        let mut backlog = Backlog::default();
        let mut chunks = 0;
        for n in 0..100_000 {
            // The newest thousand are live.
            backlog.push(Waiting { tickets: tickets(n..n + 1), found: at(n) });
            backlog.sweep(|ticket| ticket.index() + LIVE > n);
            assert!(backlog.len() <= 2 * LIVE as usize + 2, "{} wait", backlog.len());
            chunks = backlog.swept.len() + backlog.rest.len();
        }
        assert!(chunks <= backlog.len() / (CHUNK_TICKETS / 2) + 2, "{chunks} chunks");
    }
}
