//! Makes valid and invalid requests at random, by the OpenAPI document.

use crate::schema::resolve;
use axum::body::Body;
use axum::http::Request;
use axum::http::request::Builder;
use fastrand::Rng;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The names and ids in earlier answers. The key is the name of the path parameter or field in which a later request
/// may use them.
type Seen = BTreeMap<&'static str, Vec<String>>;

/// Generates random requests that follow the schemas of the OpenAPI document.
pub(crate) struct Generator<'d> {
    rng: Rng,
    document: &'d Value,
    seen: Seen,
}

/// Groups of fields that exclude each other. A valid object has at most one field of each group.
const EXCLUSIVE: [&[&str]; 6] = [
    &["cron", "monthly", "every_ms"],
    &["callback", "pull"],
    &["due", "delay_ms"],
    &["json", "body", "body_base64"],
    &["key", "id"],
    &["label", "key_prefix"],
];

/// The parts of a random request that was not sent yet. A test can still change the parts.
pub(crate) struct Draft {
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Option<Vec<u8>>,
}

impl<'d> Generator<'d> {
    pub(crate) fn new(seed: u64, document: &'d Value) -> Self {
        Self { rng: Rng::with_seed(seed), document, seen: Seen::new() }
    }

    /// Returns true at random, with a probability of `percent` per cent.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    /// Returns a random item of `choices`.
    pub(crate) fn one<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.rng.usize(0..choices.len())].clone()
    }

    /// Returns an unusual text, such as an empty text or a very long text.
    fn odd_text(&mut self) -> String {
        let long = self.rng.usize(0..400);
        let any: String = (0..self.rng.usize(0..12)).map(|_| self.rng.char(..)).collect();
        self.one(&[
            String::new(),
            " ".to_owned(),
            "\0".to_owned(),
            "..".to_owned(),
            "a/b".to_owned(),
            "a:b".to_owned(),
            "%2f%00".to_owned(),
            "\u{202e}\u{1f600}\u{fffd}".to_owned(),
            "'; DROP TABLE timers".to_owned(),
            "<script>".to_owned(),
            "\r\nx: y".to_owned(),
            "00000000-0000-0000-0000-000000000000".to_owned(),
            "x".repeat(long),
            any,
        ])
    }

    /// Returns a random text that fits the field `name`. In some calls, returns an odd text that no field expects.
    fn text(&mut self, name: &str) -> String {
        if self.chance(4) {
            return self.odd_text();
        }
        let number = self.rng.u32(0..8);
        let seen = self.seen.get(name).filter(|seen| !seen.is_empty()).cloned();
        match (name, seen) {
            ("namespace", _) => {
                let other = format!("n{}", number % 3);
                if self.chance(85) { "default".to_owned() } else { other }
            }
            ("key", _) => format!("k{number}"),
            ("key_prefix", _) => self.one(&["k", "k1", "x"]).to_owned(),
            ("label" | "labels", _) => format!("l{}", number % 4),
            ("id" | "claim" | "cursor", Some(seen)) if self.chance(85) => self.one(&seen),
            ("id", _) => "01935560-1c40-7a5e-8b6c-2f9a3d1e4b70".to_owned(),
            ("url", _) => self
                .one(&[
                    "http://127.0.0.1:9999/a",
                    "https://127.0.0.1:9999/b?c=d",
                    "http://[::1]:8080/",
                    "http://169.254.169.254/latest",
                    "ftp://127.0.0.1/",
                ])
                .to_owned(),
            ("method", _) => self.one(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]).to_owned(),
            ("queue", _) => format!("q{}", number % 2),
            ("body_base64", _) => self.one(&["", "aGVsbG8=", "/w==", "aGVsbG8"]).to_owned(),
            ("cron", _) => self.one(&["* * * * *", "30 2 * * MON-FRI", "0 0 30 2 *", "@daily"]).to_owned(),
            ("zone", _) => self.one(&["Europe/Zurich", "UTC", "America/New_York", "Mars/Base"]).to_owned(),
            ("time", _) => self.one(&["09:00", "23:59:59", "24:00"]).to_owned(),
            (
                "due" | "due_before" | "due_after" | "created_after" | "start" | "end" | "from" | "until",
                _,
            ) => self
                .one(&[
                    "2026-11-22T16:00:00Z",
                    "2096-11-22T17:00:00.001+01:00",
                    "1970-01-01T00:00:00Z",
                    "9999-12-30T22:00:00Z",
                ])
                .to_owned(),
            ("allowed_hosts", _) => self.one(&["127.0.0.1", "*.example", "*"]).to_owned(),
            ("Idempotency-Key" | "idempotency_key", _) => format!("i{number}"),
            _ => format!("text {number}"),
        }
    }

    fn number(&mut self, name: &str) -> u64 {
        match name {
            // The wait is short, so the test does not take long.
            "wait_ms" => self.rng.u64(0..5),
            "delay_ms" if self.chance(80) => {
                if self.chance(15) {
                    self.rng.u64(0..50)
                } else {
                    self.rng.u64(60_000..86_400_000)
                }
            }
            "limit" | "max" => self.rng.u64(0..210),
            _ => {
                let any = self.rng.u64(..) >> 1;
                self.one(&[
                    0,
                    1,
                    2,
                    10,
                    1_000,
                    60_000,
                    86_400_000,
                    u64::from(u32::MAX),
                    i64::MAX.unsigned_abs(),
                    any,
                ])
            }
        }
    }

    fn any_json(&mut self, depth: u32) -> Value {
        match self.rng.u32(0..if depth > 4 { 5 } else { 7 }) {
            0 => Value::Null,
            1 => json!(self.rng.bool()),
            2 => json!(self.rng.i64(..)),
            3 => json!(self.rng.f64()),
            4 => json!(self.odd_text()),
            5 => (0..self.rng.u32(0..4)).map(|_| self.any_json(depth + 1)).collect(),
            _ => {
                let members = (0..self.rng.u32(0..4)).map(|_| (self.odd_text(), self.any_json(depth + 1)));
                Value::Object(members.collect())
            }
        }
    }

    /// Makes a random value that conforms to a schema. `name` is the name of the field that gets the value. `depth` is
    /// the number of objects and lists around the value.
    fn value(&mut self, schema: &Value, name: &str, depth: u32) -> Value {
        let schema = resolve(schema, self.document);
        // For an object, `allOf` and `oneOf` are rules between the object's own fields. `mend` applies these rules.
        let is_object = schema["properties"].is_object();
        if let (Some(schemas), false) = (schema["allOf"].as_array(), is_object) {
            return self.value(&schemas[0], name, depth);
        }
        if let (Some(schemas), false) = (schema["oneOf"].as_array(), is_object) {
            let schema = self.one(schemas);
            return self.value(&schema, name, depth);
        }
        if let Some(words) = schema["enum"].as_array() {
            return self.one(words);
        }
        let word = match &schema["type"] {
            Value::Array(words) => self.one(words),
            word => word.clone(),
        };
        match word.as_str() {
            None => self.any_json(depth),
            Some("null") => Value::Null,
            Some("boolean") => json!(self.rng.bool()),
            Some("integer") => json!(self.number(name)),
            Some("number") => json!(self.rng.f64()),
            Some("string") => json!(self.text(name)),
            Some("array") => {
                let count = if name == "changes" { self.rng.u32(0..8) } else { self.rng.u32(0..4) };
                (0..count).map(|_| self.value(&schema["items"], name, depth + 1)).collect()
            }
            Some("object") => Value::Object(self.object(schema, depth)),
            Some(other) => panic!("the document has the type {other:?}"),
        }
    }

    fn object(&mut self, schema: &Value, depth: u32) -> Map<String, Value> {
        let mut object = Map::new();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            if required.contains(&json!(name)) || self.chance(35) {
                object.insert(name.clone(), self.value(member, name, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() && self.chance(30) {
            let name = self.one(&["x-a", "Content-Type", "accept", "host"]).to_owned();
            object.insert(name, self.value(&schema["additionalProperties"], "", depth + 1));
        }
        if self.chance(92) {
            self.mend(schema, &mut object, depth);
        }
        object
    }

    /// Repairs an object whose fields exclude each other. Keeps at most one field of each exclusive group. If the
    /// schema requires the group, adds a field of the group.
    fn mend(&mut self, schema: &Value, object: &mut Map<String, Value>, depth: u32) {
        object.retain(|_, value| !value.is_null());
        for names in EXCLUSIVE {
            let Some(properties) = schema["properties"].as_object() else { return };
            if !names.iter().all(|name| properties.contains_key(*name)) {
                continue;
            }
            let keep = self.one(names);
            let has_one = names.iter().any(|name| object.contains_key(*name));
            object.retain(|name, _| name == keep || !names.contains(&&**name));
            let is_needed =
                matches!(names[0], "callback" | "key" | "cron") || properties.len() == 2 || has_one;
            if is_needed && !object.contains_key(keep) {
                let mut value = Value::Null;
                while value.is_null() {
                    value = self.value(&properties[keep], keep, depth + 1);
                }
                object.insert(keep.to_owned(), value);
            }
        }
    }

    /// Makes a random, valid request of an operation. The request has all required parts and some of the optional
    /// parts.
    pub(crate) fn draft(&mut self, path: &str, operation: &Value) -> Draft {
        let mut draft = Draft { path: path.to_owned(), query: Vec::new(), headers: Vec::new(), body: None };
        for parameter in operation["parameters"].as_array().cloned().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            let is_required = parameter["required"] == true;
            if !is_required && !self.chance(25) {
                continue;
            }
            let text = match self.value(&parameter["schema"], name, 0) {
                Value::String(text) => text,
                Value::Null => continue,
                other => other.to_string(),
            };
            match parameter["in"].as_str().unwrap() {
                "path" => {
                    let text = if text.is_empty() { "-".to_owned() } else { text };
                    draft.path = draft.path.replace(&format!("{{{name}}}"), &escaped(&text));
                }
                "query" => draft.query.push((name.to_owned(), escaped(&text))),
                "header" => {
                    draft.headers.push((name.to_owned(), text.replace(['\r', '\n', '\0'], "").into_bytes()));
                }
                other => panic!("the document has parameters in {other:?}"),
            }
        }
        let content = &operation["requestBody"]["content"]["application/json"];
        if !content.is_null() {
            let examples: Vec<Value> = match (&content["example"], content["examples"].as_object()) {
                (Value::Null, Some(examples)) => {
                    examples.values().map(|example| example["value"].clone()).collect()
                }
                (Value::Null, None) => Vec::new(),
                (example, _) => vec![example.clone()],
            };
            let body = if !examples.is_empty() && self.chance(5) {
                self.one(&examples)
            } else {
                self.value(&content["schema"], "", 0)
            };
            draft.headers.push(("content-type".to_owned(), b"application/json".to_vec()));
            draft.body = Some(body.to_string().into_bytes());
        }
        draft
    }

    /// Changes a request at random. The changed request may be invalid.
    pub(crate) fn spoil(&mut self, draft: &mut Draft) {
        match self.rng.u32(0..12) {
            0 => draft.query.push((self.text("label"), "x".to_owned())),
            1 => draft.query.extend(draft.query.clone()),
            2 => draft.query.push((
                "limit".to_owned(),
                self.one(&["-1", "1e3", "%FF", "%", "", "99999999999"]).to_owned(),
            )),
            3 => draft.headers.push((
                "idempotency-key".to_owned(),
                self.rng.u64(..).to_be_bytes().map(|byte| byte | 0x80).to_vec(),
            )),
            4 => draft.headers.retain(|(name, _)| name != "content-type"),
            5 => draft.path.push_str(self.one(&["%FF", "%00", "%2F..", "~!$&'()*+,;=:@"])),
            6 => draft.headers.push(("x-filler".to_owned(), vec![b'x'; self.rng.usize(0..9_000)])),
            _ => self.spoil_body(draft),
        }
    }

    fn spoil_body(&mut self, draft: &mut Draft) {
        let Some(body) = &mut draft.body else { return };
        let mut json: Value = serde_json::from_slice(body).unwrap();
        let at = self.rng.usize(0..=body.len());
        match self.rng.u32(0..10) {
            0 => body.truncate(at),
            1 => body.insert(at, self.rng.u8(..)),
            2 if at < body.len() => body[at] = self.rng.u8(..),
            3 => *body = [&b"[".repeat(self.rng.usize(1..4_000))[..], &body[..]].concat(),
            4 => *body = self.any_json(0).to_string().into_bytes(),
            5 => {
                let text = String::from_utf8(body.clone()).unwrap();
                let number = self.one(&["1e999", "-1", "NaN", "18446744073709551616", "0.5", "1e2", "-0"]);
                let digits = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
                *body = format!("{}{number}{}", &text[..digits], &text[(digits + 1).min(text.len())..])
                    .into_bytes();
            }
            6 => {
                let twice =
                    String::from_utf8(body.clone()).unwrap().replacen(',', ",\"due\":null,\"due\":null,", 1);
                *body = twice.into_bytes();
            }
            _ => {
                // Replace a random value in the body.
                let (mut pointer, mut place) = (String::new(), &json);
                for _ in 0..self.rng.u32(0..5) {
                    let parts: Vec<(String, &Value)> = match place {
                        Value::Object(members) => {
                            let part = |name: &str| name.replace('~', "~0").replace('/', "~1");
                            members.iter().map(|(name, value)| (part(name), value)).collect()
                        }
                        Value::Array(items) => {
                            items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
                        }
                        _ => break,
                    };
                    if parts.is_empty() {
                        break;
                    }
                    let (part, value) = self.one(&parts);
                    pointer = format!("{pointer}/{part}");
                    place = value;
                }
                match json.pointer_mut(&pointer).unwrap() {
                    Value::Object(members) if self.rng.bool() => {
                        members.insert(self.odd_text(), self.any_json(3));
                    }
                    place => *place = self.any_json(3),
                }
                *body = json.to_string().into_bytes();
            }
        }
    }

    /// Remembers the names and ids in an answer, so that later requests can use them.
    pub(crate) fn see(&mut self, answer: &Value) {
        let mut see = |name: &'static str, value: &Value| {
            if let Some(text) = value.as_str() {
                let seen = self.seen.entry(name).or_default();
                if seen.len() >= 64 {
                    seen.remove(0);
                }
                seen.push(text.to_owned());
            }
        };
        see("id", &answer["id"]);
        see("cursor", &answer["next"]);
        for item in answer["items"].as_array().into_iter().flatten() {
            see("id", &item["id"]);
        }
        for claim in answer["claims"].as_array().into_iter().flatten() {
            see("claim", &claim["claim"]);
        }
    }
}

fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let byte = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    match text {
        // HTTP clients remove these segments from a path, unless they are escaped.
        "." | ".." => text.replace('.', "%2E"),
        _ => text.bytes().map(byte).collect(),
    }
}

/// Makes a request from the parts in `draft`. `None` if the path or a header cannot be sent.
pub(crate) fn request(method: &str, draft: &Draft) -> Option<Request<Body>> {
    let query: Vec<_> =
        draft.query.iter().map(|(name, value)| format!("{}={value}", escaped(name))).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let mut request: Builder = Request::builder().method(method).uri(format!("{}{query}", draft.path));
    for (name, value) in &draft.headers {
        request = request.header(name, &value[..]);
    }
    request.body(draft.body.clone().map_or_else(Body::empty, Body::from)).ok()
}
