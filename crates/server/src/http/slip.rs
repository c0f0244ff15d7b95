//! The faults of a JSON text, in the words of the interface and not in those of the types that read it.

use crate::similar::similar;
use serde_json::error::Category;
use std::borrow::Cow;

/// A fault of a text, or of a value in it.
pub(super) fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (line, column) = (error.line(), error.column());
    let fault = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    match error.classify() {
        Category::Data => of_value(fault).unwrap_or_else(|| fault.to_owned()),
        Category::Eof if (line, column) == (1, 0) => "the text is empty, and is to be JSON".to_owned(),
        Category::Eof => format!("no JSON: the text ends too early, in line {line}"),
        Category::Syntax | Category::Io => format!("no JSON: {fault}, at line {line}, column {column}"),
    }
}

/// A fault of a value, if it is one of those that serde words.
fn of_value(fault: &str) -> Option<String> {
    if let Some(rest) = fault.strip_prefix("missing field ") {
        return Some(format!("the field {rest} is missing"));
    }
    if let Some(rest) = fault.strip_prefix("duplicate field ") {
        return Some(format!("the field {rest} is there twice"));
    }
    if let Some((name, known)) = expected(fault, "unknown field ") {
        return Some(unknown(&format!("there is no field {name}"), name, known));
    }
    if let Some((word, known)) = expected(fault, "unknown variant ") {
        return Some(unknown(&format!("{word} is not known"), word, known));
    }
    if fault.starts_with("invalid length ") {
        return Some("a list is to be an object".to_owned());
    }
    let (given, wanted) = expected(fault, "invalid type: ").or_else(|| expected(fault, "invalid value: "))?;
    Some(format!("{} is to be {}", value(given), kind(wanted)))
}

/// What a fault of this beginning names, and what it expects.
fn expected<'f>(fault: &'f str, start: &str) -> Option<(&'f str, &'f str)> {
    let rest = fault.strip_prefix(start)?;
    // The name may be any text, and what is expected has none of these words.
    rest.rsplit_once(", expected ").or_else(|| rest.rsplit_once(", there are ").map(|(name, _)| (name, "")))
}

/// A name that is not known, with the one that was probably meant, or all that are known.
fn unknown(fault: &str, name: &str, known: &str) -> String {
    let names = || known.split('`').skip(1).step_by(2);
    match similar(name.trim_matches('`'), names()) {
        Some(meant) => format!("{fault}; is `{meant}` meant?"),
        None if names().next().is_none() => fault.to_owned(),
        None => format!("{fault}; known are {}", names().collect::<Vec<_>>().join(", ")),
    }
}

/// A value as the sender has written it.
fn value(given: &str) -> Cow<'_, str> {
    match given {
        "map" => return "an object".into(),
        "sequence" => return "a list".into(),
        _ => {}
    }
    if let Some(text) = given.strip_prefix("string ") {
        return format!("the text {text}").into();
    }
    given.split_once('`').map_or(given, |(_, rest)| rest.trim_end_matches('`')).into()
}

/// The kind of value that is expected.
fn kind(wanted: &str) -> Cow<'_, str> {
    let whole = |most: u64| format!("a whole number from 0 to {most}").into();
    match wanted {
        "u8" => whole(u8::MAX.into()),
        "u16" => whole(u16::MAX.into()),
        "u32" => whole(u32::MAX.into()),
        "u64" | "usize" => "a whole number that is not negative".into(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a string" | "string" | "a borrowed string" => "a text".into(),
        "a boolean" => "`true` or `false`".into(),
        "a sequence" => "a list".into(),
        "a map" | "map" => "an object".into(),
        _ if wanted.starts_with("struct ") || wanted.contains("tagged enum ") => "an object".into(),
        _ if wanted.starts_with("enum ") || wanted == "string or map" => "a word".into(),
        _ => wanted.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;
    use tourbillon_api::{Batch, NamespaceLimits, NewSchedule, NewTimer};

    fn fault<T: DeserializeOwned>(text: &str) -> String {
        words(&serde_json::from_str::<T>(text).map(drop).unwrap_err())
    }

    #[test]
    fn faults_are_in_the_words_of_the_interface() {
        for (text, expected) in [
            (r#"{"delay_ms": "1"}"#, "the text \"1\" is to be a whole number that is not negative"),
            (r#"{"delay_ms": -1}"#, "-1 is to be a whole number that is not negative"),
            (r#"{"delay_ms": 1.5}"#, "1.5 is to be a whole number that is not negative"),
            (r#"{"delay_ms": true}"#, "true is to be a whole number that is not negative"),
            (r#"{"labels": null}"#, "null is to be a list"),
            (r#"{"labels": "a, expected b"}"#, "the text \"a, expected b\" is to be a list"),
            (r#"{"labels": [[]]}"#, "a list is to be a text"),
            (r#"{"callback": []}"#, "a list is to be an object"),
            (r#"{"callback": "https://a.example"}"#, "the text \"https://a.example\" is to be an object"),
            (r#"{"callback": {}}"#, "the field `url` is missing"),
            (r#"{"dely_ms": 1}"#, "there is no field `dely_ms`; is `delay_ms` meant?"),
            (
                r#"{"colour": 1}"#,
                "there is no field `colour`; known are due, delay_ms, callback, pull, policy, labels, if_present",
            ),
            (
                r#"{"if_present": "drop"}"#,
                "`drop` is not known; known are reject, keep, replace, replace-keep-due",
            ),
            (r#"{"if_present": "replaced"}"#, "`replaced` is not known; is `replace` meant?"),
            ("", "the text is empty, and is to be JSON"),
            (r#"{"delay_ms": 1"#, "no JSON: the text ends too early, in line 1"),
            ("{'delay_ms': 1}", "no JSON: key must be a string, at line 1, column 2"),
        ] {
            assert_eq!(fault::<NewTimer>(text), expected, "{text}");
        }
        assert_eq!(
            fault::<NamespaceLimits>(r#"{"concurrency": 5000000000}"#),
            "5000000000 is to be a whole number from 0 to 4294967295"
        );
        assert_eq!(fault::<NamespaceLimits>(r#"{"paused": 1}"#), "1 is to be `true` or `false`");
        assert_eq!(
            fault::<NewSchedule>(r#"{"monthly": {"day": "last"}}"#),
            "the text \"last\" is to be a whole number"
        );
        assert_eq!(
            fault::<Batch>(r#"{"changes": [{"op": "delete", "key": "a"}]}"#).split(';').next(),
            Some("`delete` is not known")
        );
        assert!(
            fault::<NewTimer>(r#"{"due": "tomorrow"}"#).starts_with("not a moment as RFC 3339 writes it")
        );
    }
}
