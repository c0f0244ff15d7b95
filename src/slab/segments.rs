//! An array that grows without moving: segments behind a directory.

use crate::limits::SEGMENT_BITS;
use crate::sync::{AtomicPtr, Ordering};
use core::fmt;
use core::ptr;

/// Elements of a segment.
const SEGMENT: usize = 1 << SEGMENT_BITS;

/// An element that can be made by the segment.
pub(crate) trait Segment: Sized {
    /// `len` elements as they are at first, in memory that the system backs lazily where that can be.
    fn allocate(len: usize) -> Box<[Self]>;
}

/// At most `capacity` elements; a segment of them is allocated when the first one in it is needed.
///
/// # Invariants
/// G1. A directory entry is null, or a leaked `Box<[S]>` of `SEGMENT` elements that stays until the drop.
///
/// # Synchronisation
/// | pair | release side | acquire side | what is handed over | model |
/// |------|--------------|--------------|---------------------|-------|
/// | G1   | `grow`       | `get`        | the elements        | `slab::two_threads_grow_one_segment` |
pub(crate) struct Segments<S> {
    directory: Box<[AtomicPtr<S>]>,
}

impl<S: Segment> Segments<S> {
    pub(crate) fn new(capacity: u32) -> Self {
        let segments = (capacity as usize).div_ceil(SEGMENT);
        Self { directory: (0..segments).map(|_| AtomicPtr::new(ptr::null_mut())).collect() }
    }

    /// The element, if it is below the capacity and its segment exists.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&S> {
        // Ordering: Acquire [G1]. Pairs with `grow`: the elements are made.
        let first = self.directory.get(index as usize >> SEGMENT_BITS)?.load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: G1: the remainder is below the length of a segment.
        let element = unsafe { first.add(index as usize % SEGMENT) };
        // SAFETY: G1: it lives as long as `self` and is shared only.
        Some(unsafe { &*element })
    }

    /// The element, which must be below the capacity.
    #[inline(always)]
    pub(crate) fn get_or_grow(&self, index: u32) -> &S {
        match self.get(index) {
            Some(element) => element,
            None => self.grow(index),
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&self, index: u32) -> &S {
        let fresh = Box::into_raw(S::allocate(SEGMENT)).cast::<S>();
        // Ordering: Release [G1] publishes the elements. Failure Relaxed: `get` loads the winner's with Acquire.
        let installed = self.directory[index as usize >> SEGMENT_BITS].compare_exchange(
            ptr::null_mut(),
            fresh,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if installed.is_err() {
            // SAFETY: we made it in this call and nobody else saw it.
            unsafe { free(fresh) };
        }
        self.get(index).expect("the segment was just installed")
    }
}

/// # Safety
///
/// `first` came from `Box::into_raw` of a segment, and nobody uses it.
unsafe fn free<S>(first: *mut S) {
    // SAFETY: the caller's word.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, SEGMENT)) });
}

impl<S> Drop for Segments<S> {
    fn drop(&mut self) {
        for entry in &self.directory {
            // Ordering: Acquire [G1]. We have the only reference; the segment may be another thread's.
            let first = entry.load(Ordering::Acquire);
            if !first.is_null() {
                // SAFETY: G1, and we have the only reference.
                unsafe { free(first) };
            }
        }
    }
}

impl<S> fmt::Debug for Segments<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").finish_non_exhaustive()
    }
}
