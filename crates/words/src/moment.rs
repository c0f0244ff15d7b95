//! Defines a moment in Coordinated Universal Time.

use core::fmt;
use core::ops::{Add, Sub};
use core::str::FromStr;
use core::time::Duration;
use jiff::Timestamp;
use jiff::civil::date;
use jiff::fmt::temporal::Pieces;

/// A moment as the number of milliseconds since the start of 1970, in Coordinated Universal Time. Leap seconds are not
/// counted. The number does not depend on a time zone, nor on the start of a process. The moment is written as text in
/// the form of RFC 3339.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_words::UtcMillis;
///
/// let morning = UtcMillis::from_millis(1_800_000_000_000);
/// assert_eq!(morning.to_string(), "2027-01-15T08:00:00.000Z");
/// // Parts of a millisecond are rounded up, and no time is negative.
/// assert_eq!((morning + Duration::from_micros(1)) - morning, Duration::from_millis(1));
/// assert_eq!(UtcMillis::ZERO - morning, Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "u64", into = "u64")
)]
pub struct UtcMillis(u64);

impl UtcMillis {
    /// The start of 1970.
    pub const ZERO: Self = Self(0);
    /// The last possible moment, 9999-12-30T22:00:00Z. This moment is in the year 9999 in every time zone. No timer is
    /// due later.
    pub const MAX: Self = Self(253_402_207_200_000);

    /// Returns the moment that is `millis` milliseconds after the start of 1970. A moment later than [`MAX`](Self::MAX)
    /// becomes `MAX`.
    ///
    /// ```
    /// use tourbillon_words::UtcMillis;
    ///
    /// assert_eq!(UtcMillis::from_millis(0), UtcMillis::ZERO);
    /// assert_eq!(UtcMillis::from_millis(u64::MAX).to_string(), "9999-12-30T22:00:00.000Z");
    /// ```
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        if millis < Self::MAX.0 { Self(millis) } else { Self::MAX }
    }

    /// Returns the number of milliseconds since the start of 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the moment that is `nanos` nanoseconds after the start of 1970, rounded down to a millisecond. A clock
    /// that rounds down does not show a timer's due moment before this moment has come.
    ///
    /// ```
    /// use tourbillon_words::UtcMillis;
    ///
    /// assert_eq!(UtcMillis::from_nanos(1_999_999), UtcMillis::from_millis(1));
    /// ```
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos / 1_000_000)
    }

    /// Returns the number of nanoseconds since the start of 1970. For moments after the year 2553 the result is
    /// [`u64::MAX`].
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.saturating_mul(1_000_000)
    }

    /// Returns the end of a delay that begins when a clock shows this moment. The result is a millisecond later than
    /// the sum of the moment and the delay: the clock rounds its time down to a millisecond, so the exact sum could
    /// make a timer early.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_words::UtcMillis;
    ///
    /// let now = UtcMillis::from_millis(1_000);
    /// assert_eq!(now.after(Duration::from_millis(5)), UtcMillis::from_millis(1_006));
    /// ```
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        self + Duration::from_millis(1) + delay
    }
}

/// Converts a stored or sent number of milliseconds into a moment. A moment after [`UtcMillis::MAX`] becomes `MAX`.
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

/// Returns the moment `delay` later, at most [`UtcMillis::MAX`]. A part of a millisecond is rounded up, so that no
/// timer is early.
impl Add<Duration> for UtcMillis {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        let millis = u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self::from_millis(self.0.saturating_add(millis))
    }
}

/// Returns the time from `earlier` to this moment. If `earlier` is later than this moment, returns zero.
impl Sub for UtcMillis {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Writes the moment in the form of RFC 3339.
impl fmt::Display for UtcMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = Timestamp::from_millisecond(self.0.cast_signed()).map_err(|_| fmt::Error)?;
        write!(f, "{moment:.3}")
    }
}

/// The error for a text that is not a moment with an offset, from 1970 to 9999. The error contains the first 64
/// characters of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMoment(Box<str>);

impl fmt::Display for InvalidMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not a moment as RFC 3339 writes it, with an offset, from 1970 to 9999, such as 2027-01-01T09:00:00Z: {:?}",
            self.0
        )
    }
}

impl core::error::Error for InvalidMoment {}

impl FromStr for UtcMillis {
    type Err = InvalidMoment;

    /// Reads a moment with an offset. A part of a millisecond is rounded up to a whole millisecond, so that no timer is
    /// early. The last hours of the year 9999 become [`MAX`](Self::MAX).
    fn from_str(text: &str) -> Result<Self, InvalidMoment> {
        let fault = || InvalidMoment(text.chars().take(64).collect());
        if !is_rfc_3339(text) {
            return Err(fault());
        }
        let moment: Timestamp = match text.parse() {
            Ok(moment) => moment,
            Err(_) if is_end_of_time(text) => return Ok(Self::MAX),
            Err(_) => return Err(fault()),
        };
        let begun = i64::from(moment.subsec_nanosecond() % 1_000_000 != 0);
        let millis = u64::try_from(moment.as_millisecond()).map_err(|_| fault())? + begun.unsigned_abs();
        Ok(Self::from_millis(millis))
    }
}

