//! Sends valid and invalid requests, which a generator makes from the service's own OpenAPI document.
//!
//! No handler panics, and no answer has the status 500. Each answer has a status that the document names for its
//! operation, and a body that conforms to the schema. At the end, the store's structure has no fault.
//!
//! `TOURBILLON_REQUESTS` is the number of requests. `TOURBILLON_SEED` repeats a run.

use crate::document::{document, operations};
use crate::generator::{Generator, request};
use crate::inside::Inside;
use crate::schema::fault;
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::store::{MemoryStore, TimerStore as _};
use tower::ServiceExt as _;

/// The numbers of answers in a run of random requests. A failing test prints the numbers for people.
#[derive(Debug, Default)]
struct Tally {
    statuses: BTreeMap<u16, u64>,
    disconnected: u64,
    not_sent: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_the_document_have_answers_of_the_document() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let count = number("TOURBILLON_REQUESTS", 3_000);
    let seed = number("TOURBILLON_SEED", fastrand::u64(..1_000_000));
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let inside = Inside::on(&folder, store.clone());
    let document = document();
    let operations = operations(&document);
    let is_maker = |operation: &Value| operation["operationId"] == "put_timer";
    let makers: Vec<_> = operations.iter().filter(|(_, _, operation)| is_maker(operation)).cloned().collect();
    let mut generator = Generator::new(seed, &document);
    let mut tally = Tally::default();
    let mut fulfilled: BTreeMap<String, u64> = BTreeMap::new();
    let is_whole = count >= 3_000;
    let mut missing = operations.clone();
    missing.retain(|(path, method, _)| !needs_luck(method, path));
    for request_number in 0.. {
        let is_over = request_number >= count;
        if is_over {
            missing.retain(|(path, method, _)| !fulfilled.contains_key(&format!("{method} {path}")));
            if missing.is_empty() || !is_whole {
                break;
            }
        }
        let first = missing.first().map(|(path, method, _)| (method, path));
        assert!(request_number < 3 * count, "TOURBILLON_SEED={seed}: never fulfilled: {first:?}");
        // Some requests make timers, since others need timers to change. At the end, each operation is tried until a
        // request of it is fulfilled.
        let candidates = match is_over {
            _ if generator.chance(15) => &makers,
            true => &missing,
            false => &operations,
        };
        let (path, method, operation) = generator.one(candidates);
        let mut draft = generator.draft(&path, &operation);
        let path_before = draft.path.clone();
        if generator.chance(35) {
            generator.spoil(&mut draft);
        }
        // A changed path may belong to another operation now, or to none.
        let is_elsewhere = draft.path != path_before;
        let Some(request) = request(&method, &draft) else {
            tally.not_sent += 1;
            continue;
        };
        let place = format!(
            "TOURBILLON_SEED={seed}, request {request_number}: {method} {}?{:?} with {:?}: {}",
            draft.path,
            draft.query,
            draft.headers,
            draft.body.as_deref().map_or_else(String::new, |body| String::from_utf8_lossy(body).into_owned()),
        );
        // A request for timers of a queue may wait for long, so its client leaves after two seconds.
        let answer = inside.router.clone().oneshot(request);
        let Ok(answer) = tokio::time::timeout(Duration::from_secs(2), answer).await else {
            assert!(path.ends_with("/claims"), "no answer: {place}");
            tally.disconnected += 1;
            continue;
        };
        let (parts, body) = answer.unwrap().into_parts();
        let status = parts.status.as_u16();
        *tally.statuses.entry(status).or_default() += 1;
        assert_ne!(status, 500, "{place}");
        let kind = parts.headers.get("content-type").map_or("", |kind| kind.to_str().unwrap());
        let kind = kind.split(';').next().unwrap();
        if kind == "text/event-stream" {
            *fulfilled.entry(format!("{method} {path}")).or_default() += 1;
            continue;
        }
        let bytes = body.collect().await.unwrap().to_bytes();
        let json: Value = match kind {
            "application/json" | "application/problem+json" => serde_json::from_slice(&bytes).unwrap(),
            _ => Value::Null,
        };
        let response = &operation["responses"][status.to_string()];
        if is_elsewhere && response.is_null() {
            assert!(matches!(status, 404 | 405), "{place}: {json}");
            continue;
        }
        assert!(!response.is_null(), "the status {status} is not in the document: {place}: {json}");
        if parts.status.is_success() {
            *fulfilled.entry(format!("{method} {path}")).or_default() += 1;
        } else {
            assert_eq!(kind, "application/problem+json", "{place}");
            assert_eq!(json["status"], status, "{place}");
        }
        if bytes.is_empty() {
            assert!(response["content"].is_null(), "{place}");
            continue;
        }
        let schema = &response["content"][kind]["schema"];
        assert!(!schema.is_null(), "the document has no {kind} for {status}: {place}");
        if !json.is_null() {
            let fault = fault(&json, schema, &document);
            assert_eq!(fault, None, "{place}: {json}");
        }
        generator.see(&json);
    }
    let page = inside.send("GET", "/metrics", Value::Null).await;
    assert!(String::from_utf8(page.bytes).unwrap().contains("\ntourbillon_http_panics_total 0\n"));
    assert_eq!(store.check().await.unwrap(), [], "the store after TOURBILLON_SEED={seed}");
    eprintln!("{count} requests, TOURBILLON_SEED={seed}: {tally:?}");
    eprintln!("{fulfilled:#?}");
    if is_whole {
        // If almost all requests were refused, the run would test little.
        let good: u64 = fulfilled.values().sum();
        assert!(good * 4 > count, "only {good} of {count} requests were fulfilled: {tally:?}");
    }
}

/// Returns whether a request needs an object that is rarely there, such as a schedule. Only earlier random requests can
/// have made the object.
fn needs_luck(method: &str, path: &str) -> bool {
    path.ends_with("/resume")
        || path.ends_with("/pause")
        // A schedule with this key must exist.
        || path.contains("/schedules/{key}")
        || path.ends_with("/replay")
        || path.contains("{claim}")
        || path.contains("/operations/")
        // Only a namespace without timers can be removed.
        || (method == "DELETE" && path == "/v1/namespaces/{namespace}")
}
