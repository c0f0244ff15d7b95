//! The facts about an engine that its handles share.

use crate::delivery::Delivery;
use crate::fork;

/// The engine that a handle comes from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) delivery: Delivery,
    pub(crate) has_loops: bool,
    /// The number of forks before the engine was started.
    forks: u32,
}

impl Origin {
    pub(crate) fn new(delivery: Delivery, has_loops: bool) -> Self {
        fork::watch();
        Self { delivery, has_loops, forks: fork::count() }
    }

    /// Whether this process was forked after the engine was started: it has the engine's memory, and not its threads.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.forks != fork::count()
    }
}
