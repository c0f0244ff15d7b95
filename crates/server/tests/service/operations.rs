//! Tests operations, which change many timers in the background.

use crate::faulty::{Fails, Faults, Faulty};
use crate::inside::Inside;
use crate::operating::{number, scrape};
use crate::rig::{Receiver, Rig};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tourbillon::{Clock, ManualClock, Timestamp};
use tourbillon_durable::WallClock;
use tourbillon_durable::store::{MemoryStore, StoreErrorKind};

const TIMERS: &str = "/v1/namespaces/default/timers";
const CANCELLATIONS: &str = "/v1/namespaces/default/cancellations";

fn put(key: Option<String>, label: &str) -> Value {
    let callback = json!({ "url": "http://127.0.0.1:9999/" });
    json!({ "put": { "key": key, "timer": { "delay_ms": 600_000, "callback": callback, "labels": [label] } } })
}

async fn make(inside: &Inside, count: usize, prefix: &str, label: &str) {
    let changes: Vec<_> = (0..count).map(|n| put(Some(format!("{prefix}{n}")), label)).collect();
    let answer = inside.send("POST", "/v1/namespaces/default/batch", json!({ "changes": changes })).await;
    let results = answer.json()["results"].as_array().unwrap().clone();
    assert!(results.iter().all(|result| result["placed"]["outcome"] == "created"), "{results:?}");
}

/// A clock that is ahead of the time of day by a number of seconds, which a test can change.
#[derive(Clone)]
struct Ahead(Arc<AtomicU64>);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        WallClock::new().now() + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// Returns a clock, and a store with this clock whose calls fail as a test wants.
fn store_with_clock() -> (Ahead, Arc<Faulty>) {
    let clock = Ahead(Arc::new(AtomicU64::new(100_000)));
    let store = Faulty::new(Arc::new(MemoryStore::new(clock.clone())), Faults::default());
    (clock, Arc::new(store))
}

async fn pending(inside: &Inside) -> Value {
    inside.send("GET", "/v1/stats", Value::Null).await.json()["pending"].clone()
}

