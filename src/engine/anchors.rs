//! The engine's list of its threads' anchors, and each thread's weak reference to its own anchor. The code does not
//! depend on the type of the payload.

use crate::base::fork::ForkLock;
use crate::base::sync::{StdArc, Weak};
use core::any::Any;
use core::fmt;

/// An anchor (a thread's reference to an engine), without the type of the engine's payloads.
pub(super) type AnyAnchor = dyn Any + Send + Sync;

/// The engine's list of anchors, the references by which living threads keep it alive. `None` after a shutdown.
pub(super) struct Anchors(ForkLock<Option<Vec<StdArc<AnyAnchor>>>>);

impl Anchors {
    pub(super) fn new() -> StdArc<Self> {
        StdArc::new(Self(ForkLock::new(Some(Vec::new()))))
    }

    fn keep(&self, anchor: StdArc<AnyAnchor>) {
        if let Some(Some(kept)) = self.0.lock().as_deref_mut() {
            kept.push(anchor);
        }
    }

    /// Removes an anchor (a thread's reference to the engine) from the list, because its thread ends. The method drops
    /// the anchor without the lock, because the drop may also drop the engine.
    fn forget(&self, anchor: &Weak<AnyAnchor>) {
        let is_it = |kept: &StdArc<AnyAnchor>| core::ptr::addr_eq(StdArc::as_ptr(kept), anchor.as_ptr());
        let forgotten = self.0.lock().and_then(|mut anchors| {
            let kept = anchors.as_mut()?;
            let at = kept.iter().position(is_it)?;
            Some(kept.swap_remove(at))
        });
        drop(forgotten);
    }

    /// Drops all anchors (references of threads to the engine), and accepts no more.
    pub(super) fn close(&self) {
        let kept = self.0.lock().and_then(|mut anchors| anchors.take());
        drop(kept);
    }
}

/// A thread's weak reference to its own anchor, the reference that keeps an engine alive.
pub(super) struct Moored {
    anchor: Weak<AnyAnchor>,
    anchors: Weak<Anchors>,
}

impl Moored {
    /// Adds the anchor (the reference to the engine) of the calling thread to the engine's list.
    pub(super) fn new(anchor: StdArc<AnyAnchor>, anchors: &StdArc<Anchors>) -> Self {
        let moored = Self { anchor: StdArc::downgrade(&anchor), anchors: StdArc::downgrade(anchors) };
        anchors.keep(anchor);
        moored
    }

    /// Returns the thread's anchor, its reference to the engine. Returns `None` if the anchor was dropped: the engine
    /// was shut down, and the thread's timers were dropped.
    #[inline]
    pub(super) fn anchor(&self) -> Option<StdArc<AnyAnchor>> {
        self.anchor.upgrade()
    }
}

impl fmt::Debug for Moored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moored").finish_non_exhaustive()
    }
}

/// Removes the thread's anchor (its reference to the engine) from the engine's list. The thread ends, or no longer uses
/// the engine.
impl Drop for Moored {
    fn drop(&mut self) {
        if let Some(anchors) = self.anchors.upgrade() {
            anchors.forget(&self.anchor);
        }
    }
}
