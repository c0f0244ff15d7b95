//! Tickets. Lanes carry them to the shards, and the shards' wheels hold them.

use crate::base::tick::{Tick, TickLength, Timestamp};
pub use tourbillon_wheel::TimerId;

/// A ticket asks its shard: "Look at timer `index` at `tick`, if the timer's stamp is still `stamp`."
///
/// A ticket is a hint: the state in the timer's own words decides. A ticket whose timer has ended is stale and does no
/// harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) tick: Tick,
    pub(crate) index: u32,
    pub(crate) stamp: u32,
}

impl tourbillon_wheel::Ticket for Ticket {
    #[inline]
    fn tick(&self) -> Tick {
        self.tick
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
    pub(crate) stamp: u32,
}

impl Ticket {
    /// Returns whether the ticket, a request to check a timer, belongs to an owned timer (`Timer`), not to a one-shot.
    pub(crate) fn is_owned(&self) -> bool {
        self.stamp > u32::MAX >> 1
    }
}

impl Insertion {
    pub(crate) fn into_ticket(self, tick: TickLength) -> Ticket {
        Ticket { tick: tick.due_tick(self.deadline), index: self.index, stamp: self.stamp }
    }
}
