//! Tests the stream of events, the service's numbers, and its health.

use crate::faulty::{Fails, Faulty};
use crate::inside::Inside;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::store::StoreErrorKind;
use tower::ServiceExt as _;

const TIMERS: &str = "/v1/namespaces/default/timers";

/// A client's open stream of events.
struct Stream {
    body: Body,
    text: String,
}

impl Stream {
    async fn open(inside: &Inside, path: &str) -> Self {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = inside.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        assert_eq!(response.headers()["x-accel-buffering"], "no", "nginx passes events on as they come");
        Self { body: response.into_body(), text: String::new() }
    }

    /// Reads the next event of the stream, as a block of lines. `None` at the end of the stream.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let frame = tokio::time::timeout(Duration::from_secs(60), self.body.frame()).await.unwrap()?;
            self.text.push_str(core::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap());
        }
    }

    async fn event(&mut self) -> Value {
        let block = self.block().await.unwrap();
        serde_json::from_str(block.strip_prefix("data: ").unwrap()).unwrap()
    }
}

fn timer() -> Value {
    json!({ "delay_ms": 600_000, "callback": { "url": "http://127.0.0.1:9999/" }, "if_present": "replace" })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_show_what_happens_and_end_when_the_service_stops() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let mut all = Stream::open(&inside, "/v1/events").await;
    let mut own = Stream::open(&inside, "/v1/events?namespace=default").await;
    let path = format!("{TIMERS}/k");
    let first = inside.send("PUT", &path, timer()).await.json();
    let second = inside.send("PUT", &path, timer()).await.json();
    inside.send("PATCH", &path, json!({ "delay_ms": 700_000 })).await;
    inside.send("DELETE", &path, Value::Null).await;
    for stream in [&mut all, &mut own] {
        for (kind, id) in [
            ("created", &first["id"]),
            ("replaced", &first["id"]),
            ("created", &second["id"]),
            ("moved", &second["id"]),
            ("cancelled", &second["id"]),
        ] {
            let event = stream.event().await;
            assert_eq!((&event["kind"], &event["id"]), (&json!(kind), id), "{event}");
            assert_eq!((&event["key"], &event["namespace"]), (&json!("k"), &json!("default")));
        }
    }
    let none = inside.send("GET", "/v1/events?namespace=none", Value::Null).await;
    assert_eq!(none.problem().0, 404);
    inside.service.begin_stop();
    assert_eq!((all.block().await, own.block().await), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_too_slow_is_shown_how_many_events_it_has_missed() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let mut stream = Stream::open(&inside, "/v1/events").await;
    let put = json!({ "put": { "timer": timer() } });
    for _ in 0..2 {
        let batch = json!({ "changes": vec![put.clone(); 1_000] });
        assert_eq!(inside.send("POST", "/v1/namespaces/default/batch", batch).await.status, 200);
    }
    let first = stream.event().await;
    let missed = first["missed"].as_u64().unwrap();
    assert!(missed > 0, "{first}");
    for _ in missed + 1..2_000 {
        let event = stream.event().await;
        assert_eq!(event.get("missed"), None);
    }
    inside.service.begin_stop();
    assert_eq!(stream.block().await, None, "every event was shown or counted");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_has_a_comment_every_fifteen_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let mut stream = Stream::open(&inside, "/v1/events").await;
    let begun = tokio::time::Instant::now();
    for count in 1..=3 {
        assert_eq!(stream.block().await.unwrap(), ": heartbeat");
        assert_eq!(begun.elapsed().as_secs(), 15 * count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_readers_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let mut streams = Vec::new();
    // A client may open three quarters of 256 streams, so some are left for others.
    for _ in 0..192 {
        streams.push(Stream::open(&inside, "/v1/events").await);
    }
    let refused = inside.send("GET", "/v1/events", Value::Null).await;
    assert_eq!(refused.problem(), (429, "limit-reached".to_owned()));
    drop(streams.pop());
    streams.push(Stream::open(&inside, "/v1/events").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_follows_the_store_and_health_follows_the_loop() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    for path in ["/readyz", "/healthz"] {
        let answer = inside.send("GET", path, Value::Null).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (200, json!({ "ok": true })));
    }
    store.hook().fail(Fails::Reads);
    let answer = inside.send("GET", "/readyz", Value::Null).await;
    assert_eq!(answer.problem(), (503, "store-unavailable".to_owned()));
    let json = answer.json();
    assert_eq!(json["ok"], false);
    assert!(json["reasons"][0].as_str().unwrap().contains("the disk is gone"), "{json}");
    assert_eq!(inside.send("GET", "/healthz", Value::Null).await.status, 200, "a start would not help");
    let stats = inside.send("GET", "/v1/stats", Value::Null).await;
    assert_eq!(stats.problem().0, 503);
    let metrics = inside.send("GET", "/metrics", Value::Null).await;
    assert_eq!(metrics.status, 200, "numbers that need no store are there");
    store.hook().fail(Fails::Nothing);
    inside.until("/readyz", |json| json["ok"] == true).await;

    // From now on, the store does not answer a claim of due timers.
    store.hook().fail(Fails::ClaimsHang);
    let due = json!({ "callback": { "url": "http://127.0.0.1:9999/" } });
    inside.send("POST", TIMERS, due).await;
    let begun = std::time::Instant::now();
    let health = loop {
        let answer = inside.send("GET", "/healthz", Value::Null).await;
        if answer.status == 503 {
            break answer;
        }
        assert!(begun.elapsed().as_secs() < 20);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(begun.elapsed().as_secs() >= 9, "a store may take its time");
    assert!(health.json()["reasons"][0].as_str().unwrap().contains("waited for the store"), "{health:?}");
    assert_eq!(inside.send("GET", "/readyz", Value::Null).await.status, 503);
    inside.service.begin_stop();
    // The loop that delivers timers hangs, so the service must not be dropped: this would wait for the loop.
    let _running = std::mem::ManuallyDrop::new(inside);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_come_from_the_service_its_deliveries_and_its_engine() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    for n in 0..3 {
        inside.send("PUT", &format!("{TIMERS}/k{n}"), timer()).await;
    }
    inside.send("DELETE", &format!("{TIMERS}/k0"), Value::Null).await;
    inside.send("GET", "/nowhere", Value::Null).await;
    let answer = inside.send("GET", "/metrics", Value::Null).await;
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let page = String::from_utf8(answer.bytes).unwrap();
    for line in [
        "tourbillon_timers{state=\"pending\"} 2",
        "tourbillon_created_total 3",
        "tourbillon_cancelled_total 1",
        "tourbillon_http_answers_total{class=\"2xx\"} 4",
        "tourbillon_http_answers_total{class=\"4xx\"} 1",
        "tourbillon_http_panics_total 0",
        "tourbillon_alive 1",
        "tourbillon_durable_deliveries_total 0",
        "# TYPE tourbillon_engine_fired_total counter",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} is missing in\n{page}");
    }
    // The page names the type of each family of numbers once.
    let mut families: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let count = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), count);

    let stats = inside.send("GET", "/v1/stats", Value::Null).await.json();
    for (name, number) in [("pending", 2), ("created", 3), ("cancelled", 1), ("overdue_ms", 0)] {
        assert_eq!(stats[name], number, "{name} of {stats}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_is_found_and_changed_by_its_id_in_its_namespace_only() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let id = inside.send("POST", TIMERS, timer()).await.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/namespaces/default/ids/{id}");
    assert_eq!(inside.send("GET", &path, Value::Null).await.json()["phase"], "pending");
    for (verb, phase, status) in [
        ("resume", "pending", 409),
        ("pause", "parked", 200),
        ("pause", "parked", 200),
        ("resume", "pending", 200),
        ("replay", "pending", 409),
    ] {
        let answer = inside.send("POST", &format!("{path}/{verb}"), Value::Null).await;
        assert_eq!(answer.status.as_u16(), status, "{verb}: {answer:?}");
        assert_eq!(inside.send("GET", &path, Value::Null).await.json()["phase"], phase);
    }
    let other = format!("/v1/namespaces/none/ids/{id}");
    for (method, path) in
        [("GET", &other), ("DELETE", &other), ("GET", &"/v1/namespaces/default/ids/x".to_owned())]
    {
        let status = inside.send(method, path, Value::Null).await.problem().0;
        assert_eq!(status, if path == &other { 404 } else { 400 });
    }
    assert_eq!(inside.send("DELETE", &path, Value::Null).await.json()["result"], "cancelled");
    assert_eq!(inside.send("DELETE", &path, Value::Null).await.json()["result"], "not-found");
    assert_eq!(inside.send("POST", &format!("{path}/fire"), Value::Null).await.problem().0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_filtered_by_due_moment_and_paged_by_cursors_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    for n in 0..20 {
        let mut timer = timer();
        timer["delay_ms"] = json!(1_000_000 + 10_000 * n);
        timer["labels"] = json!([format!("l{}", n % 2)]);
        inside.send("PUT", &format!("{TIMERS}/k{n:02}"), timer).await;
    }
    let due = inside.send("GET", &format!("{TIMERS}/k10"), Value::Null).await.json()["due"].clone();
    let due = due.as_str().unwrap();
    for (query, count) in [
        (format!("due_before={due}"), 10),
        (format!("due_before={due}&phase=pending"), 10),
        (format!("due_before={due}&label=l1"), 5),
        (format!("due_before={due}&key_prefix=k0"), 10),
        (format!("due_before={due}&key_prefix=k1"), 0),
        (format!("due_before={due}&due_after={due}"), 0),
        (format!("created_after={due}"), 0),
        ("key_prefix=k1".to_owned(), 10),
    ] {
        let (mut keys, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = inside.send("GET", &format!("{TIMERS}?{query}&limit=3{cursor}"), Value::Null).await;
            assert_eq!(page.status, 200, "{page:?}");
            let page = page.json();
            keys.extend(page["items"].as_array().unwrap().iter().map(|timer| timer["key"].to_string()));
            pages += 1;
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count, "{query}: {keys:?}");
        assert!(pages <= 8, "{query} took {pages} pages");
        if !cursor.is_empty() {
            let other = inside.send("GET", &format!("{TIMERS}?limit=3{cursor}"), Value::Null).await;
            assert_eq!(other.problem().0, 400, "a cursor of another list");
        }
    }
    store.hook().fail(Fails::Changes(StoreErrorKind::Full, 0));
    assert_eq!(inside.send("GET", TIMERS, Value::Null).await.status, 200, "reads go on");
    store.hook().fail(Fails::Nothing);
}
