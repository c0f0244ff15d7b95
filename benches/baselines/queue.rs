//! A structure that gives its due timers away one by one.

use crate::common::Payload;

/// A timer structure whose due timers are taken one by one.
pub(crate) trait Queue: Send + 'static {
    const LOCKED_NAME: &'static str;
    type Id: Copy + Send + 'static;

    fn empty() -> Self;
    fn insert(&mut self, at: u64, payload: Payload) -> Self::Id;
    fn remove(&mut self, id: Self::Id) -> Option<Payload>;
    /// Returns the deadline of the first timer. `None` for an empty queue.
    fn first(&mut self) -> Option<u64>;
    /// Removes a timer that is due at `now`, and returns its payload. `None` if no timer is due.
    fn pop_due(&mut self, now: u64) -> Option<Payload>;
    fn live(&self) -> usize;
}

pub(crate) fn fire_all(queue: &mut impl Queue, now: u64, mut fire: impl FnMut(Payload)) {
    while let Some(payload) = queue.pop_due(now) {
        fire(payload);
    }
}
