//! The line of receivers that wait for an item. Receivers are woken in the order in which they came. The queue's lock
//! protects the line.

use core::task::Waker;
use std::collections::BTreeMap;

/// A receiver's place in the line, as a number that no other receiver of the queue gets. The receiver gives its place
/// up with [`Line::leave`].
#[derive(Debug)]
pub(crate) struct Place(u64);

/// A copy of the number of a receiver's [`Place`], to ask whether the receiver still stands in line. Only the [`Place`]
/// itself can be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

#[derive(Default)]
pub(super) struct Line {
    wakers: BTreeMap<u64, Waker>,
    last: u64,
}

impl Line {
    /// Stores a receiver's `waker` at the receiver's place in the line. A receiver that was woken, or has not waited
    /// yet, gets a new place at the end of the line. Returns the place's number, and the waker that was stored at this
    /// place before. The caller must drop the returned waker after the release of the queue's lock.
    pub(super) fn stand(&mut self, place: &mut Option<Place>, waker: Waker) -> (Number, Option<Waker>) {
        let at = match place {
            Some(Place(at)) if self.wakers.contains_key(at) => *at,
            _ => {
                self.last += 1;
                self.last
            }
        };
        *place = Some(Place(at));
        (Number(at), self.wakers.insert(at, waker))
    }

    /// Gives up a receiver's place in line. Returns the place's waker; `None` if the receiver was woken before.
    pub(super) fn leave(&mut self, Place(at): Place) -> Option<Waker> {
        self.wakers.remove(&at)
    }

    /// Removes up to `count` receivers from the front of the line, and returns their wakers. The caller must wake them.
    pub(super) fn call(&mut self, count: usize) -> Vec<Waker> {
        let first = core::iter::from_fn(|| Some(self.wakers.pop_first()?.1));
        first.take(count).collect()
    }

    pub(super) fn has(&self, Number(at): Number) -> bool {
        self.wakers.contains_key(&at)
    }

    /// Returns whether the receiver with this place still stands in line. A receiver that was woken does not.
    pub(super) fn holds(&self, Place(at): &Place) -> bool {
        self.wakers.contains_key(at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }
}
