//! Adds to the schemas of the OpenAPI document the rules that Rust types cannot express. These are rules between
//! fields, the forms of texts in lists and objects, and the ranges of numbers.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::Number;
use utoipa::openapi::content::Content;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{
    AdditionalProperties, AllOfBuilder, ArrayItems, KnownFormat, Object, ObjectBuilder, Schema, SchemaFormat,
    SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr, Required};

/// The pattern of the names of namespaces and queues. The pattern also matches `.` and `..`, but [`no_step`] forbids
/// these names.
const NAME: &str = "^[A-Za-z0-9._-]+$";
const LONGEST_NAME: usize = 64;
const LONGEST_LABEL: usize = 64;
const LONGEST_KEY: usize = 255;
const LONGEST_SCHEDULE_KEY: usize = 128;
/// The pattern of the texts of timers and of queries. A text may have all characters except U+0000.
const TEXT: &str = r"^[^\u0000]*$";
/// The pattern of the keys of schedules. A key may have all characters except U+0000 and U+001F.
const SCHEDULE: &str = r"^[^\u0000\u001f]*$";
/// The pattern of the names of headers.
const HEADER: &str = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$";
/// The pattern of the values of headers.
const HEADER_VALUE: &str = r"^[^\u0000-\u0008\u000a-\u001f\u007f]*$";

/// The format of 32-bit numbers in the OpenAPI document.
const WORD: SchemaFormat = SchemaFormat::KnownFormat(KnownFormat::Int32);

/// Makes the schema of objects in which the field `name` is present and not null. A field that is null counts as
/// missing.
fn given(name: &str) -> Value {
    json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } })
}

/// Makes the value of the keyword `oneOf`: an object must have exactly one of the fields in `names`.
fn one_of(names: &[&str]) -> Value {
    names.iter().copied().map(given).collect()
}

/// Makes a schema for each pair of the fields in `names`. The schema matches objects that have both fields of the pair.
fn pairs(names: &[&str]) -> Vec<Value> {
    let later = |at: usize| names.iter().skip(at + 1);
    let with_later = |(at, a): (usize, &&str)| -> Vec<Value> {
        later(at).map(|b| json!({ "allOf": [given(a), given(b)] })).collect()
    };
    names.iter().enumerate().flat_map(with_later).collect()
}

/// Returns the rules about several fields of an object. Each entry has the name of a schema, a keyword, and the
/// keyword's value. A schema gets only one keyword, because the library writes unknown keywords in a random order.
fn between_fields() -> [(&'static str, &'static str, Value); 8] {
    let of_body = || json!({ "anyOf": pairs(&["json", "body", "body_base64"]) });
    let plans = ["cron", "monthly", "every_ms"];
    // A patch has the same rules. But it may lack a plan, since it may leave the plan as it is.
    let exclusive: [&[&str]; 3] = [&["callback", "pull"], &["every_ms", "zone"], &["every_ms", "gap"]];
    // A schedule has these two times in fields of its own (`missed` with `grace_ms`, and `jitter_ms`), so the service
    // refuses them in the policy.
    let in_policy = |name: &str| json!({ "required": ["policy"], "properties": { "policy": given(name) } });
    let of_schedule: Vec<_> = exclusive
        .into_iter()
        .flat_map(pairs)
        .chain(["misfire_within_ms", "jitter_ms"].map(in_policy))
        .collect();
    let is_dead = json!({ "required": ["dead"], "properties": { "dead": { "enum": [true] } } });
    let of_failure = json!({ "anyOf": [given("error"), given("retry_after_ms"), is_dead] });
    let of_patch: Vec<_> = pairs(&plans).into_iter().chain(of_schedule.clone()).collect();
    [
        (
            "NewTimer",
            "allOf",
            json!([
                { "oneOf": one_of(&["callback", "pull"]) },
                { "not": pairs(&["due", "delay_ms"])[0] },
            ]),
        ),
        ("Delay", "oneOf", one_of(&["due", "delay_ms"])),
        ("CancelMany", "oneOf", one_of(&["label", "key_prefix"])),
        ("Nack", "not", json!({ "allOf": [given("snooze_ms"), of_failure] })),
        ("Callback", "not", of_body()),
        ("Pull", "not", of_body()),
        ("NewSchedule", "allOf", json!([{ "oneOf": one_of(&plans) }, { "not": { "anyOf": of_schedule } }])),
        ("SchedulePatch", "not", json!({ "anyOf": of_patch })),
    ]
}

