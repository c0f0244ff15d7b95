//! Converts times to the arguments of SQL functions.

use std::time::Duration;
use tourbillon_durable::UtcMillis;

/// Converts a duration to whole milliseconds, rounded up.
pub(crate) fn ms(duration: Duration) -> i64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).unwrap_or(i64::MAX).min(UtcMillis::MAX.as_millis().cast_signed())
}
