//! Doubly linked lists of timers in one slab, linked by index. The wheels and lists of this folder consist of them.
//!
//! A node knows its neighbours and its list, so a cancel can unlink it. A new timer goes to the end of a list, except
//! in a sorted list.

use super::slots::SlotId;
use crate::common::Payload;

/// The index that stands for no node.
pub(super) const NIL: u32 = u32::MAX;

/// Linked lists of timers. `K` is the data that a structure keeps beside the payload: a deadline, or nothing.
pub(super) struct Lists<K> {
    nodes: Vec<Node<K>>,
    lists: Vec<Ends>,
    /// The index of the first free node. Free nodes are linked by `next`.
    free: u32,
    live: usize,
}

struct Node<K> {
    payload: Payload,
    key: K,
    next: u32,
    prev: u32,
    list: u32,
    generation: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

const EMPTY: Ends = Ends { first: NIL, last: NIL };

/// A timer that was removed from its list.
pub(super) struct Removed<K> {
    pub(super) payload: Payload,
    pub(super) key: K,
    pub(super) list: u32,
}

impl<K: Copy> Lists<K> {
    pub(super) fn new(count: usize) -> Self {
        Self { nodes: Vec::new(), lists: vec![EMPTY; count], free: NIL, live: 0 }
    }

    pub(super) fn add_lists(&mut self, count: usize) {
        self.lists.resize(self.lists.len() + count, EMPTY);
    }

    /// Returns the number of timers.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    #[inline]
    pub(super) fn is_empty(&self, list: u32) -> bool {
        self.first(list) == NIL
    }

    #[inline]
    pub(super) fn first(&self, list: u32) -> u32 {
        self.lists[list as usize].first
    }

    #[inline]
    pub(super) fn last(&self, list: u32) -> u32 {
        self.lists[list as usize].last
    }

    #[inline]
    pub(super) fn next(&self, node: u32) -> u32 {
        self.nodes[node as usize].next
    }

    #[inline]
    pub(super) fn prev(&self, node: u32) -> u32 {
        self.nodes[node as usize].prev
    }

    #[inline]
    pub(super) fn key(&self, node: u32) -> K {
        self.nodes[node as usize].key
    }

    #[inline]
    pub(super) fn key_mut(&mut self, node: u32) -> &mut K {
        &mut self.nodes[node as usize].key
    }

    /// Puts a timer at the end of a list.
    #[inline]
    pub(super) fn push(&mut self, list: u32, key: K, payload: Payload) -> SlotId {
        let id = self.allocate(key, payload);
        self.link_last(list, id.index);
        id
    }

    /// Puts a timer behind `prev`, a node of `list`. If `prev` is `NIL`, puts the timer at the start of the list.
    pub(super) fn insert_after(&mut self, list: u32, prev: u32, key: K, payload: Payload) -> SlotId {
        let id = self.allocate(key, payload);
        let next = if prev == NIL { self.first(list) } else { self.next(prev) };
        let node = &mut self.nodes[id.index as usize];
        (node.prev, node.next, node.list) = (prev, next, list);
        self.set_neighbours(list, prev, next, (id.index, id.index));
        id
    }

    #[inline]
    pub(super) fn remove(&mut self, id: SlotId) -> Option<Removed<K>> {
        // The generation of a free node is one higher than in every id of that node.
        let is_live = self.nodes[id.index as usize].generation == id.generation;
        is_live.then(|| self.remove_node(id.index))
    }

    #[inline]
    pub(super) fn remove_node(&mut self, index: u32) -> Removed<K> {
        let Node { next, prev, list, .. } = self.nodes[index as usize];
        self.set_neighbours(list, prev, next, (next, prev));
        let (key, payload) = self.release(index);
        Removed { payload, key, list }
    }

    #[inline]
    pub(super) fn pop(&mut self, list: u32) -> Option<Removed<K>> {
        let first = self.first(list);
        (first != NIL).then(|| self.remove_node(first))
    }

    /// Moves the first timer of the list `from` to the end of the list `to`. `from` must not be empty.
    #[inline]
    pub(super) fn move_first(&mut self, from: u32, to: u32) {
        let first = self.first(from);
        let next = self.next(first);
        self.set_neighbours(from, NIL, next, (next, NIL));
        self.link_last(to, first);
    }

    /// Empties a list, and returns its first node. The timers stay linked to each other, and are still live. The caller
    /// must call `fire_detached` or `link_last` for each timer.
    #[inline]
    pub(super) fn detach(&mut self, list: u32) -> u32 {
        std::mem::replace(&mut self.lists[list as usize], EMPTY).first
    }

    /// Removes the timer at `node`, whose list was detached, and returns its payload.
    #[inline]
    pub(super) fn fire_detached(&mut self, node: u32) -> Payload {
        self.release(node).1
    }

    /// Removes all timers of a list, and calls `fire` with each payload.
    #[inline]
    pub(super) fn drain(&mut self, list: u32, fire: &mut impl FnMut(Payload)) {
        let mut node = self.detach(list);
        while node != NIL {
            let next = self.next(node);
            fire(self.fire_detached(node));
            node = next;
        }
    }

    #[inline]
    pub(super) fn link_last(&mut self, list: u32, index: u32) {
        let ends = &mut self.lists[list as usize];
        let prev = std::mem::replace(&mut ends.last, index);
        if prev == NIL {
            ends.first = index;
        } else {
            self.nodes[prev as usize].next = index;
        }
        let node = &mut self.nodes[index as usize];
        (node.prev, node.next, node.list) = (prev, NIL, list);
    }

    /// Links two neighbours: sets the successor of `prev` and the predecessor of `next`. At an end of the list, sets
    /// the list's first or last node instead.
    #[inline]
    fn set_neighbours(&mut self, list: u32, prev: u32, next: u32, (after_prev, before_next): (u32, u32)) {
        let ends = &mut self.lists[list as usize];
        if prev == NIL {
            ends.first = after_prev;
        } else {
            self.nodes[prev as usize].next = after_prev;
        }
        if next == NIL {
            ends.last = before_next;
        } else {
            self.nodes[next as usize].prev = before_next;
        }
    }

    #[inline]
    fn allocate(&mut self, key: K, payload: Payload) -> SlotId {
        self.live += 1;
        if self.free == NIL {
            let index = u32::try_from(self.nodes.len()).expect("fewer than 2^32 timers");
            self.nodes.push(Node { payload, key, next: NIL, prev: NIL, list: NIL, generation: 0 });
            return SlotId { index, generation: 0 };
        }
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        (node.key, node.payload) = (key, payload);
        SlotId { index, generation: node.generation }
    }

    #[inline]
    fn release(&mut self, index: u32) -> (K, Payload) {
        let node = &mut self.nodes[index as usize];
        node.generation = node.generation.wrapping_add(1);
        node.next = std::mem::replace(&mut self.free, index);
        self.live -= 1;
        (node.key, node.payload)
    }
}
