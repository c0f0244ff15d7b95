//! Reads the query of a request. Its faults have the words that the faults of JSON bodies have.

use super::fault::{Expected, Fault};
use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, Visitor,
};
use tourbillon_api::{Problem, ProblemKind};

/// Reads a value from the parameters of a query, which are pairs of a name and a text. Fails with a problem that names
/// the faulty parameter.
pub(in crate::http) fn read_query<T: DeserializeOwned>(pairs: Vec<(String, String)>) -> Result<T, Problem> {
    let bad = |detail: String| Problem::new(ProblemKind::BadRequest, detail);
    let is_repeated = |index: usize| pairs[..index].iter().any(|(name, _)| *name == pairs[index].0);
    if let Some(index) = (0..pairs.len()).find(|index| is_repeated(*index)) {
        return Err(bad(format!("the parameter `{}` is there twice", pairs[index].0)));
    }
    let pairs = Pairs { pairs: pairs.into_iter(), read: None };
    T::deserialize(MapAccessDeserializer::new(pairs)).map_err(|fault| bad(fault.of_parameter()))
}

struct Pairs {
    pairs: std::vec::IntoIter<(String, String)>,
    /// The pair whose name was read last. `None` once its text was read, too.
    read: Option<(String, String)>,
}

impl<'de> MapAccess<'de> for Pairs {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        self.read = self.pairs.next();
        let Some((name, _)) = &self.read else { return Ok(None) };
        let name: StringDeserializer<Fault> = name.clone().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let (name, text) = self.read.take().unwrap_or_default();
        seed.deserialize(Text(text)).map_err(|fault| fault.inside(name))
    }
}

/// The text of a parameter. A type reads it as the kind of value that the type expects.
struct Text(String);

impl<'de> Deserializer<'de> for Text {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        // `parse` alone would also read a sign, as in `+1`.
        let is_number = self.0.bytes().all(|byte| byte.is_ascii_digit());
        match self.0.parse() {
            Ok(number) if is_number => visitor.visit_u32(number),
            _ => {
                let found = <Fault as de::Error>::invalid_type(de::Unexpected::Str(&self.0), &"a number");
                Err(found.expecting(Expected::Kind("a whole number from 0 to 4294967295")))
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let word: StringDeserializer<Fault> = self.0.into_deserializer();
        visitor.visit_enum(word)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use tourbillon_api::Moment;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Order {
        Asc,
        Desc,
    }

    #[derive(Debug, Deserialize)]
    struct Wanted {
        limit: Option<u32>,
        order: Option<Order>,
        since: Option<Moment>,
        label: Option<String>,
    }

    fn read(pairs: &[(&str, &str)]) -> Result<Wanted, String> {
        let pairs = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        read_query(pairs.collect()).map_err(|problem: Problem| {
            assert_eq!((problem.status, problem.errors.len()), (400, 0));
            problem.detail
        })
    }

    #[test]
    fn a_parameter_is_read_as_its_type() {
        let pairs = [("limit", "7"), ("order", "desc"), ("since", "2026-11-22T16:00:00Z"), ("label", "1")];
        let wanted = read(&pairs).unwrap();
        assert!(matches!(wanted.order, Some(Order::Desc)));
        assert_eq!((wanted.limit, wanted.label.as_deref()), (Some(7), Some("1")));
        assert_eq!(wanted.since.map(|since| since.to_string()).as_deref(), Some("2026-11-22T16:00:00.000Z"));
        let none = read(&[]).unwrap();
        assert!(none.limit.is_none() && none.order.is_none() && none.since.is_none() && none.label.is_none());
        assert!(matches!(read(&[("order", "asc")]).unwrap().order, Some(Order::Asc)));
    }

    #[test]
    fn a_fault_names_the_parameter_in_the_words_of_the_interface() {
        let number = "the parameter `limit`: expected a whole number from 0 to 4294967295, not the text";
        for (pairs, detail) in [
            (&[("limit", "x")][..], format!("{number} \"x\"")),
            (&[("limit", "")], format!("{number} \"\"")),
            (&[("limit", "+1")], format!("{number} \"+1\"")),
            (&[("limit", "4294967296")], format!("{number} \"4294967296\"")),
            (&[("order", "des")], "the parameter `order`: `des` is not known; is `desc` meant?".to_owned()),
            (&[("label", "a"), ("label", "b")], "the parameter `label` is there twice".to_owned()),
        ] {
            assert_eq!(read(pairs).unwrap_err(), detail, "{pairs:?}");
        }
        let detail = read(&[("since", "now")]).unwrap_err();
        assert!(detail.starts_with("the parameter `since`: not a moment"), "{detail}");
    }
}
