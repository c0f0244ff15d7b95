//! A hierarchical wheel whose slots are in a priority queue, as in Kafka (`TimingWheel`, `SystemTimer`).
//!
//! A level reaches as far ahead as its ring is long. A timer goes to the finest level that reaches its deadline. A slot
//! that gets its first timer enters a priority queue, ordered by the slots' beginnings. Time goes from one beginning to
//! the next: fine slots fire, and the timers of coarse slots are inserted again. A level is made when it is first used.
//! Rings have 64 slots, as in the cascading wheel of this folder. With the 20 slots of Kafka there would be one more
//! cascade within a minute.
//!
//! Complexity: insert O(1), or O(log slots) for the first timer of a slot; cancel O(1); a timer is moved at most once a
//! level. Empty time costs nothing.
//!
//! Known limits: none in span or precision. A slot emptied by cancels still comes up in the queue. All timers of a
//! coarse slot are moved at once.

use super::lists::{Lists, NIL};
use super::slots::SlotId;
use crate::common::{Payload, Timers};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const BITS: u32 = 6;
const SLOTS: u32 = 1 << BITS;

pub(crate) struct DelayQueueWheel {
    position: u64,
    wheel: Lists<u64>,
    /// The tick at which each slot begins. `None` for a slot outside the queue.
    begins: Vec<Option<u64>>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
}

impl DelayQueueWheel {
    /// Returns the slot for a timer's tick. Puts the slot into the queue if the slot is missing there.
    #[inline]
    fn slot_for(&mut self, tick: u64) -> u32 {
        let number_at = |level: u32| tick >> (level * BITS);
        let ahead = |level: &u32| number_at(*level) - (self.position >> (level * BITS));
        let level = (0..).find(|level| ahead(level) < u64::from(SLOTS)).expect("a level for the last tick");
        let list = level * SLOTS + (number_at(level) % u64::from(SLOTS)) as u32;
        if list as usize >= self.begins.len() {
            self.add_levels(level);
        }
        let begin = number_at(level) << (level * BITS);
        if self.begins[list as usize].replace(begin) != Some(begin) {
            self.queue.push(Reverse((begin, list)));
        }
        list
    }

    #[cold]
    fn add_levels(&mut self, level: u32) {
        let lists = ((level + 1) * SLOTS) as usize;
        self.wheel.add_lists(lists - self.begins.len());
        self.begins.resize(lists, None);
    }

    /// Fires the timers of a slot whose first tick has come. Timers that are not due are inserted again.
    fn flush(&mut self, list: u32, fire: &mut impl FnMut(Payload)) {
        if list < SLOTS {
            return self.wheel.drain(list, fire);
        }
        let mut node = self.wheel.detach(list);
        while node != NIL {
            let next = self.wheel.next(node);
            let tick = self.wheel.key(node);
            if tick <= self.position {
                fire(self.wheel.fire_detached(node));
            } else {
                let slot = self.slot_for(tick);
                self.wheel.link_last(slot, node);
            }
            node = next;
        }
    }
}

impl Timers for DelayQueueWheel {
    const NAME: &'static str = "wheel on a delay queue (Kafka)";
    type Id = SlotId;

    fn new() -> Self {
        Self { position: 0, wheel: Lists::new(0), begins: Vec::new(), queue: BinaryHeap::new() }
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> SlotId {
        let tick = tick.max(self.position);
        let slot = self.slot_for(tick);
        self.wheel.push(slot, tick, payload)
    }

    #[inline]
    fn cancel(&mut self, id: SlotId) -> Option<Payload> {
        Some(self.wheel.remove(id)?.payload)
    }

    fn expire(&mut self, to: u64, mut fire: impl FnMut(Payload)) {
        while let Some(&Reverse((begin, list))) = self.queue.peek()
            && begin <= to
        {
            self.queue.pop();
            self.begins[list as usize] = None;
            self.position = self.position.max(begin);
            self.flush(list, &mut fire);
        }
        self.position = self.position.max(to);
    }

    fn len(&self) -> usize {
        self.wheel.len()
    }
}
