//! Tests that the SQL functions refuse the callbacks and entries of queues that the HTTP API refuses. A timer that only
//! SQL took would be found faulty at its due moment.

use super::Deployment;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use tourbillon_durable::UtcMillis;
use tourbillon_fault::Postgres;

/// The ways into the service that take a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Both,
    Neither,
    /// The service finds the fault when it delivers the timer.
    SqlAlone,
    HttpAlone,
}

use Takes::{Both, HttpAlone, Neither, SqlAlone};

const URLS: [(&str, Takes); 74] = [
    ("https://b.c", Both),
    ("https://b.c?x", Both),
    ("https://b.c#f", Both),
    ("HTTP://B.C/", Both),
    ("http://b.c/a b", Both),
    ("http://b.c/\\x", Both),
    ("http://b.c/%zz", Both),
    ("http://b.c/é", Both),
    ("http://b.c/\u{1}", Both),
    ("http://b.c/\n", Both),
    (" \thttp://b.c/ \n", Both),
    ("ht\ntp://b\t.c/", Both),
    ("\u{a0}http://b.c/", Neither),
    ("http:///x", Both),
    ("http:b.c", Both),
    ("http:\\\\b.c\\", Both),
    ("http:/\\b.c\\@d", Both),
    ("http://a_b/", Both),
    ("http://-a/", Neither),
    ("http://a..b/", Neither),
    ("http://..", Neither),
    ("http://1../", Neither),
    ("http://a{b}\"`'/", Neither),
    ("http://b.c:/", Both),
    ("http://b.c:80/", Both),
    ("http://b.c:00443/", Both),
    ("http://b.c:1024/", Both),
    ("http://b.c:65535/", Both),
    ("http://b.c:65536/", Neither),
    ("http://b.c:99999/", Neither),
    ("http://b.c:1000000000000000/", Neither),
    ("http://b.c:-1/", Neither),
    ("http://b.c:8o/", Neither),
    ("http://b.c:80:80/", Neither),
    ("http://:80/", Neither),
    ("http://b.c:0/", Neither),
    ("http://b.c:22/", Neither),
    ("http://b.c:1023/", Neither),
    ("http://b.c:2049/", Neither),
    ("http://b.c:6379/", Neither),
    ("http://b.c:011211/", Neither),
    ("http://[::1", Neither),
    ("http://::1/", Neither),
    ("http://[::1]x/", Neither),
    ("http://[1.2.3.4]/", Neither),
    ("http://[::1.2.3]/", Neither),
    ("http://[1:2]/", Neither),
    ("http://[::g]/", Neither),
    ("http://[]/", Neither),
    ("http://[2606:4700:4700::1111]:443/", Both),
    ("http://[2606:4700::1.2.3.4]/", Both),
    ("http://127.0.0.1/", Both),
    ("http://0x7f.1/", Both),
    ("http://0177.1./", Both),
    ("http://2130706433/", Both),
    ("http://4294967296/", Neither),
    ("http://256.1.1.1/", Neither),
    ("http://1.1.1.256/", Neither),
    ("http://1.2.3.4.5/", Neither),
    ("http://a.08/", Neither),
    ("http://a.0x/", Neither),
    ("http://a b/", Neither),
    ("http://b.c|d/", Neither),
    ("http://<b>/", Neither),
    ("http://", Neither),
    ("b.c", Neither),
    ("ftp://b.c", Neither),
    ("http://exa%mple/", Neither),
    ("http://a!b/", Neither),
    ("http://a_b/", Both),
    ("http://a.b./", Both),
    // SQL reads neither escapes in the name of a host, nor international names.
    ("http://ex%61mple/", HttpAlone),
    ("http://é.example/", Both),
    ("http://xn--a/", SqlAlone),
];

const USERS: [(&str, Takes); 3] =
    [("http://a@b.c/", Neither), ("http://a:b@b.c/", Neither), ("http://@b.c/", HttpAlone)];

