//! The quiescence of an engine: the sessions of its workers, and the threads that wait until a handler, the sessions or
//! the eviction have ended.

use crate::base::fork::Generation;
use crate::base::sync::{Condvar, Mutex, ignore_poison};
use crate::lockfree::sessions::{EvictionRight, Sessions};

/// The sessions of an engine's workers, and the threads that wait for their ends.
pub(crate) struct Quiescence {
    /// The number of workers that are between the start and the end of a chunk, and how far a shutdown has come.
    sessions: Sessions,
    made_in: Generation,
    /// Threads wait here for a handler, for the end of the last session, or for the eviction.
    changed: (Mutex<()>, Condvar),
}

impl Quiescence {
    /// The quiescence of an engine whose shards were made in `made_in`.
    pub(super) fn new(made_in: Generation) -> Self {
        Self { sessions: Sessions::new(), made_in, changed: (Mutex::new(()), Condvar::new()) }
    }

    /// Begins a session, in which the caller fires until [`is_stopping`](Self::is_stopping) is true.
    #[inline]
    pub(super) fn begin_session(&self) {
        self.sessions.begin();
    }

    /// Ends a session.
    #[inline]
    pub(super) fn end_session(&self) {
        if self.sessions.end() {
            self.announce();
        }
    }

    /// Whether the caller, which has begun a session, must fire nothing more.
    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.sessions.is_stopping()
    }

    /// Stops the sessions. The first call gets the right to evict.
    pub(super) fn stop(&self) -> Option<EvictionRight> {
        self.sessions.stop()
    }

    /// Waits until all sessions that may fire have ended.
    pub(super) fn await_sessions(&self) {
        self.wait_until(|| self.sessions.is_quiescent());
    }

    /// Notes that the armed timers were taken out, and lets the threads that wait for the eviction go on.
    pub(super) fn note_eviction(&self, right: EvictionRight) {
        self.sessions.evicted(right);
        self.announce();
    }

    /// Waits until the first shutdown has evicted.
    pub(super) fn await_eviction(&self) {
        self.wait_until(|| self.sessions.has_evicted());
    }

    /// Waits until `condition` holds, which is announced.
    pub(super) fn wait_until(&self, condition: impl Fn() -> bool) {
        let (lock, changed) = &self.changed;
        let mut guard = ignore_poison(lock.lock());
        while !condition() {
            guard = ignore_poison(changed.wait(guard));
        }
    }

    /// Lets the waiting threads check again. In the child of a fork no thread waits, and the lock may be held for ever.
    pub(super) fn announce(&self) {
        if self.made_in.is_past() {
            return;
        }
        let (lock, changed) = &self.changed;
        let _guard = ignore_poison(lock.lock());
        changed.notify_all();
    }
}
