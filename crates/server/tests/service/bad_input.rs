//! Tests requests that cannot be fulfilled. Each answer describes the request's own problem.

use crate::inside::{Answered, Inside};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

const TIMERS: &str = "/v1/namespaces/default/timers";

/// A row of the test: a request and its expected problem. The items are the method, path, headers, the problem's
/// status, and the last word of the problem's type.
type Row<'a> = (&'a str, String, Vec<(&'a str, &'a str)>, u16, &'a str);

async fn post(inside: &Inside, kind: &str, body: impl Into<Vec<u8>>) -> Answered {
    let request = Request::builder().method("POST").uri(TIMERS).header("content-type", kind);
    inside.ask(request.body(Body::from(body.into())).unwrap()).await
}

fn with(members: &str) -> String {
    format!("{{\"callback\": {{\"url\": \"http://127.0.0.1:9999/\"}}, {members}}}")
}

fn with_body(members: &str) -> String {
    format!("{{\"delay_ms\": 600000, \"callback\": {{\"url\": \"http://127.0.0.1:9999/\", {members}}}}}")
}

/// The unit tests of the reader of JSON have the other faults of its texts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_cannot_be_read_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", "".into(), ""),
        ("two values", "{} {}".into(), ""),
        ("null", "null".into(), ""),
        ("a comment", "{/* */}".into(), ""),
        ("an unknown field", with("\"dely_ms\": 1").into(), "/dely_ms"),
        ("an unknown field inside", with_body("\"uri\": 1").into(), "/callback/uri"),
        ("a huge number", with("\"delay_ms\": 1e999").into(), "/delay_ms"),
        ("a number beyond 64 bits", with("\"delay_ms\": 18446744073709551616").into(), "/delay_ms"),
        ("Infinity", with("\"delay_ms\": Infinity").into(), "/delay_ms"),
        (
            "a body that is not UTF-8",
            [with_body("\"json\": \"").into(), vec![0xff, b'"', b'}', b'}']].concat(),
            "*",
        ),
        ("a deep value", with(&format!("\"labels\": {}", deep(500))).into(), "/labels/0"),
        ("a very deep value", with(&format!("\"labels\": {}", deep(30_000))).into(), "/labels/0"),
        ("no UTF-8", [b"{\"labels\": [\"\xff\"]}".to_vec(), Vec::new()].concat(), "/labels/0"),
        ("half a surrogate", with("\"labels\": [\"\\ud800\"]").into(), "/labels/0"),
        ("a control character", with("\"labels\": [\"\u{1}\"]").into(), "/labels/0"),
        ("no moment", with("\"due\": \"2026-13-01T00:00:00Z\"").into(), "/due"),
        ("a moment without an offset", with("\"due\": \"2026-12-01T00:00:00\"").into(), "/due"),
        ("a moment before 1970", with("\"due\": \"1969-12-01T00:00:00Z\"").into(), "/due"),
        ("two moments", with("\"due\": \"2096-12-01T00:00:00Z\", \"delay_ms\": 1").into(), ""),
        ("no work", "{}".into(), ""),
        ("no URL", r#"{"callback": {"url": "nowhere"}}"#.into(), "/callback/url"),
        ("an unknown method", with_body("\"method\": \"BREW\"").into(), "/callback/method"),
        ("two works", with("\"pull\": {\"queue\": \"q\"}").into(), ""),
        (
            "an unknown backoff",
            with("\"policy\": {\"backoff\": {\"kind\": \"x\"}}").into(),
            "/policy/backoff/kind",
        ),
        ("two bodies", with_body("\"json\": 1, \"body\": \"\"").into(), "/callback"),
        ("no base 64", with_body("\"body_base64\": \"?\"").into(), "/callback/body_base64"),
        (
            "a header of the connection",
            with_body("\"headers\": {\"Host\": \"x\"}").into(),
            "/callback/headers",
        ),
        (
            "a header with a line feed",
            with_body("\"headers\": {\"x\": \"a\\nb\"}").into(),
            "/callback/headers",
        ),
        (
            "a timeout that is too long",
            with("\"policy\": {\"timeout_ms\": 30001}").into(),
            "/policy/timeout_ms",
        ),
        ("no timeout", with("\"policy\": {\"timeout_ms\": 0}").into(), "/policy/timeout_ms"),
    ];
    for (case, body, pointer) in rows {
        let answer = post(&inside, "application/json", body).await;
        assert_eq!(answer.problem(), (400, "bad-request".to_owned()), "{case}: {answer:?}");
        let problem = answer.json();
        let place = problem["errors"][0]["pointer"].as_str();
        assert!(pointer == "*" || place == Some(pointer), "{case}: {problem}");
        assert!(answer.bytes.len() < 4_096, "{case}: the answer repeats the request");
    }
    let stats = inside.send("GET", "/v1/stats", Value::Null).await.json();
    assert_eq!((&stats["created"], &stats["pending"]), (&json!(0), &json!(0)));
    // The JSON for the receiver may be nested deeply, since the service does not parse it.
    let body = with_body(&format!("\"json\": {}", deep(30_000)));
    assert_eq!(post(&inside, "application/json", body).await.status, 201);
}

