//! Explores all interleavings of a few threads' steps, for small state machines that model a protocol.

use std::collections::HashSet;
use std::hash::Hash;

/// Explores every state ("world") that `threads` threads can reach. In each step, one thread calls `step`, which
/// returns whether the thread could move. Calls `at_rest` with each world in which no thread can move. Returns the
/// number of worlds.
pub(crate) fn explore<W: Clone + Eq + Hash>(
    start: W,
    threads: usize,
    step: impl Fn(&mut W, usize) -> bool,
    mut at_rest: impl FnMut(W),
) -> usize {
    let (mut open, mut seen) = (vec![start], HashSet::new());
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        let mut is_at_rest = true;
        for thread in 0..threads {
            let mut next = world.clone();
            if step(&mut next, thread) {
                is_at_rest = false;
                open.push(next);
            }
        }
        if is_at_rest {
            at_rest(world);
        }
    }
    seen.len()
}
