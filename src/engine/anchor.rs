//! Anchors keep an engine alive for its owned timers. All owned timers of a thread share the thread's anchor, so only
//! this thread's timers write its reference count.
//!
//! A timer that is made and dropped for each request counts a reference up and down. If that were the count of the core
//! itself, all threads would write the same cache line. Then two threads together would need three times as long for
//! each operation as one thread.
//!
//! # Lifetimes
//! ```text
//!  timer ──► anchor ──► core ──► anchors ──► anchor      the circle is broken by the shutdown
//!                                   ▲           ▲
//!  the thread's Local ── weakly ────┴───────────┘
//! ```
//! The core keeps the anchors of living threads. So a thread whose last timer was dropped need not make another anchor
//! for its next timer. A thread that ends takes its anchor out. The shutdown, which every owner of an engine calls when
//! it is dropped, takes out all anchors. After that, an anchor lives as long as its timers.

use super::anchors::Moored;
use super::core::Core;
use super::local::{Local, lend};
use super::owned::OwnedSlot;
use crate::base::error::ScheduleError;
use crate::base::sync::StdArc;
use crate::lockfree::slab::Slots;
use core::fmt;
use crossbeam_utils::CachePadded;

/// A thread's reference to an engine, which the thread's owned timers share.
pub(crate) struct Anchor<T> {
    /// The parts are on other cache lines than the reference counts. One thread makes timers and writes the counts,
    /// while other threads read the parts to arm the timers.
    parts: CachePadded<Parts<T>>,
}

/// An owned timer: the anchor that keeps its engine alive, and its slot.
pub(crate) type Created<T> = (StdArc<Anchor<T>>, OwnedSlot);

struct Parts<T> {
    core: StdArc<Core<T>>,
    slots: StdArc<Slots>,
}

impl<T> Anchor<T> {
    #[inline(always)]
    pub(crate) fn core(&self) -> &StdArc<Core<T>> {
        &self.parts.core
    }

    /// Returns the core's slots, without a detour through the core.
    #[inline(always)]
    pub(crate) fn slots(&self) -> &Slots {
        &self.parts.slots
    }
}

impl<T: Send + 'static> Anchor<T> {
    /// Makes an owned timer with this payload. The calling thread's anchor keeps the engine alive for it.
    pub(crate) fn create_timer(core: &StdArc<Core<T>>, payload: T) -> Result<Created<T>, ScheduleError<T>> {
        let timers = core.timers();
        if timers.admission().is_shut_down() {
            return Err(ScheduleError { kind: timers.admission().why_closed(), payload });
        }
        let mut local = lend(timers.admission());
        let slot = timers.create(&mut local, payload)?;
        Ok((Self::of_thread(core, &mut local), slot))
    }

    /// Returns the anchor of the thread to which `local` belongs, or makes it.
    #[inline]
    fn of_thread(core: &StdArc<Core<T>>, local: &mut Local) -> StdArc<Self> {
        let known = local.moored.as_ref().and_then(Moored::anchor);
        match known.map(StdArc::downcast) {
            Some(Ok(anchor)) => anchor,
            _ => Self::moor(core, local),
        }
    }

    #[cold]
    fn moor(core: &StdArc<Core<T>>, local: &mut Local) -> StdArc<Self> {
        let parts =
            Parts { core: StdArc::clone(core), slots: StdArc::clone(core.timers().admission().slots()) };
        let anchor = StdArc::new(Self { parts: CachePadded::new(parts) });
        local.moored = Some(Moored::new(StdArc::<Self>::clone(&anchor), core.anchors()));
        anchor
    }
}

impl<T> fmt::Debug for Anchor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anchor").finish_non_exhaustive()
    }
}
