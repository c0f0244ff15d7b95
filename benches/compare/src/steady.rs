//! Waits until the machine no longer stands still at times.

use std::time::{Duration, Instant};

/// The least time without a core that counts as a standstill. Other processes cause shorter times here.
const STANDSTILL: Duration = Duration::from_millis(10);
/// After this time without a standstill, no other is expected. The guest reports every two seconds, and may begin late.
const STEADY: Duration = Duration::from_secs(6);
/// The longest time to wait for the machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until the machine no longer stands still at times. A virtual machine may do so for some time after the end of
/// a process that had gigabytes. While the guest reports its free memory, the host stops all cores for up to 36 ms at a
/// time.
pub(crate) fn wait() {
    let begin = Instant::now();
    let (mut before, mut last) = (begin, begin);
    while before - last < STEADY && before - begin < PATIENCE {
        let now = Instant::now();
        if now - before > STANDSTILL {
            last = now;
        }
        before = now;
    }
}
