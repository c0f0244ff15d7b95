//! Moments, written as text. [`Moment`] exists beside [`UtcMillis`] because the HTTP interface has moments as text, and
//! the JSON form of `UtcMillis` is a number.

use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tourbillon_words::{InvalidMoment, UtcMillis};

/// A moment. In requests and answers it is a text in the format of RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime, example = "2026-11-22T16:00:00.000Z"))]
#[cfg_attr(feature = "openapi", schema(pattern = "^(19[7-9][0-9]|[2-9][0-9]{3})-"))]
pub struct Moment(UtcMillis);

impl Moment {
    /// Returns the moment `millis` milliseconds after the start of 1970, or [`UtcMillis::MAX`] if that is earlier.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(UtcMillis::from_millis(millis))
    }

    /// Returns the number of milliseconds since the start of 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0.as_millis()
    }
}

impl From<UtcMillis> for Moment {
    fn from(moment: UtcMillis) -> Self {
        Self(moment)
    }
}

impl From<Moment> for UtcMillis {
    fn from(moment: Moment) -> Self {
        moment.0
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Moment {
    type Err = InvalidMoment;

    fn from_str(text: &str) -> Result<Self, InvalidMoment> {
        text.parse().map(Self)
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
