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
    /// The engines that this thread has used through handles, the one used last in front.
    static LOCALS: RefCell<Vec<Local>> = const { RefCell::new(Vec::new()) };
    /// The engine whose shard this thread drives.
    static SHARD_OF: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Lends the calling thread's part of the engine. `f` must not run code of the user.
#[inline(always)]
pub(crate) fn with_local<T: Send + 'static, R>(core: &Core<T>, f: impl FnOnce(&mut Local) -> R) -> R {
    if LOCALS.try_with(|_| ()).is_err() {
        // The thread is ending and its part is gone: one for this call only.
        return f(&mut Local::new(core, home_of_current_thread(core)));
    }
    LOCALS.with_borrow_mut(|locals| match locals.first_mut() {
        Some(first) if first.engine == core.id => f(first),
        _ => f(bring_to_front(locals, core)),
    })
}

#[cold]
fn bring_to_front<'a, T: Send + 'static>(locals: &'a mut Vec<Local>, core: &Core<T>) -> &'a mut Local {
    locals.retain(|local| local.slots.strong_count() > 0);
    let at = locals.iter().position(|local| local.engine == core.id).unwrap_or_else(|| {
        locals.push(Local::new(core, home_of_current_thread(core)));
        locals.len() - 1
    });
    locals.swap(0, at);
    &mut locals[0]
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
