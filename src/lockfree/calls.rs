//! Calls: how a shard's leader learns which of the resting stations have work. A station is one engine's part of a
//! shard. The leader does not look at the other resting stations.
//!
//! Each station has one [`Call`], and each shard a list of the calls that are *out*. A thread that has work for a
//! station puts the station's call out, which adds it to the list. Then the thread wakes the shard. The leader takes in
//! all calls of the list.
//!
//! # States of a call
//! ```text
//!  in ── put: the flag, then the list ──► out ── take: the link is read, then the flag is cleared ──► in
//! ```
//!
//! # Invariants
//! C1. A thread makes its changes before it puts a call out, or finds the call out already. The leader that takes the
//!     call in sees these changes, since it clears the flag before it looks at the station.
//! C2. A call is in the list once at most: only the thread that raised the call's flag links the call. Only that thread
//!     writes the link, and the leader reads the link before it clears the flag.
//! C3. Each entry of the list owns a reference to its call.
//!
//! A thread may lose its core after it has raised the flag and before it has linked the call. Until the thread goes on,
//! the leader does not find the call, although other threads find the flag raised and wake the shard. The thread wakes
//! the shard after it has linked the call, and then the leader finds the call. Every wake may be late in this way: the
//! waking thread may lose its core before the wake.
//!
//! # Synchronisation
//! | pair | one side                          | other side                 | handed over or ruled out         | model |
//! |------|-----------------------------------|----------------------------|----------------------------------|-------|
//! | C4   | `put`, then the wake of the shard | the announcement of a sleep, then `is_empty` | both miss | `calls::a_push_races_with_rest` |
//! | C5   | `put`, the flag                   | `take`, the flag           | the changes of a thread that finds the call out | `calls::two_threads_call` |
//! | C6   | `put`, the list                   | `take`, the list           | the link                         | `calls::two_threads_call` |
//! | C7   | `take`, the flag                  | `put`, the flag            | a link that is written before it is read | `calls::a_call_is_put_again` |

use crate::base::sync::{AtomicBool, AtomicPtr, Ordering, StdArc, UnsafeCell};
use core::ptr;

/// A request of a resting station for a turn. A station is one engine's part of a shard. The shard's leader, the thread
/// that runs the shard, takes the request.
#[derive(Debug)]
pub(crate) struct Call {
    is_out: AtomicBool,
    /// The next older call in the shard's list of calls. A call is the request of a station (an engine's part of the
    /// shard) for a turn.
    next: UnsafeCell<*const Call>,
}

// SAFETY: C2: one thread at a time touches the link, and C6 and C7 hand it over. The pointer owns its target (C3),
// which is `Send` and `Sync`.
unsafe impl Send for Call {}
// SAFETY: As for `Send`.
unsafe impl Sync for Call {}

impl Call {
    pub(crate) fn new() -> StdArc<Self> {
        StdArc::new(Self { is_out: AtomicBool::new(false), next: UnsafeCell::new(ptr::null()) })
    }

    /// Returns the number of the call, the request of a station for a turn. No two calls that live at the same time
    /// have equal numbers.
    pub(crate) fn number(self: &StdArc<Self>) -> usize {
        StdArc::as_ptr(self).addr()
    }
}

/// The list of stations that have called the thread that leads the shard.
#[derive(Debug)]
pub(crate) struct Calls {
    latest: AtomicPtr<Call>,
}

impl Calls {
    pub(crate) fn new() -> StdArc<Self> {
        StdArc::new(Self { latest: AtomicPtr::new(ptr::null_mut()) })
    }

    /// Adds a call, the request of a station for a turn, to the list. Returns false if the list already has the call.
    /// If it returns true, the caller must wake the shard afterwards.
    pub(crate) fn put(&self, call: &StdArc<Call>) -> bool {
        // Ordering: AcqRel. Release [C5]: the caller's changes. Acquire [C7]: the link was read.
        if call.is_out.swap(true, Ordering::AcqRel) {
            return false;
        }
        let entry = StdArc::into_raw(StdArc::clone(call)).cast_mut();
        // Ordering: Relaxed. A hint for the CAS.
        let mut latest = self.latest.load(Ordering::Relaxed);
        loop {
            // SAFETY: C2: this thread has raised the flag, and has not linked the call yet. The leader has read the
            // former link before it cleared the flag [C7].
            call.next.with_mut(|next| unsafe { *next = latest });
            // Ordering: Release [C6]. Pairs with `take`: the link. An RMW, so the calls below stay published. Failure
            // Relaxed: a hint for the retry. No ABA: nothing is read from `latest`.
            match self.latest.compare_exchange_weak(latest, entry, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(newer) => latest = newer,
            }
        }
    }

    /// Returns whether the list of calls is empty. The thread that leads the shard checks this after it has announced
    /// its sleep and before it sleeps (C4).
    pub(crate) fn is_empty(&self) -> bool {
        // Ordering: Relaxed [C4]. The fences order this load.
        self.latest.load(Ordering::Relaxed).is_null()
    }

    /// Takes all calls out of the list, and passes their numbers to `each`. Only the thread that leads the shard may
    /// call this method.
    pub(crate) fn take(&self, mut each: impl FnMut(usize)) {
        if self.is_empty() {
            return;
        }
        // Ordering: Acquire [C6]. Pairs with `put`: the calls and their links.
        let mut entry = self.latest.swap(ptr::null_mut(), Ordering::Acquire).cast_const();
        while !entry.is_null() {
            // SAFETY: C3: the entry's own reference, made by `put`.
            let call = unsafe { StdArc::from_raw(entry) };
            // SAFETY: C2: the link came with the list [C6], and is not written again before the flag is cleared.
            entry = call.next.with(|next| unsafe { *next });
            // Ordering: AcqRel. Acquire [C5]: the changes of threads that found the call out. Release [C7]: the link
            // has been read.
            call.is_out.swap(false, Ordering::AcqRel);
            each(call.number());
        }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.take(|_| ());
    }
}
