//! Tickets, and the ids that users hold.

use crate::tick::Tick;
#[cfg(feature = "std")]
use crate::tick::{TickLength, Timestamp};
use core::fmt;

/// "Look at timer `index` at `tick`, if it is still the one that `stamp` says."
///
/// A ticket is a hint: the timer's own words decide. One that outlives its timer is stale and does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) tick: Tick,
    pub(crate) index: u32,
    pub(crate) stamp: u32,
}

/// A ticket as a producer posts it. The tick is worked out when the shard finds the timer still armed, which most are
/// not: a division that the producer is spared, and usually the shard too.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posting {
    pub(crate) deadline: Timestamp,
    pub(crate) index: u32,
    pub(crate) stamp: u32,
}

#[cfg(feature = "std")]
impl Ticket {
    /// Whether it stands for a timer that a handle owns.
    pub(crate) fn is_owned(&self) -> bool {
        self.stamp > u32::MAX >> 1
    }
}

#[cfg(feature = "std")]
impl Posting {
    pub(crate) fn into_ticket(self, tick: TickLength) -> Ticket {
        Ticket { tick: tick.due_tick(self.deadline), index: self.index, stamp: self.stamp }
    }
}

/// The name of one scheduled timer: its slot and the slot's generation.
///
/// Ids are plain values. One whose timer has fired or was cancelled is *stale* and is recognised as such until its
/// slot has been reused 2^32 times. An id means something only to the wheel or engine that made it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(u64);

impl TimerId {
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is the index")]
    pub(crate) const fn index(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The id as a number, to be kept where only numbers can be.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The id that [`to_bits`](Self::to_bits) gave. Any other number is a stale or a wrong id, never unsound.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Debug for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerId({}v{})", self.index(), self.generation())
    }
}
