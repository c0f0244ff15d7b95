//! Slots of a wheel. Each slot holds the tickets of one span of time, in a list of blocks.

use crate::blocks::{BLOCK_TICKETS, BlockIndex, Blocks};
use crate::ticket::{CHUNK_TICKETS, Ticket, low_bits};
use alloc::vec::Vec;

/// A slot of a wheel: the tickets (requests to check timers) of one span of time, in no order.
///
/// The tickets are in a ring of blocks. New tickets go to the last block, and all other blocks are full. So the number
/// of tickets tells how far the last block is filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// A lower bound for the ticks of all tickets in the slot; `u64::MAX` if the slot is empty. The bound is a tick of
    /// the slot, so its high bits are those of all tickets. Not used in slots of overdue tickets.
    earliest: u64,
    len: u32,
    /// The last block, which is linked to the first block.
    last: BlockIndex,
}

/// The number of tickets in a block, in the type in which a slot counts its tickets.
const BLOCK: u32 = 16;
const _: () = assert!(BLOCK as usize == BLOCK_TICKETS);

impl Slot {
    pub(super) const EMPTY: Self = Self { earliest: u64::MAX, len: 0, last: BlockIndex::NONE };

    /// Adds a ticket that is due at `tick`.
    #[inline]
    pub(super) fn push<T: Ticket>(&mut self, blocks: &mut Blocks<T>, tick: u64, ticket: T) {
        if tick < self.earliest {
            self.earliest = tick;
        }
        self.append(blocks, ticket);
    }

    /// Adds a ticket, and leaves `earliest` as it is. The ticket must not be due before `earliest`.
    #[inline]
    fn append<T: Ticket>(&mut self, blocks: &mut Blocks<T>, ticket: T) {
        let at = self.len as usize % BLOCK_TICKETS;
        if at == 0 {
            self.add_block(blocks, ticket);
        } else {
            blocks.get_mut(self.last)[at] = ticket;
        }
        self.len += 1;
    }

    fn add_block<T: Ticket>(&mut self, blocks: &mut Blocks<T>, ticket: T) {
        let block = blocks.allocate(ticket);
        if self.len > 0 {
            blocks.link(block, blocks.next(self.last));
            blocks.link(self.last, block);
        }
        self.last = block;
    }

    /// Moves at most `limit` tickets from the slot to the end of `taken`. Returns the number of moved tickets.
    #[expect(clippy::cast_possible_truncation, reason = "fewer blocks than tickets in the slot")]
    pub(super) fn take<T: Ticket>(
        &mut self,
        blocks: &mut Blocks<T>,
        limit: usize,
        taken: &mut Vec<T>,
    ) -> usize {
        let count = limit.min(self.len());
        let full = count / BLOCK_TICKETS;
        if full > 0 {
            let mut block = self.first_block(blocks);
            for _ in 0..full {
                taken.extend_from_slice(blocks.get(block));
                let next = blocks.next(block);
                blocks.free(block);
                block = next;
            }
            if full * BLOCK_TICKETS == self.len() {
                *self = Self::EMPTY;
            } else {
                self.len -= full as u32 * BLOCK;
                blocks.link(self.last, block);
            }
        }
        let rest = count % BLOCK_TICKETS;
        if rest > 0 {
            self.take_part(blocks, rest, taken);
        }
        count
    }

    /// Moves `count` tickets of the first block to `taken`. `count` is less than the tickets of a full block.
    #[inline]
    fn take_part<T: Ticket>(&mut self, blocks: &mut Blocks<T>, count: usize, taken: &mut Vec<T>) {
        if count < self.len() {
            return self.split_first_block(blocks, count, taken);
        }
        taken.extend_from_slice(&blocks.get(self.last)[..count]);
        self.drop_first_block(blocks);
    }

    /// Returns the block of a slot that has one block.
    #[inline]
    pub(super) fn only_block(&self) -> BlockIndex {
        self.last
    }

    #[cold]
    fn split_first_block<T: Ticket>(&mut self, blocks: &mut Blocks<T>, count: usize, taken: &mut Vec<T>) {
        let tickets = *blocks.get(self.first_block(blocks));
        let full = self.len().min(BLOCK_TICKETS);
        let (kept, given) = tickets[..full].split_at(full - count);
        taken.extend_from_slice(given);
        let earliest = self.earliest;
        self.drop_first_block(blocks);
        self.put_back(blocks, kept);
        self.earliest = earliest;
    }

    /// Adds tickets that were taken out of the slot before.
    fn put_back<T: Ticket>(&mut self, blocks: &mut Blocks<T>, tickets: &[T]) {
        for &ticket in tickets {
            self.append(blocks, ticket);
        }
    }

