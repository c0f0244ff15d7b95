//! Tests timers of queues that are delivered at most once, between their claim by the service and their receiver.

use crate::faulty::{Fails, Faulty};
use crate::inside::Inside;
use crate::rig::eventually;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;

const CLAIMS: &str = "/v1/namespaces/shop/queues/q/claims";

/// Starts a service with the namespace `shop`, whose store can hold up removals.
async fn start(folder: &TempDir) -> (Inside, Arc<Faulty>) {
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(folder, store.clone());
    assert_eq!(inside.send("PUT", "/v1/namespaces/shop", json!({})).await.status, 201);
    (inside, store)
}

/// Stores a timer of the queue `q` that is delivered at most once.
async fn place(inside: &Inside, path: &str) {
    let timer = json!({ "pull": { "queue": "q" }, "policy": { "guarantee": "at-most-once" } });
    assert_eq!(inside.send("PUT", path, timer).await.status, StatusCode::CREATED);
}

/// Fetches timers of the queue `q`. Returns the claims.
async fn fetch(inside: &Inside, wait_ms: u64) -> Value {
    inside.send("POST", CLAIMS, json!({ "wait_ms": wait_ms })).await.json()["claims"].clone()
}

/// Returns the metrics of the service whose lines begin with `name`.
async fn metrics(inside: &Inside, name: &str) -> Vec<String> {
    let page = inside.send("GET", "/metrics", Value::Null).await.bytes;
    let page = String::from_utf8(page).unwrap();
    page.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}

/// Fails if the service has counted a delivery that a receiver may have got twice.
async fn assert_no_duplicates(inside: &Inside) {
    let duplicates = metrics(inside, "tourbillon_duplicates_total{").await;
    assert!(!duplicates.is_empty() && duplicates.iter().all(|line| line.ends_with(" 0")), "{duplicates:?}");
}

/// Waits until the service shows the end of a timer. Returns the timer's past.
async fn await_end(inside: &Inside, path: &str) -> Value {
    eventually("its end", async || {
        let past = inside.send("GET", &format!("{path}/past"), Value::Null).await.json();
        past["end"].is_object().then_some(past)
    })
    .await
}

/// Waits until the store holds up a removal.
async fn await_removal(store: &Faulty) {
    eventually("a removal", async || (store.hook().waiting() > 0).then_some(())).await;
}

/// Tests a cancellation during a removal. The receiver goes on to wait, and gets the next timer of the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_that_meets_the_removal_keeps_the_timer_from_its_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, store) = start(&folder).await;
    let path = "/v1/namespaces/shop/timers/k";
    store.hook().fail(Fails::RemovalsWait);
    place(&inside, path).await;
    let cancelled = async {
        await_removal(&store).await;
        let cancelled = inside.send("DELETE", path, Value::Null).await;
        store.hook().fail(Fails::Nothing);
        store.hook().let_removal_go();
        await_end(&inside, path).await;
        place(&inside, "/v1/namespaces/shop/timers/next").await;
        cancelled.json()
    };
    let (claims, cancelled) = tokio::join!(fetch(&inside, 20_000), cancelled);
    assert_eq!((&claims[0]["key"], &cancelled["result"]), (&json!("next"), &json!("in-flight")), "{claims}");
    assert_eq!(fetch(&inside, 100).await, json!([]));
    let past = await_end(&inside, path).await;
    assert_eq!((&past["end"]["how"], &past["attempts"]), (&json!("cancelled"), &json!([])), "{past}");
    assert_no_duplicates(&inside).await;
}

/// Tests a removal that takes effect and whose answer is lost. Nobody gets the timer, and the service says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_whose_removal_has_no_known_outcome_is_shown_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, store) = start(&folder).await;
    let path = "/v1/namespaces/shop/timers/k";
    store.hook().fail(Fails::RemovalAnswers);
    let ((), claims) = tokio::join!(place(&inside, path), fetch(&inside, 2_000));
    assert_eq!(claims, json!([]));
    let past = await_end(&inside, path).await;
    assert_eq!(past["end"]["how"], "failed", "{past}");
    assert!(past["end"]["detail"].as_str().unwrap().contains("was removed"), "{past}");
    assert_eq!(past["attempts"][0]["outcome"], "lost", "{past}");
    let lost = metrics(&inside, "tourbillon_lost_total ").await;
    assert_eq!(lost, ["tourbillon_lost_total 1"]);
    assert_no_duplicates(&inside).await;
}

/// Tests a receiver that goes away while the store removes its timer. Nobody gets the timer, and the service says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_is_removed_for_a_receiver_that_has_gone_is_shown_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, store) = start(&folder).await;
    let path = "/v1/namespaces/shop/timers/k";
    store.hook().fail(Fails::RemovalsWait);
    place(&inside, path).await;
    tokio::select! {
        claims = fetch(&inside, 20_000) => panic!("{claims}"),
        () = await_removal(&store) => {}
    }
    store.hook().fail(Fails::Nothing);
    store.hook().let_removal_go();
    let past = await_end(&inside, path).await;
    assert_eq!(past["end"]["how"], "failed", "{past}");
    assert!(past["end"]["detail"].as_str().unwrap().contains("was removed"), "{past}");
    assert_eq!(past["attempts"][0]["outcome"], "lost", "{past}");
    assert_eq!(past.get("parked_for"), None, "{past}");
    let lost = "tourbillon_fired_total{outcome=\"lost\"} 1";
    assert!(metrics(&inside, "tourbillon_fired_total{").await.iter().any(|line| line == lost));
    assert_eq!(metrics(&inside, "tourbillon_lost_total ").await, ["tourbillon_lost_total 1"]);
    assert_eq!(fetch(&inside, 100).await, json!([]));
    assert_no_duplicates(&inside).await;
}

/// Tests a removal that fails. The receiver does not get the timer, so a later delivery is no duplicate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_at_most_once_that_is_not_removed_counts_as_no_duplicate() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, store) = start(&folder).await;
    store.hook().fail(Fails::RemovalsFail);
    place(&inside, "/v1/namespaces/shop/timers/k").await;
    let claims = fetch(&inside, 2_000).await;
    assert!(claims.as_array().is_none_or(Vec::is_empty), "{claims}");
    eventually("the loss of its end", async || {
        let fired = metrics(&inside, "tourbillon_fired_total{outcome=\"lost\"}").await;
        fired[0].ends_with(" 1").then_some(())
    })
    .await;
    let past = inside.send("GET", "/v1/namespaces/shop/timers/k/past", Value::Null).await.json();
    assert_eq!(past["attempts"], json!([]), "no delivery has started: {past}");
    assert_no_duplicates(&inside).await;
}

/// Tests receivers that wait for so short a time that they leave at any moment. Either the receiver has the timer, or a
/// cancellation finds it, and then nobody gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_at_most_once_is_either_cancelled_or_at_its_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, _store) = start(&folder).await;
    for number in 0..40_u64 {
        let path = format!("/v1/namespaces/shop/timers/k{number}");
        let ((), claims) = tokio::join!(place(&inside, &path), fetch(&inside, 5 + number % 20));
        let is_received = !claims.as_array().unwrap().is_empty();
        let cancelled = inside.send("DELETE", &path, Value::Null).await.json();
        let is_withdrawn = ["cancelled", "in-flight"].iter().any(|word| cancelled["result"] == **word);
        assert_ne!(is_received, is_withdrawn, "{claims}, {cancelled}");
        assert_eq!(fetch(&inside, 30).await, json!([]), "{claims} before, {cancelled}");
    }
}
