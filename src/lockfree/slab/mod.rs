//! The slab: it stores the words and the payloads of an engine's timers.
//!
//! Indices are dense and segments never move. So a ticket can name a timer by 32 bits, and a look-up needs no lock.
//! Words are stored apart from payloads, so a check of a chunk's timers reads words only. Memory grows with the peak
//! number of timers: 16 bytes and the payload for each slot, and nothing for slots that were never used.

mod depot;

pub(crate) use depot::{Magazine, Magazines, Slots};

use crate::base::sync::{StdArc, UnsafeCell};
use crate::base::tick::Timestamp;
use crate::lockfree::segments::{self, Segment, Segments};
use core::mem::MaybeUninit;

/// The slots of one engine and their payloads.
///
/// # Invariants
/// B1. Only the owner that `state` names (I3) accesses a payload cell, so one thread at a time. The cell is initialised
///     from `write` until `take`. Between these two calls the handle and the worker of an owned timer share the timer's
///     cell (O5).
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: StdArc<Slots>,
    payloads: Segments<PayloadCell<T>>,
}

pub(crate) struct PayloadCell<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: B1: the state word hands each cell from one owner to the next; `T: Send` is all that a handover needs.
unsafe impl<T: Send> Sync for PayloadCell<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for PayloadCell<T> {}

impl<T> Segment for PayloadCell<T> {
    #[cfg(not(all(test, tourbillon_loom)))]
    fn allocate(len: usize) -> Box<[Self]> {
        let cells = Box::<[Self]>::new_uninit_slice(len);
        // SAFETY: a `PayloadCell` is a `MaybeUninit`, of which every content is valid.
        unsafe { cells.assume_init() }
    }

    #[cfg(all(test, tourbillon_loom))]
    fn allocate(len: usize) -> Box<[Self]> {
        (0..len).map(|_| Self(UnsafeCell::new(MaybeUninit::uninit()))).collect()
    }
}

impl<T> Slab<T> {
    pub(crate) fn new(capacity: u32, start: Timestamp) -> Self {
        Self { slots: StdArc::new(Slots::new(capacity, start)), payloads: Segments::new(capacity) }
    }

    #[inline]
    pub(crate) fn slots(&self) -> &StdArc<Slots> {
        &self.slots
    }

    /// Prefetches the words and the payload of a timer that the caller will use soon.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        self.slots.prefetch(index);
        segments::prefetch(self.payloads.get(index));
    }

    /// Writes a payload into a cell.
    ///
    /// # Safety
    ///
    /// The caller holds the vacant slot `index` (I3).
    #[inline(always)]
    pub(crate) unsafe fn write(&self, index: u32, payload: T) {
        self.payloads.get_or_grow(index).0.with_mut(|cell| {
            // SAFETY: B1: the caller holds the slot, so no other thread accesses the cell.
            unsafe { (*cell).write(payload) };
        });
    }

    /// Borrows the payload that is in a cell.
    ///
    /// # Safety
    ///
    /// A payload is in the cell, and is not taken out while the reference lives (O5). Unless `T` is `Sync`, the caller
    /// has the only reference to the payload.
    pub(crate) unsafe fn peek(&self, index: u32) -> &T {
        self.payloads.get_or_grow(index).0.with(|cell| {
            // SAFETY: B1: no thread writes to the cell before the payload is taken out.
            let cell = unsafe { &*cell };
            // SAFETY: the caller guarantees that a payload is in the cell.
            unsafe { cell.assume_init_ref() }
        })
    }

    /// Takes the payload out of a cell.
    ///
    /// # Safety
    ///
    /// The caller took this timer out of `queued` (I3), has not taken its payload yet, and still holds the slot.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, index: u32) -> T {
        self.payloads.get_or_grow(index).0.with_mut(|cell| {
            // SAFETY: B1: the caller owns the payload, so no other thread accesses the cell.
            let cell = unsafe { &mut *cell };
            // SAFETY: B1: the cell was written before the timer was armed, and is not read again before the next
            // `write`.
            unsafe { cell.assume_init_read() }
        })
    }
}
