//! Tests the limits on the numbers of connections and of event streams. A client that takes too many does not lock out
//! others.

use crate::clients::{Http, Raw, timer};
use crate::process::{Daemon, SOON, folder, run, token};
use serde_json::Value;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_idle_connections_lock_nobody_out() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &["--limits-connections=16"]);
    let asks = b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(Raw::connect(daemon.address).await);
    }
    for round in 0..50 {
        let mut raw = Raw::connect(daemon.address).await;
        assert!(raw.send(asks).await);
        assert!(raw.head().await.starts_with("HTTP/1.1 404"), "round {round}");
        // The connection stays open and idle, so it keeps its share of the limit.
        held.push(raw);
    }
    let health = Http::new(daemon.address).get("/healthz").await;
    assert_eq!(health.status, 200);
}

/// One token waits at queues with as many connections as it can open. Another token's requests are answered all the
/// same, and its own receiver may wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_wait_lock_nobody_out() {
    let folder = folder();
    let make_token = |name: &str| {
        token(folder.path(), &["--role", "writer", "--namespace", name, "--name", name, "--data", "data"])
    };
    let admin = token(folder.path(), &["--role", "admin", "--name", "admin", "--data", "data"]);
    let (greedy, other) = (make_token("greedy"), make_token("other"));
    let daemon = Daemon::start(folder.path(), &["--limits-connections=64"]);
    let request = |method: &str, path: &str, token: &str, body: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for namespace in ["greedy", "other"] {
        let mut raw = Raw::connect(daemon.address).await;
        let path = format!("/v1/namespaces/{namespace}");
        assert!(raw.send(request("PUT", &path, &admin, "{}").as_bytes()).await);
        assert!(raw.head().await.starts_with("HTTP/1.1 201"));
    }
    let wait = async |namespace: &str, token: &str| {
        let mut raw = Raw::connect(daemon.address).await;
        let path = format!("/v1/namespaces/{namespace}/queues/q/claims");
        raw.send(request("POST", &path, token, r#"{"wait_ms":20000}"#).as_bytes()).await.then_some(raw)
    };
    let mut held = Vec::new();
    for _ in 0..100 {
        held.extend(wait("greedy", &greedy).await);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    for round in 0..20 {
        let mut raw = Raw::connect(daemon.address).await;
        let timer = r#"{"pull":{"queue":"far"},"delay_ms":3600000}"#;
        assert!(raw.send(request("POST", "/v1/namespaces/other/timers", &other, timer).as_bytes()).await);
        let head = raw.head().await;
        assert!(head.starts_with("HTTP/1.1 201"), "round {round}: {head}");
        held.push(raw);
    }
    let mut waits = wait("other", &other).await.unwrap();
    let is_answered = tokio::time::timeout(Duration::from_secs(1), waits.head()).await;
    assert!(is_answered.is_err(), "it waits for a timer: {is_answered:?}");
}

/// Opens a connection that gets a stream of events from the service.
async fn events(daemon: &Daemon, token: &str) -> Raw {
    let mut raw = Raw::connect(daemon.address).await;
    let head = format!("GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
    assert!(raw.send(head.as_bytes()).await);
    raw
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_events_ends_with_its_token() {
    let folder = folder();
    let make_token =
        |more: &[&str]| token(folder.path(), &[&["--role", "reader", "--data", "data"], more].concat());
    let (revoked, expiring, kept) = (
        make_token(&["--name", "revoked"]),
        make_token(&["--expires", "3s"]),
        make_token(&["--name", "kept"]),
    );
    let daemon = Daemon::start(folder.path(), &[]);
    let mut streams = Vec::new();
    for token in [&revoked, &expiring, &kept] {
        let mut stream = events(&daemon, token).await;
        assert!(stream.head().await.starts_with("HTTP/1.1 200"));
        streams.push(stream);
    }
    let begun = Instant::now();
    assert!(run(folder.path(), &["token", "revoke", "revoked", "--data", "data"]).status.success());
    let [revoked, expiring, kept] = &mut streams[..] else { panic!() };
    // The stream ends with the last chunk of its body. The connection stays open until it has been idle for too long.
    for stream in [revoked, expiring] {
        let mut text = String::new();
        while !text.ends_with("0\r\n\r\n") {
            assert!(begun.elapsed() < SOON, "{text}");
            text += &stream.rest(Duration::from_millis(50)).await.0;
        }
    }
    assert!(!kept.rest(Duration::from_millis(500)).await.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_token_cannot_hold_all_streams_of_events() {
    let folder = folder();
    let make_token = |role: &str| token(folder.path(), &["--role", role, "--data", "data"]);
    let (greedy, other) = (make_token("reader"), make_token("admin"));
    let daemon = Daemon::start(folder.path(), &[]);
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..200 {
        let mut stream = events(&daemon, &greedy).await;
        refused += usize::from(stream.head().await.starts_with("HTTP/1.1 429"));
        streams.push(stream);
    }
    assert!(refused > 0);
    assert!(events(&daemon, &other).await.head().await.starts_with("HTTP/1.1 200"));
    let http = Http::new(daemon.address).with_token(&other);
    let answer = http.try_send("GET", &timer("k"), &[], &Value::Null).await.unwrap();
    assert_eq!(answer.status, 404);
}
