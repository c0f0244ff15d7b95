//! A thread's spares: timers that dropped futures leave for the thread's next futures.
//!
//! A server makes a timeout for each request, and drops it with the answer. If each timeout had a slot and a ticket of
//! its own, each would post its ticket to a shard, and the ticket would stay in the wheel until its deadline. So a
//! dropped future disarms its timer and leaves it as a spare: an owned timer without a handle, at rest or with a ticket
//! that is out. The next future of the thread takes the spare. If the ticket is due at the new deadline or before, the
//! arming is a store and a load, and the shard has nothing to do.
//!
//! A spare keeps its slot. So an engine with a small capacity has no spares.
//!
//! # Legal endings of each race
//! - The handler runs while the future is dropped: the timer is dropped, and does not become a spare.
//! - The shard checks the timer while it is kept, taken or released: as with any disarmed timer (`state::owned`).
//! - The engine is shut down: the shutdown shuts its spares, as it shuts all owned timers. No thread takes a spare of
//!   an engine that is shut down. A thread that takes one just before the shutdown has a timer that was shut.
//! - The thread ends: it releases its spares. A future that is dropped later, by a destructor of the thread, releases
//!   its timer at the latest with the destructor's own [`Local`](super::Local).

use crate::lockfree::inbox::Lane;
use crate::lockfree::slab::{Magazines, Slots};
use crate::lockfree::state::owned::Release;

/// The maximum number of spares that a thread keeps, at any capacity of the engine.
const MOST: u32 = 256;
/// The capacity of an engine divided by the maximum number of its spares that a thread keeps.
const CAPACITY_PER_SPARE: u32 = 4_096;

/// The slots of a thread's spares.
#[derive(Debug)]
pub(super) struct Spares(Vec<u32>);

impl Spares {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Takes the spare that was kept last.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        self.0.pop()
    }

    /// Stores the timer in slot `index` of an engine with this capacity as a spare. Returns false if the thread has
    /// enough spares.
    #[inline]
    pub(super) fn keep(&mut self, index: u32, capacity: u32) -> bool {
        let most = (capacity / CAPACITY_PER_SPARE).min(MOST);
        let has_room = self.0.len() < most as usize;
        if has_room {
            self.0.push(index);
        }
        has_room
    }

    /// Vacates the slots of all spares, and puts them into `magazines`. The payloads are not dropped.
    pub(super) fn release_all(&mut self, slots: &Slots, lane: &Lane, magazines: &mut Magazines) {
        for index in self.0.drain(..) {
            match slots.owned(index).release() {
                Release::Vacated => magazines.put(slots, index),
                // The shard that checks the timer frees it, and counts the end of a timer that was counted already.
                Release::Left => lane.count_created(),
            }
        }
    }
}
