//! A heap of deadlines with eager cancel. Each timer knows its place in the heap, so a cancel removes it there.
//!
//! libevent's and libuv's heaps are such heaps, with two children. Go's timers are, too, with four children: the depth
//! is half, and siblings share a cache line. The places are in an array of their own, since every move in the heap
//! writes a place.
//!
//! Complexity: insert, cancel and expiry O(log n); no dead entry is kept.
//!
//! Known limits: an entry that moves writes its place, a cold cache line on each level.

use super::slots::{SlotId, Slots};
use super::{Queue, fire_all};
use crate::common::{Payload, Timers};

pub(crate) struct IndexHeap<const ARITY: usize> {
    heap: Vec<Entry>,
    /// Each timer's index in the heap. The index in this vector is the timer's slot.
    places: Vec<u32>,
    slots: Slots,
}

#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    id: SlotId,
}

impl<const ARITY: usize> IndexHeap<ARITY> {
    #[inline]
    fn set(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.places[entry.id.index as usize] = place as u32;
    }

    /// Puts `entry` into the heap at the free index `place`, or moves it towards the root from there.
    #[inline]
    fn sift_up(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent].at <= entry.at {
                break;
            }
            self.set(place, self.heap[parent]);
            place = parent;
        }
        self.set(place, entry);
    }

    /// Puts `entry` into the heap at the free index `place`, or moves it towards the leaves from there.
    #[inline]
    fn sift_down(&mut self, mut place: usize, entry: Entry) {
        while let Some(child) = self.least_child(place)
            && self.heap[child].at < entry.at
        {
            self.set(place, self.heap[child]);
            place = child;
        }
        self.set(place, entry);
    }

    #[inline]
    fn least_child(&self, place: usize) -> Option<usize> {
        let first = place * ARITY + 1;
        let last = (first + ARITY).min(self.heap.len());
        (first..last).min_by_key(|&child| self.heap[child].at)
    }

    fn remove_at(&mut self, place: usize) {
        let last = self.heap.pop().expect("there is one at a place");
        if place == self.heap.len() {
            return;
        }
        if place > 0 && self.heap[(place - 1) / ARITY].at > last.at {
            self.sift_up(place, last);
        } else {
            self.sift_down(place, last);
        }
    }
}

impl<const ARITY: usize> Queue for IndexHeap<ARITY> {
    const LOCKED_NAME: &'static str =
        if ARITY == 2 { "Mutex<index heap>" } else { "Mutex<4-ary index heap>" };
    type Id = SlotId;

    fn empty() -> Self {
        const { assert!(ARITY == 2 || ARITY == 4, "the names know no other") };
        Self { heap: Vec::new(), places: Vec::new(), slots: Slots::default() }
    }

    #[inline]
    fn insert(&mut self, at: u64, payload: Payload) -> SlotId {
        let id = self.slots.put(payload);
        if id.index as usize == self.places.len() {
            self.places.push(0);
        }
        let entry = Entry { at, id };
        self.heap.push(entry);
        self.sift_up(self.heap.len() - 1, entry);
        id
    }

    #[inline]
    fn remove(&mut self, id: SlotId) -> Option<Payload> {
        let payload = self.slots.take(id)?;
        self.remove_at(self.places[id.index as usize] as usize);
        Some(payload)
    }

    fn first(&mut self) -> Option<u64> {
        self.heap.first().map(|entry| entry.at)
    }

    #[inline]
    fn pop_due(&mut self, now: u64) -> Option<Payload> {
        let Entry { id, .. } = *self.heap.first().filter(|entry| entry.at <= now)?;
        self.remove_at(0);
        self.slots.take(id)
    }

    fn live(&self) -> usize {
        self.heap.len()
    }
}

impl<const ARITY: usize> Timers for IndexHeap<ARITY> {
    const NAME: &'static str =
        if ARITY == 2 { "binary heap, eager cancel" } else { "4-ary heap, eager cancel" };
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
