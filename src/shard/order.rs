//! Sorts the due tickets of a turn, so that the longest due timers fire first.
//!
//! A slot of the wheel has its tickets in no order, and the deadlines within a tick differ by up to the tick's length.
//! The timers that have waited longest should not wait for the handlers of other timers. So the tickets that one thread
//! fires are sorted by deadline into [`BUCKETS`] parts: a counting sort, as in D. E. Knuth, "The Art of Computer
//! Programming", volume 3, algorithm 5.2D. Tickets of the same part stay in no order.

use crate::base::tick::{Tick, TickLength, Timestamp};
use crate::base::ticket::Ticket;
use crate::dispatch::DueChunk;
use crate::lockfree::slab::Slots;

/// The number of parts into which the sort divides the time from the first due tick to the present. If two deadlines
/// differ by less than two parts, the timer with the later deadline may fire first.
const BUCKETS: usize = 64;

/// The buffers in which a shard sorts its due tickets. They are kept between turns to save allocations.
#[derive(Debug, Default)]
pub(super) struct Order {
    parts: Vec<u8>,
    sorted: Vec<Ticket>,
}

impl Order {
    /// Sorts the tickets of `chunks`, which are due at `now`, by the deadlines of their timers. The ticket of a timer
    /// that has ended may end up anywhere.
    pub(super) fn sort(&mut self, chunks: &mut [DueChunk], slots: &Slots, tick: TickLength, now: Timestamp) {
        let present = tick.current_tick(now);
        let mut ticks_late = 0;
        for chunk in &*chunks {
            for ticket in chunk.tickets() {
                slots.prefetch(ticket.index());
                ticks_late = ticks_late.max(ticket.ticks_late(present));
            }
        }
        let first_tick = Tick(present.0.saturating_sub(ticks_late));
        let first = tick.first_deadline_of(first_tick).as_nanos();
        let last = now.as_nanos().max(first);
        let shift = u64::BITS.saturating_sub((last - first).leading_zeros() + BUCKETS.ilog2());
        let Self { parts, sorted } = self;
        parts.clear();
        sorted.clear();
        let mut places = [0_usize; BUCKETS];
        for chunk in &*chunks {
            sorted.extend_from_slice(chunk.tickets());
            parts.extend(chunk.tickets().iter().map(|ticket| {
                let deadline = slots.control(ticket.index()).deadline_as_a_hint();
                let part = u8::try_from((deadline.clamp(first, last) - first) >> shift).unwrap_or(u8::MAX);
                // Below `BUCKETS` in any case, which the remainder tells the compiler.
                places[usize::from(part) % BUCKETS] += 1;
                part
            }));
        }
        let mut sum = 0;
        for place in &mut places {
            sum += core::mem::replace(place, sum);
        }
        let mut parts = &parts[..];
        for chunk in &*chunks {
            for (&ticket, &part) in chunk.tickets().iter().zip(parts) {
                let place = &mut places[usize::from(part) % BUCKETS];
                sorted[*place] = ticket;
                *place += 1;
            }
            parts = &parts[chunk.tickets().len()..];
        }
        let mut sorted = &sorted[..];
        for chunk in chunks {
            let (tickets, rest) = sorted.split_at(chunk.tickets().len());
            chunk.tickets_mut().copy_from_slice(tickets);
            sorted = rest;
        }
    }
}