/// Adds a keyword and its value to a schema. Needed for the keywords that the library's own methods cannot set.
fn add(schema: &mut RefOr<Schema>, word: &str, value: Value) {
    if let RefOr::T(Schema::Object(Object { extensions, .. })) = schema {
        // The extensions are collected from an iterator, because their builder would put `x-` before each keyword.
        extensions.get_or_insert_default().merge(Extensions::from_iter([(word, value)]));
    }
}

fn object(schema: &mut RefOr<Schema>) -> Option<&mut Object> {
    match schema {
        RefOr::T(Schema::Object(object)) => Some(object),
        _ => None,
    }
}

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Returns the schema of the field `field` of the objects with the schema `name`.
fn field<'s>(schemas: &'s mut Schemas, name: &str, field: &str) -> Option<&'s mut RefOr<Schema>> {
    schemas.get_mut(name).and_then(object)?.properties.get_mut(field)
}

/// Adds to the schemas of the OpenAPI document the rules that Rust types cannot express: which fields an object must
/// have or must not have together, and the lengths, patterns and ranges of values.
pub(super) fn complete(schemas: &mut Schemas) {
    for (name, word, rule) in between_fields() {
        schemas.get_mut(name).into_iter().for_each(|schema| add(schema, word, rule.clone()));
    }
    for name in ["NewTimer", "NewSchedule", "SchedulePatch"] {
        if let Some(RefOr::T(Schema::Array(labels))) = field(schemas, name, "labels")
            && let ArrayItems::RefOrSchema(label) = &mut labels.items
            && let Some(label) = object(label)
        {
            (label.max_length, label.pattern) = (Some(LONGEST_LABEL), Some(TEXT.to_owned()));
        }
    }
    field(schemas, "Pull", "queue").into_iter().for_each(no_step);
    if let Some(headers) = field(schemas, "Callback", "headers").and_then(object) {
        headers.property_names = Some(Box::new(text_of(HEADER).into()));
        headers.additional_properties =
            Some(Box::new(AdditionalProperties::RefOr(text_of(HEADER_VALUE).into())));
    }
    for name in ["Backoff", "Change"] {
        let Some(RefOr::T(Schema::OneOf(variants))) = schemas.get_mut(name) else { continue };
        variants.items.iter_mut().for_each(complete_variant);
    }
    schemas.values_mut().for_each(complete_ranges);
}

/// Forbids unknown fields in the schema of an enum's variant. Also forbids them in the object inside the variant.
fn complete_variant(variant: &mut RefOr<Schema>) {
    let Some(shape) = object(variant) else { return };
    shape.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    shape.properties.values_mut().filter(|schema| is_inline_object(schema)).for_each(complete_variant);
    if shape.properties.contains_key("id") {
        add(variant, "oneOf", one_of(&["key", "id"]));
    }
}

fn is_inline_object(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if !object.properties.is_empty())
}

fn text_of(pattern: &str) -> Object {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).build()
}

/// Excludes the names `.` and `..`, because a path uses them to name a folder.
fn no_step(name: &mut RefOr<Schema>) {
    add(name, "not", json!({ "enum": [".", ".."] }));
}

/// Completes the schema of a 32-bit number without a sign. Sets the greatest value, and the format of 64 bits, because
/// the format of 32 bits is only for numbers with a sign.
fn complete_ranges(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            complete_range(object);
            object.properties.values_mut().for_each(complete_ranges);
        }
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                complete_ranges(items);
            }
        }
        Schema::OneOf(parts) => parts.items.iter_mut().for_each(complete_ranges),
        Schema::AllOf(parts) => parts.items.iter_mut().for_each(complete_ranges),
        Schema::AnyOf(parts) => parts.items.iter_mut().for_each(complete_ranges),
        _ => {}
    }
}

