//! Settings that decide when a breaker opens, and for how long.

use core::time::Duration;

/// Limits for the breakers of each host and tenant. The caller decides how many callbacks run at a time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HostLimits {
    /// How many failures in a row open the breaker of a host or of a path, so that it gets no callbacks for a pause; 10
    /// by default.
    pub failures: u32,
    /// The first pause; 10 s by default. It doubles with each further failure.
    pub first_pause: Duration,
    /// The longest pause; 5 min by default.
    pub longest_pause: Duration,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self { failures: 10, first_pause: Duration::from_secs(10), longest_pause: Duration::from_secs(300) }
    }
}
