//! JSON values whose text is preserved.

use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Error, Value};

/// A JSON value with its text preserved: its spaces, the order of its keys, and the digits of its numbers. Two values
/// are equal if their texts are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Returns the text, without surrounding spaces.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl FromStr for RawJson {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        RawValue::from_string(text.to_owned()).map(Self)
    }
}

impl From<Value> for RawJson {
    /// Writes a value as JSON text without spaces.
    fn from(value: Value) -> Self {
        // The text of a value is always JSON.
        Self(RawValue::from_string(value.to_string()).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for RawJson {}
