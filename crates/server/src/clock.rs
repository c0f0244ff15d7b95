//! Reads the system's clock, and converts durations.

use core::time::Duration;
use std::time::SystemTime;
use tourbillon_api::Moment;

/// Converts a duration into whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the present moment by the system's clock.
pub(crate) fn now() -> Moment {
    moment_in(Duration::ZERO)
}

/// Returns the moment that is `span` from now by the system's clock.
pub(crate) fn moment_in(span: Duration) -> Moment {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment::from_millis(millis(now + span))
}
