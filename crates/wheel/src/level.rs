//! The levels of a wheel. Each level is a ring of slots of one width, with a bitmap of the occupied slots.

use crate::blocks::Blocks;
use crate::slot::Slot;
use crate::ticket::Ticket;
#[cfg(test)]
use crate::ticket::low_bits;
use alloc::boxed::Box;
use alloc::vec;

/// A level of a wheel: a ring of `2 * 2^BITS` slots. Each slot has the tickets (requests to check timers) of `2^shift`
/// ticks. The number of a slot is `tick >> shift`, counted from tick 0. The ring begins at the wheel's position.
///
/// A revolution is `2^BITS` slots, so the ring has room for two revolutions. So the tickets of a slot of the next
/// coarser level can move to this level up to a whole revolution before that slot begins.
#[derive(Debug)]
pub(super) struct Level<const BITS: u32> {
    slots: Box<[Slot]>,
    /// For each slot of the ring, a bit that is set if the slot is occupied. The other bits are not used.
    occupied: [u64; MOST_WORDS],
    shift: u32,
}

/// The number of words in the bitmap of the largest ring.
const MOST_WORDS: usize = (2 << 10) / 64;

impl<const BITS: u32> Level<BITS> {
    const RING: u64 = 2 << BITS;
    /// The number of words in the bitmap of a level's occupied slots: a power of two.
    const WORDS: usize = (2usize << BITS) / 64;

