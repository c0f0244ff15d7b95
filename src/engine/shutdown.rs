//! Shuts an engine down. Every timer that was scheduled is then fired, cancelled or returned.
//!
//! 1. The sessions are stopped: workers take no further ticket. The parkers of the engine's stations are closed:
//!    schedulers find them closed, and the shards' leaders drop the stations.
//! 2. The shutdown waits until the stations were dropped and running handlers have ended.
//! 3. The first shutdown evicts every slot that is still armed, and returns the payloads. Owned timers are *shut*: they
//!    stay with their handles, and refuse every further arming. Tasks that wait for owned timers are woken, and find
//!    the timers shut. A later shutdown waits for the eviction, and evicts nothing (`sessions`, E1).
//! 4. The first shutdown runs the hooks of layers.
//!
//! A scheduler may race with the shutdown. Either it finds its parker closed and takes its timer back, or it has armed
//! the timer before the eviction reads the slot (`parker`, F2). If both see the timer, one CAS decides. A scheduler
//! that loses the CAS knows that the only eviction has the payload.
//!
//! Other engines on the same shards go on. When no engine and no handle uses the shards any more, their threads end.
//!
//! Inside a handler, and on a thread of the rayon pool that runs handlers, the shutdown does not wait, since the
//! handler would wait for itself. Running handlers then end later, and no further handler begins.

use super::core::Core;
use super::hooks::Hook;
use super::one_shot::Unfired;
use super::owned::Remains;
use crate::base::trace;
use crate::lockfree::sessions::EvictionRight;

/// The timers that a shutdown took out.
struct Evicted<T> {
    unfired: Vec<Unfired<T>>,
    /// The payloads and wakers that the shutdown has found in owned timers. The shutdown finds a payload if the timer's
    /// handle was dropped while a worker fired the timer.
    remains: Vec<Remains<T>>,
}

impl<T: Send + 'static> Core<T> {
    /// Shuts the engine down. The first call returns the timers that had not fired. A later call waits until the first
    /// call has taken the timers out, and returns an empty list.
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

    /// Stops the workers, and makes the engine refuse timers. Only the first call returns the right to take the armed
    /// timers out.
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

    /// Takes out every one-shot that is still armed, and shuts owned timers. Returns the one-shots that had not fired.
    /// The caller has closed the engine's parkers (the words on which shards' threads sleep) before. So a thread that
    /// arms a slot that was searched already finds the parker closed, and takes its timer back (F2).
    pub(crate) fn evict(&self, right: EvictionRight) -> Vec<Unfired<T>> {
        let Evicted { unfired, remains } = self.take_armed();
        self.admission().stations().count_returned(unfired.len() as u64);
        self.quiescence.note_eviction(right);
        // The drop of a payload, or a waker, may shut the engine down, too. So this thread holds no lock here, and no
        // other thread waits for it.
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

    /// Shuts the engine down, and drops the timers that had not fired. If the drop of a payload panics, goes on with
    /// the next payload.
    pub(crate) fn shut_down_quietly(&self) {
        for timer in self.shut_down() {
            self.guarded.run(|| drop(timer));
        }
    }

    /// Runs `hook` when the engine has ended. If the engine has ended already, runs `hook` now.
    pub(crate) fn at_shutdown(&self, hook: Hook) {
        let late = if self.membership.is_forked() { Some(hook) } else { self.hooks.keep(hook) };
        if let Some(hook) = late {
            self.guarded.run(hook);
        }
    }

    /// Runs the functions that were kept until the shutdown, without holding a lock.
    fn run_hooks(&self) {
        for hook in self.hooks.take() {
            self.guarded.run(hook);
        }
    }
}
