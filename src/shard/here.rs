//! Records two facts for each thread: the set of shards to which the thread belongs, and the handlers on the thread's
//! stack.
//!
//! A thread must not wait for a handler, or for a shard, that waits for this thread.

use core::cell::{Cell, RefCell};

/// An entry for a handler on a thread's stack, or for the turn of a loop on the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Firing {
    engine: u64,
    set: u64,
    /// Whether the set's workers run the engine's handlers. If so, a leader lets go of its shard before it calls them.
    pub(super) is_on_workers: bool,
}

thread_local! {
    /// The handlers and the turns of loops on this thread's stack, the outermost first.
    static FIRING: RefCell<Vec<Firing>> = const { RefCell::new(Vec::new()) };
    /// The set to which the calling thread belongs, if it is a thread of a set.
    static THREAD_OF: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The value of `engine` in an entry for the turn of a loop.
const TURN: u64 = u64::MAX;

/// The turn of a loop on the calling thread. Dropping it ends the turn.
pub(super) struct TurnHere(());

impl Drop for TurnHere {
    fn drop(&mut self) {
        end_firing();
    }
}

/// Records that the calling thread runs the turn of a loop of the set. Dropping the result ends the turn.
pub(super) fn begin_turn(set: u64) -> TurnHere {
    begin_firing(TURN, set, false);
    TurnHere(())
}

/// Returns whether the calling thread runs the turn of a loop of the set.
pub(super) fn is_turning(set: u64) -> bool {
    first_firing(|firing| firing.set == set && firing.engine == TURN).is_some()
}

/// Records that the calling thread runs handlers of `engine`, which is on `set`. The entry stays until [`end_firing`].
pub(crate) fn begin_firing(engine: u64, set: u64, is_on_workers: bool) {
    let firing = Firing { engine, set, is_on_workers };
    let _ = FIRING.try_with(|all| all.borrow_mut().push(firing));
}

/// Removes the entry of the last [`begin_firing`], since those handlers have ended.
pub(crate) fn end_firing() {
    let _ = FIRING.try_with(|all| all.borrow_mut().pop());
}

/// Returns the outermost handler or turn on this thread's stack for which `condition` holds.
fn first_firing(condition: impl Fn(&Firing) -> bool) -> Option<Firing> {
    let first = |firing: &RefCell<Vec<Firing>>| firing.borrow().iter().copied().find(condition);
    FIRING.try_with(first).ok().flatten()
}

/// Returns the outermost handler or turn of a set on this thread's stack.
pub(super) fn first_firing_of(set: u64) -> Option<Firing> {
    first_firing(|firing| firing.set == set)
}

/// Returns whether a handler of `engine` is on the calling thread's stack.
pub(crate) fn is_firing(engine: u64) -> bool {
    first_firing(|firing| firing.engine == engine).is_some()
}

/// Makes the calling thread a thread of a set.
pub(super) fn enter_set(set: u64) {
    THREAD_OF.set(Some(set));
}

/// Returns whether the calling thread is one of the set's own threads.
pub(super) fn is_thread_of(set: u64) -> bool {
    THREAD_OF.try_with(Cell::get).ok().flatten() == Some(set)
}