    pub(super) fn new(depth: usize) -> Self {
        const { assert!(BITS >= 5 && BITS <= 10, "a bitmap of whole words, and at most 13 levels") }
        let ring = 2usize << BITS;
        Self {
            slots: vec![Slot::EMPTY; ring].into_boxed_slice(),
            occupied: [0; MOST_WORDS],
            shift: Self::shift_of(depth),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are at most 13 levels")]
    const fn shift_of(depth: usize) -> u32 {
        depth as u32 * BITS
    }

    /// Returns the number of the finest level that can hold a ticket (a request to check a timer) for `tick`. `tick`
    /// must be after `position`.
    #[inline]
    pub(super) fn depth_for(tick: u64, position: u64) -> usize {
        // Most timers are near, and two comparisons are cheaper than a search.
        if let Some(depth) = (0..2).find(|&depth| Self::holds(depth, tick, position)) {
            return depth;
        }
        let ahead = tick - position;
        let bits = u64::BITS - (ahead | 1).leading_zeros();
        let depth = ((bits - 1) / BITS) as usize;
        // `ahead` has at most `depth + 1` digits, so the ring at `depth` holds the tick. The ring of the next finer
        // level may hold it, too.
        match depth.checked_sub(1) {
            Some(finer) if Self::holds(finer, tick, position) => finer,
            _ => depth,
        }
    }

    #[inline]
    fn holds(depth: usize, tick: u64, position: u64) -> bool {
        let shift = Self::shift_of(depth);
        (tick >> shift) - (position >> shift) < Self::RING
    }

    /// Returns whether the slots of level `depth` are near: tickets store all bits in which the ticks of a slot differ.
    #[inline]
    pub(super) const fn is_near<T: Ticket>(depth: usize) -> bool {
        T::TICK_BITS == u64::BITS || Self::shift_of(depth) <= T::TICK_BITS
    }

    /// Adds a ticket to the level's slot for `tick`, the ticket's tick. Returns the first tick of that slot, and the
    /// number of its tickets.
    #[inline]
    pub(super) fn push<T: Ticket>(&mut self, blocks: &mut Blocks<T>, tick: u64, ticket: T) -> (u64, usize) {
        let number = tick >> self.shift;
        let at = Self::ring_index(number);
        let slot = &mut self.slots[at];
        if slot.is_empty() {
            self.occupied[at / 64 % Self::WORDS] |= 1 << (at % 64);
        }
        slot.push(blocks, tick, ticket);
        (number << self.shift, slot.len())
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "smaller than the ring")]
    fn ring_index(number: u64) -> usize {
        (number & (Self::RING - 1)) as usize
    }

    /// Returns the number of the first occupied slot after `position`. Takes O(slots of the ring / 64).
    #[inline]
    pub(super) fn first_occupied(&self, position: u64) -> Option<u64> {
        let here = position >> self.shift;
        let from = Self::ring_index(here.wrapping_add(1));
        let mut word = from / 64;
        let mut bits = self.occupied[word % Self::WORDS] & u64::MAX << (from % 64);
        let mut steps = 0;
        while bits == 0 {
            if steps == Self::WORDS {
                return None;
            }
            steps += 1;
            word += 1;
            // At the last step, this is the first word again: only the bits before `from` can be set.
            bits = self.occupied[word % Self::WORDS];
        }
        let at = (word * 64) as u64 + u64::from(bits.trailing_zeros());
        Some(here + (at.wrapping_sub(here) & (Self::RING - 1)))
    }

    #[inline]
    pub(super) fn slot(&self, number: u64) -> &Slot {
        &self.slots[Self::ring_index(number)]
    }

    /// Empties slot `number`. Returns the slot as it was: the caller frees its blocks.
    #[inline]
    pub(super) fn take_slot(&mut self, number: u64) -> Slot {
        let at = Self::ring_index(number);
        self.occupied[at / 64 % Self::WORDS] &= !(1 << (at % 64));
        core::mem::replace(&mut self.slots[at], Slot::EMPTY)
    }

    /// Calls `change` with slot `number`. Afterwards updates the slot's bit in the bitmap of occupied slots.
    #[inline]
    pub(super) fn with_slot<R>(&mut self, number: u64, change: impl FnOnce(&mut Slot) -> R) -> R {
        let at = Self::ring_index(number);
        let slot = &mut self.slots[at];
        let result = change(slot);
        if slot.is_empty() {
            *slot = Slot::EMPTY;
            self.occupied[at / 64 % Self::WORDS] &= !(1 << (at % 64));
        } else {
            self.occupied[at / 64 % Self::WORDS] |= 1 << (at % 64);
        }
        result
    }

    /// Returns the first tick of the slot with this number.
    pub(super) fn start_of(&self, number: u64) -> u64 {
        number << self.shift
    }

    /// Returns the whole tick of a ticket in slot `number`. The ticket must store all bits in which the ticks of a slot
    /// differ ([`is_near`](Self::is_near)).
    #[inline]
    pub(super) fn tick_of<T: Ticket>(&self, number: u64, ticket: &T) -> u64 {
        let width = 1 << self.shift;
        self.start_of(number) | ticket.tick().0 & (width - 1)
    }

    /// Returns the tick at which the wheel starts to move the tickets of coarse slot `number` to the next finer level.
    /// The tick is `turns` ticks before the slot begins, but at most the slot's width before. At an earlier tick, the
    /// ring of the finer level does not reach all tickets of the slot.
    pub(super) fn spread_from(&self, number: u64, turns: u64) -> u64 {
        self.start_of(number) - turns.min(1 << self.shift)
    }

    /// Returns whether the ring of the next finer level already reaches all ticks of the slot. It does if the slot
    /// begins within one revolution of the finer level.
    pub(super) fn fits_finer_level(&self, number: u64, position: u64) -> bool {
        let finer = self.shift - BITS;
        (number << BITS) - (position >> finer) <= 1 << BITS
    }

    pub(super) fn ring_len(&self) -> usize {
        self.slots.len()
    }

    #[cfg(test)]
    pub(super) fn check_invariants<T: Ticket>(&self, blocks: &Blocks<T>, position: u64) -> usize {
        for (at, slot) in self.slots.iter().enumerate() {
            assert_eq!(self.occupied[at / 64 % Self::WORDS] >> (at % 64) & 1 == 1, !slot.is_empty());
        }
        let mut count = 0;
        for (number, slot) in self.occupied(position) {
            assert!(number > position >> self.shift, "a slot that was passed holds a ticket");
            for ticket in slot.tickets(blocks) {
                let tick = self.tick_of(number, &ticket);
                assert!(
                    (tick ^ ticket.tick().0) & low_bits::<T>() == 0,
                    "a ticket in a slot that is not its own"
                );
                assert!(slot.earliest() <= tick);
                assert_eq!(slot.earliest() >> self.shift, number, "a bound outside of the slot");
                count += 1;
            }
        }
        count
    }

    /// Returns the occupied slots, each with its number.
    #[cfg(test)]
    fn occupied(&self, position: u64) -> impl Iterator<Item = (u64, &Slot)> {
        let here = position >> self.shift;
        let number = move |at: u64| here + (at.wrapping_sub(here) & (Self::RING - 1));
        let slots = (0..).zip(&self.slots).filter(|(_, slot)| !slot.is_empty());
        slots.map(move |(at, slot)| (number(at), slot))
    }

    /// Returns the ticks of all tickets.
    #[cfg(test)]
    pub(super) fn ticks<T: Ticket>(&self, blocks: &Blocks<T>, position: u64) -> vec::Vec<u64> {
        let ticks = |(number, slot): (u64, &Slot)| {
            let tick = move |ticket| self.tick_of(number, &ticket);
            slot.tickets(blocks).into_iter().map(tick)
        };
        self.occupied(position).flat_map(ticks).collect()
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}
