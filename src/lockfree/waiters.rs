//! Counts the threads that wait for the end of a one-shot's handler.
//!
//! Hardly any thread waits for such an end. So the end costs the worker a load: the thread that is going to wait is
//! counted first, and passes a heavy fence. While some thread waits for long, other ends stay cheap: the worker also
//! looks at the number of threads that wait for a timer in this slot, or in one of few others.
//!
//! # Synchronisation
//! | pair | one side                              | other side                              | ruled out | model |
//! |------|---------------------------------------|-----------------------------------------|-----------|-------|
//! | F5   | `enter`: numbers, heavy fence; the look | the end; `are_there`: light fence, loads | both miss | `state::who_waits_sees_what_the_handler_did` |
//!
//! Either the worker reads the numbers and wakes the thread, or the thread finds the handler ended and does not sleep.

use crate::base::sync::{AtomicU32, Ordering};
use crate::lockfree::barrier::Barrier;
use crossbeam_utils::CachePadded;

/// The number of parts into which the slots are divided. A slot's part is its index modulo this number.
const PARTS: usize = if cfg!(tourbillon_loom) { 2 } else { 256 };

/// Counts the threads that wait until the handler of a one-shot has ended: in all, and for each part of the slots.
#[derive(Debug)]
pub(crate) struct Waiters {
    in_all: CachePadded<AtomicU32>,
    in_part: Box<[AtomicU32]>,
    barrier: Barrier,
}

/// A thread that waits. Dropping this guard ends the wait.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    index: u32,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self {
            in_all: CachePadded::new(AtomicU32::new(0)),
            in_part: (0..PARTS).map(|_| AtomicU32::new(0)).collect(),
            barrier: Barrier::new(),
        }
    }

    fn part(&self, index: u32) -> &AtomicU32 {
        &self.in_part[index as usize % PARTS]
    }

    /// Announces that the calling thread is going to wait for the timer in slot `index`. Afterwards the thread checks
    /// whether the handler has ended, and sleeps if not.
    pub(crate) fn enter(&self, index: u32) -> Waiter<'_> {
        // Ordering: Relaxed, both. The fence orders the numbers.
        self.part(index).fetch_add(1, Ordering::Relaxed);
        self.in_all.fetch_add(1, Ordering::Relaxed);
        // Ordering: heavy fence [F5]: the numbers are before the look that follows.
        self.barrier.heavy();
        Waiter { waiters: self, index }
    }

    /// Returns whether a thread may wait for the timer in slot `index`, whose handler the caller has just ended. If so,
    /// the caller wakes the waiting threads.
    #[inline]
    pub(crate) fn are_there(&self, index: u32) -> bool {
        // Ordering: light fence [F5]: the end of the handler is before the loads.
        self.barrier.light();
        // Ordering: Relaxed, both. The fence orders these loads.
        self.in_all.load(Ordering::Relaxed) > 0 && self.part(index).load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // Ordering: Relaxed, both. A worker that reads an old number wakes a thread for nothing.
        self.waiters.in_all.fetch_sub(1, Ordering::Relaxed);
        self.waiters.part(self.index).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_wakes_for_the_timers_of_its_part_alone() {
        let waiters = Waiters::new();
        assert!((0..1_000).all(|index| !waiters.are_there(index)));
        let waiter = waiters.enter(7);
        let parts = (0_u32..256).filter(|&index| waiters.are_there(index));
        assert_eq!(parts.collect::<Vec<_>>(), [7]);
        drop(waiter);
        assert!((0..1_000).all(|index| !waiters.are_there(index)));
    }
}