fn policies() -> Vec<(Value, Takes)> {
    let backoff = |backoff: Value| json!({ "backoff": backoff });
    let longest = 9_223_372_036_854_775_807_u64;
    vec![
        (json!({ "attempts": 0 }), Both),
        (json!({ "attempts": 1_000 }), Both),
        (json!({ "attempts": 1_001 }), Neither),
        (json!({ "attempts": -1 }), Neither),
        (json!({ "attempts": "3" }), Neither),
        (json!({ "attempts": true }), Neither),
        (json!({ "attempts": 1.5 }), Neither),
        (json!({ "attempts": null }), Both),
        (json!({ "timeout_ms": 99 }), Neither),
        (json!({ "timeout_ms": 100 }), Both),
        (json!({ "timeout_ms": 30_000 }), Both),
        (json!({ "timeout_ms": 30_001 }), Neither),
        (json!({ "max_age_ms": 0 }), Both),
        (json!({ "max_age_ms": 250_000_000_000_001_u64 }), Both),
        (json!({ "max_age_ms": longest }), Both),
        (json!({ "max_age_ms": longest + 1 }), Neither),
        (json!({ "misfire_within_ms": longest }), Both),
        (json!({ "jitter_ms": 0 }), Both),
        // SQL would have to compute the moment as the library does.
        (json!({ "jitter_ms": 5 }), HttpAlone),
        (json!({ "guarantee": "at-most-once" }), Both),
        (json!({ "guarantee": "x" }), Neither),
        (json!({ "guarantee": ["at-least-once"] }), Neither),
        (json!({ "tries": 1 }), Neither),
        (json!([]), Neither),
        (json!("x"), Neither),
        (backoff(json!(null)), Both),
        (backoff(json!([])), Neither),
        (backoff(json!("standard")), Neither),
        (backoff(json!({ "kind": null })), Neither),
        (backoff(json!({ "kind": "standard" })), Both),
        (backoff(json!({ "kind": "standard", "pause_ms": 1 })), Neither),
        (backoff(json!({ "kind": "fixed" })), Neither),
        (backoff(json!({ "kind": "fixed", "pause_ms": null })), Neither),
        (backoff(json!({ "kind": "fixed", "pause_ms": longest })), Both),
        (backoff(json!({ "kind": "exponential", "first_ms": 10, "max_ms": 1 })), Both),
        (backoff(json!({ "kind": "exponential", "first_ms": 10 })), Neither),
        (backoff(json!({ "kind": "ladder", "pauses_ms": [] })), Both),
        (backoff(json!({ "kind": "ladder", "pauses_ms": vec![1; 32] })), Both),
        (backoff(json!({ "kind": "ladder", "pauses_ms": vec![1; 33] })), Neither),
        (backoff(json!({ "kind": "ladder", "pauses_ms": [null] })), Neither),
        (backoff(json!({ "kind": "ladder", "pauses_ms": [1, null] })), Neither),
        (backoff(json!({ "kind": "ladder", "pauses_ms": [-1] })), Neither),
        (backoff(json!({ "kind": "ladder", "pauses_ms": ["a"] })), Neither),
    ]
}

fn headers() -> Vec<(Value, Takes)> {
    vec![
        (json!({ "x": "é" }), Both),
        (json!({ "x": "a\tb" }), Both),
        (json!({ "x": "" }), Both),
        (json!({ "x": "a\u{80}b" }), Both),
        (json!({ "x": "a\u{7f}" }), Neither),
        (json!({ "x": "a\nb" }), Neither),
        (json!({ "": "a" }), Neither),
        (json!({ "a b": "a" }), Neither),
        (json!({ "x": 1 }), Neither),
        (json!({ "KEEP-ALIVE": "x" }), Neither),
        (json!({ "Content-Length": "1" }), Neither),
        (json!({ "Proxy-X": "1" }), Neither),
        (json!({ "tourbillon-x": "1" }), Both),
        (json!({ "Tourbillon-Request-Id": "1" }), Neither),
        (json!({ "x".repeat(8_000): "a" }), Both),
        (json!({ "x".repeat(8_192): "a" }), Neither),
    ]
}

