//! Writes timers of the service `tourbillond` as calls of the SQL functions `schedule_callback` and `schedule_queue`.

use super::error::{CallError, CallErrorKind};
use super::policy;
use super::statement::{Value, zero_byte};
use super::values::{labels, moment};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use core::time::Duration;
use tourbillon_api::{Callback, IfPresent, NewTimer, RawJson};
use tourbillon_durable::Due;

const CALLBACK: &str = "SELECT tourbillon.schedule_callback(url => $1::text, method => $2::text, \
                        headers => $3::text::jsonb, body => $4::bytea, due => $5::text::timestamptz, \
                        delay => $6::text::interval, key => $7::text, namespace => $8::text, \
                        labels => (SELECT array_agg(l) FROM jsonb_array_elements_text($9::text::jsonb) l), \
                        policy => $10::text::jsonb, if_present => $11::text)::text AS answer";

const QUEUE: &str = "SELECT tourbillon.schedule_queue(queue => $1::text, body => $2::bytea, \
                     due => $3::text::timestamptz, delay => $4::text::interval, key => $5::text, \
                     namespace => $6::text, \
                     labels => (SELECT array_agg(l) FROM jsonb_array_elements_text($7::text::jsonb) l), \
                     policy => $8::text::jsonb, if_present => $9::text)::text AS answer";

fn invalid(message: &str) -> CallError {
    CallError::new(CallErrorKind::Invalid, message)
}

/// Returns the bytes of a body. Fails if more than one of the three forms is given. JSON is not reformatted. The JSON
/// `null` is the same as no body.
fn body(json: Option<&RawJson>, text: Option<&str>, base64: Option<&str>) -> Result<Value, CallError> {
    let json = json.map(RawJson::text).filter(|text| *text != "null");
    let bytes = match (json.or(text), base64) {
        _ if json.is_some() && text.is_some() => None,
        (Some(text), None) => Some(text.as_bytes().to_vec()),
        (None, Some(base64)) => {
            let decoded = BASE64_STANDARD.decode(base64);
            Some(decoded.map_err(|_| invalid("body_base64: not in base 64"))?)
        }
        (None, None) => Some(Vec::new()),
        (Some(_), Some(_)) => None,
    };
    let bytes = bytes.ok_or_else(|| invalid("at most one of json, body and body_base64"))?;
    Ok(Value::Bytes(bytes))
}

/// Returns the headers as a JSON object. If the body is JSON and no header names its type, adds the header
/// `content-type`.
fn headers(callback: &Callback) -> Result<Value, CallError> {
    let mut headers = callback.headers.clone();
    if headers.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        return Err(zero_byte());
    }
    let has_type = headers.keys().any(|name| name.eq_ignore_ascii_case("content-type"));
    let has_json = callback.json.as_ref().is_some_and(|json| json.text() != "null");
    if has_json && !has_type {
        headers.insert("content-type".to_owned(), "application/json".to_owned());
    }
    // A map of texts can always be written.
    Ok(Value::text(serde_json::to_string(&headers).unwrap_or_default()))
}

/// Returns the statement that stores a timer, and the values of the statement's parameters.
///
/// # Errors
///
/// Fails if the timer has both a callback and a queue, or neither. Fails if the timer has both a due moment and a
/// delay, or more than one body. Also fails if the delay is too long, if a body is not valid base 64, or if a label or
/// a header has a zero byte.
pub(super) fn statement(
    namespace: &str,
    key: Option<&str>,
    timer: &NewTimer,
) -> Result<(&'static str, Vec<Value>), CallError> {
    let (text, mut values) = match (&timer.callback, &timer.pull) {
        (Some(callback), None) => {
            let body =
                body(callback.json.as_ref(), callback.body.as_deref(), callback.body_base64.as_deref())?;
            let method = callback.method.as_deref().unwrap_or("POST");
            let values = vec![Value::text(&*callback.url), Value::text(method), headers(callback)?, body];
            (CALLBACK, values)
        }
        (None, Some(pull)) => {
            let body = body(pull.json.as_ref(), pull.body.as_deref(), pull.body_base64.as_deref())?;
            (QUEUE, vec![Value::text(&*pull.queue), body])
        }
        _ => return Err(invalid("one of callback and pull")),
    };
    let due = match (timer.due, timer.delay_ms) {
        (Some(_), Some(_)) => return Err(invalid("at most one of due and delay_ms")),
        (Some(due), None) => Some(Due::At(due.into())),
        (None, delay) => delay.map(|delay| Due::After(Duration::from_millis(delay))),
    };
    let mode = match timer.if_present {
        IfPresent::Reject => "reject",
        IfPresent::Keep => "keep",
        IfPresent::Replace => "replace",
        IfPresent::ReplaceKeepDue => "replace-keep-due",
    };
    values.extend(moment(due)?);
    values.extend([
        Value::Text(key.map(Into::into)),
        Value::text(namespace),
        labels(&timer.labels)?,
        Value::Text(policy::api_in_json(&timer.policy)),
        Value::text(mode),
    ]);
    Ok((text, values))
}
