//! Who waits for an item, first come, first woken.
//!
//! No code of the user's runs while the line is locked: wakers are cloned before, and woken and dropped after. The crates
//! that have such a line wake under its lock, so that a waker which panics, or comes back to the queue, breaks it.
//!
//! # Invariants
//! L1. A place is in the line, or its holder was woken and has yet to look, or has left.
//! L2. After an item came, whoever was first in line when `wake_one` looked is woken; or nobody was, and who comes later
//!     looks for items once it stands in line.
//!
//! Who waits takes its place and then looks for an item once more; who brings one puts it where it is found and then looks at the
//! line. Both looks are ordered by the lock of the line, so one of the two finds the other.

use crate::engine::ignore_poison;
use crate::sync::{Mutex, MutexGuard};
use core::task::Waker;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A place in the line; no other has had it.
#[derive(Debug)]
pub(super) struct Place(u64);

#[derive(Default)]
pub(super) struct Waiters {
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    places: BTreeMap<u64, Waker>,
    next: u64,
}

impl Waiters {
    /// Has `waker` woken when it is its turn: at the place that it had, or at the end of the line if it was woken since. The
    /// caller then looks for an item once more.
    pub(super) fn wait(&self, place: &mut Option<Place>, waker: &Waker) {
        let waker = waker.clone();
        let old = {
            let mut line = self.lock();
            let at = match place.take() {
                Some(Place(at)) if line.places.contains_key(&at) => at,
                _ => {
                    line.next += 1;
                    line.next
                }
            };
            *place = Some(Place(at));
            line.places.insert(at, waker)
        };
        drop(old);
    }

    /// Gives a place up. False when its holder had been woken.
    pub(super) fn leave(&self, Place(at): Place) -> bool {
        let waker = self.lock().places.remove(&at);
        waker.is_some()
    }

    /// Wakes the first in line. Called after an item came.
    pub(super) fn wake_one(&self) {
        let first = self.lock().places.pop_first();
        if let Some((_, waker)) = first {
            waker.wake();
        }
    }

    /// Wakes all. Called after the end has come. One that panics keeps nobody else from being woken.
    pub(super) fn wake_all(&self) {
        let places = core::mem::take(&mut self.lock().places);
        let wake = |waker: Waker| catch_unwind(AssertUnwindSafe(|| waker.wake())).err();
        let panics: Vec<_> = places.into_values().filter_map(wake).collect();
        if let Some(panic) = panics.into_iter().next() {
            resume_unwind(panic);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        ignore_poison(self.line.lock())
    }
}
