//! The timers of an engine: their slots, their payloads, and their admission.
//!
//! The operations are in `one_shot` and in `owned`, for the two kinds of timers. Nothing here knows a handler, a worker
//! or a shutdown.

use super::admission::Admission;
use crate::base::sync::{OnceLock, StdArc};
use crate::base::ticket::TimerId;
use crate::lockfree::slab::{Slab, Slots};
use crate::lockfree::state::Control;
use crate::shard::ShardSet;
use core::task::Waker;

/// The number of a thread's cancels between two checks whether stale tickets (requests to check timers) must be swept
/// out of the wheels.
pub(super) const CANCELS_PER_CHECK: u64 = 4_096;

/// The slots and payloads of an engine's timers, and the part of the engine that admits timers.
pub(crate) struct Timers<T> {
    pub(super) slab: Slab<T>,
    pub(super) admission: Admission,
    /// The function that clones the payload of an owned timer for the handler. It is set before the first owned timer.
    clone_payload: OnceLock<fn(&T) -> T>,
    /// The function that takes a waiting task's waker out of the payload of an owned timer. It is not set if payloads
    /// have no wakers.
    waker_of: OnceLock<fn(&T) -> Option<Waker>>,
}

impl<T: Send + 'static> Timers<T> {
    /// Makes the timers of a new engine on `set`. Each timer gets a slot of `slab`, which has a cell for the timer's
    /// payload.
    pub(super) fn new(slab: Slab<T>, set: &StdArc<ShardSet>, lane_capacity: u64) -> Self {
        let admission = Admission::new(set, StdArc::clone(slab.slots()), lane_capacity);
        Self { slab, admission, clone_payload: OnceLock::new(), waker_of: OnceLock::new() }
    }

    /// Returns the part of these timers that does not depend on the payload's type: their slots and lanes (queues).
    #[inline(always)]
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    #[inline(always)]
    pub(crate) fn slots(&self) -> &Slots {
        self.admission.slots()
    }

    pub(super) fn control(&self, id: TimerId) -> Option<&Control> {
        self.slots().get(id.index())
    }

    /// Sets the function that clones payloads of owned timers for the handler. Must be called before the first owned
    /// timer is created.
    pub(crate) fn clone_payloads_by(&self, clone: fn(&T) -> T) {
        self.clone_payload.get_or_init(|| clone);
    }

    pub(crate) fn clone_payload(&self, payload: &T) -> T {
        let clone = self.clone_payload.get().expect("said before the first owned timer was created");
        clone(payload)
    }

    /// Makes the shutdown wake tasks that wait for owned timers. Must be called before the first owned timer is
    /// created.
    #[cfg(feature = "async")]
    pub(crate) fn wake_at_shutdown(&self, waker_of: fn(&T) -> Option<Waker>) {
        self.waker_of.get_or_init(|| waker_of);
    }

    /// Returns whether the payloads of owned timers may have wakers.
    pub(super) fn have_wakers(&self) -> bool {
        self.waker_of.get().is_some()
    }

    /// Takes the waker of the task that waits for an owned timer, because the engine will never fire that timer again.
    pub(super) fn take_waker(&self, payload: &T) -> Option<Waker> {
        self.waker_of.get().and_then(|waker_of| waker_of(payload))
    }
}
