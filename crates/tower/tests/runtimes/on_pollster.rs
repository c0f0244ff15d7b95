//! Runs the cases without a runtime: pollster parks the thread, and the engine unparks it.

use crate::cases::BlockOn;

struct Pollster;

impl BlockOn for Pollster {
    fn new() -> Self {
        Self
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        pollster::block_on(future)
    }
}

crate::cases::test_one_task!(Pollster);
