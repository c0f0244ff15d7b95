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
use super::local::Local;
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

impl<T> fmt::Debug for Anchor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anchor").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Core<T> {
    /// The anchor of the thread to which `local` is lent.
    #[inline]
    pub(super) fn anchor(self: &StdArc<Self>, local: &mut Local) -> StdArc<Anchor<T>> {
        let known = local.moored.as_ref().and_then(Moored::anchor);
        match known.map(StdArc::downcast) {
            Some(Ok(anchor)) => anchor,
            _ => self.moor(local),
        }
    }

    #[cold]
    fn moor(self: &StdArc<Self>, local: &mut Local) -> StdArc<Anchor<T>> {
        let parts = Parts { core: StdArc::clone(self), slots: StdArc::clone(self.slab.slots()) };
        let anchor = StdArc::new(Anchor { parts: CachePadded::new(parts) });
        local.moored = Some(Moored::new(StdArc::<Anchor<T>>::clone(&anchor), &self.anchors));
        anchor
    }
}