/// Returns true if the text has the form of RFC 3339, or has a space instead of the `T`, as the RFC permits. The parser
/// of jiff accepts further forms, such as a zone in brackets, an offset of more than a day, or a moment without a
/// second.
fn is_rfc_3339(text: &str) -> bool {
    let is_form = |text: &str, form: &str| {
        let is_permitted = |(byte, wanted): (u8, u8)| match wanted {
            b'0' => byte.is_ascii_digit(),
            b'T' => matches!(byte, b'T' | b't' | b' '),
            wanted => byte == wanted,
        };
        text.len() == form.len() && text.bytes().zip(form.bytes()).all(is_permitted)
    };
    let Some((moment, rest)) = text.split_at_checked("0000-00-00T00:00:00".len()) else { return false };
    let fraction = rest.strip_prefix('.').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let has_fraction = fraction.is_some_and(|offset| offset.len() + 1 < rest.len());
    let offset = fraction.unwrap_or(rest);
    let is_within_a_day = |offset: &str| &offset[1..3] < "24" && &offset[4..6] < "60";
    let is_offset = matches!(offset, "Z" | "z")
        || (is_form(offset, "+00:00") || is_form(offset, "-00:00")) && is_within_a_day(offset);
    is_form(moment, "0000-00-00T00:00:00") && (fraction.is_none() || has_fraction) && is_offset
}

/// Returns true if a text is a moment with an offset in the last two days of the year 9999.
fn is_end_of_time(text: &str) -> bool {
    let Ok(pieces) = Pieces::parse(text) else { return false };
    pieces.date() >= date(9999, 12, 30) && pieces.time().is_some() && pieces.offset().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> UtcMillis {
        UtcMillis::from_millis(millis)
    }

    #[test]
    fn sums_round_up_and_stop_at_the_end() {
        assert_eq!(at(5) + Duration::from_nanos(1), at(6));
        assert_eq!(at(5) + Duration::from_millis(1), at(6));
        assert_eq!(at(5) + Duration::MAX, UtcMillis::MAX);
        assert_eq!(at(u64::MAX), UtcMillis::MAX);
        assert_eq!(at(5) - at(7), Duration::ZERO);
    }

    #[test]
    fn nanoseconds_are_never_ahead_of_the_moment() {
        let millis = |nanos| UtcMillis::from_nanos(nanos).as_millis();
        assert_eq!((millis(999_999), millis(1_000_000)), (0, 1));
        assert_eq!(at(7).as_nanos(), 7_000_000);
        assert_eq!(UtcMillis::MAX.as_nanos(), u64::MAX);
        assert!(UtcMillis::from_nanos(u64::MAX) < UtcMillis::MAX);
    }

    #[test]
    fn moments_are_read_and_written() {
        for (text, millis) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("1970-01-01T00:00:01.500Z", 1_500),
            ("2026-11-22T16:00:00.001Z", 1_795_363_200_001),
            ("9999-12-30T22:00:00.000Z", UtcMillis::MAX.as_millis()),
        ] {
            assert_eq!(text.parse(), Ok(at(millis)));
            assert_eq!(at(millis).to_string(), text);
        }
    }

    #[test]
    fn offsets_are_counted_and_parts_of_a_millisecond_round_up() {
        assert_eq!("1970-01-01T01:00:00+01:00".parse(), Ok(at(0)));
        assert_eq!("1970-01-01T00:00:00.000000001Z".parse(), Ok(at(1)));
        assert_eq!("1970-01-01T00:00:00.001Z".parse(), Ok(at(1)));
        assert_eq!("9999-12-31T00:59:59.999+03:00".parse(), Ok(at(UtcMillis::MAX.as_millis() - 1)));
    }

    #[test]
    fn the_end_of_the_year_9999_is_the_last_moment() {
        for text in
            ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999999-12:00", "9999-12-30T22:00:00.001Z"]
        {
            assert_eq!(text.parse(), Ok(UtcMillis::MAX), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "now",
            "2026-11-22",
            "2026-11-22T16:00:00",
            "1969-12-31T23:59:59Z",
            "9999-12-31",
            "9999-12-31T23:59:59",
        ] {
            assert!(text.parse::<UtcMillis>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_forms_of_rfc_3339_are_read() {
        for text in [
            "2040-01-01t00:00:00z",
            "2040-01-01 00:00:00Z",
            "2040-01-01T23:59:00+23:59",
            "2039-12-31T12:00:00.000-12:00",
            "9999-12-31T23:59:59.5+00:00",
        ] {
            assert!(text.parse::<UtcMillis>().is_ok(), "{text}");
        }
        for text in [
            "2040-01-01T00:00:00+25:00",
            "2040-01-01T00:00:00+24:00",
            "2040-01-01T00:00:00+01:60",
            "2040-01-01T00:00:00Z[Europe/Berlin]",
            "2040-01-01T00:00:00+01:00[Europe/Berlin]",
            "2040-01-01T00:00:00+01",
            "2040-01-01T00:00:00+0100",
            "2040-01-01T00:00:00+01:00:00",
            "2040-01-01T00:00Z",
            "2040-01-01T00Z",
            "20400101T000000Z",
            "+002040-01-01T00:00:00Z",
            "2040-01-01T00:00:00.Z",
            "2040-01-01T00:00:00,5Z",
            "2040-01-01T00:00:00 Z",
            " 2040-01-01T00:00:00Z",
            "2040-01-01T00:00:00Z ",
            "2040-01-01T00:00:0\u{e4}Z",
            "9999-12-31T23:59:59Z[UTC]",
            "9999-12-31T23:59:59+25:00",
        ] {
            assert!(text.parse::<UtcMillis>().is_err(), "{text}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_stored_number_is_not_after_the_last_moment() {
        let read = |text: &str| serde_json::from_str::<UtcMillis>(text).unwrap();
        assert_eq!(read("18446744073709551615"), UtcMillis::MAX);
        assert_eq!(read("7"), at(7));
        assert_eq!(serde_json::to_string(&at(7)).unwrap(), "7");
    }
}
