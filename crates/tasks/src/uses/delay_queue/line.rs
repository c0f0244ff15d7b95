//! The line of receivers that wait for an item: first come, first woken. The line has no lock of its own.

use core::task::Waker;
use std::collections::BTreeMap;

/// A place in the line, which no other receiver has had.
#[derive(Debug)]
pub(crate) struct Place(u64);

/// The number of a place, by which the place is named and not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

#[derive(Default)]
pub(super) struct Line {
    wakers: BTreeMap<u64, Waker>,
    last: u64,
}

impl Line {
    /// Takes the place that the caller had, or a place at the end of the line if the caller was woken since. Returns
    /// the place's number and the waker that it had, to be dropped where nothing is locked.
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

    /// Gives a place up. Returns its waker, unless the place's holder had been woken.
    pub(super) fn leave(&mut self, Place(at): Place) -> Option<Waker> {
        self.wakers.remove(&at)
    }

    /// Takes up to this number of wakers out of the line, to be woken.
    pub(super) fn call(&mut self, count: usize) -> Vec<Waker> {
        let first = core::iter::from_fn(|| Some(self.wakers.pop_first()?.1));
        first.take(count).collect()
    }

    pub(super) fn has(&self, Number(at): Number) -> bool {
        self.wakers.contains_key(&at)
    }

    /// Whether the holder of this place stands in line. Otherwise the holder was woken.
    pub(super) fn holds(&self, Place(at): &Place) -> bool {
        self.wakers.contains_key(at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }
}
