//! The number of threads that wait for the end of a one-shot's handler.
//!
//! Hardly any thread waits for such an end. So the end costs the worker a load: the thread that is going to wait says
//! so first, and passes a heavy fence.
//!
//! # Synchronisation
//! | pair | one side                              | other side                              | ruled out | model |
//! |------|---------------------------------------|-----------------------------------------|-----------|-------|
//! | F5   | `enter`: count, heavy fence; the look | the end; `are_there`: light fence, load | both miss | `state::who_waits_sees_what_the_handler_did` |
//!
//! Either the worker reads the count and wakes the thread, or the thread finds the handler ended and does not sleep.

use crate::base::sync::{AtomicU32, Ordering};
use crate::lockfree::barrier::Barrier;
use crossbeam_utils::CachePadded;

/// The threads that wait until a handler has ended.
#[derive(Debug)]
pub(crate) struct Waiters {
    count: CachePadded<AtomicU32>,
    barrier: Barrier,
}

/// A thread that waits. Dropping this guard ends the wait.
#[derive(Debug)]
pub(crate) struct Waiter<'a>(&'a Waiters);

impl Waiters {
    pub(crate) fn new() -> Self {
        Self { count: CachePadded::new(AtomicU32::new(0)), barrier: Barrier::new() }
    }

    /// Announces that the calling thread is going to wait. Afterwards the thread looks whether the handler has ended,
    /// and sleeps if not.
    pub(crate) fn enter(&self) -> Waiter<'_> {
        // Ordering: Relaxed. The fence orders the count.
        self.count.fetch_add(1, Ordering::Relaxed);
        // Ordering: heavy fence [F5]: the count is before the look that follows.
        self.barrier.heavy();
        Waiter(self)
    }

    /// Returns whether a thread waits. The caller has just ended a handler. If the result is true, the caller wakes the
    /// waiting threads.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        // Ordering: light fence [F5]: the end of the handler is before the load.
        self.barrier.light();
        // Ordering: Relaxed. The fence orders this load.
        self.count.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // Ordering: Relaxed. A worker that reads an old count wakes a thread for nothing.
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
