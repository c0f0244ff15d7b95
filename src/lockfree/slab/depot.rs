//! Vacant slots: the threads' magazines (lists of vacant slots), and the depot through which threads exchange
//! magazines.
//!
//! To take or return a slot, a thread should not touch a cache line that another thread writes. Yet the slots that
//! workers vacate must get back to the producers. So each thread keeps two magazines. When both are empty or both are
//! full, the thread exchanges a whole magazine with the depot.
//!
//! After J. Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001; the depot is R. K. Treiber's stack (IBM RJ 5118,
//! 1986) with a tag against ABA.
//!
//! # Layout
//!
//! A magazine is a chain through the link words of its vacant slots, so it needs no other memory.
//! ```text
//! link word   63             32 31         0
//!            | next magazine   | next slot  |   in the first slot of a magazine in the depot
//!            | slots in all    | next slot  |   in its second slot
//!            |                 | next slot  |   in the others
//! top         63             32 31         0
//!            | tag             | first slot of the topmost magazine |
//! ```
//!
//! # Invariants
//! D2. The tag changes with every change of `top`. The tag does not protect a `take` that is delayed for exactly 2^32
//!     changes, or a multiple of them.
//! D3. A slot is in one magazine at most, and a magazine belongs to one thread or to the depot.
//!
//! # When slots are scarce
//!
//! A slot in a thread's magazine is not available to other threads. Slots that were never used, and slots in the depot,
//! are available. While more than half of the capacity is available, a thread takes whole magazines. If less is
//! available, a thread takes a small part of the available slots at a time (`PART_OF_SCARCE_SLOTS`). It gives the rest
//! of a magazine back. So hundreds of threads can have a few timers each in a small engine.
//!
//! # Synchronisation
//! | pair | release side | acquire side | handed over         | model |
//! |------|--------------|--------------|---------------------|-------|
//! | D1   | `publish`    | `take_magazine` | the magazine's link words, the slots' states | `slab::a_magazine_changes_hands` |
//!
//! # Progress and cost
//! Slots: wait-free within a magazine. Magazines: lock-free, one CAS without contention and one addition. A thread that
//! finds the depot empty while another thread splits a magazine yields to that thread, a few times at most.

use crate::base::limits::{CAPACITY_PER_MAGAZINE_SLOT, MAGAZINE_SLOTS, PART_OF_SCARCE_SLOTS};
use crate::base::sync::{AtomicU64, Ordering, thread};
use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use crate::lockfree::barrier::Barrier;
#[cfg(not(all(test, tourbillon_loom)))]
use crate::lockfree::segments::zeroed;
use crate::lockfree::segments::{self, Segment, Segments};
use crate::lockfree::state::Control;
use crate::lockfree::state::owned::{Extra, Extras, Owned};
use core::mem;
use crossbeam_utils::CachePadded;

const NIL: u32 = u32::MAX;
/// The number of times that a thread checks an empty depot (the store of free slots) before it gives up. Another thread
/// may be about to give slots back.
const LOOKS: usize = 16;

impl Segment for Control {
    #[cfg(not(all(test, tourbillon_loom)))]
    fn allocate(len: usize) -> Box<[Self]> {
        // SAFETY: a `Control` is two atomic integers, for which zero is valid: a vacant slot.
        unsafe { zeroed(len) }
    }

    #[cfg(all(test, tourbillon_loom))]
    fn allocate(len: usize) -> Box<[Self]> {
        (0..len).map(|_| Self::new()).collect()
    }
}

impl Segment for Extra {
    #[cfg(not(all(test, tourbillon_loom)))]
    fn allocate(len: usize) -> Box<[Self]> {
        // SAFETY: an `Extra` is two atomic integers and padding, for which zero is valid.
        unsafe { zeroed(len) }
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

/// All slots of an engine. Vacant slots are in magazines, the stocks of threads. The depot has the magazines that
/// belong to no thread.
#[derive(Debug)]
pub(crate) struct Slots {
    controls: Segments<Control>,
    extras: Extras,
    capacity: u32,
    magazine_slots: u32,
    /// The index of the first slot that was never used. All later slots were never used either.
    fresh: CachePadded<AtomicU64>,
    depot: CachePadded<Depot>,
}

/// The stack of the magazines (stocks of vacant slots) that belong to no thread.
#[derive(Debug)]
struct Depot {
    top: AtomicU64,
    /// The number of slots in the depot's magazines and in magazines that are being split. The number may be too high,
    /// but is never too low.
    slots: AtomicU64,
}

impl Slots {
    pub(crate) const MAX_CAPACITY: u32 = NIL;

    pub(crate) fn new(capacity: u32, start: Timestamp) -> Self {
        Self {
            controls: Segments::new(capacity),
            extras: Extras::new(capacity, start),
            capacity,
            magazine_slots: (capacity / CAPACITY_PER_MAGAZINE_SLOT).clamp(1, MAGAZINE_SLOTS),
            fresh: CachePadded::new(AtomicU64::new(0)),
            depot: CachePadded::new(Depot { top: AtomicU64::new(u64::from(NIL)), slots: AtomicU64::new(0) }),
        }
    }

    /// Returns the state word and the deadline word of a slot. Returns `None` if the slot's segment does not exist:
    /// then the slot was never used.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&Control> {
        self.controls.get(index)
    }

    /// Returns the state word and the deadline word of a slot that is or was in use.
    #[inline(always)]
    pub(crate) fn control(&self, index: u32) -> &Control {
        self.controls.get_or_grow(index)
    }

    /// Prefetches a slot's state word and deadline word into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        segments::prefetch(self.controls.get(index));
    }

