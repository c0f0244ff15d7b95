//! The limits that govern the breakers of hosts and paths.

use core::time::Duration;

/// The limits that decide when the breakers of a host and of its paths open, and for how long. They do not limit the
/// number of callbacks that run at a time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HostLimits {
    /// The number of failures in a row that open the breaker of a host or a path. The host or the path then gets no
    /// callbacks for a pause. 10 by default.
    pub failures: u32,
    /// The length of the first pause after a breaker opens. A single callback is sent at the end of each pause. If it
    /// fails, the next pause is twice as long. 10 s by default.
    pub first_pause: Duration,
    /// The longest pause after which a callback probes the receiver again. 5 min by default.
    pub longest_pause: Duration,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self { failures: 10, first_pause: Duration::from_secs(10), longest_pause: Duration::from_secs(300) }
    }
}
