//! The limits of hosts.

use core::time::Duration;

/// The limits of each host, for each tenant.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HostLimits {
    /// The greatest number of callbacks at a time. 16 by default.
    pub concurrency: usize,
    /// The number of failures in a row after which the host, or a path of it, gets no callbacks for a while. 10 by
    /// default.
    pub failures: u32,
    /// The first such while, which doubles with each failure after it. 10 s by default.
    pub first_pause: Duration,
    /// The longest such while. 5 min by default.
    pub longest_pause: Duration,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self {
            concurrency: 16,
            failures: 10,
            first_pause: Duration::from_secs(10),
            longest_pause: Duration::from_secs(300),
        }
    }
}
