//! The non-cascading wheel of Linux since 4.8 (`kernel/time/timer.c`), with its nine levels of 64 slots. The slots of
//! each level are eight times as coarse as those of the level before.
//!
//! The delay of a timer selects its level, and its deadline is rounded up to that level's slots. The timer stays there
//! until it fires. The kernel rounds up by a whole slot more, since its present tick may be partly over. This wheel
//! does not, so it is less late than the kernel's.
//!
//! Complexity: insert, cancel and expiry O(1), and a timer is never moved; a bit for each slot, in a word for each
//! level, finds the slots with timers.
//!
//! Known limits: a timer is late by up to 8/63 of its delay, and cannot be further ahead than 1,056,964,608 ticks (12
//! days of 1 ms); the kernel fires such timers early.

use super::lists::Lists;
use super::slots::SlotId;
use crate::common::{Limits, Payload, Timers};

const LEVELS: u32 = 9;
const SLOTS: u32 = 64;
/// The number of bits between the slot widths of two levels: each level is eight times as coarse as the level before.
const SHIFT: u32 = 3;

pub(crate) struct LinuxWheel {
    /// The tick that the wheel checks next: the tick after the wheel's position.
    clock: u64,
    wheel: Lists<()>,
    occupied: [u64; LEVELS as usize],
    /// The tick before which all slots of the wheel are empty or not due.
    next: u64,
}

/// Returns the level for a delay in ticks, counted from `clock`. Each level reaches one slot less than its ring has,
/// because rounding up may take one slot more.
#[inline]
fn level_for(delta: u64) -> u32 {
    (0..LEVELS).find(|level| delta < reach(*level)).expect("within the span")
}

const fn reach(level: u32) -> u64 {
    (SLOTS as u64 - 1) << (level * SHIFT)
}

fn lateness(ahead: u64) -> u64 {
    (1 << (level_for(ahead.saturating_sub(1)) * SHIFT)) - 1
}

impl LinuxWheel {
    /// Returns the tick at which the first slot with timers begins.
    fn next_slot(&self) -> u64 {
        let first_of = |(level, occupied): (u32, &u64)| {
            let shift = level * SHIFT;
            let current = self.clock.div_ceil(1 << shift);
            let ahead = occupied.rotate_right((current % u64::from(SLOTS)) as u32);
            (ahead != 0).then(|| (current + u64::from(ahead.trailing_zeros())) << shift)
        };
        (0..LEVELS).zip(&self.occupied).filter_map(first_of).min().unwrap_or(u64::MAX)
    }

    /// Empties the slots that begin at tick `clock`: at most one slot for each level.
    fn fire_slots(&mut self, fire: &mut impl FnMut(Payload)) {
        for level in 0..LEVELS {
            let number = self.clock >> (level * SHIFT);
            if number << (level * SHIFT) != self.clock {
                return;
            }
            let slot = (number % u64::from(SLOTS)) as u32;
            let occupied = &mut self.occupied[level as usize];
            if *occupied & 1 << slot != 0 {
                *occupied &= !(1 << slot);
                self.wheel.drain(level * SLOTS + slot, fire);
            }
        }
    }
}

impl Timers for LinuxWheel {
    const NAME: &'static str = "non-cascading wheel (Linux)";
    const LIMITS: Limits = Limits { span: reach(LEVELS - 1), lateness, ..Limits::NONE };
    type Id = SlotId;

    fn new() -> Self {
        let wheel = Lists::new((LEVELS * SLOTS) as usize);
        Self { clock: 1, wheel, occupied: [0; LEVELS as usize], next: u64::MAX }
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> SlotId {
        let tick = tick.max(self.clock);
        let level = level_for(tick - self.clock);
        let number = tick.div_ceil(1 << (level * SHIFT));
        let slot = (number % u64::from(SLOTS)) as u32;
        self.occupied[level as usize] |= 1 << slot;
        self.next = self.next.min(number << (level * SHIFT));
        self.wheel.push(level * SLOTS + slot, (), payload)
    }

    #[inline]
    fn cancel(&mut self, id: SlotId) -> Option<Payload> {
        let removed = self.wheel.remove(id)?;
        if self.wheel.is_empty(removed.list) {
            self.occupied[(removed.list / SLOTS) as usize] &= !(1 << (removed.list % SLOTS));
        }
        Some(removed.payload)
    }

    fn expire(&mut self, to: u64, mut fire: impl FnMut(Payload)) {
        while self.next <= to {
            self.clock = self.next;
            self.fire_slots(&mut fire);
            self.clock += 1;
            self.next = self.next_slot();
        }
        self.clock = self.clock.max(to + 1);
    }

    fn len(&self) -> usize {
        self.wheel.len()
    }
}
