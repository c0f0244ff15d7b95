//! Lets threads wait until an engine is quiet: until a handler, the workers' sessions, or the eviction of timers has
//! ended.

use crate::base::fork::Generation;
use crate::base::sync::{Condvar, Mutex, ignore_poison};
use crate::lockfree::sessions::{EvictionRight, Sessions};

/// The sessions of an engine's workers, and the threads that wait for an end.
pub(crate) struct Quiescence {
    /// The number of workers between the start and the end of a chunk, and the progress of a shutdown.
    sessions: Sessions,
    made_in: Generation,
    /// Where threads wait for the end of a handler, of the last session, or of the eviction.
    changed: (Mutex<()>, Condvar),
}

impl Quiescence {
    /// Makes the state for an engine whose shards were made in `made_in`.
    pub(super) fn new(made_in: Generation) -> Self {
        Self { sessions: Sessions::new(), made_in, changed: (Mutex::new(()), Condvar::new()) }
    }

    /// Begins a session. The caller may fire timers until [`is_stopping`](Self::is_stopping) returns true.
    #[inline]
    pub(super) fn begin_session(&self) {
        self.sessions.begin();
    }

    /// Ends a session. If the last session has ended, wakes the threads that wait for that.
    #[inline]
    pub(super) fn end_session(&self) {
        if self.sessions.end() {
            self.announce();
        }
    }

    /// Returns whether a caller that has begun a session must fire nothing more.
    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.sessions.is_stopping()
    }

    /// Stops the sessions. Only the first call returns the right to evict.
    pub(super) fn stop(&self) -> Option<EvictionRight> {
        self.sessions.stop()
    }

    /// Waits until all sessions that could still fire have ended.
    pub(super) fn await_sessions(&self) {
        self.wait_until(|| self.sessions.is_quiescent());
    }

    /// Notes that the armed timers were taken out, and wakes the threads that wait for the eviction.
    pub(super) fn note_eviction(&self, right: EvictionRight) {
        self.sessions.evicted(right);
        self.announce();
    }

    /// Waits until the first shutdown has evicted all timers.
    pub(super) fn await_eviction(&self) {
        self.wait_until(|| self.sessions.has_evicted());
    }

    /// Waits until `condition` holds. Each change of it must be announced.
    pub(super) fn wait_until(&self, condition: impl Fn() -> bool) {
        let (lock, changed) = &self.changed;
        let mut guard = ignore_poison(lock.lock());
        while !condition() {
            guard = ignore_poison(changed.wait(guard));
        }
    }

    /// Wakes the waiting threads, so that they check their conditions. Does nothing in the child of a fork, where no
    /// thread waits and the lock may be held for ever.
    pub(super) fn announce(&self) {
        if self.made_in.is_past() {
            return;
        }
        let (lock, changed) = &self.changed;
        let _guard = ignore_poison(lock.lock());
        changed.notify_all();
    }
}