fn complete_range(number: &mut Object) {
    let format = &mut number.format;
    if number.minimum.is_some() && number.maximum.is_none() && *format == Some(WORD) {
        *format = Some(SchemaFormat::KnownFormat(KnownFormat::Int64));
        number.maximum = Some(Number::from(u32::MAX));
    }
}

/// Completes an operation of the OpenAPI document. Adds the parameters of its path. Adds the lengths, patterns and
/// ranges of values to the schemas of all parameters.
pub(super) fn complete_operation(operation: &mut Operation, path: &str) {
    let of_schedule = path.contains("/schedules/");
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of_path: Vec<_> = names.map(|name| path_parameter(name, path).into()).collect();
    if !of_path.is_empty() {
        operation.parameters.get_or_insert_default().splice(0..0, of_path);
    }
    for parameter in operation.parameters.iter_mut().flatten() {
        complete_parameter(parameter, of_schedule);
    }
    if operation.operation_id.as_deref() == Some("put_schedule") {
        add_target(operation);
    }
}

/// Makes the description of the parameter `name` in a path.
fn path_parameter(name: &str, path: &str) -> Parameter {
    let mut schema = ObjectBuilder::new().schema_type(Type::String);
    let description = match name {
        "key" => {
            let longest = if path.contains("/schedules/") { LONGEST_SCHEDULE_KEY } else { LONGEST_KEY };
            schema = schema.max_length(Some(longest));
            "The key."
        }
        "id" => {
            schema = schema.format(Some(SchemaFormat::Custom("uuid".to_owned())));
            if path.contains("/operations/") { "The operation's id." } else { "The timer's id." }
        }
        "queue" => "The queue.",
        "claim" => "The claim.",
        _ => "The namespace.",
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

fn complete_parameter(parameter: &mut RefOr<Parameter>, of_schedule: bool) {
    let RefOr::T(Parameter { name, parameter_in, schema: Some(schema), .. }) = parameter else { return };
    complete_ranges(schema);
    let Some(shape) = object(schema) else { return };
    // A header or a parameter of the query is present or missing, and never null.
    if let SchemaType::Array(types) = &shape.schema_type
        && let Some(kind) = types.iter().find(|kind| **kind != Type::Null)
    {
        shape.schema_type = SchemaType::Type(kind.clone());
    }
    if *parameter_in == ParameterIn::Query
        && shape.schema_type == Type::String.into()
        && shape.enum_values.is_none()
    {
        shape.pattern = Some(TEXT.to_owned());
    }
    if *parameter_in != ParameterIn::Path {
        return;
    }
    match &**name {
        "namespace" | "queue" => {
            (shape.min_length, shape.max_length) = (Some(1), Some(LONGEST_NAME));
            shape.pattern = Some(NAME.to_owned());
            no_step(schema);
        }
        "key" if of_schedule => (shape.min_length, shape.pattern) = (Some(1), Some(SCHEDULE.to_owned())),
        "key" => (shape.min_length, shape.pattern) = (Some(1), Some(TEXT.to_owned())),
        "claim" => shape.min_length = Some(1),
        _ => {}
    }
}

/// Adds the rule that a new schedule needs a callback or a queue (`pull`). The schema lacks this rule, because the same
/// object serves a preview, and a preview needs neither of them.
fn add_target(operation: &mut Operation) {
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    for content in body.content.values_mut() {
        let RefOr::T(Content { schema: Some(schema), .. }) = content else { continue };
        let mut target: RefOr<Schema> =
            Schema::Object(ObjectBuilder::new().schema_type(SchemaType::AnyValue).build()).into();
        add(&mut target, "oneOf", one_of(&["callback", "pull"]));
        *schema = Schema::AllOf(AllOfBuilder::new().item(schema.clone()).item(target).build()).into();
    }
}

/// Makes the schema of a single event in a stream of events. `name` is the schema of the event's data.
pub(super) fn event_of(name: &str) -> RefOr<Schema> {
    let data = ObjectBuilder::new().schema_type(Type::String).content_media_type("application/json");
    let mut data: RefOr<Schema> = Schema::Object(data.build()).into();
    add(&mut data, "contentSchema", json!(Ref::from_schema_name(name)));
    Schema::Object(
        ObjectBuilder::new().schema_type(Type::Object).property("data", data).required("data").build(),
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Value {
        serde_json::to_value(crate::openapi()).unwrap()
    }

    /// Collects in `names` the fields that a rule lists under the keyword `required`. Also looks into the rules inside
    /// of the rule.
    fn required(rule: &Value, names: &mut Vec<String>) {
        match rule {
            Value::Object(words) => {
                let here = words.get("required").and_then(Value::as_array).into_iter().flatten();
                names.extend(here.filter_map(Value::as_str).map(str::to_owned));
                words.values().for_each(|word| required(word, names));
            }
            Value::Array(rules) => rules.iter().for_each(|rule| required(rule, names)),
            _ => {}
        }
    }

    #[test]
    fn each_rule_is_in_the_document_and_about_fields_that_there_are() {
        let document = document();
        for (name, word, rule) in between_fields() {
            let schema = &document["components"]["schemas"][name];
            assert_eq!(schema[word], rule, "{name}");
            let mut names = Vec::new();
            required(&rule, &mut names);
            let of_policy = &document["components"]["schemas"]["Policy"]["properties"];
            assert!(names.len() > 1);
            for field in names {
                let is_there = schema["properties"][&field].is_object() || of_policy[&field].is_object();
                assert!(is_there, "{name} has no {field}");
            }
        }
    }

    #[test]
    fn texts_and_numbers_have_their_forms() {
        let document = document();
        let schema = |name: &str| document["components"]["schemas"][name].clone();
        for name in ["NewTimer", "NewSchedule", "SchedulePatch"] {
            assert_eq!(schema(name)["properties"]["labels"]["items"]["maxLength"], 64, "{name}");
        }
        let headers = &schema("Callback")["properties"]["headers"];
        assert_eq!(headers["propertyNames"]["pattern"], HEADER);
        assert_eq!(headers["additionalProperties"]["pattern"], HEADER_VALUE);
        let variants = ["Backoff", "Change"].map(|name| schema(name)["oneOf"].as_array().unwrap().clone());
        let inside = ["put", "cancel", "move"].into_iter().zip(&variants[1]);
        let inside = inside.map(|(word, variant)| &variant["properties"][word]);
        for variant in variants.iter().flatten().chain(inside) {
            assert_eq!(variant["additionalProperties"], false, "{variant}");
            let has_id = variant["properties"]["id"].is_object();
            assert_eq!(variant["oneOf"].is_array(), has_id, "{variant}");
        }
        let limits = &schema("NamespaceLimits")["properties"];
        assert_eq!(limits["max_body_bytes"]["maximum"], u32::MAX);
        assert_eq!(limits["max_body_bytes"]["format"], "int64");
        assert_eq!(limits["max_timers"]["format"], "int64");
        assert_eq!(schema("Monthly")["properties"]["day"]["maximum"], 31);
        let schedule = &document["paths"]["/v1/namespaces/{namespace}/schedules/{key}"]["put"];
        let body = &schedule["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(body["allOf"][1]["oneOf"], one_of(&["callback", "pull"]));
        let events =
            &document["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"];
        let data = &events["schema"]["properties"]["data"];
        assert_eq!(data["contentSchema"]["$ref"], "#/components/schemas/Event");
    }

    #[test]
    fn parameters_are_never_null_and_names_have_their_form() {
        let document = document();
        let mut count = 0;
        for operation in document["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|item| item.as_object().unwrap().values())
        {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let schema = &parameter["schema"];
                assert!(schema["type"].is_string() || schema["$ref"].is_string(), "{parameter}");
                if parameter["in"] == "path"
                    && ["namespace", "queue"].map(Value::from).contains(&parameter["name"])
                {
                    assert_eq!((&schema["pattern"], &schema["maxLength"]), (&json!(NAME), &json!(64)));
                    count += 1;
                }
                if parameter["in"] == "query" && schema["type"] == "string" {
                    let is_limited = schema["pattern"] == TEXT || schema["enum"].is_array();
                    assert!(is_limited, "no query has a zero byte: {parameter}");
                }
            }
        }
        assert!(count > 20);
    }
}
