//! Vacant slots: magazines in the threads' hands, and the depot through which they change hands.
//!
//! Taking and returning a slot must not touch a line that another thread writes, and a slot that a worker vacates must
//! find its way back to the producers. So each thread keeps two magazines of slots and exchanges a whole one with the
//! depot now and then.
//!
//! After J. Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001; the depot is R. K. Treiber's stack (IBM RJ 5118,
//! 1986) with a tag against ABA.
//!
//! # Layout
//!
//! A magazine is a chain through the vacant slots' own link words: no memory but theirs.
//! ```text
//! link word   63             32 31         0
//!            | next magazine   | next slot  |   the upper half counts in the first slot of a magazine only
//! top         63             32 31         0
//!            | tag             | first slot of the topmost magazine |
//! ```
//!
//! # Invariants
//! D1. A slot is in one magazine at most, and a magazine in one thread's hands or in the depot.
//! D2. The tag changes with every change of `top`. A `take` that sleeps through 2^32 of them, or a multiple, is not caught.
//!
//! # Synchronisation
//! | pair | release side | acquire side | what is handed over | model |
//! |------|--------------|--------------|---------------------|-------|
//! | M1   | `give`       | `take`       | the magazine's link words, the slots' states | `slab::a_magazine_changes_hands` |
//!
//! # Progress and cost
//! Slots: wait-free within a magazine. Magazines: lock-free, one CAS without contention.

use super::segments::{self, Segment, Segments};
use crate::barrier::Barrier;
use crate::limits::{CAPACITY_PER_MAGAZINE_SLOT, MAGAZINE_SLOTS};
use crate::state::Control;
use crate::state::owned::{Origin, Pin, Pinned};
use crate::sync::{AtomicU64, Ordering};
use crate::tick::Timestamp;
use core::mem;
use crossbeam_utils::CachePadded;

const NIL: u32 = u32::MAX;

impl Segment for Control {
    #[cfg(not(all(test, tourbillon_loom)))]
    fn allocate(len: usize) -> Box<[Self]> {
        let controls = Box::<[Self]>::new_zeroed_slice(len);
        // SAFETY: a `Control` is two atomic integers, for which zero is valid: a vacant slot.
        unsafe { controls.assume_init() }
    }

    #[cfg(all(test, tourbillon_loom))]
    fn allocate(len: usize) -> Box<[Self]> {
        (0..len).map(|_| Self::new()).collect()
    }
}

impl Segment for Pin {
    #[cfg(not(all(test, tourbillon_loom)))]
    fn allocate(len: usize) -> Box<[Self]> {
        let pins = Box::<[Self]>::new_zeroed_slice(len);
        // SAFETY: a `Pin` is two atomic integers and padding, for which zero is valid.
        unsafe { pins.assume_init() }
    }

    #[cfg(all(test, tourbillon_loom))]
    fn allocate(len: usize) -> Box<[Self]> {
        (0..len).map(|_| Self::new()).collect()
    }
}

