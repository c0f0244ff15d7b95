//! Settings for the breakers of hosts and paths.

use core::time::Duration;

/// Decides when the breakers of a host and its paths open, and for how long. The number of callbacks that run at a time
/// is not limited here.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HostLimits {
    /// The number of failures in a row that open the breaker of a host or a path. It then gets no callbacks for a
    /// pause. 10 by default.
    pub failures: u32,
    /// The length of the first pause. It doubles with each failure of the callback that ends a pause. 10 s by default.
    pub first_pause: Duration,
    /// The longest pause. 5 min by default.
    pub longest_pause: Duration,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self { failures: 10, first_pause: Duration::from_secs(10), longest_pause: Duration::from_secs(300) }
    }
}
