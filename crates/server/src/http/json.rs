//! JSON from outside: what serde's types accept in silence and a sender did not mean.
//!
//! A key that an object has twice, and a number that is not stored as it was written, would change a callback's body. A
//! list in the place of an object would set its fields by their order. All are refused, at any depth.

use super::shape::Shape;
use super::slip::words;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use std::borrow::Cow;
use std::collections::HashSet;
use tourbillon_api::Problem;

/// The value of a JSON text, which is of this shape.
pub(super) fn read<'de, T: Deserialize<'de>>(bytes: &'de [u8], shape: &Shape) -> Result<T, Problem> {
    if let Some(number) = changed_number(bytes) {
        let detail = format!("the number {number} would be rounded: send it as text, or the body as `body`");
        return Err(Problem::field("", detail));
    }
    parse(bytes, Checked(Some(shape)))?;
    parse(bytes, PhantomData)
}

fn parse<'de, S: DeserializeSeed<'de> + Copy>(bytes: &'de [u8], seed: S) -> Result<S::Value, Problem> {
    // The path of each field is noted only for a text that has a fault: it is a copy of each key.
    let mut json = serde_json::Deserializer::from_slice(bytes);
    if let Ok(value) = seed.deserialize(&mut json)
        && json.end().is_ok()
    {
        return Ok(value);
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut track = serde_path_to_error::Track::new();
    let value = seed
        .deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track))
        .map_err(|error| Problem::field(pointer(&track.path()), words(&error)))?;
    json.end().map_err(|error| Problem::field("", words(&error)))?;
    Ok(value)
}

/// A path of a field as a JSON Pointer.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        let part = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
            // No place of its own in the JSON text.
            Segment::Enum { .. } | Segment::Unknown => continue,
        };
        pointer.push('/');
        pointer.push_str(&part);
    }
    pointer
}

/// The first number of a JSON text that would not be stored as it is: an integer beyond 64 bits, or one with more
/// digits than a number with a fraction keeps.
fn changed_number(bytes: &[u8]) -> Option<String> {
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while bytes.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let rest = &bytes[at..];
                let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                let number = core::str::from_utf8(&rest[..length]).unwrap_or("");
                if is_changed(number) {
                    return Some(number.chars().take(40).collect());
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    None
}

fn is_changed(number: &str) -> bool {
    const DIGITS: usize = 17;
    if !number.contains(['.', 'e', 'E']) {
        return number.len() > DIGITS && number.parse::<i64>().is_err() && number.parse::<u64>().is_err();
    }
    let mantissa = number.split(['e', 'E']).next().unwrap_or("");
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let is_lost = number.parse::<f64>().is_ok_and(|value| {
        // A number that is not zero, and becomes zero.
        value == 0.0 && digits.bytes().any(|digit| digit != b'0')
    });
    is_lost || digits.trim_start_matches('0').trim_end_matches('0').len() > DIGITS
}

/// Any JSON value in which no object has a key twice, and no list is in the place of an object of this shape.
#[derive(Clone, Copy)]
struct Checked<'s>(Option<&'s Shape>);

impl<'de> DeserializeSeed<'de> for Checked<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A key of an object, borrowed if it has no escapes.
#[derive(PartialEq, Eq, Hash)]
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// The number of keys up to which they are compared with each other.
const FEW: usize = 16;

impl<'de> Visitor<'de> for Checked<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<(), E> {
        // The document gives such fields 64 bits with a sign, and what is stored is shown to readers that rely on it.
        let is_beyond = self.0.is_some_and(Shape::is_whole_number) && i64::try_from(number).is_err();
        if is_beyond {
            return Err(E::custom(format_args!("{number} is to be a whole number of at most {}", i64::MAX)));
        }
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if self.0.is_some_and(Shape::refuses_lists) {
            return Err(de::Error::custom("invalid type: sequence, expected a map"));
        }
        let item = self.0.and_then(Shape::item);
        while items.next_element_seed(Self(item))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let (mut few, mut many) = (Vec::new(), HashSet::new());
        while let Some(key) = entries.next_key::<Key<'de>>()? {
            if few.contains(&key) || many.contains(&key) {
                let _rest: Result<IgnoredAny, _> = entries.next_value();
                return Err(de::Error::custom(format_args!("duplicate field `{}`", key.0)));
            }
            let field = self.0.and_then(|shape| shape.field(&key.0));
            if few.len() < FEW {
                few.push(key);
            } else {
                many.insert(key);
            }
            entries.next_value_seed(Self(field))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_value_is_read_as_it_is() {
        for text in [
            "null",
            "[1, -2, 1.5, 1e300, 0.1, -0.0, 18446744073709551615, -9223372036854775808, 1000000.0000]",
            r#"{"a": {"b": [{}, {"c": "99999999999999999999999"}]}, "\"1e999": "\\"}"#,
        ] {
            assert_eq!(
                read::<Value>(text.as_bytes(), &Shape::default()).unwrap(),
                serde_json::from_str::<Value>(text).unwrap()
            );
        }
        assert_eq!(read::<Value>(br#"{"a\u0062": 1}"#, &Shape::default()).unwrap(), json!({ "ab": 1 }));
    }

    #[test]
    fn a_number_of_a_field_has_64_bits_with_a_sign_and_one_of_a_body_any_64() {
        let shape = Shape::of::<tourbillon_api::NewTimer>();
        let timer = |delay: &str| {
            format!(r#"{{"delay_ms": {delay}, "pull": {{"queue": "q", "json": 18446744073709551615}}}}"#)
        };
        let most = read::<tourbillon_api::NewTimer>(timer("9223372036854775807").as_bytes(), &shape).unwrap();
        assert_eq!(most.delay_ms, Some(9_223_372_036_854_775_807));
        let beyond =
            read::<tourbillon_api::NewTimer>(timer("9223372036854775808").as_bytes(), &shape).unwrap_err();
        assert_eq!((beyond.status, &*beyond.errors[0].pointer), (400, "/delay_ms"));
        assert_eq!(
            beyond.detail,
            "9223372036854775808 is to be a whole number of at most 9223372036854775807"
        );
    }

    #[test]
    fn a_value_that_would_change_is_refused() {
        let many: String = (0..40).map(|n| format!("\"k{n}\": {n}, ")).collect();
        for (text, pointer) in [
            (r#"{"a": 1, "a": 1}"#.to_owned(), ""),
            (r#"{"x": [0, {"a": 1, "\u0061": 2}]}"#.to_owned(), "/x/1"),
            (format!("{{{many}\"k39\": 0}}"), ""),
            ("[18446744073709551616]".to_owned(), ""),
            ("[-9223372036854775809]".to_owned(), ""),
            ("[3.14159265358979323846]".to_owned(), ""),
            ("[1e999]".to_owned(), "/0"),
            ("[1e-999]".to_owned(), ""),
            ("[NaN]".to_owned(), "/0"),
            ("[1] 2".to_owned(), ""),
            (format!("{}1{}", "[".repeat(200), "]".repeat(200)), &*"/0".repeat(127)),
        ] {
            let problem = read::<Value>(text.as_bytes(), &Shape::default()).unwrap_err();
            assert_eq!(problem.status, 400, "{text}");
            assert_eq!(problem.errors[0].pointer, pointer, "{text}: {problem}");
        }
    }
}