    /// Returns the first block. The slot must not be empty.
    #[inline]
    fn first_block<T: Ticket>(&self, blocks: &Blocks<T>) -> BlockIndex {
        blocks.next(self.last)
    }

    /// Frees the first block, with its tickets. The slot must not be empty.
    #[inline]
    fn drop_first_block<T: Ticket>(&mut self, blocks: &mut Blocks<T>) {
        let block = self.first_block(blocks);
        if self.len() <= BLOCK_TICKETS {
            *self = Self::EMPTY;
        } else {
            self.len -= BLOCK;
            let next = blocks.next(block);
            blocks.link(self.last, next);
        }
        blocks.free(block);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn earliest(&self) -> u64 {
        self.earliest
    }

    /// Returns the number of chunks of [`CHUNK_TICKETS`] that the slot's tickets make.
    #[inline]
    pub(super) fn chunk_count(&self) -> usize {
        self.len().div_ceil(CHUNK_TICKETS)
    }

    /// Drops stale tickets from the front of the slot until a live ticket stands first. Stops after about `looks`
    /// checked tickets. `scratch` is a buffer whose contents may be overwritten.
    ///
    /// The last ticket of the first block stands first. Almost every checked ticket is dropped, so the drops pay for
    /// the checks. There are three exceptions: the last check of each call, the other tickets of its block, and the
    /// checks of a slot's only chunk after its earliest ticket was dropped. In a slot of several chunks, any live
    /// ticket counts as the first.
    pub(super) fn drop_stale_first<T: Ticket>(
        &mut self,
        blocks: &mut Blocks<T>,
        looks: usize,
        is_live: &mut impl FnMut(&T) -> bool,
        scratch: &mut Vec<T>,
    ) -> FirstStep {
        let mut step = FirstStep { looked_at: 0, dropped: 0, is_live: false };
        while step.looked_at < looks && !self.is_empty() && !step.is_live {
            let is_one_chunk = self.len() <= CHUNK_TICKETS;
            let at = self.len().min(BLOCK_TICKETS) - 1;
            let first = blocks.get(self.first_block(blocks))[at];
            step.looked_at += 1;
            step.is_live = is_live(&first);
            let is_earliest = (first.tick().0 ^ self.earliest) & low_bits::<T>() == 0;
            if step.is_live && (is_earliest || !is_one_chunk) {
                break;
            }
            // The slot stays as it is until no closure can panic any more.
            scratch.clear();
            let copied =
                self.copy_first(blocks, if is_one_chunk { CHUNK_TICKETS } else { BLOCK_TICKETS }, scratch);
            if !step.is_live {
                scratch.swap_remove(at);
                step.dropped += 1;
            }
            step.looked_at += scratch.len();
            step.dropped += retain_live(scratch, is_live);
            step.is_live = !scratch.is_empty();
            let mut earliest = self.earliest;
            if is_one_chunk && let Some(low) = put_earliest_first(scratch) {
                earliest = earliest & !low_bits::<T>() | low;
            }
            for _ in 0..copied {
                self.drop_first_block(blocks);
            }
            self.put_back(blocks, scratch);
            if !self.is_empty() {
                self.earliest = earliest;
            }
        }
        step
    }

    /// Copies the first blocks, with at most `count` tickets together, to the end of `copies`. Returns the number of
    /// copied blocks.
    fn copy_first<T: Ticket>(&self, blocks: &Blocks<T>, count: usize, copies: &mut Vec<T>) -> usize {
        let (mut block, mut copied) = (self.last, 0);
        let mut left = count.min(self.len());
        while left > 0 {
            block = blocks.next(block);
            let tickets = left.min(BLOCK_TICKETS);
            copies.extend_from_slice(&blocks.get(block)[..tickets]);
            left -= tickets;
            copied += 1;
        }
        copied
    }

    /// Drops the stale tickets of one block. The first call for a slot has `unswept` at `None`, and checks the last
    /// block. Each later call checks the first block. `unswept` is the number of full blocks that no call has checked
    /// yet: they are the first blocks.
    ///
    /// The live tickets of a full block move to the last block, so that all other blocks stay full. So no ticket is
    /// checked twice.
    #[expect(clippy::cast_possible_truncation, reason = "at most the tickets of a block")]
    pub(super) fn sweep_step<T: Ticket>(
        &mut self,
        blocks: &mut Blocks<T>,
        unswept: Option<u32>,
        is_live: &mut impl FnMut(&T) -> bool,
    ) -> SweepStep {
        let others = self.len.saturating_sub(1) / BLOCK;
        let unswept = unswept.map(|unswept| unswept.min(others));
        if self.is_empty() || unswept == Some(0) {
            return SweepStep { looked_at: 0, dropped: 0, next: SweepNext::Slot };
        }
        if let Some(unswept) = unswept {
            let mut tickets = *blocks.get(self.first_block(blocks));
            let kept = move_live(&mut tickets, is_live);
            self.drop_first_block(blocks);
            self.put_back(blocks, &tickets[..kept]);
            let next = if unswept > 1 { SweepNext::Full(unswept - 1) } else { SweepNext::Slot };
            return SweepStep { looked_at: BLOCK_TICKETS, dropped: BLOCK_TICKETS - kept, next };
        }
        let looked_at = self.len() - others as usize * BLOCK_TICKETS;
        let kept = move_live(&mut blocks.get_mut(self.last)[..looked_at], is_live);
        if kept == 0 {
            self.replace_last_block(blocks);
        }
        let next = match (kept, others) {
            (_, 0) => SweepNext::Slot,
            (0, _) => SweepNext::LastBlock,
            _ => SweepNext::Full(others),
        };
        self.len = others * BLOCK + kept as u32;
        SweepStep { looked_at, dropped: looked_at - kept, next }
    }

    /// Moves the tickets of the first block to the last block, whose own tickets are dropped. Frees the first block. If
    /// the slot has only one block, frees this block.
    fn replace_last_block<T: Ticket>(&mut self, blocks: &mut Blocks<T>) {
        let first = self.first_block(blocks);
        if first == self.last {
            *self = Self::EMPTY;
        } else {
            *blocks.get_mut(self.last) = *blocks.get(first);
            let next = blocks.next(first);
            blocks.link(self.last, next);
        }
        blocks.free(first);
    }

    #[cfg(test)]
    pub(super) fn tickets<T: Ticket>(&self, blocks: &Blocks<T>) -> Vec<T> {
        let mut tickets = Vec::new();
        let copied = self.copy_first(blocks, usize::MAX, &mut tickets);
        assert_eq!((tickets.len(), copied), (self.len(), self.len().div_ceil(BLOCK_TICKETS)));
        let last = (0..copied).fold(self.last, |block, _| blocks.next(block));
        assert_eq!(last, self.last, "a list of another length");
        tickets
    }
}

/// Moves the earliest ticket to the end of the first block. So this ticket stands first once the tickets are put into
/// the empty slot. Returns the low bits of the ticket's tick; `None` if there is no ticket.
fn put_earliest_first<T: Ticket>(tickets: &mut [T]) -> Option<u64> {
    let first = tickets.len().min(BLOCK_TICKETS).checked_sub(1)?;
    let low = |ticket: &T| ticket.tick().0 & low_bits::<T>();
    let (earliest, least) =
        (0..).zip(&*tickets).map(|(at, ticket)| (at, low(ticket))).min_by_key(|pair| pair.1)?;
    tickets.swap(earliest, first);
    Some(least)
}

/// The result of [`Slot::drop_stale_first`]: the numbers of checked and dropped tickets.
#[derive(Debug)]
pub(super) struct FirstStep {
    pub(super) looked_at: usize,
    pub(super) dropped: usize,
    /// Whether the slot's first ticket is live after the call. If not, stale tickets may still stand first.
    pub(super) is_live: bool,
}

/// The result of [`Slot::sweep_step`]: the numbers of checked and dropped tickets, and the place where the sweep goes
/// on.
#[derive(Debug)]
pub(super) struct SweepStep {
    pub(super) looked_at: usize,
    pub(super) dropped: usize,
    pub(super) next: SweepNext,
}

/// The place where a sweep goes on.
#[derive(Debug)]
pub(super) enum SweepNext {
    /// The last block of the same slot, which has other tickets now.
    LastBlock,
    /// The first block of the same slot. The value is the number of full blocks that the sweep has not checked yet.
    Full(u32),
    /// The next slot.
    Slot,
}

/// Drops the stale tickets of `chunk`, and returns the number of dropped tickets.
pub(super) fn retain_live<T: Ticket>(chunk: &mut Vec<T>, is_live: &mut impl FnMut(&T) -> bool) -> usize {
    let kept = move_live(chunk, is_live);
    let dropped = chunk.len() - kept;
    chunk.truncate(kept);
    dropped
}

/// Moves the live tickets to the start of `tickets`, and returns their number.
///
/// The loop checks and moves every ticket without a branch. If half of the tickets are stale, a branch would be
/// mispredicted for every other ticket. Without branches, the loads of the timers' words overlap instead of waiting for
/// each other.
fn move_live<T: Ticket>(tickets: &mut [T], is_live: &mut impl FnMut(&T) -> bool) -> usize {
    let mut kept = 0;
    for at in 0..tickets.len() {
        let ticket = tickets[at];
        tickets[kept] = ticket;
        kept += usize::from(is_live(&ticket));
    }
    kept
}
