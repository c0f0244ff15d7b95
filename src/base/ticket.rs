//! Tickets, which the wheel and the lanes carry.

use crate::base::tick::{Tick, TickLength, Timestamp};
pub use tourbillon_wheel::TimerId;

/// "Look at timer `index` at `tick`, if its stamp is still `stamp`."
///
/// A ticket is a hint: the timer's own words decide. A ticket that outlives its timer is stale and does no harm.
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

/// Due tickets that are passed on together: at most [`CHUNK_TICKETS`](crate::base::limits::CHUNK_TICKETS).
pub(crate) type Chunk = Vec<Ticket>;

/// A ticket on its way into a wheel, as a producer pushes it. The shard computes the tick when it finds the timer still
/// armed, and most timers are not: the producer is spared a division, and usually the shard is too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Insertion {
    pub(crate) deadline: Timestamp,
    pub(crate) index: u32,
    pub(crate) stamp: u32,
}

impl Ticket {
    /// Whether the ticket stands for a timer that a handle owns.
    pub(crate) fn is_owned(&self) -> bool {
        self.stamp > u32::MAX >> 1
    }
}

impl Insertion {
    pub(crate) fn into_ticket(self, tick: TickLength) -> Ticket {
        Ticket { tick: tick.due_tick(self.deadline), index: self.index, stamp: self.stamp }
    }
}
