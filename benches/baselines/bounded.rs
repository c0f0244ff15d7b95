//! The simple wheel without rounds: a ring with a slot for each tick up to the farthest deadline.
//!
//! Scheme 4 of Varghese and Lauck ("Hashed and Hierarchical Timing Wheels", SOSP 1987). No wheel is better if the
//! longest delay is known and short.
//!
//! Complexity: insert, cancel and expiry O(1); a tick reads one slot.
//!
//! Known limits: no timer can be further ahead than the ring is long, here 65,536 ticks; a slot takes 8 bytes even if
//! it is empty.

use super::lists::Lists;
use super::slots::SlotId;
use crate::common::{Limits, Payload, Timers};

pub(crate) struct BoundedWheel<const SLOTS: u64 = 65_536> {
    position: u64,
    ring: Lists<()>,
}

impl<const SLOTS: u64> Timers for BoundedWheel<SLOTS> {
    const NAME: &'static str = "simple wheel, bounded span";
    const LIMITS: Limits = Limits { span: SLOTS, ..Limits::NONE };
    type Id = SlotId;

    fn new() -> Self {
        Self { position: 0, ring: Lists::new(usize::try_from(SLOTS).expect("a small number")) }
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> SlotId {
        let tick = tick.max(self.position + 1);
        assert!(tick - self.position <= SLOTS, "beyond the span");
        self.ring.push((tick % SLOTS) as u32, (), payload)
    }

    #[inline]
    fn cancel(&mut self, id: SlotId) -> Option<Payload> {
        Some(self.ring.remove(id)?.payload)
    }

    fn expire(&mut self, to: u64, mut fire: impl FnMut(Payload)) {
        if to <= self.position {
            return;
        }
        let passed = if self.ring.len() == 0 { 0 } else { to - self.position };
        for tick in self.position + 1..=self.position + passed.min(SLOTS) {
            self.ring.drain((tick % SLOTS) as u32, &mut fire);
        }
        self.position = to;
    }

    fn len(&self) -> usize {
        self.ring.len()
    }
}
