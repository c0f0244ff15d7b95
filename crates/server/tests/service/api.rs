//! Tests the HTTP interface, request by request.

use crate::rig::{Receiver, Rig};
use axum::http::StatusCode;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_is_made_shown_moved_and_delivered() {
    let rig = Rig::start().await;
    let mut receiver = Receiver::start().await;
    let timer =
        json!({ "delay_ms": 3_600_000, "callback": { "url": receiver.url("/order"), "json": { "n": 17 } } });
    let path = "/v1/namespaces/default/timers/order%2017";
    let (status, placed) = rig.send("PUT", path, timer.clone()).await;
    assert_eq!((status, &placed["outcome"]), (StatusCode::CREATED, &json!("created")), "{placed}");

    let (status, problem) = rig.send("PUT", path, timer).await;
    assert_eq!((status, &problem["type"]), (StatusCode::CONFLICT, &json!("/problems/key-exists")));

    let (status, shown) = rig.send("GET", path, Value::Null).await;
    assert_eq!((status, &shown["id"], &shown["phase"]), (StatusCode::OK, &placed["id"], &json!("pending")));

    let (status, _) = rig.send("PATCH", path, json!({ "delay_ms": 0 })).await;
    assert_eq!(status, StatusCode::OK);
    let received = receiver.next().await;
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/order"));
    assert_eq!(received.body, r#"{"n":17}"#);
    assert_eq!(received.headers["webhook-id"], placed["id"].as_str().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_timer_is_gone() {
    let rig = Rig::start().await;
    let receiver = Receiver::start().await;
    let path = "/v1/namespaces/default/timers/k";
    let timer = json!({ "delay_ms": 60_000, "callback": { "url": receiver.url("/") } });
    rig.send("PUT", path, timer).await;
    assert_eq!(
        rig.send("DELETE", path, Value::Null).await,
        (StatusCode::OK, json!({ "result": "cancelled" }))
    );
    assert_eq!(
        rig.send("DELETE", path, Value::Null).await,
        (StatusCode::OK, json!({ "result": "not-found" }))
    );
    assert_eq!(rig.send("GET", path, Value::Null).await.0, StatusCode::NOT_FOUND);
}
