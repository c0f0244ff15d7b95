//! The due items of a queue, the line of receivers that wait for them, and the end of the queue.
//!
//! One lock guards the due items, the line of receivers and the count of items under way. Taking an item and giving up
//! a place in line are therefore one step, and so are finding no item and standing in line. No user code runs under the
//! lock: wakers are cloned before, and woken and dropped after. Crates that have such a line wake under its lock, so
//! that a waker which panics, or comes back to the queue, breaks the line.
//!
//! # States of an item
//! ```text
//! (begin) ──► under way ──put──► due ──take──► received
//!                 └──settle──► refused, removed, or returned by the close
//! ```
//!
//! # Invariants
//! Q1. While a receiver stands in line, at least as many receivers were woken and have not looked yet as there are due items.
//! Q2. The queue is over when it is closed and no item is under way. No item becomes due afterwards.
//! Q3. A pushed item is received, or comes back from a removal, from the close, or with the push's error. Exactly one
//! of these happens.
//!
//! Q1 holds since a receiver lines up only if no item is due, an item that comes wakes the first receiver in line, a
//! woken receiver takes an item or finds none, and a woken receiver that leaves without looking wakes the next one. A
//! receiver in line may look without being woken; it leaves the line if it takes an item.
//!
//! # Races and their legal endings
//! - put x poll: (a) the poll takes the item; (b) the receiver stands in line first, and the item wakes it.
//! - put x leave: (a) the receiver that leaves is not woken, and the item wakes the next one; (b) the receiver was
//!   woken, and wakes the next one.
//! - push x end: (a) the push counts first and places its item before the drain passes there: the drain returns the
//!   item; (b) the push places its item after that, sees the end and takes the item back, unless the item has come due:
//!   then the item is received; (c) the push comes after the end, and is refused.
//! - the last put or settle x end: whichever is later finds the queue over, and wakes all receivers in line.
//!
//! # Synchronisation
//! | pair | one side | other side | what is handed over | model |
//! |------|----------|------------|---------------------|-------|
//! | Q1, Q2 | the lock | the lock | items, the line, the count | `delay_queue::*` |
//! | Q3 | `end`: store, then the drain's locks | `push`: the lock under which it places, then the load | the end | `delay_queue::a_push_races_with_the_end` |

use super::line::{Line, Place};
use crate::sync::{AtomicBool, ModelledMutex, ModelledMutexGuard, Ordering, ignore_poison};
use core::task::Waker;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(crate) struct Due<T> {
    state: ModelledMutex<State<T>>,
    /// Written under the lock.
    is_closed: AtomicBool,
}

struct State<T> {
    items: VecDeque<T>,
    line: Line,
    /// The number of items that were pushed and are neither due nor taken out.
    under_way: u64,
    /// The number of items whose push ever began.
    begun: u64,
}

/// The reason why an item was not pushed, with the item.
pub(crate) enum NotPushed<T, E> {
    Closed(T),
    /// The item could not be placed.
    Refused(E),
}

/// The next item, or the end.
type Received<T> = Option<T>;

/// The item or the end that a receiver got, and the waker that stood in line for it. The waker is to be dropped where
/// nothing is locked.
type Taken<T> = (Received<T>, Option<Waker>);

impl<T> Due<T> {
    pub(crate) fn new() -> Self {
        let state = State { items: VecDeque::new(), line: Line::default(), under_way: 0, begun: 0 };
        Self { state: ModelledMutex::new(state), is_closed: AtomicBool::new(false) }
    }

    /// Pushes an item under a number of its own. `place` puts the item where it waits, under a lock that the drain of
    /// [`end`](Self::end) takes as well. `take_back` takes the item out there.
    pub(crate) fn push<I, E>(
        &self,
        item: I,
        place: impl FnOnce(u64, I) -> Result<(), E>,
        take_back: impl FnOnce(u64) -> Option<I>,
    ) -> Result<u64, NotPushed<I, E>> {
        let Some(number) = self.begin() else { return Err(NotPushed::Closed(item)) };
        if let Err(error) = place(number, item) {
            self.settle(1);
            return Err(NotPushed::Refused(error));
        }
        match self.is_closed().then(|| take_back(number)).flatten() {
            Some(item) => {
                self.settle(1);
                Err(NotPushed::Closed(item))
            }
            None => Ok(number),
        }
    }