/// The timers, each as the body of a request. They wait for a day, unless they have a due moment.
fn cases() -> Vec<(Value, Takes)> {
    let callback = |url: &str| json!({ "callback": { "url": url }, "delay_ms": 86_400_000 });
    let with = |field: &str, value: Value| {
        let mut timer = callback("http://b.c/");
        timer[field] = value;
        timer
    };
    let of_callback = |field: &str, value: Value| {
        let mut timer = callback("http://b.c/");
        timer["callback"][field] = value;
        timer
    };
    let queue = |name: &str| json!({ "pull": { "queue": name }, "delay_ms": 86_400_000 });
    let mut cases: Vec<_> =
        URLS.into_iter().chain(USERS).map(|(url, takes)| (callback(url), takes)).collect();
    for (length, takes) in [(2_048, Both), (2_049, Neither)] {
        cases.push((callback(&format!("{:x<length$}", "http://b.c/")), takes));
    }
    cases.extend(policies().into_iter().map(|(policy, takes)| (with("policy", policy), takes)));
    cases.extend(headers().into_iter().map(|(headers, takes)| (of_callback("headers", headers), takes)));
    for (method, takes) in
        [("PUT", Both), ("get", Neither), ("HEAD", Neither), ("", Neither), (" POST", Neither)]
    {
        cases.push((of_callback("method", json!(method)), takes));
    }
    let labels = [
        (json!([]), Both),
        (json!([""]), Both),
        (json!(["a", "a"]), Both),
        (json!(["é".repeat(32)]), Both),
        (json!(["é".repeat(33)]), Neither),
        (json!(["1", "2", "3", "4", "5", "6", "7", "8"]), Both),
        (json!(["1", "2", "3", "4", "5", "6", "7", "8", "9"]), Neither),
    ];
    cases.extend(labels.into_iter().map(|(labels, takes)| (with("labels", labels), takes)));
    // The service takes a timer that is due in 36,600 days.
    let in_days = |days: u64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        UtcMillis::from_millis(u64::try_from(now).unwrap() + days * 86_400_000).to_string()
    };
    for (due, takes) in [
        ("1969-12-31T23:59:59.999Z", Neither),
        ("0001-01-01T00:00:00Z", Neither),
        ("1970-01-01T00:00:00Z", Both),
        (&in_days(36_599), Both),
        (&in_days(36_601), Neither),
        ("9999-12-31T00:00:00Z", Neither),
    ] {
        let mut timer = with("due", json!(due));
        let _delay = timer.as_object_mut().unwrap().remove("delay_ms");
        cases.push((timer, takes));
    }
    for (name, takes) in
        [("a.b-c_1", Both), (".", Neither), ("..", Neither), ("a b", Neither), ("é", Neither)]
    {
        cases.push((queue(name), takes));
    }
    cases.push((queue(&"q".repeat(64)), Both));
    cases.push((queue(&"q".repeat(65)), Neither));
    for (length, takes) in [(65_536, Both), (65_537, Neither)] {
        let body = "x".repeat(length);
        cases.push((of_callback("body", json!(body)), takes));
        let mut timer = queue("q");
        timer["pull"]["body"] = json!(body);
        cases.push((timer, takes));
    }
    cases
}

/// Returns the call that stores the timer of a request by SQL, in the schema `d`.
fn call(timer: &Value) -> String {
    let text = |value: &Value| format!("'{}'", value.as_str().unwrap().replace('\'', "''"));
    let work = timer.get("callback").or_else(|| timer.get("pull")).unwrap();
    let (function, first) = match timer.get("callback") {
        Some(callback) => ("schedule_callback", format!("url => {}", text(&callback["url"]))),
        None => ("schedule_queue", format!("queue => {}", text(&work["queue"]))),
    };
    let mut arguments = vec![first];
    let mut add = |name: &str, value: Option<String>| {
        arguments.extend(value.map(|value| format!("{name} => {value}")));
    };
    let json = |value: &Value| format!("'{}'", value.to_string().replace('\'', "''"));
    add("method", work.get("method").map(text));
    add("headers", work.get("headers").map(json));
    // Few bytes, because an argument of a program has a limit.
    let body = |body: &Value| format!("convert_to(repeat('x', {}), 'UTF8')", body.as_str().unwrap().len());
    add("body", work.get("body").map(body));
    add("policy", timer.get("policy").map(json));
    let labels = |labels: &Value| format!("ARRAY(SELECT jsonb_array_elements_text({}))", json(labels));
    add("labels", timer.get("labels").map(labels));
    add("due", timer.get("due").map(text));
    add("delay", timer.get("delay_ms").map(|ms| format!("'{ms} ms'")));
    format!("SELECT d.{function}({})", arguments.join(", "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_takes_the_timers_that_the_http_api_takes_but_for_those_that_are_named() {
    let Some(server) = Postgres::start(&[]) else { return };
    let deployment = Deployment::Postgres(server);
    let node = deployment.node().await;
    let Deployment::Postgres(server) = &deployment else { unreachable!() };
    let mut faults = Vec::new();
    for (timer, takes) in cases() {
        let (status, answer) = node.send("POST", super::TIMERS, timer.clone()).await;
        let by_http = status == StatusCode::CREATED;
        let by_sql = server.try_sql("postgres", &call(&timer));
        let found = match (by_http, by_sql.is_ok()) {
            (true, true) => Both,
            (false, false) => Neither,
            (false, true) => SqlAlone,
            (true, false) => HttpAlone,
        };
        if found != takes {
            let timer: String = timer.to_string().chars().take(200).collect();
            faults
                .push(format!("{timer}: {found:?}, not {takes:?}\n    HTTP: {answer}\n    SQL: {by_sql:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
