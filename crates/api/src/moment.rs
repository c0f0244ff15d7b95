//! Moments.

use core::fmt;
use core::str::FromStr;
use jiff::Timestamp;
use jiff::civil::date;
use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment: milliseconds of Coordinated Universal Time since the start of 1970, written after RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime, example = "2026-11-22T16:00:00.000Z"))]
#[cfg_attr(feature = "openapi", schema(pattern = "^(19[7-9][0-9]|[2-9][0-9]{3})-"))]
pub struct Moment(u64);

/// The last moment that the service knows, 9999-12-30T22:00:00Z.
const LAST: u64 = 253_402_207_200_000;

impl Moment {
    /// The moment `millis` milliseconds after the start of 1970, but at most the last moment that the service knows.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(if millis < LAST { millis } else { LAST })
    }

    /// Milliseconds since the start of 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = Timestamp::from_millisecond(self.0.cast_signed()).map_err(|_| fmt::Error)?;
        write!(f, "{moment:.3}")
    }
}

/// A text that is not a moment, or a moment before 1970 or after the last moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoMoment(Box<str>);

impl fmt::Display for NoMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not a moment as RFC 3339 writes it, with an offset, from 1970 to 9999, such as 2027-01-01T09:00:00Z: {:?}",
            self.0
        )
    }
}

impl core::error::Error for NoMoment {}

impl FromStr for Moment {
    type Err = NoMoment;

    /// Reads a moment with an offset. A part of a millisecond counts as a whole millisecond, so that a timer is not
    /// early. The last hours of the year 9999 count as the last moment that the service knows.
    fn from_str(text: &str) -> Result<Self, NoMoment> {
        let fault = || NoMoment(text.chars().take(64).collect());
        let moment: Timestamp = match text.parse() {
            Ok(moment) => moment,
            Err(_) if is_end_of_time(text) => return Ok(Self(LAST)),
            Err(_) => return Err(fault()),
        };
        let begun = i64::from(moment.subsec_nanosecond() % 1_000_000 != 0);
        let millis = u64::try_from(moment.as_millisecond()).map_err(|_| fault())? + begun.unsigned_abs();
        Ok(Self::from_millis(millis))
    }
}

/// Whether a text is a moment with an offset that is in the year 9999, and after the last moment.
fn is_end_of_time(text: &str) -> bool {
    let Ok(pieces) = Pieces::parse(text) else { return false };
    pieces.date() >= date(9999, 12, 30) && pieces.time().is_some() && pieces.offset().is_some()
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = Moment;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Moment, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_and_written() {
        for (text, millis) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2026-11-22T16:00:00.001Z", 1_795_363_200_001),
            ("9999-12-30T22:00:00.000Z", LAST),
        ] {
            assert_eq!(text.parse(), Ok(Moment(millis)));
            assert_eq!(Moment(millis).to_string(), text);
        }
    }

    #[test]
    fn offsets_are_counted_and_parts_of_a_millisecond_round_up() {
        assert_eq!("1970-01-01T01:00:00+01:00".parse(), Ok(Moment(0)));
        assert_eq!("1970-01-01T00:00:00.000000001Z".parse(), Ok(Moment(1)));
        assert_eq!("1970-01-01T00:00:00.001Z".parse(), Ok(Moment(1)));
        assert_eq!("9999-12-31T00:59:59.999+03:00".parse(), Ok(Moment(LAST - 1)));
    }

    #[test]
    fn the_end_of_the_year_9999_is_the_last_moment() {
        for text in
            ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999999-12:00", "9999-12-30T22:00:00.001Z"]
        {
            assert_eq!(text.parse(), Ok(Moment(LAST)), "{text}");
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
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
