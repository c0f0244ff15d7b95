//! A binary heap of deadlines over a slab of payloads, with lazy cancel.
//!
//! A cancel ends the slot's generation and leaves the heap's entry behind. Once more than half of the entries are dead
//! the heap is rebuilt without them.
//!
//! Known limits: popping walks the whole depth of the heap through cold memory; a rebuild is a pause of O(n).

use super::{Queue, fire_all};
use crate::common::{Fired, Payload, Timers};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

pub(crate) struct LazyHeap {
    heap: BinaryHeap<Entry>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    dead: usize,
}

/// Names a slot at a generation; the greatest is the earliest.
#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    id: SlotId,
}

#[derive(Clone, Copy)]
pub(crate) struct SlotId {
    index: u32,
    generation: u32,
}

struct Slot {
    generation: u32,
    payload: Option<Payload>,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}

impl LazyHeap {
    fn take(&mut self, id: SlotId) -> Option<Payload> {
        let slot = &mut self.slots[id.index as usize];
        if slot.generation != id.generation {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        slot.payload.take()
    }

    fn compact(&mut self) {
        let slots = &self.slots;
        self.heap.retain(|entry| slots[entry.id.index as usize].generation == entry.id.generation);
        self.dead = 0;
    }
}

impl Queue for LazyHeap {
    const LOCKED_NAME: &'static str = "Mutex<BinaryHeap>";
    type Id = SlotId;

    fn empty() -> Self {
        Self { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), dead: 0 }
    }

    #[inline]
    fn insert(&mut self, at: u64, payload: Payload) -> SlotId {
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize].payload = Some(payload);
                index
            }
            None => {
                self.slots.push(Slot { generation: 0, payload: Some(payload) });
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 timers")
            }
        };
        let id = SlotId { index, generation: self.slots[index as usize].generation };
        self.heap.push(Entry { at, id });
        id
    }

    #[inline]
    fn remove(&mut self, id: SlotId) -> Option<Payload> {
        let payload = self.take(id)?;
        self.dead += 1;
        if self.dead > self.heap.len() / 2 {
            self.compact();
        }
        Some(payload)
    }

    fn first(&mut self) -> Option<u64> {
        loop {
            let Entry { at, id } = *self.heap.peek()?;
            if self.slots[id.index as usize].generation == id.generation {
                return Some(at);
            }
            self.heap.pop();
            self.dead -= 1;
        }
    }

    fn pop_due(&mut self, now: u64) -> Option<Payload> {
        while self.heap.peek()?.at <= now {
            let Entry { id, .. } = self.heap.pop()?;
            if let Some(payload) = self.take(id) {
                return Some(payload);
            }
            self.dead -= 1;
        }
        None
    }

    fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Timers for LazyHeap {
    const NAME: &'static str = "BinaryHeap, lazy cancel";
    type Id = SlotId;

    fn new() -> Self {
        Self::empty()
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> SlotId {
        self.insert(tick, payload)
    }

    #[inline]
    fn cancel(&mut self, id: SlotId) -> Option<Payload> {
        self.remove(id)
    }

    fn advance(&mut self, to: u64) -> Fired {
        fire_all(self, to)
    }

    fn len(&self) -> usize {
        self.live()
    }
}
