//! Tickets. Lanes carry them to the shards, and the shards' wheels hold them.
//!
//! # A ticket in 8 bytes
//! ```text
//!  63            48 47            32 31                              0
//! | low bits of    | stamp          | index of the timer's slot      |
//! | the tick       |                |                                |
//! ```
//! The wheel knows the rest of the tick by the slot in which the ticket lies, and keeps the whole tick with a ticket
//! that lies in a slot of 2^24 ticks or more (`tourbillon_wheel`, "Long and short tickets"). So a ticket that comes
//! some 2^25 ticks or less before it is due takes 8 bytes: nine hours with ticks of a millisecond, 33 s with ticks of a
//! microsecond. A ticket that comes earlier takes 16 bytes until its slot is spread, at the latest when that slot
//! begins.
//!
//! What each promise needs of a ticket:
//!
//! - *Never early:* the claim compares the deadline word with a moment that has come. That is the claim's own reading
//!   of the clock. If the clock has stepped back, the reading by which the shard found the chunk due counts as well,
//!   but only for a deadline that has the ticket's low bits. A deadline that is set after the step has others, or it
//!   has the ticket's own tick. Then only the stamp protects it: one of 2^15 fits, and such a timer fires early, by
//!   less than the step (`src/DESIGN.md`, "Known limits").
//! - *On its tick:* the wheel knows the whole tick wherever it places a ticket.
//! - *Nothing for a stale ticket:* the stamp is a hint. A stale ticket whose stamp fits by chance, one of 2^15, costs a
//!   check (I1a of `lockfree::state`, O3 of `lockfree::state::owned`). If the ticket is at another loop than its timer,
//!   the check moves the timer to that loop.
//! - *The longest due first:* the deadline words decide. The low bits of the tick tell the first tick of a turn, unless
//!   the shard is 2^16 ticks behind: then the order is coarse.

use crate::base::tick::{Tick, TickLength, Timestamp};
pub use tourbillon_wheel::TimerId;

/// A ticket asks its shard: "Look at timer `index` at a tick, if the timer's stamp is still `stamp`." The ticket has
/// the low bits of the tick.
///
/// A ticket is a hint: the state in the timer's own words decides. If the timer has ended, its ticket is stale, and the
/// shard drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

const STAMP_SHIFT: u32 = 32;
const TICK_SHIFT: u32 = 48;

#[expect(clippy::cast_possible_truncation, reason = "the parts of the word")]
impl Ticket {
    #[inline(always)]
    pub(crate) fn new(tick: Tick, index: u32, stamp: u16) -> Self {
        Self(tick.0 << TICK_SHIFT | u64::from(stamp) << STAMP_SHIFT | u64::from(index))
    }

    /// Returns the index of the timer's slot.
    #[inline(always)]
    pub(crate) fn index(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) fn stamp(self) -> u16 {
        (self.0 >> STAMP_SHIFT) as u16
    }

    /// Returns whether the ticket, a request to check a timer, belongs to an owned timer (`Timer`), not to a one-shot.
    #[inline(always)]
    pub(crate) fn is_owned(self) -> bool {
        self.stamp() > u16::MAX >> 1
    }

    /// Returns whether the low bits of `due` are the ticket's bits of its tick. If not, the ticket's timer is not due
    /// in the tick `due`.
    #[inline(always)]
    pub(crate) fn is_of(self, due: Tick) -> bool {
        self.ticks_late(due) == 0
    }

    /// Returns the number of ticks from the ticket's tick to `present`, modulo 2^16: the ticket has only the low bits
    /// of its tick.
    #[inline(always)]
    pub(crate) fn ticks_late(self, present: Tick) -> u64 {
        u64::from((present.0 as u16).wrapping_sub((self.0 >> TICK_SHIFT) as u16))
    }
}

impl tourbillon_wheel::Ticket for Ticket {
    const TICK_BITS: u32 = u64::BITS - TICK_SHIFT;

    #[inline(always)]
    fn tick(&self) -> Tick {
        Tick(self.0 >> TICK_SHIFT)
    }
}

/// Due tickets (requests to check timers) that are handed over together: at most
/// [`CHUNK_TICKETS`](crate::base::limits::CHUNK_TICKETS).
pub(crate) type Chunk = Vec<Ticket>;

/// A ticket on its way from a thread that arms a timer to a shard's wheel. It has the deadline in place of the tick, to
/// spare the thread a division. The shard computes the tick only if the timer is still armed, and most timers are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Insertion {
    pub(crate) deadline: Timestamp,
    pub(crate) index: u32,
    pub(crate) stamp: u16,
}

impl Insertion {
    #[inline]
    pub(crate) fn into_ticket(self, tick: TickLength) -> (Tick, Ticket) {
        let due = tick.due_tick(self.deadline);
        (due, Ticket::new(due, self.index, self.stamp))
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_gives_back_what_was_put_into_it() {
        for index in [0, 1, 1 << 24, u32::MAX] {
            for stamp in [0, 1, u16::MAX >> 1, 1 << 15, u16::MAX] {
                for due in [0, 1, (1 << 16) - 1, 1 << 16, u64::MAX] {
                    let ticket = Ticket::new(Tick(due), index, stamp);
                    assert_eq!((ticket.index(), ticket.stamp()), (index, stamp));
                    assert_eq!(ticket.is_owned(), stamp >= 1 << 15);
                    let passed = (u64::MAX - due).min(65_535);
                    assert_eq!(ticket.ticks_late(Tick(due + passed)), passed);
                }
            }
        }
        assert_eq!(size_of::<Ticket>(), 8);
    }
}
