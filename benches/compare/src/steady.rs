//! Waits until the machine no longer stands still at times.

use std::time::{Duration, Instant};

/// The shortest time without a core that counts as a standstill of the machine. Other processes cause shorter times.
const STANDSTILL: Duration = Duration::from_millis(10);
/// The time without a standstill after which the machine counts as steady. A virtual machine's guest reports its free
/// memory every two seconds, and the first report may come late.
const STEADY: Duration = Duration::from_secs(6);
/// The longest time to wait until the machine is steady.
const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until the machine's standstills are over. A virtual machine may stand still for some time after the end of a
/// process that had gigabytes. While the guest reports its free memory, the host stops all cores for up to 36 ms at a
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
