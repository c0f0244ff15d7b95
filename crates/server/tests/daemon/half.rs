//! Tests two demands of HTTP/1: a request names a single host, and a client gets its answers after it has closed its
//! half of the connection.

use crate::clients::{Http, Raw, far, timer};
use crate::process::{Daemon, SOON, folder};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_names_one_host() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &[]);
    for (head, status) in [
        ("GET /healthz HTTP/1.1\r\nhost: localhost", 200),
        ("GET /healthz HTTP/1.1", 400),
        ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nhost: localhost", 400),
        ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nHost: evil.example", 400),
        ("GET /healthz HTTP/1.1\r\nhost: local host", 400),
        ("GET http://localhost/healthz HTTP/1.1", 400),
    ] {
        let mut raw = Raw::connect(daemon.address).await;
        assert!(raw.send(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes()).await);
        let answer = raw.rest(SOON).await.0;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_closes_its_half_gets_its_answers() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &[]);
    let body = far().to_string();
    let put = |key: &str| {
        format!(
            "PUT {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            timer(key),
            body.len()
        )
    };
    for round in 0..20 {
        let mut raw = Raw::connect(daemon.address).await;
        let both = put(&format!("a{round}")) + &put(&format!("b{round}"));
        assert!(raw.send(both.as_bytes()).await);
        raw.0.shutdown().await.unwrap();
        let (answers, is_closed) = raw.rest(SOON).await;
        assert!(is_closed && answers.matches("HTTP/1.1 201").count() == 2, "{answers}");
    }
    // The answers are long, and the client reads them slowly.
    let whole = Http::new(daemon.address).bytes("GET", "/openapi.json").await.unwrap().1.len();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut raw = Raw(socket.connect(daemon.address).await.unwrap());
    assert!(raw.send(&b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(40)).await);
    raw.0.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (answers, is_closed) = raw.rest(SOON).await;
    assert!(is_closed && answers.len() > 40 * whole, "{} of {}", answers.len(), 40 * whole);
    // If the client closes its half in the middle of a body, no answer says that the request was fulfilled.
    let mut raw = Raw::connect(daemon.address).await;
    let cut = put("cut");
    assert!(raw.send(&cut.as_bytes()[..cut.len() - 1]).await);
    raw.0.shutdown().await.unwrap();
    let (answer, is_closed) = raw.rest(SOON).await;
    assert!(is_closed && !answer.contains(" 201 "), "{answer}");
    assert_eq!(Http::new(daemon.address).get(&timer("cut")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_ends_with_its_client_and_takes_no_timer() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let path = "/v1/namespaces/default/queues/q/claims";
    let mut raw = Raw::connect(daemon.address).await;
    let body = json!({ "wait_ms": 20_000 }).to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert!(raw.send(head.as_bytes()).await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    raw.0.shutdown().await.unwrap();
    let (answer, is_closed) = raw.rest(SOON).await;
    assert!(is_closed && answer.is_empty() && begun.elapsed() < Duration::from_secs(10), "{answer}");
    let due = json!({ "pull": { "queue": "q" } });
    assert_eq!(http.send("PUT", &timer("k"), &due).await.status, 201);
    let claimed = http.send("POST", path, &json!({ "wait_ms": 10_000 })).await;
    assert_eq!(claimed.json["claims"].as_array().map(Vec::len), Some(1), "{}", claimed.json);
}
