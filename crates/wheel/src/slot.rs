//! Slots of a wheel. Each slot holds the tickets of one span of time, in chunks.

use crate::ticket::{CHUNK_TICKETS, Ticket};
use alloc::vec::Vec;

/// A slot of a wheel: the tickets (requests to check timers) of one span of time, in chunks (groups) and in no order.
///
/// New tickets go to the open chunk. The first open chunk starts small and doubles, so that a slot with one ticket
/// costs 64 bytes. Later chunks are allocated at full size.
#[derive(Debug)]
pub(super) struct Slot<T> {
    open: Vec<T>,
    full: Vec<Vec<T>>,
    /// A lower bound for the ticks of all tickets in the slot; `u64::MAX` if the slot is empty.
    earliest: u64,
}

impl<T: Ticket> Slot<T> {
    pub(super) const fn new() -> Self {
        Self { open: Vec::new(), full: Vec::new(), earliest: u64::MAX }
    }

    #[inline]
    pub(super) fn push(&mut self, ticket: T) {
        self.earliest = self.earliest.min(ticket.tick().0);
        if self.open.len() == CHUNK_TICKETS {
            self.open_another();
        }
        self.open.push(ticket);
    }

    #[cold]
    fn open_another(&mut self) {
        let filled = core::mem::replace(&mut self.open, Vec::with_capacity(CHUNK_TICKETS));
        self.full.push(filled);
    }

    /// Takes a chunk of at most `limit` tickets out of the slot. Returns `None` if the slot is empty.
    pub(super) fn take(&mut self, limit: usize) -> Option<Vec<T>> {
        let mut chunk = match self.full.pop() {
            Some(chunk) => chunk,
            None => core::mem::replace(self, Self::new()).open,
        };
        if chunk.len() > limit {
            self.put_back(chunk.split_off(limit));
        }
        (!chunk.is_empty()).then_some(chunk)
    }

    fn put_back(&mut self, chunk: Vec<T>) {
        for ticket in chunk {
            self.push(ticket);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.full.is_empty()
    }

    pub(super) fn earliest(&self) -> u64 {
        self.earliest
    }

    /// Drops stale tickets from the front of the slot until a live ticket stands first. Stops after about `looks`
    /// checked tickets.
    ///
    /// Almost every checked ticket is dropped, so the drops pay for the checks. There are two exceptions: the last
    /// check of each call, and the checks of a slot's only chunk after its earliest ticket was dropped. In a slot of
    /// several chunks, any live ticket counts as the first.
    pub(super) fn drop_stale_first(
        &mut self,
        looks: usize,
        is_live: &mut impl FnMut(&T) -> bool,
    ) -> FirstStep {
        let mut step = FirstStep { looked_at: 0, dropped: 0, is_live: false };
        while step.looked_at < looks {
            let is_one_chunk = self.chunk_count() == 1;
            let chunk = if self.open.is_empty() { self.full.last_mut() } else { Some(&mut self.open) };
            let Some(chunk) = chunk else { break };
            let Some(&last) = chunk.last() else { break };
            step.looked_at += 1;
            if !is_live(&last) {
                self.pop();
                step.dropped += 1;
                continue;
            }
            step.is_live = true;
            if is_one_chunk && last.tick().0 != self.earliest {
                step.looked_at += chunk.len();
                step.dropped += retain_live(chunk, is_live);
                self.earliest = put_earliest_last(chunk);
            }
            break;
        }
        step
    }

    /// Drops the ticket that [`Slot::drop_stale_first`] checked: the last ticket of the last chunk.
    fn pop(&mut self) {
        if self.open.pop().is_some() {
            return;
        }
        if let Some(chunk) = self.full.last_mut() {
            chunk.pop();
            if chunk.is_empty() {
                self.full.pop();
            }
        }
    }

    pub(super) fn chunk_count(&self) -> usize {
        self.full.len() + usize::from(!self.open.is_empty())
    }

    /// Drops the stale tickets of one chunk. The first call for a slot has `unswept` at `None`, and checks the open
    /// chunk. Each later call checks one full chunk. `unswept` is the number of full chunks that no call has checked
    /// yet.
    ///
    /// The live tickets of a full chunk move to the open chunk, so that chunks stay dense. A chunk that fills up is
    /// listed behind the first `unswept` chunks, so no ticket is checked twice.
    pub(super) fn sweep_step(
        &mut self,
        unswept: Option<usize>,
        is_live: &mut impl FnMut(&T) -> bool,
    ) -> SweepStep {
        let Some(unswept) = unswept else {
            let looked_at = self.open.len();
            let dropped = retain_live(&mut self.open, is_live);
            return SweepStep { looked_at, dropped, unswept: self.full.len() };
        };
        let Some(at) = unswept.min(self.full.len()).checked_sub(1) else {
            return SweepStep { looked_at: 0, dropped: 0, unswept: 0 };
        };
        let mut chunk = self.full.swap_remove(at);
        let looked_at = chunk.len();
        let dropped = retain_live(&mut chunk, is_live);
        self.put_back(chunk);
        SweepStep { looked_at, dropped, unswept: at }
    }

    #[cfg(test)]
    pub(super) fn tickets(&self) -> impl Iterator<Item = &T> {
        self.full.iter().flatten().chain(&self.open)
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let tickets: usize = self.full.iter().chain([&self.open]).map(Vec::capacity).sum();
        tickets * size_of::<T>() + self.full.capacity() * size_of::<Vec<T>>()
    }
}

/// Moves the earliest ticket to the end of the chunk, and returns the ticket's tick.
fn put_earliest_last<T: Ticket>(chunk: &mut [T]) -> u64 {
    let Some(last) = chunk.len().checked_sub(1) else { return u64::MAX };
    let first = (0..=last).min_by_key(|&at| chunk[at].tick()).unwrap_or(last);
    chunk.swap(first, last);
    chunk[last].tick().0
}

/// The result of [`Slot::drop_stale_first`]: the numbers of checked and dropped tickets.
#[derive(Debug)]
pub(super) struct FirstStep {
    pub(super) looked_at: usize,
    pub(super) dropped: usize,
    /// Whether the slot's first ticket is live after the call. If not, stale tickets may still stand first.
    pub(super) is_live: bool,
}

/// The result of [`Slot::sweep_step`]: the numbers of checked and dropped tickets, and the number of chunks that are
/// left to check.
#[derive(Debug)]
pub(super) struct SweepStep {
    pub(super) looked_at: usize,
    pub(super) dropped: usize,
    /// The number of the slot's full chunks that the sweep has not checked yet. At 0, the sweep goes on with the next
    /// slot.
    pub(super) unswept: usize,
}

/// Drops the stale tickets of `chunk`, and returns the number of dropped tickets.
///
/// The loop checks and moves every ticket without a branch. If half of the tickets are stale, a branch would be
/// mispredicted for every other ticket. Without branches, the loads of the timers' words overlap instead of waiting for
/// each other.
pub(super) fn retain_live<T: Ticket>(chunk: &mut Vec<T>, is_live: &mut impl FnMut(&T) -> bool) -> usize {
    let before = chunk.len();
    let mut kept = 0;
    for at in 0..before {
        let ticket = chunk[at];
        chunk[kept] = ticket;
        kept += usize::from(is_live(&ticket));
    }
    chunk.truncate(kept);
    before - kept
}
