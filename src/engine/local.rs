//! What a thread has of an engine: a lane to its home shard and two magazines of slots.
//!
//! A [`Producer`](crate::Producer) owns one. For calls through a handle each thread keeps one per engine, found by the
//! engine's number; it goes when the thread ends, and the slots and the lane go back.

use super::Core;
use crate::affinity;
use crate::inbox::LaneWriter;
use crate::slab::{Magazines, Slots};
use crate::sync::{StdArc, Weak};
use core::cell::{Cell, RefCell};

#[derive(Debug)]
pub(crate) struct Local {
    engine: u64,
    pub(super) home: usize,
    pub(super) lane: LaneWriter,
    pub(super) magazines: Magazines,
    slots: Weak<Slots>,
}

impl Local {
    pub(crate) fn new<T: Send + 'static>(core: &Core<T>, home: usize) -> Self {
        Self {
            engine: core.id,
            home,
            lane: core.shards[home].inbox.register(),
            magazines: Magazines::new(),
            slots: StdArc::downgrade(core.slab.slots()),
        }
    }

    pub(crate) fn home(&self) -> usize {
        self.home
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.upgrade() {
            self.magazines.empty_into(&slots);
        }
    }
}

thread_local! {
    /// The calling thread's part of the engine that it used last. Empty while it is lent.
    static FRONT: Cell<Option<Box<Local>>> = const { Cell::new(None) };
    /// Its parts of other engines.
    static OTHERS: RefCell<Vec<Local>> = const { RefCell::new(Vec::new()) };
    /// The engine whose shard this thread drives.
    static SHARD_OF: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A thread's part of an engine while it is out of its place; it goes back when this is dropped.
struct Lent(Option<Box<Local>>);

impl Drop for Lent {
    #[inline(always)]
    fn drop(&mut self) {
        let local = self.0.take();
        // In front there is nothing, or a part that was made for a call within this one.
        drop(FRONT.try_with(|front| front.replace(local)));
    }
}

/// Lends the calling thread's part of the engine.
#[inline(always)]
pub(crate) fn with_local<T: Send + 'static, R>(core: &Core<T>, f: impl FnOnce(&mut Local) -> R) -> R {
    let local = match FRONT.try_with(Cell::take) {
        Ok(Some(local)) if local.engine == core.id => local,
        Ok(another) => Box::new(find(another, core)),
        // The thread is ending and its parts are gone: one for this call only.
        Err(_) => return f(&mut Local::new(core, home_of_current_thread(core))),
    };
    f(Lent(None).0.insert(local))
}

/// Puts `front` with the others and takes out, or makes, the part of this engine.
#[cold]
fn find<T: Send + 'static>(front: Option<Box<Local>>, core: &Core<T>) -> Local {
    let known = OTHERS.try_with(|others| {
        let mut others = others.borrow_mut();
        others.extend(front.map(|front| *front));
        others.retain(|local| local.slots.strong_count() > 0);
        let at = others.iter().position(|local| local.engine == core.id)?;
        Some(others.swap_remove(at))
    });
    match known {
        Ok(Some(local)) => local,
        _ => Local::new(core, home_of_current_thread(core)),
    }
}

/// The shard that is pinned to the core on which the thread runs now, if there is one; the first one of an engine
/// without threads, whose outcome must not depend on a core.
pub(crate) fn home_of_current_thread<T: Send + 'static>(core: &Core<T>) -> usize {
    if !core.has_threads() {
        return 0;
    }
    let here = affinity::current_core().unwrap_or(0);
    core.cores.iter().position(|&pinned| pinned == here).unwrap_or(here % core.shards.len())
}

/// Says that the calling thread drives a shard of this engine.
pub(crate) fn mark_shard_thread(engine: u64) {
    SHARD_OF.set(Some(engine));
}

impl<T: Send + 'static> Core<T> {
    /// Whether the calling thread may wait for a shard: not if it is one itself, nor if there is none.
    pub(crate) fn may_wait_for_shards(&self) -> bool {
        self.has_threads() && SHARD_OF.try_with(Cell::get).ok().flatten() != Some(self.id)
    }
}
