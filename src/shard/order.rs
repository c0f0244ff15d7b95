//! Sorts the due tickets of a turn, so that the longest due timers fire first.
//!
//! A slot of the wheel has its tickets in no order, and the deadlines within a tick differ by up to the tick's length.
//! The timers that have waited longest should not wait for the handlers of other timers. So the tickets that one thread
//! fires are sorted by deadline into [`BUCKETS`] parts: a counting sort, as in D. E. Knuth, "The Art of Computer
//! Programming", volume 3, algorithm 5.2D. Tickets of the same part stay in no order.

use crate::base::tick::{TickLength, Timestamp};
use crate::base::ticket::Ticket;
use crate::dispatch::DueChunk;
use crate::lockfree::slab::Slots;

/// The number of parts into which the sort divides the time from the first due tick to the present. If two deadlines
/// differ by less than two parts, the timer with the later deadline may fire first.
const BUCKETS: usize = 64;

/// The buffers in which a shard sorts its due tickets (requests to check timers). They are kept between turns to save
/// allocations.
#[derive(Debug, Default)]
pub(super) struct Order {
    tickets: Vec<Ticket>,
    parts: Vec<u8>,
    sorted: Vec<Ticket>,
}

impl Order {
    /// Sorts the tickets of `chunks`, which are due at `now`, by the deadlines of their timers. The ticket of a timer
    /// that has ended may end up anywhere.
    pub(super) fn sort(&mut self, chunks: &mut [DueChunk], slots: &Slots, tick: TickLength, now: Timestamp) {
        let Self { tickets, parts, sorted } = self;
        tickets.clear();
        tickets.extend(chunks.iter().flat_map(DueChunk::tickets));
        for ticket in &*tickets {
            slots.prefetch(ticket.index);
        }
        let Some(first_tick) = tickets.iter().map(|ticket| ticket.tick).min() else { return };
        let first = tick.first_deadline_of(first_tick).as_nanos();
        let last = now.as_nanos().max(first);
        let shift = u64::BITS.saturating_sub((last - first).leading_zeros() + BUCKETS.ilog2());
        let part_of = |ticket: &Ticket| {
            let deadline = slots.control(ticket.index).deadline_as_a_hint();
            u8::try_from((deadline.clamp(first, last) - first) >> shift).unwrap_or(u8::MAX)
        };
        parts.clear();
        parts.extend(tickets.iter().map(part_of));
        let mut places = [0_usize; BUCKETS];
        for &part in &*parts {
            places[usize::from(part)] += 1;
        }
        let mut sum = 0;
        for place in &mut places {
            sum += core::mem::replace(place, sum);
        }
        sorted.clear();
        sorted.extend_from_slice(tickets);
        for (&ticket, &part) in tickets.iter().zip(&*parts) {
            let place = &mut places[usize::from(part)];
            sorted[*place] = ticket;
            *place += 1;
        }
        let mut sorted = sorted.iter();
        for chunk in chunks {
            chunk.tickets_mut().iter_mut().zip(&mut sorted).for_each(|(place, &ticket)| *place = ticket);
        }
    }
}