    /// Returns a slot that is or was in use, viewed as an owned timer.
    #[inline(always)]
    pub(crate) fn owned(&self, index: u32) -> Owned<'_> {
        self.extras.view(self.control(index), index)
    }

    /// Returns the id of the owned timer in a slot. The caller has a handle of the timer, or runs the timer's handler.
    pub(crate) fn id_of_owned(&self, index: u32) -> TimerId {
        TimerId::new(index, self.owned(index).generation())
    }

    /// Returns the pair of fences for owned timers. The fences order threads that arm timers against threads that check
    /// timers.
    #[inline(always)]
    pub(crate) fn barrier(&self) -> Barrier {
        self.extras.barrier()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the number of slots that were ever used. Their indices are below this number.
    pub(crate) fn used(&self) -> u32 {
        // Ordering: Relaxed. F2 orders a shutdown that reads the number after each scheduling, and G2 covers the
        // segments.
        lower(self.fresh.load(Ordering::Relaxed))
    }

    /// Returns the number of slots that a thread may take at a time. The number is the size of a magazine, a thread's
    /// stock of vacant slots. It is smaller while vacant slots are scarce.
    fn share(&self) -> u32 {
        // Ordering: Relaxed. Only a measure.
        let given = self.depot.slots.load(Ordering::Relaxed);
        let on_hand = u64::from(self.capacity - self.used()) + given;
        if on_hand > u64::from(self.capacity / 2) {
            return self.magazine_slots;
        }
        let part = u32::try_from(on_hand / u64::from(PART_OF_SCARCE_SLOTS)).unwrap_or(u32::MAX);
        part.clamp(1, self.magazine_slots)
    }

    /// Takes a magazine (a thread's stock of vacant slots) of slots that were never used. Returns `None` if all slots
    /// were used.
    fn take_fresh(&self) -> Option<Magazine> {
        let most = u64::from(self.share());
        // Ordering: Relaxed. The thread that raises the index owns the slots in between, and nothing was written into
        // them.
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

    /// Puts a magazine into the depot, from which any thread may take it.
    pub(crate) fn give(&self, magazine: Magazine) {
        if magazine.is_empty() {
            return;
        }
        // Ordering: Relaxed. The slots are added before the magazine is published, so that `take` never subtracts slots
        // that were not added (D1).
        self.depot.slots.fetch_add(u64::from(magazine.len), Ordering::Relaxed);
        self.publish(magazine);
    }

    /// Puts a magazine into the depot. The caller has already added its slots to the depot's count.
    fn publish(&self, magazine: Magazine) {
        if magazine.is_empty() {
            return;
        }
        let first = self.control(magazine.first);
        let next_slot = lower(first.links());
        if next_slot != NIL {
            let second = self.control(next_slot);
            second.link(links(lower(second.links()), magazine.len));
        }
        // Ordering: Relaxed. A hint for the CAS.
        let mut top = self.depot.top.load(Ordering::Relaxed);
        loop {
            first.link(links(next_slot, lower(top)));
            let new_top = links(magazine.first, upper(top).wrapping_add(1));
            // Ordering: Release [D1]. Pairs with `take_magazine`: the chain. Failure Relaxed: a hint for the retry.
            match self.depot.top.compare_exchange_weak(top, new_top, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => top = newer,
            }
        }
    }

    /// Adds a slot that the caller has vacated to `magazine`. `control` has the slot's words. A full magazine then goes
    /// to the depot.
    #[inline]
    pub(crate) fn vacate(&self, magazine: &mut Magazine, control: &Control, index: u32) {
        magazine.add(control, index);
        if magazine.len >= self.magazine_slots {
            self.give(mem::replace(magazine, Magazine::new()));
        }
    }

    /// Takes a magazine out of the depot. While slots are scarce, takes only a part of the magazine, and gives the rest
    /// back.
    fn take(&self) -> Option<Magazine> {
        let mut magazine = self.take_magazine()?;
        let rest = magazine.split(self, self.share());
        // Ordering: Relaxed. The slots that are split off stay counted.
        self.depot.slots.fetch_sub(u64::from(magazine.len), Ordering::Relaxed);
        self.publish(rest);
        Some(magazine)
    }

    /// Takes a magazine when all slots have been used. Waits a little if the depot is empty, because another thread may
    /// be splitting the last magazine.
    fn take_late(&self) -> Option<Magazine> {
        for _ in 0..LOOKS {
            // Ordering: Relaxed. A hint.
            if self.depot.slots.load(Ordering::Relaxed) == 0 {
                return None;
            }
            if let Some(magazine) = self.take() {
                return Some(magazine);
            }
            thread::yield_now();
        }
        None
    }

    fn take_magazine(&self) -> Option<Magazine> {
        // Ordering: Acquire [D1]. Pairs with `publish`: the first slot's link word.
        let mut top = self.depot.top.load(Ordering::Acquire);
        while lower(top) != NIL {
            // If another thread took this magazine, the word may be a deadline by now. Then the tag has changed (D2).
            let first_links = self.control(lower(top)).links();
            let new_top = links(upper(first_links), upper(top).wrapping_add(1));
            // Ordering: Relaxed. The link words were acquired with `top` (D1). Every change of `top` is an RMW, so a
            // thread that reads ours still reads from the release sequence of the `publish` below. Failure Acquire: as
            // the first load.
            match self.depot.top.compare_exchange_weak(top, new_top, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => {
                    let second = lower(first_links);
                    let len = if second == NIL { 1 } else { upper(self.control(second).links()) };
                    return Some(Magazine { first: lower(top), len });
                }
                Err(newer) => top = newer,
            }
        }
        None
    }
}

/// A chain of vacant slots: the stock of one thread.
#[derive(Debug)]
pub(crate) struct Magazine {
    first: u32,
    len: u32,
}

impl Magazine {
    pub(crate) const fn new() -> Self {
        Self { first: NIL, len: 0 }
    }

    fn is_empty(&self) -> bool {
        self.first == NIL
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, slots: &Slots, index: u32) {
        self.add(slots.control(index), index);
    }

    /// Adds a slot that the caller has vacated. `control` has the slot's words.
    #[inline(always)]
    fn add(&mut self, control: &Control, index: u32) {
        control.link(links(self.first, NIL));
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
        self.len -= 1;
        Some(index)
    }

    /// Keeps `most` slots in this magazine, and returns the other slots as another magazine. `most` is at least one.
    fn split(&mut self, slots: &Slots, most: u32) -> Self {
        if self.len <= most {
            return Self::new();
        }
        let mut last = self.first;
        for _ in 1..most {
            last = lower(slots.control(last).links());
        }
        let control = slots.control(last);
        let rest = Self { first: lower(control.links()), len: self.len - most };
        control.link(links(NIL, NIL));
        self.len = most;
        rest
    }
}

/// A thread's two magazines. The thread exchanges a magazine with the depot only when both are empty or both are full.
#[derive(Debug)]
pub(crate) struct Magazines {
    loaded: Magazine,
    spare: Magazine,
}

impl Magazines {
    pub(crate) const fn new() -> Self {
        Self { loaded: Magazine::new(), spare: Magazine::new() }
    }

    /// Takes a vacant slot, which the caller holds from then on. Returns `None` if all `capacity` slots are in use or
    /// in the magazines of other threads.
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
            self.loaded = slots.take().or_else(|| slots.take_fresh()).or_else(|| slots.take_late())?;
        }
        self.loaded.pop(slots)
    }

    /// Takes back a slot that the caller has vacated. The slot stays with the calling thread until the thread's next
    /// call. Until then, the caller may still take the payload.
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
    }

    pub(crate) fn put_all(&mut self, slots: &Slots, mut vacated: Magazine) {
        while let Some(index) = vacated.pop(slots) {
            self.put(slots, index);
        }
    }

    /// Gives all slots to the depot, the common store of vacant slots, because the thread ends.
    pub(crate) fn empty_into(&mut self, slots: &Slots) {
        slots.give(mem::replace(&mut self.loaded, Magazine::new()));
        slots.give(mem::replace(&mut self.spare, Magazine::new()));
    }
}