    /// Counts an item that is to be pushed. Returns the item's number, unless the queue is closed.
    fn begin(&self) -> Option<u64> {
        let mut state = self.lock();
        if self.is_closed() {
            return None;
        }
        state.under_way += 1;
        state.begun += 1;
        Some(state.begun)
    }

    /// Ends the queue. `drain` takes the waiting items out, and returns their number.
    pub(crate) fn end(&self, drain: impl FnOnce() -> u64) {
        {
            let _state = self.lock();
            // Ordering: Relaxed [Q3]. Locks order the flag: this one, and those of the drain.
            self.is_closed.store(true, Ordering::Relaxed);
        }
        self.settle(drain());
    }

    /// Adds an item to the due ones, and wakes the first receiver in line.
    pub(crate) fn put(&self, item: T) {
        let (first, all) = {
            let mut state = self.lock();
            state.items.push_back(item);
            state.under_way -= 1;
            (state.line.call(), self.call_all_if_over(&mut state))
        };
        wake(first.into_iter().chain(all));
    }

    /// Records that `count` items are not under way any more, and will not be due.
    pub(crate) fn settle(&self, count: u64) {
        let all = {
            let mut state = self.lock();
            state.under_way -= count;
            self.call_all_if_over(&mut state)
        };
        wake(all);
    }

    /// Takes the next due item, or the end; `None` when there is neither.
    pub(crate) fn take(&self) -> Option<Received<T>> {
        Some(self.take_from(&mut self.lock(), &mut None)?.0)
    }

    /// As [`take`](Self::take), for a receiver, which gives up its place in line if it gets an item or the end.
    /// Otherwise the receiver stands in line, at the place that it had, or at the end of the line if it was woken
    /// since.
    pub(crate) fn poll(&self, place: &mut Option<Place>, waker: &Waker) -> Option<Received<T>> {
        let at_once = self.take_from(&mut self.lock(), place);
        if let Some((received, _waker)) = at_once {
            return Some(received);
        }
        let waker = waker.clone();
        let (received, _waker) = {
            let mut state = self.lock();
            match self.take_from(&mut state, place) {
                Some((received, stood)) => (Some(received), [Some(waker), stood]),
                None => (None, [state.line.stand(place, waker), None]),
            }
        };
        received
    }

    /// Gives a place up. If its receiver was woken and has not looked, the next receiver in line is woken instead.
    pub(crate) fn leave(&self, place: Place) {
        let (_waker, next) = {
            let mut state = self.lock();
            match state.line.leave(place) {
                None if !state.items.is_empty() => (None, state.line.call()),
                waker => (waker, None),
            }
        };
        wake(next);
    }

    /// The number of items that are under way or due.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        usize::try_from(state.under_way).unwrap_or(usize::MAX).saturating_add(state.items.len())
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Ordering: Relaxed [Q3]. Locks order the flag: see `end`.
        self.is_closed.load(Ordering::Relaxed)
    }

    fn take_from(&self, state: &mut State<T>, place: &mut Option<Place>) -> Option<Taken<T>> {
        let received = match state.items.pop_front() {
            None if !self.is_over(state) => return None,
            received => received,
        };
        Some((received, place.take().and_then(|place| state.line.leave(place))))
    }

    fn is_over(&self, state: &State<T>) -> bool {
        self.is_closed() && state.under_way == 0
    }

    fn call_all_if_over(&self, state: &mut State<T>) -> impl Iterator<Item = Waker> + use<T> {
        self.is_over(state).then(|| state.line.call_all()).into_iter().flatten()
    }

    fn lock(&self) -> ModelledMutexGuard<'_, State<T>> {
        ignore_poison(self.state.lock())
    }
}

/// Wakes all `wakers`. A waker that panics does not keep the others from being woken.
fn wake(wakers: impl IntoIterator<Item = Waker>) {
    let wake = |waker: Waker| catch_unwind(AssertUnwindSafe(|| waker.wake())).err();
    let panics: Vec<_> = wakers.into_iter().filter_map(wake).collect();
    if let Some(panic) = panics.into_iter().next() {
        resume_unwind(panic);
    }
}
