//! The places of engines: the index at which each thread keeps its part of an engine at hand.
//!
//! There are [`PLACES`] places, and any number of engines. An engine takes the place that the fewest living engines
//! have, and gives it back with its core. So up to [`PLACES`] living engines have places of their own, however many
//! engines a process has made before. Engines that share a place are as correct: a part names its engine.
//!
//! The counts are all that the engines share, and no lock guards them: an engine may be dropped in the child of a fork.

use crate::base::sync::Ordering;
use std::sync::atomic::AtomicU32;

/// The number of places: 256 bytes of each thread's storage.
pub(super) const PLACES: usize = 32;

/// The number of living engines at each place. Outside of the models' reach: the counts hand nothing over.
static ENGINES: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];

/// An engine's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(usize);

impl Place {
    /// Takes one of the places that the fewest engines have.
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

    /// The index, below [`PLACES`].
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
