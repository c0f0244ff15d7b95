//! Checks values against their schemas in the OpenAPI document.

use crate::document::{document, operations};
use serde_json::{Map, Value, json};

/// Follows a reference in the OpenAPI document to its schema. Returns `schema` itself if it is not a reference.
pub(crate) fn resolve<'d>(schema: &'d Value, document: &'d Value) -> &'d Value {
    match schema["$ref"].as_str() {
        Some(reference) => resolve(document.pointer(reference.strip_prefix('#').unwrap()).unwrap(), document),
        None => schema,
    }
}

fn has_type(value: &Value, word: &str) -> bool {
    match word {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the document has the type {other:?}"),
    }
}

/// Returns the reason why a value does not conform to a schema. `None` if the value conforms.
pub(crate) fn fault(value: &Value, schema: &Value, document: &Value) -> Option<String> {
    let schema = resolve(schema, document);
    let conforms = |schema: &Value| fault(value, schema, document).is_none();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        if let Some(fault) = fault(value, part, document) {
            return Some(fault);
        }
    }
    let one_of = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
    if one_of.is_some_and(|schemas| !schemas.iter().any(conforms)) {
        return Some(format!("{value} is none of {}", schema["oneOf"]));
    }
    let has_a_type = match &schema["type"] {
        Value::Null => true,
        Value::String(word) => has_type(value, word),
        Value::Array(words) => words.iter().any(|word| has_type(value, word.as_str().unwrap())),
        other => panic!("the document has the type {other}"),
    };
    if !has_a_type {
        return Some(format!("{value} is not of the type {}", schema["type"]));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        return Some(format!("{value} is not in {}", schema["enum"]));
    }
    if let (Some(minimum), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < minimum
    {
        return Some(format!("{value} is below {minimum}"));
    }
    if let (Some("date-time"), Some(text)) = (schema["format"].as_str(), value.as_str())
        && !(text.len() == 24 && text.ends_with('Z') && text.as_bytes()[10] == b'T')
    {
        return Some(format!("{value} is not a moment"));
    }
    if let Some(items) = value.as_array()
        && !schema["items"].is_null()
    {
        return items.iter().find_map(|item| fault(item, &schema["items"], document));
    }
    let members = value.as_object()?;
    for name in schema["required"].as_array().into_iter().flatten() {
        if !members.contains_key(name.as_str().unwrap()) {
            return Some(format!("{value} lacks {name}"));
        }
    }
    members.iter().find_map(|(name, value)| match schema["properties"].get(name) {
        Some(schema) => fault(value, schema, document).map(|fault| format!("{name}: {fault}")),
        None if schema["additionalProperties"] == false => Some(format!("{name} is not known")),
        None if schema["additionalProperties"].is_object() => {
            fault(value, &schema["additionalProperties"], document)
        }
        None => None,
    })
}

// --- The checks themselves ---

#[test]
fn a_value_of_another_form_is_found() {
    let document = document();
    let schema = json!({ "$ref": "#/components/schemas/Placed" });
    let fault = |value: Value| fault(&value, &schema, &document);
    assert_eq!(fault(json!({ "id": "x", "outcome": "created" })), None);
    for value in [
        json!({ "id": "x" }),
        json!({ "id": 1, "outcome": "created" }),
        json!({ "id": "x", "outcome": "made" }),
        json!({ "id": "x", "outcome": "replaced", "replaced": { "id": "x", "was": "gone" } }),
        json!([]),
    ] {
        assert!(fault(value.clone()).is_some(), "{value}");
    }
}

#[test]
fn the_examples_of_the_document_conform_to_its_schemas() {
    let document = document();
    let mut count = 0;
    for (path, method, operation) in operations(&document) {
        let answers = operation["responses"].as_object().unwrap().values();
        for place in answers.chain([&operation["requestBody"]]) {
            for content in place["content"].as_object().into_iter().flat_map(Map::values) {
                let examples = content["examples"].as_object().into_iter().flat_map(Map::values);
                let examples = examples.map(|example| &example["value"]).chain(content.get("example"));
                for example in examples {
                    count += 1;
                    assert_eq!(fault(example, &content["schema"], &document), None, "{method} {path}");
                }
            }
        }
    }
    assert!(count > 10);
}
