//! The sorted list: one doubly linked list in the order of deadlines.
//!
//! This is scheme 2 of Varghese and Lauck ("Hashed and Hierarchical Timing Wheels", SOSP 1987), as in VMS and early
//! Unix. An insert searches from the end of the list, which is best if all delays are alike.
//!
//! Complexity: insert O(n), cancel and expiry O(1).
//!
//! Known limits: an insert walks past all later timers. A bench with more than 10,000 pending timers would take too
//! long.

use super::lists::{Lists, NIL};
use super::slots::SlotId;
use crate::common::{Limits, Payload, Timers};

pub(crate) struct SortedList {
    list: Lists<u64>,
}

/// The number of the only list.
const LIST: u32 = 0;

impl Timers for SortedList {
    const NAME: &'static str = "sorted list";
    const LIMITS: Limits = Limits { timers: 10_000, ..Limits::NONE };
    type Id = SlotId;

    fn new() -> Self {
        Self { list: Lists::new(1) }
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> SlotId {
        let mut prev = self.list.last(LIST);
        while prev != NIL && self.list.key(prev) > tick {
            prev = self.list.prev(prev);
        }
        self.list.insert_after(LIST, prev, tick, payload)
    }

    #[inline]
    fn cancel(&mut self, id: SlotId) -> Option<Payload> {
        Some(self.list.remove(id)?.payload)
    }

    fn expire(&mut self, to: u64, mut fire: impl FnMut(Payload)) {
        while let first = self.list.first(LIST)
            && first != NIL
            && self.list.key(first) <= to
        {
            fire(self.list.remove_node(first).payload);
        }
    }

    fn len(&self) -> usize {
        self.list.len()
    }
}
