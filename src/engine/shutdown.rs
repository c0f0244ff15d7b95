//! The end of an engine: every timer that was scheduled is fired, cancelled or returned.
//!
//! 1. The sessions are stopped: workers take no further ticket. Every parker is closed: schedulers find it closed.
//! 2. The shards' threads are joined, and running handlers awaited.
//! 3. The first shutdown evicts every slot that is still armed, and returns the payloads. Owned timers are shut: they
//!    stay with their handles, and are armed no more; tasks that wait for them are woken, to find that out. A later shutdown waits for that, and evicts nothing (`sessions`, E1).
//!
//! A scheduler that races with this either sees its parker closed and takes its timer back, or has armed it before the
//! eviction looks (`parker`, F2). Both may see it: one CAS decides. The scheduler that loses it knows that the payload is
//! in the hands of the one eviction that there is.
//!
//! From inside a handler, or on a thread of the rayon pool that runs them, nothing is waited for: the handler would wait
//! for itself. What is running then ends by itself, and nothing more begins.

use super::owned::Remains;
use super::{Core, ignore_poison};
use crate::sessions::{EvictionRight, Sessions};
use crate::tick::Timestamp;
use crate::ticket::TimerId;
use crate::trace;

/// A timer that a shutdown returns.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfired<T> {
    /// Its id, stale from now on.
    pub id: TimerId,
    /// When it would have fired.
    pub deadline: Timestamp,
    /// What was scheduled with it.
    pub payload: T,
}

/// What a shutdown found.
struct Evicted<T> {
    unfired: Vec<Unfired<T>>,
    /// Of owned timers: payloads whose handles went while a worker was to fire them, and wakers.
    remains: Vec<Remains<T>>,
}

impl<T: Send + 'static> Core<T> {
    /// Stops everything. The first call returns what had not fired; a later one returns nothing, after the first one has
    /// evicted.
    pub(crate) fn shut_down(&self) -> Vec<Unfired<T>> {
        let right = self.stop();
        let may_wait = !self.must_not_wait_here();
        if may_wait {
            self.await_quiet();
        }
        match right {
            Some(right) => self.end(right),
            None => {
                if may_wait {
                    self.await_eviction();
                }
                Vec::new()
            }
        }
    }

    /// Stops the workers and refuses schedulers. The first call gets the right to evict.
    pub(crate) fn stop(&self) -> Option<EvictionRight> {
        let right = self.sessions.stop();
        for shard in &self.shards {
            shard.parker.close();
        }
        if let Some(workers) = self.dispatcher.own_workers() {
            workers.close();
        }
        self.anchors.close();
        right
    }

    fn await_quiet(&self) {
        let _one_at_a_time = ignore_poison(self.ending.lock());
        if self.may_wait_for_shards() {
            let threads = core::mem::take(&mut *self.lock_threads());
            for thread in threads {
                // Should a clock of the user's have panicked there, its timers are returned all the same.
                self.guarded.run(|| drop(thread.join()));
            }
        }
        self.wait_until(Sessions::is_quiet);
    }

    fn await_eviction(&self) {
        self.wait_until(Sessions::has_evicted);
    }

    fn wait_until(&self, condition: impl Fn(&Sessions) -> bool) {
        let (lock, changed) = &self.quiet;
        let mut guard = ignore_poison(lock.lock());
        while !condition(&self.sessions) {
            guard = ignore_poison(changed.wait(guard));
        }
    }

    fn end(&self, right: EvictionRight) -> Vec<Unfired<T>> {
        let unfired = self.evict(right);
        if !self.is_forked() {
            let totals = self.totals();
            trace::stopped(self.id, totals.fired, totals.cancelled, totals.returned);
        }
        unfired
    }

    /// Lets those who wait look again.
    pub(super) fn announce_quiet(&self) {
        let (lock, changed) = &self.quiet;
        let _guard = ignore_poison(lock.lock());
        changed.notify_all();
    }

    /// Takes every armed timer. The parkers are closed, so no more are armed behind its back (F2).
    pub(crate) fn evict(&self, right: EvictionRight) -> Vec<Unfired<T>> {
        let Evicted { unfired, remains } = self.take_armed();
        self.returned.add(unfired.len() as u64);
        self.sessions.evicted(right);
        if !self.is_forked() {
            self.announce_quiet();
        }
        // A payload's drop and a waker may shut down in turn: nothing is locked here, and nobody waits for it.
        for remains in remains {
            self.settle(remains);
        }
        unfired
    }

    fn take_armed(&self) -> Evicted<T> {
        let mut evicted = Evicted { unfired: Vec::new(), remains: Vec::new() };
        for index in 0..self.slots().used() {
            if let Some(remains) = self.shut_timer(index) {
                evicted.remains.extend(remains.if_any());
                continue;
            }
            let Some((generation, deadline)) = self.slots().control(index).evict() else { continue };
            // SAFETY: I3: we took the timer out of `listed`.
            let payload = unsafe { self.slab.take(index) };
            evicted.unfired.push(Unfired { id: TimerId::new(index, generation), deadline, payload });
        }
        evicted
    }

    /// Shuts down and drops what had not fired, payload by payload, surviving those whose drop panics.
    pub(crate) fn shut_down_quietly(&self) {
        for timer in self.shut_down() {
            self.guarded.run(|| drop(timer));
        }
    }
}
