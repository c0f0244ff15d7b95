//! Two ways to hand out due tickets (requests to check timers): in chunks to a closure, or all into one buffer.

use crate::blocks::{BLOCK_TICKETS, Blocks};
use crate::slot::Slot;
use crate::ticket::{CHUNK_TICKETS, Ticket};
use alloc::vec::Vec;

/// The receiver of the due tickets (requests to check timers) of an advance.
pub(crate) trait Outlet<T> {
    /// The greatest number of tickets that are handed out together.
    const TOGETHER: usize;
    /// Returns the buffer to which the caller adds the next `count` tickets. Before another call of `buffer`, the
    /// caller must call [`flush`](Self::flush).
    fn buffer(&mut self, count: usize) -> &mut Vec<T>;
    /// Adds the first `count` tickets of a block to the buffer.
    fn add(&mut self, block: &[T; BLOCK_TICKETS], count: usize);
    /// Hands out the tickets in the buffer.
    fn flush(&mut self);
}

/// Hands out tickets in chunks, by a call of a closure for each chunk.
pub(crate) struct Chunks<T, F> {
    chunk: Vec<T>,
    expired: F,
}

impl<T, F: FnMut(Vec<T>)> Chunks<T, F> {
    pub(crate) fn to(expired: F) -> Self {
        Self { chunk: Vec::new(), expired }
    }
}

impl<T: Copy, F: FnMut(Vec<T>)> Outlet<T> for Chunks<T, F> {
    const TOGETHER: usize = CHUNK_TICKETS;

    fn buffer(&mut self, count: usize) -> &mut Vec<T> {
        // The last flush has left the buffer without tickets and without memory.
        self.chunk = Vec::with_capacity(count);
        &mut self.chunk
    }

    fn add(&mut self, block: &[T; BLOCK_TICKETS], count: usize) {
        self.buffer(count).extend_from_slice(&block[..count]);
    }

    fn flush(&mut self) {
        (self.expired)(core::mem::take(&mut self.chunk));
    }
}

/// Hands all tickets out into one buffer.
impl<T: Copy> Outlet<T> for &mut Vec<T> {
    const TOGETHER: usize = usize::MAX;

    fn buffer(&mut self, _: usize) -> &mut Vec<T> {
        self
    }

    /// Copies four tickets or the whole block, and truncates the copy: a loop to `count` would mispredict a branch.
    #[inline]
    fn add(&mut self, block: &[T; BLOCK_TICKETS], count: usize) {
        let before = self.len();
        match block.first_chunk::<4>() {
            Some(first) if count <= 4 => self.extend_from_slice(first),
            _ => self.extend_from_slice(block),
        }
        self.truncate(before + count);
    }

    fn flush(&mut self) {}
}

/// Moves tickets of `slot` to the outlet's buffer, within the budget. Subtracts their number from `len` and `budget`.
#[inline]
pub(crate) fn hand_out<T: Ticket, O: Outlet<T>>(
    slot: &mut Slot,
    blocks: &mut Blocks<T>,
    len: &mut usize,
    budget: &mut usize,
    outlet: &mut O,
) {
    let count = slot.len().min(O::TOGETHER).min(*budget);
    slot.take(blocks, count, outlet.buffer(count));
    *budget -= count;
    *len -= count;
}
