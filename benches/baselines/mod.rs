//! The structures that ours are compared with.
#![allow(dead_code, unused_imports, reason = "each bench takes what it needs")]

mod heap;
mod locked;
mod tree;

pub(crate) use heap::LazyHeap;
pub(crate) use locked::Locked;
pub(crate) use tree::Tree;

use crate::common::{Fired, Payload};

/// A timer structure whose due timers are taken one by one.
pub(crate) trait Queue: Send + 'static {
    const LOCKED_NAME: &'static str;
    type Id: Copy;

    fn empty() -> Self;
    fn insert(&mut self, at: u64, payload: Payload) -> Self::Id;
    fn remove(&mut self, id: Self::Id) -> Option<Payload>;
    /// The moment of the first timer.
    fn first(&mut self) -> Option<u64>;
    /// Takes a timer that is due at `now`.
    fn pop_due(&mut self, now: u64) -> Option<Payload>;
    fn live(&self) -> usize;
}

fn fire_all(queue: &mut impl Queue, now: u64) -> Fired {
    let mut fired = Fired::default();
    while let Some(payload) = queue.pop_due(now) {
        fired.add(payload);
    }
    fired
}
