//! The hierarchical wheel with cascades. It has levels of 64 slots. A slot of a level is as long as the whole level
//! below.
//!
//! This is scheme 7 of Varghese and Lauck ("Hashed and Hierarchical Timing Wheels", SOSP 1987), which Linux used before
//! 4.8. tokio uses it too, with 64 slots and one occupancy word a level. The highest bit in which deadline and position
//! differ selects the level. Timers are linked by index in one slab.
//!
//! Complexity: insert and cancel O(1); a timer is moved at most once a level; empty time is skipped by the occupancy
//! words.
//!
//! Known limits: none in span or precision. When a coarse slot begins, all of its timers are moved at once, through
//! cold memory; [`step`](CascadingWheel::step) lets a caller do that in parts.

use super::lists::Lists;
use super::slots::SlotId;
use crate::common::{Payload, Timers};

const BITS: u32 = 6;
const SLOTS: u32 = 1 << BITS;
const LEVELS: u32 = u64::BITS.div_ceil(BITS);

pub(crate) struct CascadingWheel {
    position: u64,
    wheel: Lists<u64>,
    /// For each slot of the level, a bit that is set if the slot has timers.
    occupied: [u64; LEVELS as usize],
    /// The coarse slot that the wheel is emptying. The slot begins at `position`.
    open: Option<u32>,
}

/// The work that a single step of the wheel has done.
pub(crate) enum Step {
    Fire(Payload),
    /// A timer was moved to a finer level.
    Move,
    /// No timer is left to fire or to move up to the given tick.
    Settled,
}

impl CascadingWheel {
    /// Returns the slot for a tick. The highest digit in which `tick` and the position differ names the level. The
    /// digit of `tick` there is the slot.
    #[inline]
    fn list_for(&self, tick: u64) -> u32 {
        let level = ((tick ^ self.position) | u64::from(SLOTS - 1)).ilog2() / BITS;
        level * SLOTS + digit(tick, level)
    }

    /// Returns the first occupied slot and the tick at which the slot begins. The slots of a fine level begin before
    /// the slots of all coarser levels.
    #[inline]
    fn next_slot(&self) -> Option<(u32, u64)> {
        let levels = self.occupied.iter().zip(0..);
        let (&occupied, level) = levels.into_iter().find(|(occupied, _)| **occupied != 0)?;
        let slot = occupied.trailing_zeros();
        let above = (level + 1) * BITS;
        let revolution = self.position.checked_shr(above).map_or(0, |number| number << above);
        Some((level * SLOTS + slot, revolution | u64::from(slot) << (level * BITS)))
    }

    /// Returns the tick at which [`step`](Self::step) must be called again: the tick of the first timer. The tick is
    /// earlier if timers must be moved before.
    pub(crate) fn next_step(&self) -> Option<u64> {
        if self.open.is_some() { Some(self.position) } else { self.next_slot().map(|(_, begin)| begin) }
    }

    /// Does one step of the work that is due at tick `to`.
    #[inline]
    pub(crate) fn step(&mut self, to: u64) -> Step {
        if let Some(list) = self.open {
            return self.move_down(list);
        }
        match self.next_slot() {
            Some((list, begin)) if begin <= to => {
                self.position = begin;
                if list >= SLOTS {
                    self.open = Some(list);
                    return self.move_down(list);
                }
                let fired = self.wheel.pop(list).expect("its bit is set");
                self.note_if_empty(list);
                Step::Fire(fired.payload)
            }
            _ => {
                self.position = self.position.max(to);
                Step::Settled
            }
        }
    }

    #[inline]
    fn move_down(&mut self, from: u32) -> Step {
        let to = self.list_for(self.wheel.key(self.wheel.first(from)));
        self.wheel.move_first(from, to);
        self.note_occupied(to);
        self.note_if_empty(from);
        Step::Move
    }

    #[inline]
    fn note_occupied(&mut self, list: u32) {
        self.occupied[(list / SLOTS) as usize] |= 1 << (list % SLOTS);
    }

    #[inline]
    fn note_if_empty(&mut self, list: u32) {
        if self.wheel.is_empty(list) {
            self.occupied[(list / SLOTS) as usize] &= !(1 << (list % SLOTS));
            self.open = self.open.filter(|&open| open != list);
        }
    }
}

fn digit(tick: u64, level: u32) -> u32 {
    (tick >> (level * BITS)) as u32 % SLOTS
}

impl Timers for CascadingWheel {
    const NAME: &'static str = "cascading wheel";
    type Id = SlotId;

    fn new() -> Self {
        let wheel = Lists::new((LEVELS * SLOTS) as usize);
        Self { position: 0, wheel, occupied: [0; LEVELS as usize], open: None }
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> SlotId {
        let tick = tick.max(self.position);
        let list = self.list_for(tick);
        self.note_occupied(list);
        self.wheel.push(list, tick, payload)
    }

    #[inline]
    fn cancel(&mut self, id: SlotId) -> Option<Payload> {
        let removed = self.wheel.remove(id)?;
        self.note_if_empty(removed.list);
        Some(removed.payload)
    }

    fn expire(&mut self, to: u64, mut fire: impl FnMut(Payload)) {
        loop {
            match self.step(to) {
                Step::Fire(payload) => fire(payload),
                Step::Move => {}
                Step::Settled => return,
            }
        }
    }

    fn len(&self) -> usize {
        self.wheel.len()
    }
}
