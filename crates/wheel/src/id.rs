//! Ids of timers, in a table whose slots are reused.

use core::fmt;

/// The id of a scheduled timer: its slot in a table, and the slot's generation.
///
/// Ids are plain values. An id whose timer has fired or was cancelled is *stale*, and stays distinguishable from later
/// ids of its slot until the slot has been reused 2^39 times. A thread that does nothing else needs hours for that.
/// (The number is 2^31 beyond the first 16,777,216 slots, and 2^32 in the first slots of a [`Wheel`](crate::Wheel).) An
/// id is meaningful only to the wheel or engine that made it.
///
/// A program with its own table of timers makes an id from the number of a slot and the slot's generation. The
/// generation counts how often the slot was used. The id returns the slot's number, and tells whether it was made with
/// a given generation:
///
/// ```
/// use tourbillon_wheel::TimerId;
///
/// let mut generations = [0_u64; 8];
/// let id = TimerId::new(5, generations[5]);
/// assert!(id.is_of(generations[id.index() as usize]));
/// generations[5] += 1;
/// assert!(!id.is_of(generations[id.index() as usize]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(u64);

// The bits of an id, by the slot that it names:
//   63  62           24  23        0
//  | 0 | generation     | index     |   one of the first 2^24
//   63  62     32  31              0
//  | 1 | generation | index         |   any other
const FEW: u32 = 24;
const MANY: u32 = 32;
const IS_OF_MANY: u64 = 1 << 63;

impl TimerId {
    /// Makes the id of the timer in slot `index`. The id contains the low bits of the generation: 39 bits for the first
    /// 16,777,216 slots, 31 bits for the others.
    #[inline(always)]
    #[must_use]
    pub const fn new(index: u32, generation: u64) -> Self {
        if index >> FEW == 0 {
            Self(generation << FEW & !IS_OF_MANY | index as u64)
        } else {
            Self(generation << MANY | IS_OF_MANY | index as u64)
        }
    }

    /// Returns the number of the slot that the id names. An id that was made by [`from_bits`](Self::from_bits) may name
    /// any slot.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the index")]
    pub const fn index(self) -> u32 {
        if self.0 & IS_OF_MANY == 0 { self.0 as u32 & (u32::MAX >> (u32::BITS - FEW)) } else { self.0 as u32 }
    }

    /// Returns whether the id was made with this `generation`. The comparison uses only the low bits of the generation,
    /// which the id contains.
    #[inline(always)]
    #[must_use]
    pub const fn is_of(self, generation: u64) -> bool {
        let differs = if self.0 & IS_OF_MANY == 0 {
            (self.0 >> FEW ^ generation) << (FEW + 1)
        } else {
            (self.0 >> MANY ^ generation) << (MANY + 1)
        };
        differs == 0
    }

    /// Returns the part of the generation that the id contains: its low bits.
    const fn generation(self) -> u64 {
        (self.0 & !IS_OF_MANY) >> if self.0 & IS_OF_MANY == 0 { FEW } else { MANY }
    }

    /// Returns the id as a number, for places that can only store numbers.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Makes an id from a number that [`to_bits`](Self::to_bits) returned. Any other number makes a stale id or the id
    /// of another timer, which is never unsound.
    #[inline]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_slot_and_no_other_generation_for_as_long_as_it_says() {
        let slots = [(0, 39), (1, 39), ((1 << 24) - 1, 39), (1 << 24, 31), (u32::MAX - 1, 31)];
        for (index, bits) in slots {
            for generation in [0, 1, 5, (1 << 31) - 1, 1 << 31, (1 << 32) + 5, (1 << 39) - 1] {
                let id = TimerId::new(index, generation);
                assert_eq!(id.index(), index);
                assert!(id.is_of(generation));
                assert_eq!(TimerId::from_bits(id.to_bits()), id);
                for distance in [1, 1 << 16, 1 << 30, (1 << bits) - 1] {
                    assert!(!id.is_of(generation + distance) && !id.is_of(generation.wrapping_sub(distance)));
                    assert_ne!(TimerId::new(index, generation + distance), id);
                }
                assert!(id.is_of(generation + (1 << bits)), "all the bits there are, are used");
            }
        }
    }
}
