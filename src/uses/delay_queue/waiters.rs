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
//! Who waits takes its place, fences, and looks for an item once more. Who brings one puts it where it is found, fences, and
//! looks whether there is a line. The fences are ordered, so one of the two finds the other.

use crate::engine::ignore_poison;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};
use core::task::Waker;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A place in the line; no other has had it.
#[derive(Debug)]
pub(super) struct Place(u64);

#[derive(Default)]
pub(super) struct Waiters {
    line: Mutex<Line>,
    /// How long the line is: so that nobody locks it for nothing.
    length: AtomicU64,
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
            let old = line.places.insert(at, waker);
            self.note(&line);
            old
        };
        // Ordering: SeqCst fence [L2]: the place is before the look.
        fence(Ordering::SeqCst);
        drop(old);
    }

    /// Gives a place up. False when its holder had been woken.
    pub(super) fn leave(&self, Place(at): Place) -> bool {
        let waker = {
            let mut line = self.lock();
            let waker = line.places.remove(&at);
            self.note(&line);
            waker
        };
        waker.is_some()
    }

    /// Wakes the first in line. Called after an item came.
    pub(super) fn wake_one(&self) {
        // Ordering: SeqCst fence [L2]: the item is before the look at the line.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed. The fence orders it.
        if self.length.load(Ordering::Relaxed) == 0 {
            return;
        }
        let first = {
            let mut line = self.lock();
            let first = line.places.pop_first();
            self.note(&line);
            first
        };
        if let Some((_, waker)) = first {
            waker.wake();
        }
    }

    /// Wakes all. Called after the end has come. One that panics keeps nobody else from being woken.
    pub(super) fn wake_all(&self) {
        let places = {
            let mut line = self.lock();
            let places = core::mem::take(&mut line.places);
            self.note(&line);
            places
        };
        let wake = |waker: Waker| catch_unwind(AssertUnwindSafe(|| waker.wake())).err();
        let panics: Vec<_> = places.into_values().filter_map(wake).collect();
        if let Some(panic) = panics.into_iter().next() {
            resume_unwind(panic);
        }
    }

    fn note(&self, line: &Line) {
        // Ordering: Relaxed. Written under the lock; the fence of `wait` orders what matters.
        self.length.store(line.places.len() as u64, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        ignore_poison(self.line.lock())
    }
}
