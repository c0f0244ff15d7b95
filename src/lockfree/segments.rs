//! An array that grows without moving its elements. It consists of segments, and a directory points to them.

use crate::base::limits::{SEGMENT_BITS, SEGMENT_BYTES};
use crate::base::sync::{AtomicPtr, Ordering};
use core::fmt;
use core::marker::PhantomData;
use core::ptr;
#[cfg(not(all(test, tourbillon_loom)))]
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

/// An element of an array that grows by segments. The trait allocates a segment of elements of this type.
pub(crate) trait Segment: Sized {
    /// Allocates `len` elements in their initial state. Where possible, the system backs the memory only when it is
    /// touched.
    fn allocate(len: usize) -> Box<[Self]>;
}

/// Allocates `len` elements of zeroed memory. The system backs only the pages that are touched.
/// (`Box::new_zeroed_slice` does the same from Rust 1.92 on.)
///
/// # Safety
/// Zero bytes are a valid `S`.
#[cfg(not(all(test, tourbillon_loom)))]
pub(crate) unsafe fn zeroed<S>(len: usize) -> Box<[S]> {
    let Ok(layout) = Layout::array::<S>(len) else {
        // No machine has memory for this number of elements.
        handle_alloc_error(Layout::new::<S>());
    };
    if layout.size() == 0 {
        return Box::new([]);
    }
    // SAFETY: the layout is not of size zero.
    let first = unsafe { alloc_zeroed(layout) }.cast::<S>();
    if first.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: the global allocator returned the memory for this layout, which is the layout of a boxed slice of `len`.
    // The memory is initialised, as the caller guarantees.
    unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, len)) }
}

/// An array of at most `capacity` elements. A segment is allocated when its first element is needed.
///
/// # Invariants
/// G1. A directory entry is null, or a leaked `Box<[S]>` of `LEN` elements that stays until the drop.
///
/// # Synchronisation
/// | pair | release side | acquire side | handed over         | model |
/// |------|--------------|--------------|---------------------|-------|
/// | G2   | `grow`       | `get`        | the elements        | `slab::two_threads_grow_one_segment` |
pub(crate) struct Segments<S> {
    directory: Box<[AtomicPtr<S>]>,
    elements: PhantomData<Box<[S]>>,
}

// SAFETY: G1: the array owns the elements as a `Vec<S>` would.
unsafe impl<S: Send> Send for Segments<S> {}
// SAFETY: G1: the array shares elements, and drops elements that another thread made.
unsafe impl<S: Send + Sync> Sync for Segments<S> {}

impl<S> Segments<S> {
    /// The base-2 logarithm of the number of elements in a segment. The number is lower for large elements, so that
    /// segments stay small.
    const BITS: u32 = {
        let mut bits = SEGMENT_BITS;
        while bits > 0 && size_of::<S>() << bits > SEGMENT_BYTES {
            bits -= 1;
        }
        bits
    };
    const LEN: usize = 1 << Self::BITS;
}

impl<S: Segment> Segments<S> {
    pub(crate) fn new(capacity: u32) -> Self {
        let segments = (capacity as usize).div_ceil(Self::LEN);
        let directory = (0..segments).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { directory, elements: PhantomData }
    }

    /// Returns the element with this index. Returns `None` if the index is not below the capacity, or if the segment
    /// does not exist yet.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&S> {
        // Ordering: Acquire [G2]. Pairs with `grow`: the elements are initialised.
        let first = self.directory.get(index as usize >> Self::BITS)?.load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: G1: the remainder is below the length of a segment.
        let element = unsafe { first.add(index as usize % Self::LEN) };
        // SAFETY: G1: the element lives as long as `self` and is only shared.
        Some(unsafe { &*element })
    }

    /// Returns the element with this index, which must be below the capacity. Allocates the segment if it does not
    /// exist yet.
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
        let segment = S::allocate(Self::LEN);
        assert_eq!(segment.len(), Self::LEN, "G1");
        let fresh = Box::into_raw(segment).cast::<S>();
        // Ordering: Release [G2] publishes the elements. Failure Relaxed: `get` loads the winner's segment with
        // Acquire.
        let installed = self.directory[index as usize >> Self::BITS].compare_exchange(
            ptr::null_mut(),
            fresh,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if installed.is_err() {
            // SAFETY: we allocated the segment in this call and no other thread saw it.
            unsafe { free(fresh, Self::LEN) };
        }
        self.get(index).expect("the segment was just installed")
    }
}

#[inline]
pub(crate) fn prefetch<S>(element: Option<&S>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = element {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, whatever its address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ptr::from_ref(element).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}

/// # Safety
///
/// `first` came from `Box::into_raw` of a slice of this length, and no thread uses the slice any more.
unsafe fn free<S>(first: *mut S, len: usize) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, len)) });
}

impl<S> Drop for Segments<S> {
    fn drop(&mut self) {
        for entry in &self.directory {
            // Ordering: Relaxed. The thread that gave us the only reference made the rest visible with it.
            let first = entry.load(Ordering::Relaxed);
            if !first.is_null() {
                // SAFETY: G1, and we have the only reference.
                unsafe { free(first, Self::LEN) };
            }
        }
    }
}

impl<S> fmt::Debug for Segments<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").finish_non_exhaustive()
    }
}
