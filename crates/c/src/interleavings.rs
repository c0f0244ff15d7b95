//! All interleavings of a few threads' steps, for small machines that stand for a protocol.

use std::collections::HashSet;
use std::hash::Hash;

/// Goes through every world that `threads` threads get to, one step of one of them at a time, and shows those to `at_rest` in
/// which none can take another. `step` says whether it did. How many worlds there were.
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
