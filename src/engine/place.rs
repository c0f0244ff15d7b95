//! Places of engines. An engine's place is the array index at which each thread keeps its part of the engine.
//!
//! There are [`PLACES`] places, and any number of engines. An engine takes a place that the fewest living engines have.
//! Dropping the engine's core gives the place back. So up to [`PLACES`] living engines have places of their own, even
//! if the process has made many engines before. Engines may share a place without harm, since each part contains the
//! number of its engine.
//!
//! All engines of a process share the counts of the places. No lock guards the counts, since an engine may be dropped
//! in the child of a fork.

use crate::base::sync::Ordering;
use std::sync::atomic::AtomicU32;

/// The number of places for engines in each thread's storage. A thread keeps its part of an engine at the engine's
/// place. The places take 256 bytes of each thread.
pub(super) const PLACES: usize = 32;

/// The number of living engines at each place, an index into each thread's storage. Models do not track these counts,
/// because they publish nothing.
static ENGINES: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];

/// An engine's place: an index into each thread's storage. Dropping the `Place` gives the place back.
#[derive(Debug)]
pub(super) struct Place(usize);

impl Place {
    /// Takes a place (an index into each thread's storage) that the fewest engines have.
    pub(super) fn take() -> Self {
        Self::take_of(&ENGINES)
    }

    fn take_of(engines: &[AtomicU32; PLACES]) -> Self {
        loop {
            // Ordering in this function: Relaxed. The counts order nothing.
            let counts = engines.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
            let (place, count) = counts.min_by_key(|&(_, count)| count).unwrap_or((0, 0));
            let more = count.saturating_add(1);
            if engines[place].compare_exchange(count, more, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Self(place);
            }
        }
    }

    /// Returns the index of this place. A thread keeps its part (its data) of the engine at this index, which is below
    /// [`PLACES`].
    #[inline(always)]
    pub(super) fn index(&self) -> usize {
        self.0 % PLACES
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Ordering: Relaxed. As in `take_of`.
        ENGINES[self.0].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn engines_have_places_of_their_own_until_there_are_more_engines_than_places() {
        let engines = [const { AtomicU32::new(0) }; PLACES];
        let take = || core::mem::ManuallyDrop::new(Place::take_of(&engines)).index();
        let mut first: Vec<usize> = (0..PLACES).map(|_| take()).collect();
        first.sort_unstable();
        assert!(first.iter().copied().eq(0..PLACES), "{first:?}");
        // Another engine takes the place of an engine that has ended.
        engines[17].fetch_sub(1, Ordering::Relaxed);
        assert_eq!(take(), 17);
        for _ in 0..3 * PLACES {
            take();
        }
        assert!(engines.iter().all(|count| count.load(Ordering::Relaxed) == 4));
    }
}
