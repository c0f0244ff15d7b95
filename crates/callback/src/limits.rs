//! When a breaker opens, and for how long.

use core::time::Duration;

/// The limits of the breakers of each host, for each tenant. How many callbacks run at a time is the caller's decision.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HostLimits {
    /// The number of failures in a row after which a host, or a path of it, gets no callbacks for a pause. 10 by
    /// default.
    pub failures: u32,
    /// The first pause, which doubles with each failure after it. 10 s by default.
    pub first_pause: Duration,
    /// The longest pause. 5 min by default.
    pub longest_pause: Duration,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self { failures: 10, first_pause: Duration::from_secs(10), longest_pause: Duration::from_secs(300) }
    }
}
