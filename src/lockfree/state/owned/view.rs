//! The view of an owned timer. It brings the timer's words together, which are in different arrays.

use super::extra::{Extra, Origin};
use crate::base::tick::Timestamp;
use crate::lockfree::barrier::Barrier;
use crate::lockfree::segments::Segments;
use crate::lockfree::state::Control;

/// The part of an engine's slots that only owned timers use.
#[derive(Debug)]
pub(crate) struct Extras {
    /// The extra words. A segment is allocated when an owned timer first needs it.
    words: Segments<Extra>,
    origin: Origin,
    barrier: Barrier,
}

/// An owned timer: its control words, and the index of its extra word. Only operations that need the extra word fetch
/// it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned<'a> {
    pub(super) control: &'a Control,
    extras: &'a Extras,
    index: u32,
    pub(super) barrier: Barrier,
}

impl Extras {
    pub(crate) fn new(capacity: u32, start: Timestamp) -> Self {
        Self { words: Segments::new(capacity), origin: Origin::before(start), barrier: Barrier::new() }
    }

    /// Returns the pair of fences for owned timers. The fences order a thread that arms a timer and a thread that
    /// checks it.
    #[inline(always)]
    pub(crate) fn barrier(&self) -> Barrier {
        self.barrier
    }

    /// Returns the owned timer in slot `index`. `control` has the slot's state and deadline.
    #[inline(always)]
    pub(crate) fn view<'a>(&'a self, control: &'a Control, index: u32) -> Owned<'a> {
        Owned { control, extras: self, index, barrier: self.barrier }
    }
}

impl<'a> Owned<'a> {
    /// Returns the same timer, whose arming and disarming then pass the fences of `barrier`.
    #[cfg(all(test, tourbillon_loom))]
    pub(crate) fn with_barrier(self, barrier: Barrier) -> Self {
        Self { barrier, ..self }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.extra().generation()
    }

    pub(super) fn extra(&self) -> &'a Extra {
        self.extras.words.get_or_grow(self.index)
    }

    /// Returns the unit of 2^20 ns from which the checks of owned timers are counted.
    #[inline(always)]
    pub(super) fn origin(&self) -> Origin {
        self.extras.origin
    }

    /// Returns the moment for which the caller must queue a ticket (a request to check a timer), so that the ticket is
    /// in time for `deadline`: see [`Origin::check_for`].
    pub(super) fn check_for(&self, state: u64, deadline: u64) -> Option<u64> {
        self.origin().check_for(state, deadline, || self.extra())
    }
}
