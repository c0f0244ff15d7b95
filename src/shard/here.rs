//! The calling thread, as the sets of shards know it: the set that it is a thread of, and the handlers on its stack.
//!
//! A thread that waits for a handler, or for a shard, must not be the thread that the handler or the shard waits for.

use core::cell::{Cell, RefCell};

/// A handler on a thread's stack, or the turn of a loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Firing {
    engine: u64,
    set: u64,
    /// Whether the set's workers run the engine's handlers: a leader lets go of its shard for them.
    pub(super) is_on_workers: bool,
}

thread_local! {
    /// The handlers and the turns of loops on this thread's stack, outermost first.
    static FIRING: RefCell<Vec<Firing>> = const { RefCell::new(Vec::new()) };
    /// The set to which the calling thread belongs.
    static THREAD_OF: Cell<Option<u64>> = const { Cell::new(None) };
}

/// In place of an engine's number: the turn of a loop.
const TURN: u64 = u64::MAX;

/// The turn of a loop on the calling thread.
pub(super) struct TurnHere(());

impl Drop for TurnHere {
    fn drop(&mut self) {
        end_firing();
    }
}

/// Notes that the calling thread turns a loop of a set, until the result is dropped.
pub(super) fn begin_turn(set: u64) -> TurnHere {
    begin_firing(TURN, set, false);
    TurnHere(())
}

/// Whether the calling thread turns a loop of a set.
pub(super) fn is_turning(set: u64) -> bool {
    first_firing(|firing| firing.set == set && firing.engine == TURN).is_some()
}

/// Notes that the calling thread runs handlers of `engine`, on a set, from now on, until [`end_firing`].
pub(crate) fn begin_firing(engine: u64, set: u64, is_on_workers: bool) {
    let firing = Firing { engine, set, is_on_workers };
    let _ = FIRING.try_with(|all| all.borrow_mut().push(firing));
}

/// Ends the last [`begin_firing`].
pub(crate) fn end_firing() {
    let _ = FIRING.try_with(|all| all.borrow_mut().pop());
}

/// The outermost handler on this thread's stack for which `condition` holds.
fn first_firing(condition: impl Fn(&Firing) -> bool) -> Option<Firing> {
    let first = |firing: &RefCell<Vec<Firing>>| firing.borrow().iter().copied().find(condition);
    FIRING.try_with(first).ok().flatten()
}

/// The outermost handler, or turn of a loop, of a set.
pub(super) fn first_firing_of(set: u64) -> Option<Firing> {
    first_firing(|firing| firing.set == set)
}

/// Whether a handler of `engine` is on the calling thread's stack.
pub(crate) fn is_firing(engine: u64) -> bool {
    first_firing(|firing| firing.engine == engine).is_some()
}

/// Makes the calling thread a thread of a set.
pub(super) fn enter_set(set: u64) {
    THREAD_OF.set(Some(set));
}

/// Whether the calling thread is one of the set's own threads.
pub(super) fn is_thread_of(set: u64) -> bool {
    THREAD_OF.try_with(Cell::get).ok().flatten() == Some(set)
}
