//! An array that grows without moving: segments that double, behind a small directory.

use crate::limits::FIRST_SEGMENT_BITS;
use crate::sync::{AtomicPtr, Ordering};
use core::fmt;
use core::ptr;

/// Segments for 2^32 elements.
const SEGMENTS: usize = 32 - FIRST_SEGMENT_BITS as usize;

/// The most elements that the segments hold.
pub(crate) const CAPACITY: u32 = u32::MAX - (1 << FIRST_SEGMENT_BITS) + 1;

/// An element that can be made by the segment.
pub(crate) trait Segment: Sized {
    /// `len` elements as they are at first; memory that the system clears lazily, where that can be.
    fn allocate(len: usize) -> Box<[Self]>;
}

/// Segment `k` holds `2^(FIRST_SEGMENT_BITS + k)` elements and is allocated when first needed.
///
/// # Invariants
/// G1. A directory entry is null, or a leaked `Box<[S]>` of its segment's length that stays until the drop.
///
/// # Synchronisation
/// | pair | release side | acquire side | what is handed over | model |
/// |------|--------------|--------------|---------------------|-------|
/// | G1   | `grow`       | `get`        | the elements        | `slab::two_threads_grow_one_segment` |
pub(crate) struct Segments<S> {
    directory: [AtomicPtr<S>; SEGMENTS],
}

impl<S: Segment> Segments<S> {
    pub(crate) fn new() -> Self {
        Self { directory: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) }
    }

    const fn len_of(segment: usize) -> usize {
        1 << (FIRST_SEGMENT_BITS as usize + segment)
    }

    /// The segment of an element and its place there.
    #[inline]
    fn locate(index: u32) -> (usize, usize) {
        debug_assert!(index < CAPACITY);
        let biased = index + (1 << FIRST_SEGMENT_BITS);
        let log = u32::BITS - 1 - biased.leading_zeros();
        ((log - FIRST_SEGMENT_BITS) as usize, (biased ^ (1 << log)) as usize)
    }

    /// The element, if its segment exists.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&S> {
        if index >= CAPACITY {
            return None;
        }
        let (segment, offset) = Self::locate(index);
        // Ordering: Acquire [G1]. Pairs with `grow`: the elements are made.
        let first = self.directory[segment].load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: G1 and `locate`: `offset` is below the length of the segment.
        let element = unsafe { first.add(offset) };
        // SAFETY: G1: it lives as long as `self` and is shared only.
        Some(unsafe { &*element })
    }

    #[inline]
    pub(crate) fn get_or_grow(&self, index: u32) -> &S {
        match self.get(index) {
            Some(element) => element,
            None => self.grow(index),
        }
    }

    #[cold]
    fn grow(&self, index: u32) -> &S {
        let (segment, _) = Self::locate(index);
        let fresh = Box::into_raw(S::allocate(Self::len_of(segment))).cast::<S>();
        // Ordering: Release [G1] publishes the elements. Failure Relaxed: `get` loads the winner's with Acquire.
        let installed = self.directory[segment].compare_exchange(
            ptr::null_mut(),
            fresh,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if installed.is_err() {
            // SAFETY: we made it in this call and nobody else saw it.
            unsafe { Self::free(fresh, segment) };
        }
        self.get(index).expect("the segment was just installed")
    }

    /// # Safety
    ///
    /// `first` came from `Box::into_raw` of a segment of this length, and nobody uses it.
    unsafe fn free(first: *mut S, segment: usize) {
        let slice = ptr::slice_from_raw_parts_mut(first, Self::len_of(segment));
        // SAFETY: the caller's word.
        drop(unsafe { Box::from_raw(slice) });
    }
}

impl<S> Drop for Segments<S> {
    fn drop(&mut self) {
        for (segment, entry) in self.directory.iter().enumerate() {
            // Ordering: Acquire [G1]. We have the only reference; the segment may be another thread's.
            let first = entry.load(Ordering::Acquire);
            if !first.is_null() {
                let slice =
                    ptr::slice_from_raw_parts_mut(first, 1 << (FIRST_SEGMENT_BITS as usize + segment));
                // SAFETY: G1, and we have the only reference.
                drop(unsafe { Box::from_raw(slice) });
            }
        }
    }
}

impl<S> fmt::Debug for Segments<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").finish_non_exhaustive()
    }
}
