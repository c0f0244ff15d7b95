//! Moments of durable timers.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use tourbillon::Timestamp;

/// A moment in milliseconds of Coordinated Universal Time since the start of 1970, leap seconds not counted. Durable
/// timers count moments so: no zone, and no length of a process' life, is in the number.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::UtcMillis;
///
/// let morning = UtcMillis::from_millis(1_800_000_000_000);
/// assert_eq!(morning.to_string(), "2027-01-15T08:00:00.000Z");
/// // Parts of a millisecond are rounded up, and no time is negative.
/// assert_eq!((morning + Duration::from_micros(1)) - morning, Duration::from_millis(1));
/// assert_eq!(UtcMillis::ZERO - morning, Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct UtcMillis(u64);

impl UtcMillis {
    /// The start of 1970.
    pub const ZERO: Self = Self(0);
    /// The last moment that is in the year 9999 in every time zone, 9999-12-30T22:00:00Z. No timer is due later.
    pub const MAX: Self = Self(253_402_207_200_000);

    /// The moment this number of milliseconds after the start of 1970, or [`MAX`](Self::MAX) if that is earlier.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    ///
    /// assert_eq!(UtcMillis::from_millis(0), UtcMillis::ZERO);
    /// assert_eq!(UtcMillis::from_millis(u64::MAX).to_string(), "9999-12-30T22:00:00.000Z");
    /// ```
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        if millis < Self::MAX.0 { Self(millis) } else { Self::MAX }
    }

    /// Milliseconds since the start of 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The end of a delay that is counted from a clock that shows this moment. It is a millisecond later than the sum:
    /// clocks are rounded down to a millisecond, and a timer is never early.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::UtcMillis;
    ///
    /// let now = UtcMillis::from_millis(1_000);
    /// assert_eq!(now.after(Duration::from_millis(5)), UtcMillis::from_millis(1_006));
    /// ```
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        self + Duration::from_millis(1) + delay
    }

    /// The moment of an engine's timestamp on a clock that counts from the start of 1970, rounded down: a timer is due
    /// once a clock shows its due moment, or later.
    ///
    /// ```
    /// use tourbillon::Timestamp;
    /// use tourbillon_durable::UtcMillis;
    ///
    /// assert_eq!(UtcMillis::from_timestamp(Timestamp::from_nanos(1_999_999)), UtcMillis::from_millis(1));
    /// ```
    #[must_use]
    pub fn from_timestamp(timestamp: Timestamp) -> Self {
        Self::from_millis(timestamp.as_nanos() / 1_000_000)
    }

    /// The engine's timestamp of this moment. Moments after the year 2553 become the last timestamp.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    ///
    /// assert_eq!(UtcMillis::from_millis(2).to_timestamp().as_nanos(), 2_000_000);
    /// ```
    #[must_use]
    pub fn to_timestamp(self) -> Timestamp {
        Timestamp::from_nanos(self.0.saturating_mul(1_000_000))
    }
}

/// A number that was stored or sent; a number after [`UtcMillis::MAX`] becomes this moment.
impl From<u64> for UtcMillis {
    fn from(millis: u64) -> Self {
        Self::from_millis(millis)
    }
}

impl From<UtcMillis> for u64 {
    fn from(moment: UtcMillis) -> Self {
        moment.as_millis()
    }
}

/// The sum, or [`UtcMillis::MAX`] if that is earlier. Parts of a millisecond are rounded up: a timer is never early.
impl Add<Duration> for UtcMillis {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        let millis = u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self::from_millis(self.0.saturating_add(millis))
    }
}

/// The time from `earlier` to this moment, or zero.
impl Sub for UtcMillis {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The moment after RFC 3339.
impl fmt::Display for UtcMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        match tourbillon_calendar::jiff::Timestamp::from_millisecond(millis) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_round_up_and_stop_at_the_end() {
        let at = UtcMillis::from_millis;
        assert_eq!(at(5) + Duration::from_nanos(1), at(6));
        assert_eq!(at(5) + Duration::from_millis(1), at(6));
        assert_eq!(at(5) + Duration::MAX, UtcMillis::MAX);
        assert_eq!(at(u64::MAX), UtcMillis::MAX);
        assert_eq!(at(5) - at(7), Duration::ZERO);
    }

    #[test]
    fn no_text_makes_a_moment_after_the_last() {
        let read = |text: &str| serde_json::from_str::<UtcMillis>(text).unwrap();
        assert_eq!(read("18446744073709551615"), UtcMillis::MAX);
        assert_eq!(read("7"), UtcMillis::from_millis(7));
        assert_eq!(serde_json::to_string(&UtcMillis::from_millis(7)).unwrap(), "7");
    }

    #[test]
    fn they_read_as_dates() {
        assert_eq!(UtcMillis::MAX.to_string(), "9999-12-30T22:00:00.000Z");
        assert_eq!(UtcMillis::from_millis(1_500).to_string(), "1970-01-01T00:00:01.500Z");
    }

    #[test]
    fn timestamps_are_never_ahead_of_the_moment() {
        let at = |nanos| UtcMillis::from_timestamp(Timestamp::from_nanos(nanos)).as_millis();
        assert_eq!((at(999_999), at(1_000_000)), (0, 1));
        assert_eq!(UtcMillis::from_millis(7).to_timestamp().as_nanos(), 7_000_000);
    }
}
