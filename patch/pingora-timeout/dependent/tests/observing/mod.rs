//! Observes the engine of a runtime.

use std::time::{Duration, Instant};
use tourbillon::time::shards;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Runs a future on a runtime of tokio. Returns its output, the time that it took, and the number of timers that fired
/// for it.
pub(crate) fn observed<F: Future>(future: F) -> (F::Output, Duration, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let shards = shards().expect("in a runtime");
        let begin = Instant::now();
        let output = future.await;
        (output, begin.elapsed(), shards.futures().stats().owned.fired)
    })
}
