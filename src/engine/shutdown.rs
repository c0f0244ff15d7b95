//! The end of an engine: every timer that was scheduled is fired, cancelled or returned.
//!
//! 1. `stopping` is set: workers take no further ticket. Every parker is closed: schedulers hear of it.
//! 2. The shards' threads are joined, and running handlers awaited.
//! 3. Every slot that is still armed is evicted; its payload goes to the caller. Owned timers are shut: they stay with
//!    their handles, and are armed no more.
//!
//! A scheduler that races with this either sees its parker closed and takes its timer back, or has armed it before the
//! eviction looks (`parker`, F2). Both may see it: one CAS decides.
//!
//! From inside a handler, or on a thread of the rayon pool that runs them, the waits of step 2 are left out: the handler
//! would wait for itself. What is running then ends by itself, and nothing more begins.

use super::{Core, ignore_poison};
use crate::sync::Ordering;
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
    /// Payloads of owned timers whose handles went while a worker was to fire them.
    left_behind: Vec<T>,
}

impl<T: Send + 'static> Core<T> {
    /// Stops everything and returns what had not fired. A second call waits as the first did and returns nothing.
    pub(crate) fn shut_down(&self) -> Vec<Unfired<T>> {
        // Ordering: SeqCst. With `Session::begin` and `end_session`.
        let is_first = !self.stopping.swap(true, Ordering::SeqCst);
        for shard in &self.shards {
            shard.parker.close();
        }
        self.anchors.close();
        let unfired = if self.must_not_wait_here() { self.evict_all() } else { self.evict_when_quiet() };
        if is_first {
            let totals = self.totals();
            trace::stopped(self.id, totals.fired, totals.cancelled, totals.returned);
        }
        unfired
    }

    fn evict_when_quiet(&self) -> Vec<Unfired<T>> {
        let evicted = {
            let _one_at_a_time = ignore_poison(self.ending.lock());
            self.await_quiet();
            self.evict()
        };
        self.settle(evicted)
    }

    fn await_quiet(&self) {
        if self.may_wait_for_shards() {
            let threads = core::mem::take(&mut *self.lock_threads());
            for thread in threads {
                // Should a clock of the user's have panicked there, its timers are returned all the same.
                drop(thread.join());
            }
        }
        let (lock, changed) = &self.quiet;
        let mut guard = ignore_poison(lock.lock());
        // Ordering: SeqCst. With `end_session`.
        while self.sessions.load(Ordering::SeqCst) > 0 {
            guard = ignore_poison(changed.wait(guard));
        }
    }

    /// A worker's last word on a chunk.
    pub(super) fn end_session(&self) {
        // Ordering: SeqCst. Either the shutdown sees that we ended, or we see that it waits.
        self.sessions.fetch_sub(1, Ordering::SeqCst);
        if self.stopping.load(Ordering::SeqCst) {
            self.announce_quiet();
        }
    }

    /// Lets those who wait look again.
    pub(super) fn announce_quiet(&self) {
        let (lock, changed) = &self.quiet;
        let _guard = ignore_poison(lock.lock());
        changed.notify_all();
    }

    /// Takes every armed timer. The parkers are closed, so no more are armed behind its back (F2).
    pub(crate) fn evict_all(&self) -> Vec<Unfired<T>> {
        let evicted = self.evict();
        self.settle(evicted)
    }

    fn evict(&self) -> Evicted<T> {
        let mut evicted = Evicted { unfired: Vec::new(), left_behind: Vec::new() };
        for index in 0..self.slots().used() {
            if let Some(left_behind) = self.shut_timer(index) {
                evicted.left_behind.extend(left_behind);
                continue;
            }
            let Some((generation, deadline)) = self.slots().control(index).evict() else { continue };
            // SAFETY: I3: we took the timer out of `listed`.
            let payload = unsafe { self.slab.take(index) };
            evicted.unfired.push(Unfired { id: TimerId::new(index, generation), deadline, payload });
        }
        self.returned.add(evicted.unfired.len() as u64);
        evicted
    }

    /// Drops, where nothing is locked, what nobody has a handle to.
    fn settle(&self, Evicted { unfired, left_behind }: Evicted<T>) -> Vec<Unfired<T>> {
        for payload in left_behind {
            self.guarded.run(|| drop(payload));
        }
        unfired
    }

    /// Shuts down and drops what had not fired, payload by payload, surviving those whose drop panics.
    pub(crate) fn shut_down_quietly(&self) {
        for timer in self.shut_down() {
            self.guarded.run(|| drop(timer));
        }
    }
}
