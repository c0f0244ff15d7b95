//! Waits for conditions, with a limit.

use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for a condition. Even a busy machine needs far less.
const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until `is_so` returns true.
///
/// # Panics
///
/// If `is_so` does not return true within three minutes. The message names `condition`.
pub fn eventually(condition: &str, mut is_so: impl FnMut() -> bool) {
    eventually_some(condition, || is_so().then_some(()));
}

/// Calls `find` until it returns a value, and returns this value.
///
/// # Panics
///
/// If `find` returns no value within three minutes. The message names `condition`.
pub fn eventually_some<T>(condition: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "not within three minutes: {condition}");
        thread::sleep(Duration::from_millis(10));
    }
}
