//! Lets threads wait until a handler has ended, until the workers' sessions have ended, or until a shutdown has evicted
//! the timers.

use crate::base::fork::Generation;
use crate::base::sync::{Condvar, Mutex, ignore_poison};
use crate::lockfree::sessions::{EvictionRight, Sessions};
use crate::lockfree::waiters::Waiters;

/// The sessions of an engine, and the condition variable on which threads wait for their end. A session is the time in
/// which a worker fires tickets of one batch.
pub(crate) struct Quiescence {
    /// The threads that wait for the end of a one-shot's handler.
    waiters: Waiters,
    /// The number of sessions, and the progress of a shutdown.
    sessions: Sessions,
    made_in: Generation,
    /// The condition variable on which threads wait. They wait for the end of a handler or of the last session, or for
    /// a shutdown to take the timers out.
    changed: (Mutex<()>, Condvar),
}

impl Quiescence {
    /// Makes the record of running sessions for an engine. The engine's shards were made in the process generation
    /// (number of forks) `made_in`.
    pub(super) fn new(made_in: Generation) -> Self {
        Self {
            waiters: Waiters::new(),
            sessions: Sessions::new(),
            made_in,
            changed: (Mutex::new(()), Condvar::new()),
        }
    }

    /// Begins a session, in which the caller fires timers. The caller may fire until [`is_stopping`](Self::is_stopping)
    /// returns true.
    #[inline]
    pub(super) fn begin_session(&self) {
        self.sessions.begin();
    }

    /// Ends a session, in which the caller has fired timers. If the engine stops and no session is left, wakes the
    /// waiting threads.
    #[inline]
    pub(super) fn end_session(&self) {
        if self.sessions.end() {
            self.announce();
        }
    }

    /// Returns whether the engine stops. A caller that gets true must fire no more timers.
    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.sessions.is_stopping()
    }

    /// Stops the sessions: workers fire no more timers. Only the first call returns the right to take the armed timers
    /// out.
    pub(super) fn stop(&self) -> Option<EvictionRight> {
        self.sessions.stop()
    }

    /// Waits until no worker fires timers any more. The caller has called [`stop`](Self::stop) before.
    pub(super) fn await_sessions(&self) {
        self.wait_until(|| self.sessions.is_quiescent());
    }

    /// Records that the shutdown has taken the armed timers out. Wakes the threads that wait for this.
    pub(super) fn note_eviction(&self, right: EvictionRight) {
        self.sessions.evicted(right);
        self.announce();
    }

    /// Waits until the first shutdown has taken all armed timers out.
    pub(super) fn await_eviction(&self) {
        self.wait_until(|| self.sessions.has_evicted());
    }

    /// Waits until `condition` returns true. A thread that makes the condition true must call
    /// [`announce`](Self::announce) afterwards.
    pub(super) fn wait_until(&self, condition: impl Fn() -> bool) {
        let (lock, changed) = &self.changed;
        let mut guard = ignore_poison(lock.lock());
        while !condition() {
            guard = ignore_poison(changed.wait(guard));
        }
    }

    /// Waits until the handler of the one-shot in slot `index` has ended, and `has_ended` returns true. The worker that
    /// runs the handler calls [`announce_end`](Self::announce_end) afterwards.
    pub(super) fn wait_for_end(&self, index: u32, has_ended: impl Fn() -> bool) {
        let _waiter = self.waiters.enter(index);
        self.wait_until(has_ended);
    }

    /// Wakes the threads that wait for the end of a one-shot's handler. The caller has just ended such a handler.
    #[inline]
    pub(super) fn announce_end(&self, index: u32) {
        if self.waiters.are_there(index) {
            self.announce();
        }
    }

    /// Wakes the threads that wait in [`wait_until`](Self::wait_until), so that they check their conditions. Does
    /// nothing in the child of a fork, where no thread waits and the lock may be held for ever.
    pub(super) fn announce(&self) {
        if self.made_in.is_past() {
            return;
        }
        let (lock, changed) = &self.changed;
        let _guard = ignore_poison(lock.lock());
        changed.notify_all();
    }
}
