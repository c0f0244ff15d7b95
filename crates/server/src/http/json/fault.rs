//! Describes the faults of a JSON text in the words of the HTTP interface.
//!
//! serde passes the parts of a fault to the error type, which here is [`Fault`]. So the messages of serde need not be
//! parsed.

use crate::similar::similar;
use core::fmt;
use serde::de::{self, Unexpected};
use std::borrow::Cow;
use tourbillon_api::Problem;

/// The greatest number of characters that an error quotes from a request's text.
const LONGEST_QUOTE: usize = 64;

/// The kind of value that a type expects at a position in a JSON text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Anything,
    List,
    /// An object for a type with a derived `Deserialize`. The derived code refuses a field that occurs twice.
    Fields,
    /// An object whose keys may be any texts.
    Map,
    OneOf(&'static [&'static str]),
    Kind(&'static str),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anything => f.write_str("another value"),
            Self::List => f.write_str("a list"),
            Self::Fields | Self::Map => f.write_str("an object"),
            Self::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Self::Kind(kind) => f.write_str(kind),
        }
    }
}

/// An error in a JSON text: a wrong value, or a text that is not JSON.
#[derive(Debug)]
pub(super) struct Fault {
    /// The path to the faulty value: the names of fields and the numbers of list items around it, the innermost first.
    way: Vec<String>,
    detail: Cow<'static, str>,
    /// Whether `detail` names only the value that was found. Then [`expecting`](Self::expecting) adds the kind of value
    /// that was expected.
    is_mismatch: bool,
}

impl Fault {
    pub(super) fn new(detail: impl Into<Cow<'static, str>>) -> Self {
        Self { way: Vec::new(), detail: detail.into(), is_mismatch: false }
    }

    /// Makes the fault for a value of the wrong kind. `value` describes the value that was found.
    pub(super) fn mismatch(value: impl Into<Cow<'static, str>>) -> Self {
        Self { is_mismatch: true, ..Self::new(value) }
    }

    /// Makes the fault for a text that is not JSON.
    pub(super) fn syntax(error: impl fmt::Display) -> Self {
        Self::new(format!("not JSON: {error}"))
    }

    /// Makes the fault for an object in which the field `name` occurs twice.
    pub(super) fn twice(name: &str) -> Self {
        Self::new(format!("the field `{}` is there twice", quote(name)))
    }

    /// Adds the expected kind of value to the message of a [`mismatch`](Self::mismatch). Does nothing if the message
    /// already has the expected kind. Leaves other faults unchanged.
    pub(super) fn expecting(mut self, expected: Expected) -> Self {
        if core::mem::take(&mut self.is_mismatch) {
            self.detail = format!("expected {expected}, not {}", self.detail).into();
        }
        self
    }

    /// Adds an outer step to the path that leads to the faulty value. `name` is the name of a field or the number of a
    /// list item.
    pub(super) fn inside(mut self, name: impl Into<String>) -> Self {
        self.way.push(name.into());
        self
    }
}

impl Fault {
    /// Describes a fault in the query of a request, whose values have no parts.
    pub(super) fn of_parameter(self) -> String {
        let Self { way, detail, .. } = self;
        way.first().map_or_else(|| detail.to_string(), |name| format!("the parameter `{name}`: {detail}"))
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        // The tilde is replaced first, because the replacement of the slash contains a tilde.
        let escaped = fault.way.iter().rev().map(|name| name.replace('~', "~0").replace('/', "~1"));
        let pointer: String = escaped.flat_map(|name| ["/".to_owned(), name]).collect();
        Self::field(pointer, fault.detail)
    }
}

fn quote(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// Makes the fault for an unknown name, such as the name of a field. The message proposes the most similar name in
/// `known`, or lists all names in `known`.
fn unknown(fault: &str, name: &str, known: &'static [&'static str]) -> Fault {
    Fault::new(match similar(name, known.iter().copied()) {
        Some(meant) => format!("{fault}; is `{meant}` meant?"),
        None if known.is_empty() => fault.to_owned(),
        None => format!("{fault}; known are {}", known.join(", ")),
    })
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::new(text.to_string())
    }

    fn invalid_type(value: Unexpected<'_>, _: &dyn de::Expected) -> Self {
        Self::mismatch(match value {
            Unexpected::Bool(value) => value.to_string(),
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            // `Display` would write all digits of a great number, for example 301 digits for `1e300`.
            Unexpected::Float(number) => format!("{number:?}"),
            Unexpected::Str(text) => format!("the text {:?}", quote(text)),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "an object".to_owned(),
            Unexpected::UnitVariant => "a word alone".to_owned(),
            // Of the other kinds of values, only `null` occurs in a JSON text.
            _ => "null".to_owned(),
        })
    }

    fn invalid_value(value: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(value, expected)
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        unknown(&format!("`{}` is not known", quote(word)), word, known)
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        unknown(&format!("there is no field `{}`", quote(name)), name, known)
    }

    fn missing_field(name: &'static str) -> Self {
        Self::new(format!("the field `{name}` is missing"))
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self::twice(name)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl core::error::Error for Fault {}
