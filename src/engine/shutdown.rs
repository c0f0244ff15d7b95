//! The end of an engine: every timer that was scheduled is fired, cancelled or returned.
//!
//! 1. The sessions are stopped: workers take no further ticket. The parkers of the engine's stations are closed:
//!    schedulers find them closed, and the shards' leaders drop the stations.
//! 2. The end of the stations is awaited, and running handlers are.
//! 3. The first shutdown evicts every slot that is still armed, and returns the payloads. Owned timers are shut: they
//!    stay with their handles, and are armed no more. Tasks that wait for owned timers are woken, and find the timers
//!    shut. A later shutdown waits for the eviction, and evicts nothing (`sessions`, E1).
//! 4. The first shutdown runs the hooks of layers.
//!
//! A scheduler that races with the shutdown either sees its parker closed and takes its timer back, or has armed the
//! timer before the eviction looks at it (`parker`, F2). If both see the timer, one CAS decides. A scheduler that loses
//! the CAS knows that the only eviction has the payload.
//!
//! Other engines on the same shards go on. If no engine and no handle uses the shards any more, their threads end.
//!
//! Inside a handler, or on a thread of the rayon pool that runs handlers, the shutdown does not wait: the handler would
//! wait for itself. Running handlers then end by themselves, and no further handler begins.

use super::core::Core;
use super::hooks::Hook;
use super::one_shot::Unfired;
use super::owned::Remains;
use crate::base::trace;
use crate::lockfree::sessions::EvictionRight;

/// The timers that a shutdown found.
struct Evicted<T> {
    unfired: Vec<Unfired<T>>,
    /// The remains of owned timers: payloads whose handles were dropped while a worker was to fire the timers, and
    /// wakers.
    remains: Vec<Remains<T>>,
}

impl<T: Send + 'static> Core<T> {
    /// Stops everything. The first call returns the timers that had not fired. A later call returns nothing, after the
    /// first call has evicted.
    pub(crate) fn shut_down(&self) -> Vec<Unfired<T>> {
        let right = self.stop();
        let may_wait = !self.membership.must_not_wait_here();
        if may_wait {
            self.membership.await_dismissal();
            self.quiescence.await_sessions();
        }
        let unfired = match right {
            Some(right) => self.end(right),
            None => {
                if may_wait {
                    self.quiescence.await_eviction();
                }
                Vec::new()
            }
        };
        self.membership.end(may_wait);
        unfired
    }

    /// Stops the workers and refuses schedulers. The first call gets the right to evict.
    pub(crate) fn stop(&self) -> Option<EvictionRight> {
        let right = self.quiescence.stop();
        self.admission().stations().close();
        self.membership.dismiss();
        self.anchors.close();
        right
    }

    fn end(&self, right: EvictionRight) -> Vec<Unfired<T>> {
        let unfired = self.evict(right);
        if !self.membership.is_forked() {
            let totals = self.admission().stations().totals();
            trace::stopped(self.admission().engine(), totals.fired, totals.cancelled, totals.returned);
        }
        self.run_hooks();
        unfired
    }

    /// Evicts every slot that is still armed. Returns the timers that had not fired, and shuts owned timers. The
    /// parkers are closed: a scheduler that arms a slot after the eviction has passed it finds its parker closed, and
    /// takes the timer back (F2).
    pub(crate) fn evict(&self, right: EvictionRight) -> Vec<Unfired<T>> {
        let Evicted { unfired, remains } = self.take_armed();
        self.admission().stations().count_returned(unfired.len() as u64);
        self.quiescence.note_eviction(right);
        // A payload's drop and a waker may shut down in turn: no lock is held here, and no thread waits for them.
        for remains in remains {
            self.settle(remains);
        }
        unfired
    }

    fn take_armed(&self) -> Evicted<T> {
        let mut evicted = Evicted { unfired: Vec::new(), remains: Vec::new() };
        for index in 0..self.timers.slots().used() {
            match self.shut_timer(index) {
                Some(remains) => evicted.remains.extend(remains.if_any()),
                None => evicted.unfired.extend(self.timers.evict(index)),
            }
        }
        evicted
    }

    /// Shuts down and drops the timers that had not fired, payload by payload. Survives payloads whose drop panics.
    pub(crate) fn shut_down_quietly(&self) {
        for timer in self.shut_down() {
            self.guarded.run(|| drop(timer));
        }
    }

    /// Runs `hook` when the engine has ended, or now if it has.
    pub(crate) fn at_shutdown(&self, hook: Hook) {
        let late = if self.membership.is_forked() { Some(hook) } else { self.hooks.keep(hook) };
        if let Some(hook) = late {
            self.guarded.run(hook);
        }
    }

    /// Runs the hooks, where no lock is held.
    fn run_hooks(&self) {
        for hook in self.hooks.take() {
            self.guarded.run(hook);
        }
    }
}
