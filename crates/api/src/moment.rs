//! Moments.

use core::fmt;
use core::str::FromStr;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment: milliseconds of Coordinated Universal Time since the start of 1970, written after RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, format = DateTime, example = "2026-11-22T16:00:00.000Z"))]
pub struct Moment(u64);

/// The last moment that the service knows, 9999-12-30T22:00:00Z.
const LAST: u64 = 253_402_207_200_000;

impl Moment {
    /// The moment so many milliseconds after the start of 1970, or the last one that the service knows.
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

/// A text that is no moment, or one before 1970 or after the last moment.
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

    /// Reads a moment with an offset. A part of a millisecond counts as a whole one, so that a timer is not early.
    fn from_str(text: &str) -> Result<Self, NoMoment> {
        let fault = || NoMoment(text.chars().take(64).collect());
        let moment: Timestamp = text.parse().map_err(|_| fault())?;
        let begun = i64::from(moment.subsec_nanosecond() % 1_000_000 != 0);
        let millis = u64::try_from(moment.as_millisecond()).map_err(|_| fault())? + begun.unsigned_abs();
        if millis > LAST { Err(fault()) } else { Ok(Self(millis)) }
    }
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
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "now", "2026-11-22", "2026-11-22T16:00:00", "1969-12-31T23:59:59Z", "9999-12-31T00:00:00Z"]
        {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
