//! Reads JSON from clients in one pass, and more strictly than serde's derived types read it.
//!
//! A type with a derived `Deserialize` accepts two kinds of input that the sender probably did not mean. Where it
//! expects an object, it also reads a list: each item becomes a field, in the order of the fields. Where it expects a
//! map, it accepts a repeated key, and keeps the last value.
//!
//! [`Strict`] stands between the text and the types, and refuses both kinds of input. A fault names its place in the
//! text, and the kind of value that was expected there.
//!
//! Any valid JSON is accepted for a [`RawJson`](tourbillon_api::RawJson), which keeps the value as it was written.

mod fault;
mod query;

pub(super) use query::read_query;

use core::fmt;
use fault::{Expected, Fault};
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer as _, MapAccess,
    SeqAccess, Visitor,
};
use std::borrow::Cow;
use std::collections::HashSet;
use tourbillon_api::Problem;

/// Reads a value from a JSON text. Fails with a problem that names the faulty place in the text.
pub(super) fn read<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Problem> {
    if bytes.trim_ascii().is_empty() {
        return Err(Problem::field("", "the body is empty"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = T::deserialize(Strict(&mut json))?;
    json.end().map_err(Fault::syntax)?;
    Ok(value)
}

/// A deserializer that is stricter than its inner deserializer. It refuses a list where an object is expected, and an
/// object with a repeated key.
struct Strict<D>(D);

impl<'de, D: Deserializer<'de>> Strict<D> {
    fn read<V: Visitor<'de>>(self, visitor: V, expected: Expected) -> Result<V::Value, Fault> {
        catch(|fault| self.0.deserialize_any(Reader { visitor, expected, fault }))
    }
}

/// Calls `part`, which calls the inner deserializer (of `serde_json`). `part` gets an empty slot. If `part` finds a
/// [`Fault`], it puts the fault into the slot and returns an error. This function then returns the fault from the slot.
/// If `part` returns an error but the slot is empty, the text is not JSON. The slot is needed because the error type of
/// `serde_json` can keep only a text, and not a [`Fault`].
fn catch<T, E: fmt::Display>(part: impl FnOnce(&mut Option<Fault>) -> Result<T, E>) -> Result<T, Fault> {
    let mut fault = None;
    part(&mut fault).map_err(|error| fault.unwrap_or_else(|| Fault::syntax(error)))
}

/// Moves the fault of a result to `place`, the slot from which [`catch`] returns the fault. Returns an empty error
/// instead of the fault.
fn leave<T, E: de::Error>(result: Result<T, Fault>, place: &mut Option<Fault>) -> Result<T, E> {
    result.map_err(|fault| {
        *place = Some(fault);
        E::custom("")
    })
}

/// Defines methods of a deserializer. Each method reads a value of any kind, so that a wrong kind becomes a [`Fault`].
/// `$expected` is the kind of value that the fault names as expected.
macro_rules! expect {
    ($($method:ident($($argument:ident: $type:ty),*) => $expected:expr,)*) => {
        $(fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, Fault> {
            self.read(visitor, $expected)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = Fault;

    expect! {
        deserialize_any() => Expected::Anything,
        deserialize_bool() => Expected::Kind("`true` or `false`"),
        deserialize_i8() => Expected::Kind("a whole number from -128 to 127"),
        deserialize_i64() => Expected::Kind("a whole number"),
        deserialize_u8() => Expected::Kind("a whole number from 0 to 255"),
        deserialize_u16() => Expected::Kind("a whole number from 0 to 65535"),
        deserialize_u32() => Expected::Kind("a whole number from 0 to 4294967295"),
        deserialize_u64() => Expected::Kind("a whole number from 0 to 9223372036854775807"),
        deserialize_str() => Expected::Kind("a text"),
        deserialize_string() => Expected::Kind("a text"),
        deserialize_seq() => Expected::List,
        deserialize_tuple(_length: usize) => Expected::List,
        deserialize_map() => Expected::Map,
        deserialize_struct(_name: &'static str, _fields: &'static [&'static str]) => Expected::Fields,
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.read(Variant(visitor), Expected::OneOf(variants))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        // `deserialize_any` would not call `visit_some`, so the visitor of an option would refuse each value except
        // `null`.
        catch(|fault| self.0.deserialize_option(Reader { visitor, expected: Expected::Anything, fault }))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        // By this name, the inner deserializer recognises serde_json's raw value, which keeps its text as written.
        let expected = Expected::Anything;
        catch(|fault| self.0.deserialize_newtype_struct(name, Reader { visitor, expected, fault }))
    }

    serde::forward_to_deserialize_any! {
        i16 i32 i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple_struct identifier ignored_any
    }
}

/// Passes a value of a JSON text to the visitor of a type. Refuses a value whose kind the type does not expect.
struct Reader<'f, V> {
    visitor: V,
    expected: Expected,
    fault: &'f mut Option<Fault>,
}

impl<'de, V: Visitor<'de>> Reader<'_, V> {
    fn visit<E: de::Error>(self, visit: impl FnOnce(V) -> Result<V::Value, Fault>) -> Result<V::Value, E> {
        let Self { visitor, expected, fault } = self;
        leave(visit(visitor).map_err(|fault| fault.expecting(expected)), fault)
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Reader<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<V::Value, E> {
        self.visit(|visitor| visitor.visit_bool(value))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<V::Value, E> {
        self.visit(|visitor| visitor.visit_i64(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<V::Value, E> {
        // The OpenAPI document describes numbers as 64 bits with a sign, and readers of stored values rely on it.
        let is_beyond = i64::try_from(number).is_err();
        let fault = || Fault::mismatch(number.to_string());
        self.visit(|visitor| if is_beyond { Err(fault()) } else { visitor.visit_u64(number) })
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<V::Value, E> {
        self.visit(|visitor| visitor.visit_f64(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<V::Value, E> {
        self.visit(|visitor| visitor.visit_str(text))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.visit(|visitor| visitor.visit_borrowed_str(text))
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.visit(V::visit_unit)
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.visit(V::visit_none)
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.visit(|visitor| visitor.visit_some(Strict(value)))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.visit(|visitor| visitor.visit_newtype_struct(Strict(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        let is_permitted = matches!(self.expected, Expected::List | Expected::Anything);
        self.visit(|visitor| match is_permitted {
            true => visitor.visit_seq(Items { inner: items, count: 0 }),
            false => Err(Fault::mismatch("a list")),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let known = (self.expected == Expected::Map).then(HashSet::new);
        self.visit(|visitor| visitor.visit_map(Entries { inner: entries, key: Cow::Borrowed(""), known }))
    }
}

/// Reads a value inside another value, as strictly as [`Strict`] does.
struct Inside<'f, S> {
    seed: S,
    fault: &'f mut Option<Fault>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Inside<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        leave(self.seed.deserialize(Strict(value)), self.fault)
    }
}

/// Reads the items of a JSON list. If an item has a fault, adds the item's number to the fault's path.
struct Items<A> {
    inner: A,
    count: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<A> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let item = catch(|fault| self.inner.next_element_seed(Inside { seed, fault }));
        let number = self.count;
        self.count += 1;
        item.map_err(|fault| fault.inside(number.to_string()))
    }
}

/// A key of a JSON object. The text is borrowed if it has no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Key<'k>(#[serde(borrow)] Cow<'k, str>);

/// Reads the fields of a JSON object. If a field has a fault, adds the field's key to the fault's path.
struct Entries<'de, A> {
    inner: A,
    /// The key of the object's field that was read last.
    key: Cow<'de, str>,
    /// The keys of the object that were read until now, in order to refuse a repeated key. `None` for a type with
    /// derived code, because derived code refuses a repeated key by itself.
    known: Option<HashSet<Cow<'de, str>>>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<'de, A> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        // Each text can be a key. So an error here always means that the text is not JSON.
        let Some(Key(key)) = self.inner.next_key().map_err(Fault::syntax)? else { return Ok(None) };
        if self.known.as_mut().is_some_and(|known| !known.insert(key.clone())) {
            return Err(Fault::twice(&key));
        }
        self.key = key;
        let name = seed.deserialize((*self.key).into_deserializer());
        name.map(Some).map_err(|fault: Fault| fault.inside(&*self.key))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let value = catch(|fault| self.inner.next_value_seed(Inside { seed, fault }));
        value.map_err(|fault| fault.inside(&*self.key))
    }
}

/// Passes a variant of an enum to the visitor of the enum. In JSON a variant is a word, or an object with a single
/// field.
struct Variant<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Variant<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<V::Value, E> {
        self.0.visit_enum(word.into_deserializer())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<V::Value, A::Error> {
        let value = self.0.visit_enum(MapAccessDeserializer::new(&mut entries))?;
        // The adapter reads only the first field, and would leave further fields unread.
        match entries.next_key::<IgnoredAny>()? {
            None => Ok(value),
            Some(_) => Err(de::Error::custom("expected a single field")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;
    use tourbillon_api::{Batch, NamespaceLimits, NewSchedule, NewTimer, RawJson};

    /// Reads a JSON text that must have a fault. Returns the JSON pointer and the message of the fault.
    fn fault<T: DeserializeOwned>(text: &str) -> (String, String) {
        let problem = read::<T>(text.as_bytes()).map(drop).unwrap_err();
        assert_eq!(problem.status, 400, "{text}");
        (problem.errors[0].pointer.clone(), problem.detail)
    }

    #[test]
    fn faults_are_in_the_words_of_the_interface() {
        let most = "a whole number from 0 to 9223372036854775807";
        for (text, pointer, detail) in [
            (r#"{"delay_ms": "1"}"#, "/delay_ms", format!("expected {most}, not the text \"1\"")),
            (r#"{"delay_ms": -1}"#, "/delay_ms", format!("expected {most}, not -1")),
            (r#"{"delay_ms": 1.5}"#, "/delay_ms", format!("expected {most}, not 1.5")),
            (r#"{"delay_ms": 1e300}"#, "/delay_ms", format!("expected {most}, not 1e300")),
            (r#"{"delay_ms": true}"#, "/delay_ms", format!("expected {most}, not true")),
            (
                r#"{"delay_ms": 9223372036854775808}"#,
                "/delay_ms",
                format!("expected {most}, not 9223372036854775808"),
            ),
            (r#"{"labels": null}"#, "/labels", "expected a list, not null".into()),
            (r#"{"labels": "a, b"}"#, "/labels", "expected a list, not the text \"a, b\"".into()),
            (r#"{"labels": ["a", []]}"#, "/labels/1", "expected a text, not a list".into()),
            (r#"{"callback": []}"#, "/callback", "expected an object, not a list".into()),
            ("[]", "", "expected an object, not a list".into()),
            (r#"{"callback": "a"}"#, "/callback", "expected an object, not the text \"a\"".into()),
            (r#"{"callback": {}}"#, "/callback", "the field `url` is missing".into()),
            (r#"{"due": null, "due": null}"#, "", "the field `due` is there twice".into()),
            (r#"{"dely_ms": 1}"#, "/dely_ms", "there is no field `dely_ms`; is `delay_ms` meant?".into()),
            (
                r#"{"a/~": 1}"#,
                "/a~1~0",
                "there is no field `a/~`; known are due, delay_ms, callback, pull, policy, labels, if_present"
                    .into(),
            ),
            (
                r#"{"if_present": "drop"}"#,
                "/if_present",
                "`drop` is not known; known are reject, keep, replace, replace-keep-due".into(),
            ),
            (r#"{"if_present": "replaced"}"#, "/if_present", "`replaced` is not known; is `replace` meant?".into()),
            (
                r#"{"if_present": 1}"#,
                "/if_present",
                "expected one of reject, keep, replace, replace-keep-due, not 1".into(),
            ),
            (
                r#"{"callback": {"url": "a", "headers": {"x": "1", "\u0078": "2"}}}"#,
                "/callback/headers",
                "the field `x` is there twice".into(),
            ),
            (" ", "", "the body is empty".into()),
            (
                r#"{"delay_ms": 1"#,
                "",
                "not JSON: EOF while parsing an object at line 1 column 14".into(),
            ),
            ("{'delay_ms': 1}", "", "not JSON: key must be a string at line 1 column 2".into()),
            (r#"{"delay_ms": NaN}"#, "/delay_ms", "not JSON: expected value at line 1 column 14".into()),
        ] {
            assert_eq!(fault::<NewTimer>(text), (pointer.to_owned(), detail), "{text}");
        }
        let limits = fault::<NamespaceLimits>(r#"{"concurrency": 5000000000}"#);
        assert_eq!(limits.1, "expected a whole number from 0 to 4294967295, not 5000000000");
        assert_eq!(fault::<NamespaceLimits>(r#"{"paused": 1}"#).1, "expected `true` or `false`, not 1");
        let schedule = fault::<NewSchedule>(r#"{"monthly": {"day": "last"}}"#);
        assert_eq!(schedule.1, "expected a whole number from -128 to 127, not the text \"last\"");
        let (place, detail) = fault::<NewTimer>(r#"{"due": "tomorrow"}"#);
        assert!(place == "/due" && detail.starts_with("not a moment as RFC 3339 writes it"), "{detail}");
        let long = fault::<NewTimer>(&format!(r#"{{"labels": "{}"}}"#, "\u{e4}".repeat(1_000)));
        assert!(long.1.len() < 200, "{long:?}");
    }

    #[test]
    fn a_change_of_a_batch_is_an_object_with_one_field() {
        let one_of = "expected one of put, cancel, move, not";
        for (change, pointer, detail) in [
            (r#"{"delete": {"key": "a"}}"#, "/delete", "`delete` is not known; known are put, cancel, move"),
            (r#"{"cancel": {"key": "a"}, "move": {}}"#, "", "expected a single field"),
            (r#"{"cancel": {"key": "a", "key": "a"}}"#, "/cancel", "the field `key` is there twice"),
            (r#"{"cancel": []}"#, "/cancel", "expected an object, not a list"),
            (r#"{"put": {}}"#, "/put", "the field `timer` is missing"),
            ("1", "", &format!("{one_of} 1")),
            ("[]", "", &format!("{one_of} a list")),
        ] {
            let (place, words) = fault::<Batch>(&format!(r#"{{"changes": [{change}]}}"#));
            assert_eq!((&*place, &*words), (&*format!("/changes/0{pointer}"), detail), "{change}");
        }
    }

    #[test]
    fn a_raw_value_is_any_json_and_keeps_its_text() {
        for text in [
            "null",
            r#"{ "b": 1.10,"a" : [1e400, -0, 12345678901234567890123], "b":"\u00e4\ud800\/" }"#,
            &format!("{}{}", "[".repeat(500), "]".repeat(500)),
        ] {
            let body = format!(r#"{{"queue": "q", "json": {text} }}"#);
            let pull: tourbillon_api::Pull = read(body.as_bytes()).unwrap();
            assert_eq!(pull.json.as_ref().map_or("null", RawJson::text), text);
        }
        for text in ["01", "[1,]", "NaN", "\"\n\"", "{\"a\"}", "'a'"] {
            let (pointer, detail) =
                fault::<tourbillon_api::Pull>(&format!(r#"{{"queue": "q", "json": {text}}}"#));
            assert_eq!(pointer, "/json", "{text}");
            assert!(detail.starts_with("not JSON: "), "{text}: {detail}");
        }
    }
}