/// The problem for a wrong field names the field, even inside a change of a batch, or inside a backoff. The unit
/// tests of the reader of JSON have the other faults of a change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_inside_a_change_has_its_own_place() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let backoff = |backoff: &str| {
        let pull = r#""pull": {"queue": "q"}"#;
        format!(r#"{{"put": {{"timer": {{{pull}, "policy": {{"backoff": {backoff}}}}}}}}}"#)
    };
    let inside_backoff = "/put/timer/policy/backoff";
    let rows = [
        (r#"{"put": {"timer": {"dely_ms": 1}}}"#.to_owned(), "/put/timer/dely_ms".to_owned()),
        (r#"{"put": {"timer": {"callback": {"url": 1}}}}"#.into(), "/put/timer/callback/url".into()),
        (r#"{"put": {"timer": {"due": "tomorrow"}}}"#.into(), "/put/timer/due".into()),
        (r#"{"put": {"timer": 1}}"#.into(), "/put/timer".into()),
        (r#"{"put": {"timer": {}, "to": {}}}"#.into(), "/put/to".into()),
        (r#"{"move": {"key": "k", "to": {"delay_ms": "1"}}}"#.into(), "/move/to/delay_ms".into()),
        (r#"{"move": {"key": 1, "to": {}}}"#.into(), "/move/key".into()),
        (r#"{"cancel": {"id": []}}"#.into(), "/cancel/id".into()),
        (r#"{"cancel": {"kei": "k"}}"#.into(), "/cancel/kei".into()),
        (r#""cancel""#.into(), String::new()),
        ("{}".into(), String::new()),
        (backoff(r#"{"kind": "fixed", "pause_ms": -1}"#), format!("{inside_backoff}/pause_ms")),
        (backoff(r#"{"kind": "ladder", "pauses_ms": [1, "2"]}"#), format!("{inside_backoff}/pauses_ms/1")),
        (backoff(r#"{"kind": "fixed", "pause_ms": 1, "max_ms": 1}"#), inside_backoff.into()),
        (backoff(r#"{"kind": "exponential", "first_ms": 1}"#), inside_backoff.into()),
    ];
    for (change, pointer) in rows {
        let body = format!(r#"{{"changes": [{{"cancel": {{"key": "k"}}}}, {change}]}}"#);
        let request =
            Request::post("/v1/namespaces/default/batch").header("content-type", "application/json");
        let answer = inside.ask(request.body(Body::from(body)).unwrap()).await;
        assert_eq!(answer.status, 400, "{change}");
        let problem = answer.json();
        assert_eq!(problem["errors"][0]["pointer"], format!("/changes/1{pointer}"), "{change}: {problem}");
    }
}

/// The problem for a schedule with a wrong plan names the faulty field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_rule_has_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    for (rule, status, pointer) in [
        (json!({ "cron": "" }), 400, "/cron"),
        (json!({ "cron": "0 25 * * *" }), 400, "/cron"),
        (json!({ "cron": "0 0 30 2 *" }), 400, "/cron"),
        (json!({ "cron": "0 0 * * *", "zone": "Mars/Olympus" }), 422, "/zone"),
        (json!({ "cron": "0 0 * * *", "zone": "localtime" }), 422, "/zone"),
        (json!({ "monthly": { "day": 32 } }), 400, "/monthly/day"),
        (json!({ "monthly": { "day": 1, "time": "24:00" } }), 400, "/monthly/time"),
    ] {
        let mut schedule = rule.clone();
        schedule["pull"] = json!({ "queue": "q" });
        for (method, path) in [("PUT", "schedules/k"), ("POST", "previews")] {
            let answer =
                inside.send(method, &format!("/v1/namespaces/default/{path}"), schedule.clone()).await;
            assert_eq!(answer.status, status, "{path} {rule}");
            assert_eq!(answer.json()["errors"][0]["pointer"], pointer, "{path} {rule}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_is_too_large_or_not_permitted_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let body = |length: usize| with_body(&format!("\"body\": \"{}\"", "x".repeat(length)));
    let base64 = |length: usize| with_body(&format!("\"body_base64\": \"{}\"", "AAAA".repeat(length / 3)));
    let labels = |count: usize, length: usize| {
        let labels: Vec<_> = (0..count).map(|n| format!("{n:0length$}")).collect();
        with(&format!("\"labels\": {}", json!(labels)))
    };
    let url = |length: usize| {
        format!("{{\"callback\": {{\"url\": \"http://127.0.0.1:9999/{}\"}}}}", "u".repeat(length))
    };
    for (case, body, status, word) in [
        ("the greatest body", body(64 << 10), 201, ""),
        ("a greater one", body((64 << 10) + 1), 413, "too-large"),
        ("the greatest body in base 64", base64(64 << 10), 201, ""),
        ("a greater one in base 64", base64((64 << 10) + 3), 413, "too-large"),
        ("a body beyond all", body(1 << 20), 413, "too-large"),
        ("a body of another type", format!("\"{}\"", "x".repeat(1 << 20)), 413, "too-large"),
        ("the greatest labels", labels(8, 64), 201, ""),
        ("too many labels", labels(9, 1), 413, "too-large"),
        ("a label that is too long", labels(1, 65), 413, "too-large"),
        ("a URL that is too long", url(2_048), 413, "too-large"),
        ("a due moment that is too far", with("\"due\": \"9999-01-01T00:00:00Z\""), 422, "due-too-far"),
        ("a delay that is too long", with("\"delay_ms\": 9223372036854775807"), 422, "due-too-far"),
        ("a port that is blocked", url(0).replace(":9999", ":22"), 422, "blocked-destination"),
        ("user and password", url(0).replace("127", "a:b@127"), 422, "blocked-destination"),
        ("another scheme", url(0).replace("http", "gopher"), 422, "blocked-destination"),
    ] {
        let answer = post(&inside, "application/json", body).await;
        if status == 201 {
            assert_eq!(answer.status, 201, "{case}: {answer:?}");
        } else {
            assert_eq!(answer.problem(), (status, word.to_owned()), "{case}: {answer:?}");
        }
    }
    let key = "k".repeat(255);
    let timer = json!({ "delay_ms": 600_000, "callback": { "url": "http://127.0.0.1:9999/" } });
    assert_eq!(inside.send("PUT", &format!("{TIMERS}/{key}"), timer.clone()).await.status, 201);
    let longer = inside.send("PUT", &format!("{TIMERS}/{key}k"), timer.clone()).await;
    assert_eq!(longer.problem(), (413, "too-large".to_owned()));
    let much = json!({ "changes": [{ "put": { "timer": { "callback": { "url": "x".repeat(9 << 20) } } } }] });
    let much = inside.send("POST", "/v1/namespaces/default/batch", much).await;
    assert_eq!(much.problem(), (413, "too-large".to_owned()));

    for kind in ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json"] {
        let answer = post(&inside, kind, timer.to_string()).await;
        assert_eq!(answer.problem(), (415, "unsupported-media-type".to_owned()), "{kind}");
    }
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        assert_eq!(post(&inside, kind, timer.to_string()).await.status, 201, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_cannot_be_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let long = "x".repeat(9_000);
    let long = long.as_str();
    let none: [(&str, &str); 0] = [];
    let header = |name: &'static str, value: &'static str| vec![(name, value)];
    let rows: Vec<Row<'_>> = vec![
        ("GET", format!("{TIMERS}/%FF"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}/{long}"), none.to_vec(), 413, "too-large"),
        ("GET", format!("{TIMERS}?label={long}"), none.to_vec(), 413, "too-large"),
        ("GET", TIMERS.to_owned(), vec![("x-long", long)], 413, "too-large"),
        ("GET", format!("{TIMERS}?label=%FF"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}/a%00b"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?label=%00"), none.to_vec(), 400, "bad-request"),
        ("POST", TIMERS.to_owned(), header("idempotency-key", "a\tb"), 400, "bad-request"),
        ("GET", format!("{TIMERS}?lable=x"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?label=x&label=y"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?limit=0"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?limit=201"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?limit=-1"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?limit=99999999999"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?phase=pendign"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?cursor=AAAA"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?cursor=%21"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}?due_before=now"), none.to_vec(), 400, "bad-request"),
        ("GET", format!("{TIMERS}/k?label=x"), none.to_vec(), 400, "bad-request"),
        ("GET", "/healthz?verbose".to_owned(), none.to_vec(), 400, "bad-request"),
        ("GET", "/v1/namespaces/none/timers".to_owned(), none.to_vec(), 404, "not-found"),
        ("GET", "/v1/namespaces/default/timers/".to_owned(), none.to_vec(), 404, "not-found"),
        ("GET", "/v2/stats".to_owned(), none.to_vec(), 404, "not-found"),
        ("GET", "/nowhere".to_owned(), none.to_vec(), 404, "not-found"),
        ("GET", "//v1/stats".to_owned(), none.to_vec(), 404, "not-found"),
        ("GET", "/v1/../v1/stats".to_owned(), none.to_vec(), 404, "not-found"),
        ("POST", TIMERS.to_owned(), header("idempotency-key", ""), 400, "bad-request"),
        ("POST", TIMERS.to_owned(), vec![("idempotency-key", &long[..256])], 400, "bad-request"),
        (
            "POST",
            TIMERS.to_owned(),
            vec![("idempotency-key", "a"), ("idempotency-key", "a")],
            400,
            "bad-request",
        ),
        ("POST", TIMERS.to_owned(), header("idempotency-key", "\u{e9}"), 400, "bad-request"),
    ];
    for (method, path, headers, status, word) in rows {
        let body = if method == "POST" {
            json!({ "delay_ms": 600_000, "callback": { "url": "http://127.0.0.1:9999/" } })
        } else {
            Value::Null
        };
        let answer = inside.with(method, &path, &headers, body).await;
        let short: String = path.chars().take(100).collect();
        assert_eq!(answer.problem(), (status, word.to_owned()), "{method} {short}: {answer:?}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_has_its_methods_and_a_head_is_a_get_without_its_body() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    for (method, path, allow) in [
        ("POST", "/v1/namespaces/default/timers/k", "DELETE,GET,HEAD,PATCH,PUT"),
        ("OPTIONS", "/v1/namespaces/default/timers/k", "DELETE,GET,HEAD,PATCH,PUT"),
        ("PUT", "/v1/namespaces/default/timers", "GET,HEAD,POST"),
        ("GET", "/v1/namespaces/default/batch", "POST"),
        ("TRACE", "/v1/stats", "GET,HEAD"),
        ("BREW", "/healthz", "GET,HEAD"),
        ("CONNECT", "/metrics", "GET,HEAD"),
        ("GET", "/v1/namespaces/default/timers/k/fire", "POST"),
    ] {
        let answer = inside.send(method, path, Value::Null).await;
        assert_eq!(answer.problem(), (405, "method-not-allowed".to_owned()), "{method} {path}");
        let mut methods: Vec<_> = answer.header("allow").split(',').map(str::trim).collect();
        methods.sort_unstable();
        assert_eq!(methods.join(","), allow, "{method} {path}");
    }
    let get = inside.send("GET", "/healthz", Value::Null).await;
    let head = inside.send("HEAD", "/healthz", Value::Null).await;
    assert_eq!((head.status, head.bytes.len()), (get.status, 0));
    assert_eq!(head.header("content-type"), get.header("content-type"));
    let head = inside.send("HEAD", "/v1/namespaces/default/timers/none", Value::Null).await;
    assert_eq!((head.status.as_u16(), head.bytes.len()), (404, 0));
    assert_eq!(head.header("content-type"), "application/problem+json");
}

/// Makes bodies that conform to a schema except for a single place, which has a list instead of an object. Each body
/// comes with the JSON pointer of the place.
fn with_a_list(schema: &Value, document: &Value, list: &Value) -> Vec<(String, Value)> {
    let mut bodies = Vec::new();
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        return with_a_list(schema, document, list);
    }
    for word in ["oneOf", "anyOf", "allOf"] {
        for part in schema[word].as_array().into_iter().flatten() {
            bodies.extend(with_a_list(part, document, list));
        }
    }
    let is_object = schema["type"] == "object"
        || schema["type"].as_array().is_some_and(|words| words.contains(&json!("object")));
    if is_object {
        bodies.push((String::new(), list.clone()));
    }
    for (place, body) in with_a_list_in(&schema["items"], document, list) {
        bodies.push((format!("/0{place}"), json!([body])));
    }
    let others = [("other".to_owned(), schema["additionalProperties"].clone())];
    let fields = schema["properties"].as_object().cloned().into_iter().flatten();
    for (name, schema) in fields.chain(others) {
        for (place, body) in with_a_list_in(&schema, document, list) {
            bodies.push((format!("/{name}{place}"), json!({ &*name: body })));
        }
    }
    bodies
}

fn with_a_list_in(schema: &Value, document: &Value, list: &Value) -> Vec<(String, Value)> {
    if schema.is_object() { with_a_list(schema, document, list) } else { Vec::new() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_list_is_taken_for_an_object_in_any_body() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    assert_eq!(inside.send("PUT", "/v1/namespaces/shop", json!({ "max_timers": 7 })).await.status, 201);
    let document = crate::document::document();
    let mut places = std::collections::BTreeSet::new();
    for (path, method, operation) in crate::document::operations(&document) {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        for list in [json!([]), json!(["x"]), json!([null, 1])] {
            for (place, body) in with_a_list_in(schema, &document, &list) {
                // The path must have valid names, since the service checks them before it reads the body.
                let id = "01935560-1c40-7a5e-8b6c-2f9a3d1e4b70";
                let at = path.replace("{namespace}", "shop").replace("{id}", id).replace(['{', '}'], "");
                let answer = inside.send(&method, &at, body.clone()).await;
                let json = answer.json();
                assert_eq!(answer.status, 400, "{method} {at} {body}: {json}");
                assert_eq!(json["errors"][0]["pointer"], place, "{method} {at} {body}: {json}");
                let detail = json["detail"].as_str().unwrap();
                let is_clear = detail.starts_with("expected ") && detail.ends_with(", not a list");
                assert!(is_clear, "{method} {at} {body}: {detail}");
                places.insert(format!("{method} {path} {place}"));
            }
        }
    }
    assert!(places.len() > 40, "{places:#?}");
    for place in [
        "PUT /v1/namespaces/{namespace} ",
        "POST /v1/namespaces/{namespace}/batch /changes/0/put/timer/policy/backoff",
    ] {
        assert!(places.contains(place), "{place} is not in {places:#?}");
    }
    let shop = inside.send("GET", "/v1/namespaces/shop", Value::Null).await.json();
    assert_eq!(shop["limits"]["max_timers"], 7, "{shop}");
    let timer =
        json!({ "delay_ms": 600_000, "callback": { "url": "http://127.0.0.1:9999/", "json": [[1], []] } });
    assert_eq!(inside.send("POST", TIMERS, timer).await.status, 201, "a body may be a list");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_no_timer_can_have_is_not_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let too_large = (413, "too-large".to_owned());
    for (key, is_too_long) in
        [("k".repeat(255), false), ("k".repeat(256), true), ("\u{e4}".repeat(128), true)]
    {
        let path = format!("{TIMERS}/{}", key.replace('\u{e4}', "%C3%A4"));
        let answer = inside.send("DELETE", &path, Value::Null).await;
        let batch = json!({ "changes": [{ "cancel": { "key": key } }] });
        let batch = inside.send("POST", "/v1/namespaces/default/batch", batch).await;
        let result = &batch.json()["results"][0];
        if is_too_long {
            assert_eq!(answer.problem(), too_large, "{key}");
            assert_eq!(result["problem"]["type"], "/problems/too-large", "{key}: {result}");
        } else {
            assert_eq!(answer.json()["result"], "not-found", "{key}");
            assert_eq!(result["cancelled"]["result"], "not-found", "{key}: {result}");
        }
    }
}

/// A text in PostgreSQL has no zero byte. So no store keeps one, and each request is refused in the same way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_text_of_a_timer_has_a_zero_byte() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let namespace = "/v1/namespaces/default";
    let timer = json!({ "delay_ms": 600_000, "pull": { "queue": "q" } });
    let labelled = json!({ "delay_ms": 600_000, "pull": { "queue": "q" }, "labels": ["a", "a\0b"] });
    let schedule = json!({ "every_ms": 60_000, "pull": { "queue": "q" } });
    let labelled_schedule = json!({ "every_ms": 60_000, "pull": { "queue": "q" }, "labels": ["a\0b"] });
    assert_eq!(inside.send("PUT", &format!("{namespace}/schedules/s"), schedule.clone()).await.status, 201);
    let none = Value::Null;
    for (method, path, body, pointer) in [
        ("PUT", "timers/a%00b", &timer, &none),
        ("GET", "timers/a%00b", &none, &none),
        ("GET", "timers/a%00b/past", &none, &none),
        ("DELETE", "timers/a%00b", &none, &none),
        ("PATCH", "timers/a%00b", &json!({ "delay_ms": 1 }), &none),
        ("POST", "timers/a%00b/fire", &none, &none),
        ("PUT", "schedules/a%00b", &schedule, &none),
        ("GET", "timers?key_prefix=%00", &none, &none),
        ("PUT", "timers/k", &labelled, &json!("/labels/1")),
        ("POST", "timers", &labelled, &json!("/labels/1")),
        ("PUT", "schedules/k", &labelled_schedule, &json!("/labels/0")),
        ("PATCH", "schedules/s", &json!({ "labels": ["a\0b"] }), &json!("/labels/0")),
        ("POST", "previews", &labelled_schedule, &json!("/labels/0")),
        ("POST", "cancellations", &json!({ "label": "a\0b" }), &json!("/label")),
        ("POST", "cancellations", &json!({ "key_prefix": "a\0b" }), &json!("/key_prefix")),
        ("POST", "replays", &json!({ "label": "a\0b" }), &json!("/label")),
    ] {
        let answer = inside.send(method, &format!("{namespace}/{path}"), body.clone()).await;
        assert_eq!(answer.problem(), (400, "bad-request".to_owned()), "{method} {path}: {answer:?}");
        assert_eq!(&answer.json()["errors"][0]["pointer"], pointer, "{method} {path}");
        assert!(
            answer.json()["detail"].as_str().unwrap().contains("zero byte"),
            "{method} {path}: {answer:?}"
        );
    }
    let changes = json!({ "changes": [
        { "put": { "key": "a\0b", "timer": timer } },
        { "put": { "timer": labelled } },
        { "cancel": { "key": "a\0b" } },
        { "move": { "key": "a\0b", "to": { "delay_ms": 1 } } },
        { "put": { "key": "k", "timer": timer } },
    ] });
    let batch = inside.send("POST", &format!("{namespace}/batch"), changes).await;
    assert_eq!(batch.status, 200);
    let results = batch.json()["results"].clone();
    for (index, pointer) in ["put/key", "put/timer/labels/1", "cancel/key", "move/key"].iter().enumerate() {
        let problem = &results[index]["problem"];
        assert_eq!(problem["type"], "/problems/bad-request", "{problem}");
        assert_eq!(problem["errors"][0]["pointer"], format!("/changes/{index}/{pointer}"));
    }
    assert_eq!(results[4]["placed"]["outcome"], "created");

    // A body may have zero bytes. The error of a receiver loses them.
    let due = json!({ "pull": { "queue": "mail", "body": "a\0b" } });
    let id = inside.send("POST", TIMERS, due).await.json()["id"].as_str().unwrap().to_owned();
    let wait = json!({ "wait_ms": 10_000 });
    let claims = inside.send("POST", &format!("{namespace}/queues/mail/claims"), wait).await.json();
    assert_eq!(claims["claims"][0]["body"], "a\0b", "{claims}");
    let claim = claims["claims"][0]["claim"].as_str().unwrap();
    let nack = json!({ "error": "a\0b", "dead": true });
    let ended = inside.send("POST", &format!("{namespace}/claims/{claim}/nack"), nack).await;
    assert_eq!(ended.status, 204, "{ended:?}");
    let dead = inside.send("GET", &format!("{namespace}/ids/{id}"), Value::Null).await.json();
    assert_eq!(dead["last_error"], "a\u{fffd}b", "{dead}");
}
