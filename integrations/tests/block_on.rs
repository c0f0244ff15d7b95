//! The engine's futures without a runtime: pollster parks the thread, and the engine unparks it.

mod cases;

use cases::BlockOn;

struct Pollster;

impl BlockOn for Pollster {
    fn new() -> Self {
        Self
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        pollster::block_on(future)
    }
}

cases::test_one_task!(Pollster);
