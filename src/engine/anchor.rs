//! Anchors: the owned timers of one thread hold their engine's core by an anchor, whose reference count only this
//! thread's timers write.
//!
//! A timer that is made and dropped for each request counts a reference up and down. If that were the core's own count,
//! all threads would write one cache line, and each operation would cost two threads three times as much as one.
//!
//! # Lifetimes
//! ```text
//!  timer ──► anchor ──► core ──► anchors ──► anchor      the circle is broken by the shutdown
//!                                   ▲           ▲
//!  the thread's Local ── weakly ────┴───────────┘
//! ```
//! The core keeps the anchors of living threads, so that a thread whose last timer was dropped does not make another
//! anchor for its next timer. A thread that ends takes its anchor out. The shutdown, which every owner of an engine
//! calls when it is dropped, takes out all anchors. After that an anchor lives as long as its timers do.

use super::anchors::Moored;
use super::core::Core;
use super::local::{Local, lend};
use super::owned::OwnedSlot;
use crate::base::error::ScheduleError;
use crate::base::sync::StdArc;
use crate::lockfree::slab::Slots;
use core::fmt;
use crossbeam_utils::CachePadded;

/// The reference to an engine by which one thread's timers hold it.
pub(crate) struct Anchor<T> {
    /// On other cache lines than the reference counts: one thread makes timers and writes the counts while other
    /// threads arm the timers.
    parts: CachePadded<Parts<T>>,
}

/// An owned timer: the anchor by which it holds the engine, and its slot.
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

    /// The core's slots, without the way over the core.
    #[inline(always)]
    pub(crate) fn slots(&self) -> &Slots {
        &self.parts.slots
    }
}

impl<T: Send + 'static> Anchor<T> {
    /// Makes an owned timer with this payload. The calling thread's anchor holds the engine for it.
    pub(crate) fn create_timer(core: &StdArc<Core<T>>, payload: T) -> Result<Created<T>, ScheduleError<T>> {
        let timers = core.timers();
        if timers.admission().is_shut_down() {
            return Err(ScheduleError { kind: timers.admission().why_closed(), payload });
        }
        let mut local = lend(timers.admission());
        let slot = timers.create(&mut local, payload)?;
        Ok((Self::of_thread(core, &mut local), slot))
    }

    /// The anchor of the thread to which `local` is lent.
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
