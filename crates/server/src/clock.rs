//! Reads the system's clock, and converts durations.

use core::time::Duration;
use std::time::SystemTime;
use tourbillon_api::Moment;

/// Converts a duration into whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the present moment by the clock of this machine. Due moments of timers, and moments that several nodes
/// compare, come from the store's clock instead.
pub(crate) fn now() -> Moment {
    Moment::from_millis(millis(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
}
