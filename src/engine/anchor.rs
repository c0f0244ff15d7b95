//! Anchors keep an engine alive for its owned timers. All owned timers that one thread has made share the thread's
//! anchor, so only these timers write the anchor's reference count.
//!
//! If a program makes and drops a timer for each request, each timer counts a reference up and down. If the timers
//! counted references to the core itself, all threads would write one cache line. Then each operation would take three
//! times as long with two threads as with one thread.
//!
//! # Lifetimes
//! ```text
//!  timer ──► anchor ──► core ──► anchors ──► anchor      the circle is broken by the shutdown
//!                                   ▲           ▲
//!  the thread's Local ── weakly ────┴───────────┘
//! ```
//! The core keeps the anchors of living threads. So a thread whose last timer was dropped need not make another anchor
//! for its next timer. When a thread ends, its anchor is removed from the core's list. The shutdown removes all
//! anchors; dropping an engine shuts it down. After that, an anchor lives as long as its timers.

use super::anchors::Moored;
use super::core::Core;
use super::local::{Local, lend};
use super::owned::OwnedSlot;
use crate::base::error::ScheduleError;
use crate::base::sync::StdArc;
#[cfg(feature = "async")]
use crate::base::tick::Timestamp;
use crate::lockfree::slab::Slots;
use core::fmt;
use crossbeam_utils::CachePadded;

/// A thread's reference to an engine. It keeps the engine alive. All owned timers that the thread has made share this
/// reference.
pub(crate) struct Anchor<T> {
    /// The references to the engine's core and slots. They are not on the cache line of the anchor's reference counts,
    /// because one thread writes the counts while other threads read the references.
    parts: CachePadded<Parts<T>>,
}

/// The parts of a new owned timer: the reference that keeps its engine alive, and its slot.
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

    /// Returns the engine's slots, without an access to the engine's core.
    #[inline(always)]
    pub(crate) fn slots(&self) -> &Slots {
        &self.parts.slots
    }
}

impl<T: Send + 'static> Anchor<T> {
    /// Makes an owned timer with this payload. The timer holds the calling thread's anchor, a reference that keeps the
    /// engine alive.
    pub(crate) fn create_timer(core: &StdArc<Core<T>>, payload: T) -> Result<Created<T>, ScheduleError<T>> {
        let timers = core.timers();
        if timers.admission().is_shut_down() {
            return Err(ScheduleError { kind: timers.admission().why_closed(), payload });
        }
        let mut local = lend(timers.admission());
        let slot = timers.create(&mut local, payload)?;
        Ok((Self::of_thread(core, &mut local), slot))
    }

    /// Takes out a spare of the calling thread for an arming for `deadline`. A spare is an owned timer whose former
    /// handle was dropped. Returns `None` if the thread has none, or if the engine is shut down.
    #[cfg(feature = "async")]
    pub(crate) fn take_spare(core: &StdArc<Core<T>>, deadline: Timestamp) -> Option<Created<T>> {
        let timers = core.timers();
        if timers.admission().is_shut_down() {
            return None;
        }
        let mut local = lend(timers.admission());
        let slot = timers.take_spare(&mut local, deadline)?;
        Some((Self::of_thread(core, &mut local), slot))
    }

    /// Returns the anchor (reference to the engine) of the thread to which `local` belongs. Makes the anchor if the
    /// thread has none.
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
