//! The simple wheel with rounds: a ring of slots. Each timer has the number of revolutions for which it still waits.
//!
//! Scheme 6 of Varghese and Lauck ("Hashed and Hierarchical Timing Wheels", SOSP 1987), with a map from key to timer as
//! in many tutorials and in go-zero's `TimingWheel`. Netty's `HashedWheelTimer` is the same ring, without the map.
//! Netty's default is 512 slots of 100 ms. With ticks of 1 ms a revolution of 512 slots would last half a second, so
//! this ring has 4,096.
//!
//! Complexity: an insert and a cancel take O(1) and a look-up in the map. A tick walks over all timers of its slot,
//! also those of later revolutions, which takes O(n / slots). So each timer is visited once a revolution until it
//! fires.
//!
//! Known limits: none in span or precision. A tick without due timers is not free, and the map takes half of the
//! memory.

use super::keys::KeyMap;
use super::lists::{Lists, NIL};
use crate::common::{Payload, Timers};

pub(crate) struct RoundsWheel<const SLOTS: u64 = 4_096> {
    position: u64,
    ring: Lists<Entry>,
    nodes: KeyMap<u32>,
    scheduled: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    /// The number of revolutions of the wheel before the timer fires.
    rounds: u64,
}

impl<const SLOTS: u64> RoundsWheel<SLOTS> {
    fn slot(tick: u64) -> u32 {
        (tick % SLOTS) as u32
    }

    /// Lets the wheel's hand pass the slot `slot` `times` times, and fires the timers that become due.
    fn pass(&mut self, slot: u32, times: u64, fire: &mut impl FnMut(Payload)) {
        let mut node = self.ring.first(slot);
        while node != NIL {
            let next = self.ring.next(node);
            let entry = self.ring.key_mut(node);
            if entry.rounds >= times {
                entry.rounds -= times;
            } else {
                let removed = self.ring.remove_node(node);
                self.nodes.remove(&removed.key.key);
                fire(removed.payload);
            }
            node = next;
        }
    }
}

impl<const SLOTS: u64> Timers for RoundsWheel<SLOTS> {
    const NAME: &'static str = "simple wheel, rounds";
    type Id = u64;

    fn new() -> Self {
        let slots = usize::try_from(SLOTS).expect("a small number");
        Self { position: 0, ring: Lists::new(slots), nodes: KeyMap::default(), scheduled: 0 }
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> u64 {
        let key = self.scheduled;
        self.scheduled += 1;
        let tick = tick.max(self.position + 1);
        let rounds = (tick - self.position - 1) / SLOTS;
        let id = self.ring.push(Self::slot(tick), Entry { key, rounds }, payload);
        self.nodes.insert(key, id.index);
        key
    }

    #[inline]
    fn cancel(&mut self, key: u64) -> Option<Payload> {
        let node = self.nodes.remove(&key)?;
        Some(self.ring.remove_node(node).payload)
    }

    fn expire(&mut self, to: u64, mut fire: impl FnMut(Payload)) {
        if to <= self.position {
            return;
        }
        let passed = if self.ring.len() == 0 { 0 } else { to - self.position };
        // Each slot is walked once, even if the hand moves by several revolutions.
        for tick in self.position + 1..=self.position + passed.min(SLOTS) {
            self.pass(Self::slot(tick), (to - tick) / SLOTS + 1, &mut fire);
        }
        self.position = to;
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }
}
