//! The inbox of a shard: its set of single-producer lanes, which together are the lock-free MPSC queue.
//!
//! One queue for all producers costs each of them an atomic read-modify-write on a line that all of them write. A lane
//! for each thread costs a plain store, and the shard a walk over its lanes.
//!
//! # Invariants
//! X1. A lane, once registered, stays in the list until the inbox is dropped; a thread that ends leaves its lane to be
//!     drained and to be taken over by another thread.
//! X2. A lane has one writer at a time: whoever changed `owned` from false to true.
//!
//! # Synchronisation
//! | pair | release side | acquire side | what is handed over | model |
//! |------|--------------|--------------|---------------------|-------|
//! | L1   | `Lane::push` | `Lane::drain`| the postings, the next block | `inbox::push_races_with_drain` |
//! | L2   | `Lane::drain` (recycle) | `Lane::spare_block` | a drained block | `inbox::a_drained_block_is_reused` |
//! | L3   | `retire`     | `register`   | the writer's side of a lane | `inbox::a_lane_is_taken_over` |
//! | L4   | `register`   | `lanes`      | a new lane          | `inbox::two_producers_one_drain` |
//!
//! # Progress and cost
//! push: wait-free but for a block from the allocator, O(1). drain: wait-free, O(lanes + tickets). register and
//! retire: lock-free, O(lanes); rare.

mod lane;

pub(crate) use lane::{Lane, Pushed};

use crate::sync::{Arc, AtomicPtr, Ordering};
use crate::ticket::Posting;
use core::ptr;

/// The lanes of one shard.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The newest lane; each names the next older one. Each entry owns a reference to its lane.
    newest: AtomicPtr<Lane>,
    lane_capacity: u64,
}

impl Inbox {
    pub(crate) fn new(lane_capacity: u64) -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), lane_capacity }
    }

    /// A lane for the calling thread: one that was left behind, or a new one.
    pub(crate) fn register(&self) -> LaneWriter {
        for listed in self.listed() {
            // SAFETY: X1: a listed lane lives as long as `self`.
            if unsafe { &*listed }.take_over() {
                // SAFETY: X1: the list has a reference, from `Arc::into_raw` as this pointer.
                unsafe { Arc::increment_strong_count(listed) };
                // SAFETY: the reference was made by the line above.
                return LaneWriter { lane: unsafe { Arc::from_raw(listed) } };
            }
        }
        let writer = LaneWriter { lane: Arc::new(Lane::new(self.lane_capacity)) };
        let listed = Arc::into_raw(Arc::clone(&writer.lane)).cast_mut();
        // Ordering: Relaxed. A hint for the CAS.
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            writer.lane.set_older(newest);
            // Ordering: Release [L4]. Pairs with `lanes`: the lane and its link. An RMW, so the lanes below stay
            // published. Failure Relaxed: a hint for the retry.
            match self.newest.compare_exchange_weak(newest, listed, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return writer,
                Err(newer) => newest = newer,
            }
        }
    }

    /// Every lane that was ever registered.
    #[inline]
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        // SAFETY: X1: a listed lane lives as long as `self`.
        self.listed().map(|lane| unsafe { &*lane })
    }

    fn listed(&self) -> impl Iterator<Item = *const Lane> {
        // Ordering: Acquire [L4]. The lane and its link.
        let mut next = self.newest.load(Ordering::Acquire).cast_const();
        core::iter::from_fn(move || {
            let listed = (!next.is_null()).then_some(next)?;
            // SAFETY: X1: a listed lane lives as long as `self`.
            next = unsafe { &*listed }.older();
            Some(listed)
        })
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // Ordering: Acquire [L4]. We have the only reference to the list.
        let mut next = self.newest.load(Ordering::Acquire).cast_const();
        while !next.is_null() {
            // SAFETY: X1: the list's own reference, made by `Arc::into_raw` in `register`.
            let lane = unsafe { Arc::from_raw(next) };
            next = lane.older();
        }
    }
}

/// The writing end of a lane. Dropping it leaves the lane to the next thread that registers.
#[derive(Debug)]
pub(crate) struct LaneWriter {
    lane: Arc<Lane>,
}

impl LaneWriter {
    #[inline]
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Whether the lane's capacity admits another posting.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.lane.has_room()
    }

    /// Publishes a posting, beyond the capacity if it must be: one that is owed to a timer is never refused.
    #[inline]
    pub(crate) fn push(&mut self, posting: Posting) -> Pushed {
        // SAFETY: X2: this is the lane's one writer.
        unsafe { self.lane.push(&[posting]) }
    }

    /// Publishes postings as one: the shard sees none or all of those that share a block.
    pub(crate) fn push_all(&mut self, postings: &[Posting]) -> Pushed {
        // SAFETY: X2: this is the lane's one writer.
        unsafe { self.lane.push(postings) }
    }
}

impl Drop for LaneWriter {
    fn drop(&mut self) {
        self.lane.retire();
    }
}
