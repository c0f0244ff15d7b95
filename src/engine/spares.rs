//! A thread's spares: timers that dropped futures leave for the thread's next futures.
//!
//! A server makes a timeout for each request, and drops it with the answer. If each timeout had a slot and a ticket of
//! its own, each would post its ticket to a shard, and the ticket would stay in the wheel until its deadline. So a
//! dropped future disarms its timer and leaves it as a spare: an owned timer without a handle, at rest or with a ticket
//! that is out. The next future of the thread takes the spare. If the ticket is due at the new deadline or before, the
//! arming is a store and a load, and the shard has nothing to do.
//!
//! A server has short and long timeouts. A spare whose ticket is due soon serves a short timeout without a new ticket.
//! For a long timeout the ticket would be due far too early, and the shard would put it off for long; the next short
//! timeout on this spare would then need a new ticket. So spares are kept apart by the time that was left until their
//! deadlines when they were dropped ([`class_of`]), as far as it is known: see
//! [`ahead`](super::stations::Stations::ahead). A wrong class costs a ticket.
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
/// The number of classes of times that are left: below 2^28 ns (0.27 s), below 2^32 ns (4.3 s), below 2^36 ns (69 s),
/// and longer.
const CLASSES: usize = 4;

/// Returns the class of a time of `nanos` nanoseconds.
fn class_of(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    (bits.saturating_sub(25) / 4).min(3) as usize
}

/// A thread's spares.
#[derive(Debug)]
pub(super) struct Spares {
    /// The slots of the spares, by the class of the time that was left until the deadline of each.
    slots: [Vec<u32>; CLASSES],
    /// Whether the timer of the future that the thread dropped last had fired.
    has_last_fired: bool,
}

impl Spares {
    pub(super) fn new() -> Self {
        Self { slots: [const { Vec::new() }; CLASSES], has_last_fired: true }
    }

    /// Returns whether the thread's next new timer will probably fire. A thread that limits the waits of requests drops
    /// nearly all its futures before their deadlines, and a thread whose tasks sleep drops none.
    pub(super) fn expects_fire(&self) -> bool {
        self.has_last_fired
    }

    /// Returns true if the thread has no spare.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(Vec::is_empty)
    }

    /// Takes a spare for a delay of `nanos` nanoseconds: the spare of its class that was kept last. Without such a
    /// spare, takes one of a shorter class, since its ticket is early enough, and else of a longer one.
    #[inline]
    pub(super) fn take(&mut self, nanos: u64) -> Option<u32> {
        let (shorter, longer) = self.slots.split_at_mut(class_of(nanos) + 1);
        shorter.iter_mut().rev().chain(longer).find_map(Vec::pop)
    }

    /// Returns whether the thread may keep a further spare of an engine with this capacity.
    #[inline]
    pub(super) fn has_room(&self, capacity: u32) -> bool {
        let most = (capacity / CAPACITY_PER_SPARE).min(MOST);
        self.slots.iter().map(Vec::len).sum::<usize>() < most as usize
    }

    /// Keeps the timer in slot `index`, whose deadline is `nanos` nanoseconds ahead.
    #[inline]
    pub(super) fn keep(&mut self, index: u32, nanos: u64) {
        self.slots[class_of(nanos)].push(index);
    }

    /// Notes whether a timer had fired whose future the thread drops.
    #[inline]
    pub(super) fn note(&mut self, has_fired: bool) {
        self.has_last_fired = has_fired;
    }

    /// Vacates the slots of all spares, and puts them into `magazines`. The payloads are not dropped.
    pub(super) fn release_all(&mut self, slots: &Slots, lane: &Lane, magazines: &mut Magazines) {
        for index in self.slots.iter_mut().flat_map(|class| class.drain(..)) {
            match slots.owned(index).release() {
                Release::Vacated => magazines.put(slots, index),
                // The shard that checks the timer frees it, and counts the end of a timer that was counted already.
                Release::Left => lane.count_created(),
            }
        }
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_delay_gets_a_spare_of_its_class_or_a_shorter_one_or_any() {
        let mut spares = Spares::new();
        let delays = [SECOND / 5, SECOND, 10 * SECOND, 600 * SECOND];
        for (index, nanos) in (0..).zip(delays) {
            assert_eq!(class_of(nanos), index as usize);
            spares.keep(index, nanos);
        }
        let taken = [60 * SECOND, 60 * SECOND, 60 * SECOND, 0, u64::MAX].map(|nanos| spares.take(nanos));
        assert_eq!(taken, [Some(2), Some(1), Some(0), Some(3), None]);
    }

    #[test]
    fn a_thread_keeps_a_bounded_number_of_spares_of_all_classes() {
        let capacity = 8 * CAPACITY_PER_SPARE;
        let mut spares = Spares::new();
        let mut kept = 0;
        while spares.has_room(capacity) {
            spares.keep(kept, 1 << (20 + 4 * kept));
            kept += 1;
        }
        assert_eq!(kept, 8);
    }
}
