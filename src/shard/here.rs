//! Records for each thread to which set of shards it belongs, and which handlers are on its stack.
//!
//! A thread must not wait for a handler, or for a shard, that waits for this thread.

use core::cell::{Cell, RefCell};

/// The record of one running handler, or of one turn of a loop, on a thread's stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Firing {
    engine: u64,
    set: u64,
    /// Whether the engine's handlers run on the workers of the set. If so, a thread that leads a shard unlocks the
    /// shard before it calls the handlers.
    pub(super) is_on_workers: bool,
}

thread_local! {
    /// The handlers, and the turns (passes) of event loops, on this thread's stack. The outermost entry is first.
    static FIRING: RefCell<Vec<Firing>> = const { RefCell::new(Vec::new()) };
    /// The number of the set of shards to which the calling thread belongs; `None` for a thread of the program.
    static THREAD_OF: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The value of `Firing::engine` in an entry for the turn (one pass) of a loop.
const TURN: u64 = u64::MAX;

/// A guard for the turn of a loop on the calling thread. Dropping the guard ends the turn.
pub(super) struct TurnHere(());

impl Drop for TurnHere {
    fn drop(&mut self) {
        end_firing();
    }
}

/// Records that the calling thread runs a turn of a loop of the set numbered `set`. Dropping the returned guard ends
/// the turn.
pub(super) fn begin_turn(set: u64) -> TurnHere {
    begin_firing(TURN, set, false);
    TurnHere(())
}

pub(super) fn is_turning(set: u64) -> bool {
    first_firing(|firing| firing.set == set && firing.engine == TURN).is_some()
}

/// Records that the calling thread runs handlers of `engine`, which is on `set`. The entry stays until [`end_firing`].
pub(crate) fn begin_firing(engine: u64, set: u64, is_on_workers: bool) {
    let firing = Firing { engine, set, is_on_workers };
    let _ = FIRING.try_with(|all| all.borrow_mut().push(firing));
}

/// Removes the entry that the last [`begin_firing`] added, because its handlers have ended.
pub(crate) fn end_firing() {
    let _ = FIRING.try_with(|all| all.borrow_mut().pop());
}

/// Returns the outermost entry on the calling thread's stack for which `condition` returns true. An entry is a running
/// handler, or a turn of a loop.
fn first_firing(condition: impl Fn(&Firing) -> bool) -> Option<Firing> {
    let first = |firing: &RefCell<Vec<Firing>>| firing.borrow().iter().copied().find(condition);
    FIRING.try_with(first).ok().flatten()
}

/// Returns the outermost entry on this thread's stack that belongs to the set numbered `set`. An entry is a running
/// handler, or a turn of a loop.
pub(super) fn first_firing_of(set: u64) -> Option<Firing> {
    first_firing(|firing| firing.set == set)
}

/// Returns whether a handler of `engine` is on the calling thread's stack.
pub(crate) fn is_firing(engine: u64) -> bool {
    first_firing(|firing| firing.engine == engine).is_some()
}

pub(super) fn enter_set(set: u64) {
    THREAD_OF.set(Some(set));
}

pub(super) fn is_thread_of(set: u64) -> bool {
    THREAD_OF.try_with(Cell::get).ok().flatten() == Some(set)
}
