//! Observes the engine of the process.

use std::time::{Duration, Instant};
use tourbillon::future::global;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Runs a future on a runtime of tokio. Returns its output, the time that it took, and the number of timers that fired
/// for it.
pub(crate) fn observed<F: Future>(future: F) -> (F::Output, Duration, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (before, begin) = (global().stats().owned.fired, Instant::now());
    let output = runtime.block_on(future);
    (output, begin.elapsed(), global().stats().owned.fired - before)
}
