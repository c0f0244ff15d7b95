//! The facts about an engine that each of its handles has.

use crate::delivery::Means;
use crate::fork;

/// The engine that a handle comes from. Each handle has a copy: a shared value would have a reference count that all
/// threads change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The number of forks before the engine was started.
    forks: u32,
    pub(crate) means: Means,
    pub(crate) has_loops: bool,
}

impl Origin {
    pub(crate) fn new(means: Means, has_loops: bool) -> Self {
        fork::watch();
        Self { forks: fork::count(), means, has_loops }
    }

    /// Whether this process was forked after the engine was started: it has the engine's memory, and not its threads.
    #[inline(always)]
    pub(crate) fn is_of_parent(self) -> bool {
        self.forks != fork::count()
    }
}
