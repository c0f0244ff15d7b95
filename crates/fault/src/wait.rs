//! Waiting for conditions.

use std::thread;
use std::time::{Duration, Instant};

/// How long a condition may take: far more than it needs on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `is_so` holds.
///
/// # Panics
///
/// If it does not hold within a minute. The message names `what`.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually_some(what, || is_so().then_some(()));
}

/// Waits until `find` returns a value.
///
/// # Panics
///
/// If it returns none within a minute. The message names `what`.
pub fn eventually_some<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