fn links(next_slot: u32, next_magazine: u32) -> u64 {
    u64::from(next_magazine) << 32 | u64::from(next_slot)
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn lower(word: u64) -> u32 {
    word as u32
}

fn upper(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Every slot of an engine, and the magazines that no thread holds.
#[derive(Debug)]
pub(crate) struct Slots {
    controls: Segments<Control>,
    /// Of owned timers: segments come into being when there are such timers in them.
    pins: Segments<Pin>,
    barrier: Barrier,
    origin: Origin,
    capacity: u32,
    magazine_slots: u32,
    /// Slots from here on were never used.
    fresh: CachePadded<AtomicU64>,
    top: CachePadded<AtomicU64>,
}

impl Slots {
    /// The most slots that there can be.
    pub(crate) const MAX_CAPACITY: u32 = NIL;

    /// Slots of an engine that starts at `start`.
    pub(crate) fn new(capacity: u32, start: Timestamp) -> Self {
        Self {
            controls: Segments::new(capacity),
            pins: Segments::new(capacity),
            barrier: Barrier::new(),
            origin: Origin::before(start),
            capacity,
            magazine_slots: (capacity / CAPACITY_PER_MAGAZINE_SLOT).clamp(1, MAGAZINE_SLOTS),
            fresh: CachePadded::new(AtomicU64::new(0)),
            top: CachePadded::new(AtomicU64::new(u64::from(NIL))),
        }
    }

    /// The words of a slot, `None` when no such slot was ever used.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&Control> {
        self.controls.get(index)
    }

    /// The words of a slot that is or was in use.
    #[inline(always)]
    pub(crate) fn control(&self, index: u32) -> &Control {
        self.controls.get_or_grow(index)
    }

    /// Starts fetching the words of a slot.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        segments::prefetch(self.controls.get(index));
    }

    /// What belongs to the words of an owned timer.
    pub(crate) fn pin(&self, index: u32) -> Pinned<'_> {
        Pinned { pin: self.pins.get_or_grow(index), origin: self.origin }
    }

    /// What the looks at owned timers are counted from.
    #[inline(always)]
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Between those who arm owned timers and those who look at them.
    #[inline(always)]
    pub(crate) fn barrier(&self) -> Barrier {
        self.barrier
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many slots were ever used: indices are below.
    pub(crate) fn used(&self) -> u32 {
        // Ordering: Relaxed. The shutdown that asks is ordered after each scheduling by F2, and M2 covers the segments.
        lower(self.fresh.load(Ordering::Relaxed))
    }

    /// Slots that were never used, as a magazine.
    fn take_fresh(&self) -> Option<Magazine> {
        let most = u64::from(self.magazine_slots);
        // Ordering: Relaxed. Whoever adds has the slots in between; nothing was written into them.
        let first = self
            .fresh
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |fresh| {
                (fresh < u64::from(self.capacity)).then(|| (fresh + most).min(u64::from(self.capacity)))
            })
            .ok()?;
        let last = (first + most).min(u64::from(self.capacity));
        let mut magazine = Magazine::new();
        for index in (lower(first)..lower(last)).rev() {
            magazine.push(self, index);
        }
        Some(magazine)
    }

    /// Puts a magazine where any thread finds it.
    pub(crate) fn give(&self, magazine: Magazine) {
        if magazine.is_empty() {
            return;
        }
        let first = self.control(magazine.first);
        let next_slot = lower(first.links());
        // Ordering: Relaxed. A hint for the CAS.
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            first.link(links(next_slot, lower(top)));
            let new_top = links(magazine.first, upper(top).wrapping_add(1));
            // Ordering: Release [M1]. Pairs with `take`: the chain. Failure Relaxed: a hint for the retry.
            match self.top.compare_exchange_weak(top, new_top, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => top = newer,
            }
        }
    }

    /// Adds a slot that the caller vacated to a magazine, which goes to the depot when it is full.
    pub(crate) fn vacate(&self, magazine: &mut Magazine, index: u32) {
        magazine.push(self, index);
        if magazine.len >= self.magazine_slots {
            self.give(mem::replace(magazine, Magazine::new()));
        }
    }

    /// Takes a magazine that a thread gave.
    fn take(&self) -> Option<Magazine> {
        // Ordering: Acquire [M1]. Pairs with `give`: the first slot's link word.
        let mut top = self.top.load(Ordering::Acquire);
        while lower(top) != NIL {
            // May be a deadline by now, if somebody else took this magazine: then the tag has changed (D2).
            let next_magazine = upper(self.control(lower(top)).links());
            let new_top = links(next_magazine, upper(top).wrapping_add(1));
            // Ordering: Relaxed. What is taken was acquired with `top` (M1). Every change of `top` is an RMW, so whoever
            // reads ours still stands in the release sequence of the `give` below. Failure Acquire: as the first load.
            match self.top.compare_exchange_weak(top, new_top, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => return Some(Magazine { first: lower(top), len: self.magazine_slots }),
                Err(newer) => top = newer,
            }
        }
        None
    }
}

/// A chain of vacant slots that one thread holds.
#[derive(Debug)]
pub(crate) struct Magazine {
    first: u32,
    /// At most that many slots are in the chain; the depot does not keep the count.
    len: u32,
}

impl Magazine {
    pub(crate) const fn new() -> Self {
        Self { first: NIL, len: 0 }
    }

    fn is_empty(&self) -> bool {
        self.first == NIL
    }

    /// Adds a slot that the caller vacated.
    #[inline(always)]
    pub(crate) fn push(&mut self, slots: &Slots, index: u32) {
        slots.control(index).link(links(self.first, NIL));
        self.first = index;
        self.len += 1;
    }

    #[inline(always)]
    fn pop(&mut self, slots: &Slots) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let index = self.first;
        self.first = lower(slots.control(index).links());
        self.len = self.len.saturating_sub(1);
        Some(index)
    }
}

/// The two magazines of a thread: it takes and returns slots without an exchange until both are empty or full.
#[derive(Debug)]
pub(crate) struct Magazines {
    loaded: Magazine,
    spare: Magazine,
}

impl Magazines {
    pub(crate) const fn new() -> Self {
        Self { loaded: Magazine::new(), spare: Magazine::new() }
    }

    /// A vacant slot, which the caller now holds. `None` when `capacity` slots are in use or in other threads' hands.
    #[inline(always)]
    pub(crate) fn take(&mut self, slots: &Slots) -> Option<u32> {
        if let Some(index) = self.loaded.pop(slots) {
            return Some(index);
        }
        self.reload(slots)
    }

    #[cold]
    fn reload(&mut self, slots: &Slots) -> Option<u32> {
        mem::swap(&mut self.loaded, &mut self.spare);
        if self.loaded.is_empty() {
            self.loaded = slots.take().or_else(|| slots.take_fresh())?;
        }
        self.loaded.pop(slots)
    }

    /// Takes back a slot that the caller vacated.
    #[inline(always)]
    pub(crate) fn put(&mut self, slots: &Slots, index: u32) {
        if self.loaded.len >= slots.magazine_slots {
            self.unload(slots);
        }
        self.loaded.push(slots, index);
    }

    #[cold]
    fn unload(&mut self, slots: &Slots) {
        mem::swap(&mut self.loaded, &mut self.spare);
        if !self.loaded.is_empty() {
            slots.give(mem::replace(&mut self.loaded, Magazine::new()));
        }
        self.loaded.len = 0;
    }

    /// Returns everything, for a thread that ends.
    pub(crate) fn empty_into(&mut self, slots: &Slots) {
        slots.give(mem::replace(&mut self.loaded, Magazine::new()));
        slots.give(mem::replace(&mut self.spare, Magazine::new()));
    }
}
