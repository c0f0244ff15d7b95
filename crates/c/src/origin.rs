//! Facts about an engine that each of its handles stores.

use crate::delivery::Means;
use crate::fork;

/// Says from which kind of engine, and from which process, a handle comes. Each handle has a copy of this value. A
/// shared value would need a reference count that all threads change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The value of [`fork::count`] when the handle's engine was started.
    forks: u32,
    pub(crate) means: Means,
    pub(crate) has_loops: bool,
}

impl Origin {
    pub(crate) fn new(means: Means, has_loops: bool) -> Self {
        fork::watch();
        Self { forks: fork::count(), means, has_loops }
    }

    /// Returns whether this process is the child of a fork after the engine's start. Such a process has the engine's
    /// memory but not its threads.
    #[inline(always)]
    pub(crate) fn is_of_parent(self) -> bool {
        self.forks != fork::count()
    }
}
