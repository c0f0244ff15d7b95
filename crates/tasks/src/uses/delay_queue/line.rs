//! The line of receivers that wait for an item: first come, first woken. The line has no lock of its own.

use core::task::Waker;
use std::collections::BTreeMap;

/// A place in the line, which no other receiver has had.
#[derive(Debug)]
pub(crate) struct Place(u64);

#[derive(Default)]
pub(super) struct Line {
    wakers: BTreeMap<u64, Waker>,
    last: u64,
}

impl Line {
    /// Takes the place that the caller had, or a place at the end of the line if the caller was woken since. Returns
    /// the waker that the place had, to be dropped where nothing is locked.
    pub(super) fn stand(&mut self, place: &mut Option<Place>, waker: Waker) -> Option<Waker> {
        let at = match place {
            Some(Place(at)) if self.wakers.contains_key(at) => *at,
            _ => {
                self.last += 1;
                self.last
            }
        };
        *place = Some(Place(at));
        self.wakers.insert(at, waker)
    }

    /// Gives a place up. Returns its waker, unless the place's holder had been woken.
    pub(super) fn leave(&mut self, Place(at): Place) -> Option<Waker> {
        self.wakers.remove(&at)
    }

    /// Takes the first waker out of the line, to be woken.
    pub(super) fn call(&mut self) -> Option<Waker> {
        Some(self.wakers.pop_first()?.1)
    }

    /// Takes all wakers out of the line, to be woken.
    pub(super) fn call_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        core::mem::take(&mut self.wakers).into_values()
    }
}
