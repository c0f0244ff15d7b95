//! The line of receivers that wait for an item: the first to come is the first to be woken. The queue's lock protects
//! it.

use core::task::Waker;
use std::collections::BTreeMap;

/// A receiver's place in the line. No place is ever given out twice.
#[derive(Debug)]
pub(crate) struct Place(u64);

/// The number of a place. It names the place, but does not own it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

#[derive(Default)]
pub(super) struct Line {
    wakers: BTreeMap<u64, Waker>,
    last: u64,
}

impl Line {
    /// Puts the waker at the caller's present place. If the caller was woken and so has no place, takes a new place at
    /// the end of the line. Returns the place's number, and the waker that stood there before. The caller must drop
    /// that waker while nothing is locked.
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

    /// Gives a place up. Returns its waker, unless the receiver had been woken already.
    pub(super) fn leave(&mut self, Place(at): Place) -> Option<Waker> {
        self.wakers.remove(&at)
    }

    /// Takes up to `count` wakers from the front of the line, for the caller to wake.
    pub(super) fn call(&mut self, count: usize) -> Vec<Waker> {
        let first = core::iter::from_fn(|| Some(self.wakers.pop_first()?.1));
        first.take(count).collect()
    }

    pub(super) fn has(&self, Number(at): Number) -> bool {
        self.wakers.contains_key(&at)
    }

    /// Returns whether the holder of this place stands in line. If not, it was woken.
    pub(super) fn holds(&self, Place(at): &Place) -> bool {
        self.wakers.contains_key(at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }
}