/// Waits until an operation, a change of many timers, has ended. Returns the operation.
async fn ended(inside: &Inside, id: &Value) -> Value {
    let path = format!("/v1/namespaces/default/operations/{}", id.as_str().unwrap());
    inside.until(&path, |operation| operation["state"] != "running").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_is_cancelled_several_times_during_its_delivery_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let namespace = "/v1/namespaces/default";
    let timer = json!({ "pull": { "queue": "q" }, "labels": ["x"] });
    let id = inside.send("PUT", &format!("{namespace}/timers/k"), timer).await.json()["id"].clone();
    let wish = json!({ "wait_ms": 5_000 });
    let claims = inside.send("POST", &format!("{namespace}/queues/q/claims"), wish).await.json();
    let claim = claims["claims"][0]["claim"].as_str().unwrap().to_owned();
    let path = format!("{namespace}/ids/{}", id.as_str().unwrap());
    for _ in 0..3 {
        let cancelled = inside.send("DELETE", &path, Value::Null).await.json();
        assert_eq!(cancelled["result"], "in-flight");
    }
    let changes = json!({ "changes": [{ "cancel": { "id": id } }] });
    let batch = inside.send("POST", &format!("{namespace}/batch"), changes).await.json();
    assert_eq!(batch["results"][0]["cancelled"]["result"], "in-flight", "{batch}");
    let begun =
        inside.send("POST", &format!("{namespace}/cancellations"), json!({ "label": "x" })).await.json();
    let operation = format!("{namespace}/operations/{}", begun["id"].as_str().unwrap());
    let ended = inside.until(&operation, |operation| operation["state"] == "done").await;
    assert_eq!((&ended["changed"], &ended["in_flight"]), (&json!(0), &json!(0)), "{ended}");
    let nack = format!("{namespace}/claims/{claim}/nack");
    assert_eq!(inside.send("POST", &nack, json!({})).await.status, 204);
    let stats = inside.until("/v1/stats", |stats| stats["failed"] == 1).await;
    assert_eq!(stats["cancelled"], 1, "{stats}");
    let page = scrape(&inside).await;
    for (name, label) in [
        ("tourbillon_cancelled_total", None),
        ("tourbillon_namespace_cancelled_total", Some(("namespace", "default"))),
        ("tourbillon_fired_total", Some(("outcome", "failed"))),
    ] {
        assert!((number(&page, name, label) - 1.0).abs() < 0.5, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_are_cancelled_by_their_label_or_by_the_beginning_of_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    make(&inside, 700, "a", "x").await;
    make(&inside, 300, "b", "y").await;
    let begun = inside.send("POST", CANCELLATIONS, json!({ "label": "x" })).await;
    assert_eq!(begun.status, StatusCode::ACCEPTED);
    let id = begun.json()["id"].clone();
    assert_eq!(
        begun.header("location"),
        format!("/v1/namespaces/default/operations/{}", id.as_str().unwrap())
    );
    // A timer that is made after the operation has begun is not cancelled.
    make(&inside, 1, "later", "x").await;
    let operation = ended(&inside, &id).await;
    assert_eq!((&operation["state"], &operation["changed"]), (&json!("done"), &json!(700)), "{operation}");
    assert_eq!(pending(&inside).await, 301);

    let begun = inside.send("POST", CANCELLATIONS, json!({ "key_prefix": "b2" })).await;
    let operation = ended(&inside, &begun.json()["id"]).await;
    assert_eq!((&operation["state"], &operation["changed"]), (&json!("done"), &json!(111)));
    assert_eq!(pending(&inside).await, 190);
    assert_eq!(inside.send("GET", "/v1/stats", Value::Null).await.json()["cancelled"], 811);

    let list = inside.send("GET", "/v1/namespaces/default/operations", Value::Null).await.json();
    let changed: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|one| one["changed"].clone()).collect();
    assert_eq!((changed, list.get("next")), (vec![json!(111), json!(700)], None), "the last one first");
    inside.send("PUT", "/v1/namespaces/other", json!({})).await;
    let list = inside.send("GET", "/v1/namespaces/other/operations", Value::Null).await.json();
    assert_eq!(list["items"], json!([]));

    for body in [json!({}), json!({ "label": "" }), json!({ "label": "a", "key_prefix": "b" })] {
        assert_eq!(inside.send("POST", CANCELLATIONS, body).await.problem().0, 400);
    }
    for path in ["default/operations/none", "none/operations/none", "none/operations"] {
        let path = &format!("/v1/namespaces/{path}");
        assert_eq!(inside.send("GET", path, Value::Null).await.problem().0, 404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    make(&inside, 1_000, "a", "x").await;
    make(&inside, 10, "b", "y").await;
    // The operation cancels two pages of timers, and then the disk is full.
    store.hook().fail(Fails::Changes(StoreErrorKind::Full, 2));
    let begun = inside.send("POST", CANCELLATIONS, json!({ "label": "x" })).await;
    let file = folder.path().join("operations.json");
    let at_the_start = std::fs::read(&file).unwrap();
    let id = begun.json()["id"].clone();
    let path = format!("/v1/namespaces/default/operations/{}", id.as_str().unwrap());
    inside.until(&path, |operation| operation["changed"] == 400).await;
    inside.stop().await;
    let at_the_end = std::fs::read(&file).unwrap();
    assert_ne!(at_the_start, at_the_end, "the place is stored at the end");

    store.hook().fail(Fails::Nothing);
    let inside = Inside::on(&folder, store.clone());
    let operation = ended(&inside, &id).await;
    assert_eq!((&operation["state"], &operation["changed"]), (&json!("done"), &json!(1_000)));
    assert_eq!(pending(&inside).await, 10);
    inside.stop().await;
    assert_eq!(serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap(), json!({}));

    // After a kill, the file may be as it was before. So put back the file from the operation's start, although many
    // timers are cancelled already.
    std::fs::write(&file, at_the_start).unwrap();
    let inside = Inside::on(&folder, store);
    let operation = ended(&inside, &id).await;
    assert_eq!(operation["state"], "done");
    assert!(operation["changed"].as_u64().unwrap() <= 400, "{operation}");
    assert_eq!(pending(&inside).await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_operations_is_bounded_and_a_store_that_is_read_only_ends_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    make(&inside, 10, "a", "x").await;
    store.hook().fail(Fails::Changes(StoreErrorKind::Full, 0));
    let mut ids = Vec::new();
    // At most sixteen operations run at a time, and a namespace may have three quarters of them.
    for _ in 0..12 {
        let begun = inside.send("POST", CANCELLATIONS, json!({ "label": "x" })).await;
        assert_eq!(begun.status, StatusCode::ACCEPTED);
        ids.push(begun.json()["id"].clone());
    }
    let refused = inside.send("POST", CANCELLATIONS, json!({ "label": "x" })).await;
    assert_eq!(refused.problem(), (429, "limit-reached".to_owned()));
    assert_eq!(inside.send("PUT", "/v1/namespaces/n", json!({})).await.status, StatusCode::CREATED);
    let begun = inside.send("POST", "/v1/namespaces/n/cancellations", json!({ "label": "x" })).await;
    assert_eq!(begun.status, StatusCode::ACCEPTED, "another namespace has its own");
    store.hook().fail(Fails::Changes(StoreErrorKind::ReadOnly, 0));
    for id in ids {
        let operation = ended(&inside, &id).await;
        assert_eq!(operation["state"], "failed");
        assert!(operation["error"].as_str().unwrap().contains("cannot be written"), "{operation}");
    }
    store.hook().fail(Fails::Nothing);
}

/// A receiver refuses timers for good. The service lists the dead timers with their reasons, and replays them singly or
/// together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_and_replayed() {
    let rig = Rig::start().await;
    let mut receiver = Receiver::start().await;
    receiver.statuses.lock().unwrap().extend([StatusCode::GONE; 4]);
    for n in 0..4 {
        let timer = json!({ "callback": { "url": receiver.url(&format!("/{n}")) }, "labels": [format!("l{}", n % 2)] });
        rig.send("PUT", &format!("{TIMERS}/k{n}"), timer).await;
        receiver.next().await;
    }
    let begun = std::time::Instant::now();
    let dead = loop {
        let (_, page) = rig.send("GET", &format!("{TIMERS}?phase=dead"), Value::Null).await;
        if page["items"].as_array().unwrap().len() == 4 {
            break page["items"].as_array().unwrap().clone();
        }
        assert!(begun.elapsed().as_secs() < 10, "{page}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    for timer in &dead {
        assert_eq!((&timer["phase"], &timer["reason"]), (&json!("dead"), &json!("refused")));
        assert!(timer["last_error"].as_str().unwrap().contains("410"), "{timer}");
        assert!(timer["dead_since"].is_string());
    }
    let first = dead.iter().find(|timer| timer["key"] == "k0").unwrap();
    let path = format!("/v1/namespaces/default/ids/{}", first["id"].as_str().unwrap());
    assert_eq!(rig.send("GET", &path, Value::Null).await.1["phase"], "dead");
    let (status, changed) = rig.send("POST", &format!("{path}/replay"), Value::Null).await;
    assert_eq!((status, &changed["id"]), (StatusCode::OK, &first["id"]));
    let again = receiver.next().await;
    assert_eq!(again.path, "/0");
    assert_eq!(again.headers["webhook-id"], first["id"].as_str().unwrap());

    // By now, another timer may have the key of a dead timer. So make such a timer.
    let other = json!({ "delay_ms": 600_000, "callback": { "url": receiver.url("/other") } });
    assert_eq!(rig.send("PUT", &format!("{TIMERS}/k1"), other).await.0, StatusCode::CREATED);
    let (status, begun) = rig.send("POST", "/v1/namespaces/default/replays", json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let mut paths = [receiver.next().await.path, receiver.next().await.path];
    paths.sort();
    assert_eq!(paths, ["/2", "/3"]);
    let path = format!("/v1/namespaces/default/operations/{}", begun["id"].as_str().unwrap());
    let operation = loop {
        let (_, operation) = rig.send("GET", &path, Value::Null).await;
        if operation["state"] != "running" {
            break operation;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!((&operation["changed"], &operation["refused"]), (&json!(2), &json!(1)), "{operation}");
}

/// The file of the operations cannot be replaced when an operation begins.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_cannot_be_stored_fails_with_an_unknown_outcome_and_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    make(&inside, 10, "a", "x").await;
    let in_the_way = folder.path().join("operations.new");
    std::fs::create_dir(&in_the_way).unwrap();
    let refused = inside.send("POST", CANCELLATIONS, json!({ "label": "x" })).await;
    assert_eq!(refused.problem(), (503, "store-unavailable".to_owned()));
    assert_eq!(refused.json()["outcome"], "unknown", "a file is replaced before its folder is synced");
    let list = "/v1/namespaces/default/operations";
    let listed = inside.send("GET", list, Value::Null).await.json();
    assert_eq!((&listed["items"][0]["state"], &listed["items"][0]["changed"]), (&json!("failed"), &json!(0)));
    // The end of the operation is stored as soon as the file can be replaced.
    std::fs::remove_dir(&in_the_way).unwrap();
    let file = folder.path().join("operations.json");
    let begun = std::time::Instant::now();
    while !std::fs::read(&file).is_ok_and(|text| serde_json::from_slice::<Value>(&text).unwrap() == json!({}))
    {
        assert!(begun.elapsed().as_secs() < 20, "the end is not stored");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(pending(&inside).await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_back_lets_an_operation_cancel_no_later_timer() {
    let folder = tempfile::tempdir().unwrap();
    let (clock, store) = store_with_clock();
    let inside = Inside::on(&folder, store.clone());
    make(&inside, 10, "a", "x").await;
    store.hook().fail(Fails::Reads);
    let begun = inside.send("POST", CANCELLATIONS, json!({ "label": "x" })).await;
    assert_eq!(begun.status, StatusCode::ACCEPTED);
    clock.0.store(99_990, Ordering::Relaxed);
    make(&inside, 1, "later", "x").await;
    store.hook().fail(Fails::Nothing);
    let operation = ended(&inside, &begun.json()["id"]).await;
    assert_eq!(inside.send("GET", &format!("{TIMERS}/later0"), Value::Null).await.status, StatusCode::OK);
    assert_eq!((&operation["state"], &operation["changed"]), (&json!("failed"), &json!(0)), "{operation}");
    assert!(operation["error"].as_str().unwrap().contains("clock"), "{operation}");
}

/// The estimate of a server's time is ahead after a slow answer. The next quick answer corrects the estimate, which
/// then falls although no clock has stepped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_outlives_a_correction_of_the_estimated_time() {
    const AHEAD_MS: u64 = 700;
    for falls_after_ms in [0, 100, 2 * AHEAD_MS] {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Faulty::default());
        let inside = Inside::on(&folder, store.clone());
        make(&inside, 10, "a", "x").await;
        store.hook().ahead_ms.store(AHEAD_MS, Ordering::Relaxed);
        // The operation changes nothing before the estimate has fallen.
        store.hook().fail(Fails::Lists);
        let falls = async {
            tokio::time::sleep(Duration::from_millis(falls_after_ms)).await;
            store.hook().ahead_ms.store(0, Ordering::Relaxed);
        };
        let begin = async {
            let begun = inside.send("POST", CANCELLATIONS, json!({ "label": "x" })).await;
            make(&inside, 1, "later", "x").await;
            begun
        };
        let (begun, ()) = tokio::join!(begin, falls);
        assert_eq!(begun.status, StatusCode::ACCEPTED, "{falls_after_ms}: {begun:?}");
        store.hook().fail(Fails::Nothing);
        let operation = ended(&inside, &begun.json()["id"]).await;
        let counts = (&operation["state"], &operation["changed"]);
        assert_eq!(counts, (&json!("done"), &json!(10)), "{falls_after_ms}: {operation}");
        let later = inside.send("GET", &format!("{TIMERS}/later0"), Value::Null).await;
        assert_eq!(later.status, StatusCode::OK, "{falls_after_ms}: it was made after the answer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_does_not_begin_while_the_clock_stands() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::on(&folder, Arc::new(MemoryStore::new(ManualClock::new())));
    make(&inside, 10, "a", "x").await;
    let refused = inside.send("POST", CANCELLATIONS, json!({ "label": "x" })).await;
    assert_eq!(refused.problem(), (503, "store-unavailable".to_owned()));
    let list = inside.send("GET", "/v1/namespaces/default/operations", Value::Null).await.json();
    assert_eq!(list["items"], json!([]), "{list}");
    assert_eq!(pending(&inside).await, 10);
}

/// The store remembers the ids of occurrences for an hour after their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backfill_that_goes_on_after_an_hour_makes_no_occurrence_again() {
    let folder = tempfile::tempdir().unwrap();
    let (clock, store) = store_with_clock();
    let inside = Inside::on(&folder, store.clone());
    let schedule = "/v1/namespaces/default/schedules/a";
    let new = json!({ "cron": "0 0 * * *", "pull": { "queue": "q" } });
    assert_eq!(inside.send("PUT", schedule, new).await.status, StatusCode::CREATED);
    store.hook().fail(Fails::Answers);
    let range = json!({ "from": "2025-01-01T00:00:00Z", "until": "2025-02-01T00:00:00Z" });
    let begun = inside.send("POST", &format!("{schedule}/backfill"), range).await;
    assert_eq!(begun.status, StatusCode::ACCEPTED);
    let made = "/v1/namespaces/default/timers?label=schedule:a&limit=200";
    inside.until(made, |list| list["items"].as_array().unwrap().len() == 32).await;
    clock.0.store(107_200, Ordering::Relaxed);
    store.hook().fail(Fails::Nothing);
    let operation = ended(&inside, &begun.json()["id"]).await;
    assert_eq!((&operation["state"], &operation["changed"]), (&json!("failed"), &json!(0)), "{operation}");
    assert!(operation["error"].as_str().unwrap().contains("too long ago"), "{operation}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_that_no_timer_has_begin_no_operation() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let (most, long) = ("x".repeat(255), "x".repeat(256));
    for (path, field) in [("cancellations", "label"), ("cancellations", "key_prefix"), ("replays", "label")] {
        let path = format!("/v1/namespaces/default/{path}");
        let refused = inside.send("POST", &path, json!({ field: long })).await;
        assert_eq!(refused.problem(), (400, "bad-request".to_owned()));
        assert_eq!(refused.json()["errors"][0]["pointer"], format!("/{field}"));
        assert_eq!(inside.send("POST", &path, json!({ field: most })).await.status, StatusCode::ACCEPTED);
    }
    let list = inside.send("GET", "/v1/namespaces/default/operations", Value::Null).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 3, "{list}");
}

/// Lets an operation end while its file cannot be replaced. Returns the folder that is in the way, and the file.
#[cfg(unix)]
async fn end_without_file(
    inside: &Inside,
    store: &Faulty,
    folder: &std::path::Path,
) -> [std::path::PathBuf; 2] {
    make(inside, 10, "a", "x").await;
    store.hook().fail(Fails::Reads);
    let begun = inside.send("POST", CANCELLATIONS, json!({ "label": "x" })).await;
    let [in_the_way, file] = ["operations.new", "operations.json"].map(|name| folder.join(name));
    std::fs::create_dir(&in_the_way).unwrap();
    store.hook().fail(Fails::Nothing);
    let operation = ended(inside, &begun.json()["id"]).await;
    assert_eq!((&operation["state"], &operation["changed"]), (&json!("done"), &json!(10)), "{operation}");
    assert!(stored(&file) != json!({}), "the file has the operation still");
    [in_the_way, file]
}

/// Returns the content of a file of operations.
#[cfg(unix)]
fn stored(file: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_an_operation_that_ran_is_written_until_it_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    let [in_the_way, file] = end_without_file(&inside, &store, folder.path()).await;
    std::fs::remove_dir(&in_the_way).unwrap();
    let begun = std::time::Instant::now();
    while stored(&file) != json!({}) {
        assert!(begun.elapsed().as_secs() < 20, "the end is not stored");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_stops_makes_a_last_attempt_to_store_the_end_of_an_operation() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    let [in_the_way, file] = end_without_file(&inside, &store, folder.path()).await;
    std::fs::remove_dir(&in_the_way).unwrap();
    inside.stop().await;
    assert_eq!(stored(&file), json!({}));
}
