//! Converts times to the arguments of scripts.

use crate::script::decimal;
use std::time::Duration;
use tourbillon_durable::UtcMillis;

/// Converts a duration to whole milliseconds, rounded up.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).min(UtcMillis::MAX.as_millis())
}

/// Formats a duration as an argument of a script: whole milliseconds, rounded up.
pub(crate) fn time_text(time: Duration) -> Vec<u8> {
    decimal(millis(time))
}
