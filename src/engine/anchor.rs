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

use super::{Core, Local, ignore_poison};
use crate::base::sync::{Mutex, StdArc, Weak};
use crate::lockfree::slab::Slots;
use core::any::Any;
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

/// An anchor of an engine whose type of payload the holder does not know.
type AnyAnchor = dyn Any + Send + Sync;

/// The anchors of the living threads; `None` once the engine is shut down.
pub(super) struct Anchors(Mutex<Option<Vec<StdArc<AnyAnchor>>>>);

impl Anchors {
    pub(super) fn new() -> StdArc<Self> {
        StdArc::new(Self(Mutex::new(Some(Vec::new()))))
    }

    fn keep(&self, anchor: StdArc<AnyAnchor>) {
        if let Some(kept) = &mut *ignore_poison(self.0.lock()) {
            kept.push(anchor);
        }
    }

    /// Drops the anchor of a thread that ends. The anchor is dropped outside of the lock, since the engine may be
    /// dropped with it.
    fn forget(&self, anchor: &Weak<AnyAnchor>) {
        let forgotten = ignore_poison(self.0.lock()).as_mut().and_then(|kept| {
            let at =
                kept.iter().position(|kept| core::ptr::addr_eq(StdArc::as_ptr(kept), anchor.as_ptr()))?;
            Some(kept.swap_remove(at))
        });
        drop(forgotten);
    }

    /// Drops all anchors, for good.
    pub(super) fn close(&self) {
        let kept = ignore_poison(self.0.lock()).take();
        drop(kept);
    }
}

/// A thread's weak reference to its anchor.
pub(super) struct Moored {
    anchor: Weak<AnyAnchor>,
    anchors: Weak<Anchors>,
}

impl fmt::Debug for Moored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moored").finish_non_exhaustive()
    }
}

/// Runs when the thread ends, or has no more to do with the engine.
impl Drop for Moored {
    fn drop(&mut self) {
        if let Some(anchors) = self.anchors.upgrade() {
            anchors.forget(&self.anchor);
        }
    }
}

impl<T: Send + 'static> Core<T> {
    /// The anchor of the thread to which `local` is lent.
    #[inline]
    pub(super) fn anchor(self: &StdArc<Self>, local: &mut Local) -> StdArc<Anchor<T>> {
        let known = local.moored.as_ref().and_then(|moored| moored.anchor.upgrade());
        match known.map(StdArc::downcast) {
            Some(Ok(anchor)) => anchor,
            _ => self.moor(local),
        }
    }

    #[cold]
    fn moor(self: &StdArc<Self>, local: &mut Local) -> StdArc<Anchor<T>> {
        let parts = Parts { core: StdArc::clone(self), slots: StdArc::clone(self.slab.slots()) };
        let anchor = StdArc::new(Anchor { parts: CachePadded::new(parts) });
        let kept: StdArc<AnyAnchor> = StdArc::<Anchor<T>>::clone(&anchor);
        local.moored =
            Some(Moored { anchor: StdArc::downgrade(&kept), anchors: StdArc::downgrade(&self.anchors) });
        self.anchors.keep(kept);
        anchor
    }
}
