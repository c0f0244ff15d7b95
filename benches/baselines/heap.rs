//! A binary heap of deadlines over a slab of payloads, with lazy cancel.
//!
//! A cancel ends the slot's generation and leaves the heap's entry behind. Once more than half of the entries are dead,
//! the heap is rebuilt without them.
//!
//! Known limits: popping walks the whole depth of the heap through cold memory; a rebuild is a pause of O(n).

use super::slots::{SlotId, Slots};
use super::{Queue, fire_all};
use crate::common::{Payload, Timers};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

pub(crate) struct LazyHeap {
    heap: BinaryHeap<Entry>,
    slots: Slots,
    dead: usize,
}

/// An entry of the heap: a timer's slot with its generation, and the timer's deadline. In the heap's order the greatest
/// entry has the earliest deadline.
#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    id: SlotId,
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
    fn compact(&mut self) {
        let slots = &self.slots;
        self.heap.retain(|entry| slots.is_live(entry.id));
        self.dead = 0;
    }
}

impl Queue for LazyHeap {
    const LOCKED_NAME: &'static str = "Mutex<BinaryHeap>";
    type Id = SlotId;

    fn empty() -> Self {
        Self { heap: BinaryHeap::new(), slots: Slots::default(), dead: 0 }
    }

    #[inline]
    fn insert(&mut self, at: u64, payload: Payload) -> SlotId {
        let id = self.slots.put(payload);
        self.heap.push(Entry { at, id });
        id
    }

    #[inline]
    fn remove(&mut self, id: SlotId) -> Option<Payload> {
        let payload = self.slots.take(id)?;
        self.dead += 1;
        if self.dead > self.heap.len() / 2 {
            self.compact();
        }
        Some(payload)
    }

    fn first(&mut self) -> Option<u64> {
        loop {
            let Entry { at, id } = *self.heap.peek()?;
            if self.slots.is_live(id) {
                return Some(at);
            }
            self.heap.pop();
            self.dead -= 1;
        }
    }

    fn pop_due(&mut self, now: u64) -> Option<Payload> {
        while self.heap.peek()?.at <= now {
            let Entry { id, .. } = self.heap.pop()?;
            if let Some(payload) = self.slots.take(id) {
                return Some(payload);
            }
            self.dead -= 1;
        }
        None
    }

    fn live(&self) -> usize {
        self.slots.len()
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

    fn expire(&mut self, to: u64, fire: impl FnMut(Payload)) {
        fire_all(self, to, fire);
    }

    fn len(&self) -> usize {
        self.live()
    }
}
