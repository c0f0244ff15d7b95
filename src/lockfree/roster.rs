//! The roster: the threads of a set of shards by their numbers, for unparking.
//!
//! A thread enters itself once, before it first announces a sleep. The word of that announcement hands the entry over
//! to the thread that removes the announcement (K2 of [`parker`](crate::lockfree::parker), U2 of
//! [`sleepers`](crate::lockfree::sleepers)).

use crate::base::sync::{OnceLock, StdArc, thread};

/// The threads of a set of shards, with a place for each of them.
#[derive(Debug)]
pub(crate) struct Roster {
    threads: Box<[OnceLock<thread::Thread>]>,
}

impl Roster {
    pub(crate) fn new(threads: usize) -> StdArc<Self> {
        StdArc::new(Self { threads: (0..threads).map(|_| OnceLock::new()).collect() })
    }

    /// The number of threads.
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Enters the calling thread as number `n`, for the first time or again.
    pub(crate) fn enter_current_thread(&self, n: usize) {
        let entered = self.threads[n].get_or_init(thread::current);
        debug_assert_eq!(entered.id(), thread::current().id(), "each thread has a number of its own");
    }

    /// Unparks thread `n`. Does nothing if no thread has this number.
    pub(crate) fn unpark(&self, n: usize) {
        if let Some(thread) = self.threads.get(n).and_then(OnceLock::get) {
            thread.unpark();
        }
    }
}
