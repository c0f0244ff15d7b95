//! A wait until the machine does not stand still any more.

use std::time::{Duration, Instant};

/// A time without a core that is longer than other processes cause here.
const STANDSTILL: Duration = Duration::from_millis(10);
/// The time without a standstill after which none is expected. The guest reports every two seconds, and may begin late.
const STEADY: Duration = Duration::from_secs(6);
/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until the machine does not stand still any more. A virtual machine may do so for some time after a process has
/// ended that had gigabytes: while the guest reports its free memory, the host stops all cores for up to 36 ms at a
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
