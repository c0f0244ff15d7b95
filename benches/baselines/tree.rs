//! A B-tree. Its keys are a deadline with a sequence number, and its values are payloads.
//!
//! Known limits: every operation descends the tree; nodes are about two thirds full.

use super::{Queue, fire_all};
use crate::common::{Payload, Timers};
use std::collections::BTreeMap;

pub(crate) struct Tree {
    timers: BTreeMap<(u64, u64), Payload>,
    scheduled: u64,
}

impl Queue for Tree {
    const LOCKED_NAME: &'static str = "Mutex<BTreeMap>";
    type Id = (u64, u64);

    fn empty() -> Self {
        Self { timers: BTreeMap::new(), scheduled: 0 }
    }

    #[inline]
    fn insert(&mut self, at: u64, payload: Payload) -> (u64, u64) {
        let id = (at, self.scheduled);
        self.scheduled += 1;
        self.timers.insert(id, payload);
        id
    }

    #[inline]
    fn remove(&mut self, id: (u64, u64)) -> Option<Payload> {
        self.timers.remove(&id)
    }

    fn first(&mut self) -> Option<u64> {
        self.timers.first_key_value().map(|(id, _)| id.0)
    }

    fn pop_due(&mut self, now: u64) -> Option<Payload> {
        let first = self.timers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn live(&self) -> usize {
        self.timers.len()
    }
}

impl Timers for Tree {
    const NAME: &'static str = "BTreeMap";
    type Id = (u64, u64);

    fn new() -> Self {
        Self::empty()
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> (u64, u64) {
        self.insert(tick, payload)
    }

    #[inline]
    fn cancel(&mut self, id: (u64, u64)) -> Option<Payload> {
        self.remove(id)
    }

    fn expire(&mut self, to: u64, fire: impl FnMut(Payload)) {
        fire_all(self, to, fire);
    }

    fn len(&self) -> usize {
        self.live()
    }
}
