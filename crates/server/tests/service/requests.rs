//! Tests the ids of requests, from the creation of a timer to its callback.

use crate::inside::Inside;
use crate::rig::Receiver;
use serde_json::{Value, json};

const TIMERS: &str = "/v1/namespaces/default/timers";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_the_client_gave_is_stored_with_the_timer_and_sent_with_each_callback() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, mut receiver) = (Inside::start(&folder), Receiver::start().await);
    let now = json!({ "callback": { "url": receiver.url("/"), "headers": { "x-order": "17" } } });
    let id = [("x-request-id", "ticket-17")];
    let made = inside.with("PUT", &format!("{TIMERS}/k"), &id, now.clone()).await;
    assert_eq!((made.status.as_u16(), made.header("x-request-id")), (201, "ticket-17"));
    let received = receiver.next().await;
    assert_eq!(
        (&received.headers["tourbillon-request-id"], &received.headers["x-order"]),
        (&"ticket-17".parse().unwrap(), &"17".parse().unwrap())
    );

    // The callback has as many bytes of headers as it may have. The request's id does not count towards them.
    let fill = "f".repeat(8_192 - "x-fill".len() - 4);
    let full = json!({ "callback": { "url": receiver.url("/"), "headers": { "x-fill": fill } } });
    let with_key = [("x-request-id", "ticket-18"), ("idempotency-key", "once")];
    assert_eq!(inside.with("POST", TIMERS, &with_key, full.clone()).await.status, 201);
    assert_eq!(receiver.next().await.headers["tourbillon-request-id"], "ticket-18");
    // A repetition is recognised even if its request id differs.
    let again = [("x-request-id", "ticket-19"), ("idempotency-key", "once")];
    let again = inside.with("POST", TIMERS, &again, full).await;
    assert_eq!((again.status.as_u16(), &again.json()["outcome"]), (200, &"repeated".into()));

    // All timers of a batch have the request id of the batch.
    let batch = json!({ "changes": [{ "put": { "timer": now } }] });
    inside.with("POST", "/v1/namespaces/default/batch", &[("x-request-id", "batch-1")], batch).await;
    assert_eq!(receiver.next().await.headers["tourbillon-request-id"], "batch-1");

    // An id that the service made itself is not stored with the timer.
    inside.with("POST", TIMERS, &[], now).await;
    assert!(!receiver.next().await.headers.contains_key("tourbillon-request-id"));
    let own =
        json!({ "callback": { "url": receiver.url("/"), "headers": { "Tourbillon-Request-Id": "x" } } });
    let refused = inside.with("POST", TIMERS, &[], own).await;
    assert_eq!(refused.problem(), (400, "bad-request".to_owned()));
    assert_eq!(refused.json()["request_id"], refused.header("x-request-id"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_fetches_a_timer_gets_the_id_too() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let pull = json!({ "pull": { "queue": "q", "body": "b" } });
    inside.with("PUT", &format!("{TIMERS}/k"), &[("x-request-id", "ticket-17")], pull).await;
    let wish = json!({ "wait_ms": 10_000 });
    let claims = inside.with("POST", "/v1/namespaces/default/queues/q/claims", &[], wish).await.json();
    assert_eq!(claims["claims"][0]["request_id"], "ticket-17", "{claims}");
    assert_eq!(claims["claims"][0]["body"], "b");
    let shown = inside.with("GET", &format!("{TIMERS}/k"), &[], Value::Null).await.json();
    assert_eq!(shown["request_id"], "ticket-17", "{shown}");
}
