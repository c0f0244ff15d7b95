//! Tests the measurement of a service that acknowledges all creations but stores only a single timer.

use crate::rig::run_at;
use axum::Json;
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::net::TcpListener;

pub(crate) struct Forgetful {
    pub(crate) url: String,
    pub(crate) creations: Arc<AtomicU64>,
}

pub(crate) async fn forgetful(removed: Arc<AtomicBool>) -> Forgetful {
    let answer = |value: Value| async move || Json(value);
    let view = json!({ "name": "x", "limits": {}, "pending": 1, "leased": 0, "parked": 0, "dead": 0 });
    let operation = json!({ "id": "9", "state": "done", "begun": "2026-11-22T16:00:00.000Z", "changed": 0, "in_flight": 0 });
    let gone = async move || {
        removed.store(true, Ordering::Relaxed);
        Json(json!({}))
    };
    let creations = Arc::<AtomicU64>::default();
    let count = Arc::clone(&creations);
    let create = async move || {
        count.fetch_add(1, Ordering::Relaxed);
        Json(json!({ "id": "7", "outcome": "created" }))
    };
    let namespace = get(answer(view.clone())).put(answer(view)).delete(gone);
    let app = axum::Router::new()
        .route("/v1/namespaces/{ns}", namespace)
        .route("/v1/namespaces/{ns}/timers", post(create))
        .route("/v1/namespaces/{ns}/cancellations", post(answer(operation)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    Forgetful { url, creations }
}

#[tokio::test]
async fn a_measurement_finds_timers_that_the_service_answered_and_does_not_have() {
    let removed = Arc::<AtomicBool>::default();
    let service = forgetful(Arc::clone(&removed)).await;
    let run = run_at(&service.url, &["bench", "--connections", "2", "--seconds", "1"]).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("check: WRONG: the service counts 1 timers, and answered "), "{run:?}");
    assert!(removed.load(Ordering::Relaxed));
    let bench = ["bench", "--kind", "callback", "--seconds", "1", "--delay", "1ms", "--patience", "100ms"];
    let run = run_at(&service.url, &bench).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("callbacks have not arrived"), "{run:?}");
}
