//! Tests how much memory clients can make a service hold.

use crate::clients::{Http, Raw, far, timer};
use crate::process::{Daemon, SOON, folder, token};
use axum::body::Bytes;
use axum::http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Returns the memory of the service's process that is in RAM, in MiB.
fn resident(daemon: &Daemon) -> u64 {
    let path = format!("/proc/{}/status", daemon.id().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// Waits for the end of `work`. Returns the greatest memory of the service's process during the work, in MiB, and the
/// result of the work.
async fn greatest<T>(daemon: &Daemon, work: impl Future<Output = T>) -> (u64, T) {
    let mut work = core::pin::pin!(work);
    let mut greatest = resident(daemon);
    loop {
        tokio::select! {
            answer = &mut work => return (greatest.max(resident(daemon)), answer),
            () = tokio::time::sleep(Duration::from_millis(20)) => greatest = greatest.max(resident(daemon)),
        }
    }
}

/// Waits until the memory of the service's process is at most `start` + `but` MiB.
async fn is_given_back(daemon: &Daemon, start: u64, but: u64) {
    let begun = Instant::now();
    while resident(daemon) > start + but {
        assert!(begun.elapsed() < 3 * SOON, "{} MiB, and {start} at the start", resident(daemon));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Opens an HTTP/2 connection whose client answers pings. The service may send at most `window` bytes of each answer
/// before the client reads.
pub(crate) async fn http_2(
    address: SocketAddr,
    window: u32,
) -> (SendRequest<Full<Bytes>>, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(async move {
        let _ended = connection.await;
    });
    (sender, connection)
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(format!("http://localhost{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).unwrap()
}

/// Opens `connections` connections, and sends the same request `requests` times on each connection. Returns the number
/// of answers by status. The status 0 stands for requests without a complete answer.
async fn flood(
    address: SocketAddr,
    (connections, requests): (usize, usize),
    make: impl Fn() -> Request<Full<Bytes>>,
) -> std::collections::BTreeMap<u16, usize> {
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(http_2(address, 65_535).await);
    }
    let mut answers = Vec::new();
    for (sender, _) in &open {
        for _ in 0..requests {
            let (mut sender, request) = (sender.clone(), make());
            answers.push(tokio::spawn(async move {
                let answer = sender.send_request(request).await.ok()?;
                let status = answer.status().as_u16();
                answer.into_body().collect().await.ok()?;
                Some(status)
            }));
        }
    }
    let mut counts = std::collections::BTreeMap::new();
    for answer in answers {
        *counts.entry(answer.await.unwrap().unwrap_or(0)).or_default() += 1;
    }
    counts
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_token_makes_the_service_hold_little() {
    let folder = folder();
    let admin = token(folder.path(), &["--role", "admin", "--data", "data"]);
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address).with_token(&admin);
    assert_eq!(http.get(&timer("k")).await.status, 404);
    let start = resident(&daemon);
    let form = Bytes::from(format!("token={}", "x".repeat(150_000)));
    let make = || request("POST", "/ui/sign-in", &[FORM], form.clone());
    let (most, counts) = greatest(&daemon, flood(daemon.address, (40, 250), make)).await;
    assert!(most < 150, "{start} to {most} MiB: {counts:?}");
    assert!(!counts.contains_key(&200), "{counts:?}");
    is_given_back(&daemon, start, 20).await;
    assert_eq!(http.get(&timer("k")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_is_asked_before_a_body_is_read_and_bodies_have_a_budget() {
    let folder = folder();
    let bearer = |role: &str| {
        let token = token(folder.path(), &["--role", role, "--data", "data"]);
        format!("Bearer {token}")
    };
    let (reader, writer) = (bearer("reader"), bearer("writer"));
    let daemon = Daemon::start(folder.path(), &[]);
    let path = "/v1/namespaces/default/batch";
    // A request with the role of a reader is refused before the service has received any byte of its body.
    let mut raw = Raw::connect(daemon.address).await;
    let (name, kind) = JSON;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {reader}\r\n{name}: {kind}\r\n\
         content-length: 8000000\r\n\r\n"
    );
    assert!(raw.send(head.as_bytes()).await);
    assert!(raw.head().await.starts_with("HTTP/1.1 403"));

    // Writers share the limited memory for bodies, and the service goes on.
    let body = Bytes::from(format!("{{\"changes\": [{}]}}", " ".repeat(8_000_000)));
    let make = || request("POST", path, &[("authorization", &writer), JSON], body.clone());
    let (most, counts) = greatest(&daemon, flood(daemon.address, (10, 10), make)).await;
    assert!(most < 250, "{most} MiB: {counts:?}");
    assert!(counts.keys().all(|status| [200, 429].contains(status)), "{counts:?}");
    assert!(counts[&200] > 5, "{counts:?}");
    let http = Http::new(daemon.address).with_token(&writer["Bearer ".len()..]);
    assert_eq!(http.send("PUT", &timer("k"), &far()).await.status, 201);
}

/// The test opens `TOURBILLON_CONNECTIONS` connections, or 400 connections if this environment variable is not set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_token_that_take_no_answer_hold_little() {
    let count = std::env::var("TOURBILLON_CONNECTIONS").map_or(400, |count| count.parse().unwrap());
    let folder = folder();
    let admin = token(folder.path(), &["--role", "admin", "--data", "data"]);
    let daemon = Daemon::start(folder.path(), &["--timeouts-write=5s", "--timeouts-idle=5s"]);
    let http = Http::new(daemon.address).with_token(&admin);
    assert_eq!(http.get(&timer("k")).await.status, 404);
    let start = resident(&daemon);
    let work = async {
        let mut open = Vec::new();
        for _ in 0..count {
            let (sender, connection) = http_2(daemon.address, 1).await;
            let answers: Vec<_> = (0..20)
                .map(|_| {
                    let mut sender = sender.clone();
                    let request = request("GET", "/ui/sign-in", &[], Bytes::new());
                    tokio::spawn(async move { sender.send_request(request).await })
                })
                .collect();
            open.push((sender, connection, answers));
        }
        let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
        let mut unread = Vec::new();
        for (_, _, answers) in &mut open {
            for answer in answers.drain(..) {
                let answer = answer.await.unwrap();
                *statuses.entry(answer.as_ref().map_or(0, |answer| answer.status().as_u16())).or_default() +=
                    1;
                unread.push(answer);
            }
        }
        (open, unread, statuses)
    };
    let (most, (open, unread, statuses)) = greatest(&daemon, work).await;
    assert!(most < 150, "{start} to {most} MiB: {statuses:?}");
    assert!(statuses.contains_key(&503), "more than some at a time are refused: {statuses:?}");
    // The service cuts these connections, although their clients answer pings.
    for (_, connection, _) in open {
        tokio::time::timeout(SOON, connection).await.expect("the connection ends").unwrap();
    }
    drop(unread);
    is_given_back(&daemon, start, 20).await;
    assert_eq!(http.get(&timer("k")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_http_2_that_takes_nothing_of_one_answer_is_cut() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &["--timeouts-write=500ms", "--timeouts-idle=1h"]);
    let http = Http::new(daemon.address);
    assert_eq!(http.send("PUT", &timer("k"), &far()).await.status, 201);
    for path in ["/openapi.json", &timer("k")] {
        let (mut sender, connection) = http_2(daemon.address, 1).await;
        let unread = sender.send_request(request("GET", path, &[], Bytes::new())).await.unwrap();
        // The client goes on reading other answers on the same connection.
        let taken = Arc::new(AtomicU64::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (counter, end) = (Arc::clone(&taken), Arc::clone(&is_over));
        let others = tokio::spawn(async move {
            while !end.load(Ordering::Relaxed) {
                let request = request("GET", &timer("none"), &[], Bytes::new());
                let Ok(answer) = sender.send_request(request).await else { return };
                if answer.into_body().collect().await.is_ok() {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let begun = Instant::now();
        tokio::time::timeout(SOON, connection).await.expect("the connection ends").unwrap();
        assert!(begun.elapsed() > Duration::from_millis(400), "{path}: {:?}", begun.elapsed());
        assert!(taken.load(Ordering::Relaxed) > 0, "{path}");
        is_over.store(true, Ordering::Relaxed);
        others.await.unwrap();
        drop(unread);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_http_2_that_takes_an_answer_slowly_gets_all_of_it() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &["--timeouts-write=2s"]);
    let (mut sender, _connection) = http_2(daemon.address, 16 << 10).await;
    let answer = sender.send_request(request("GET", "/openapi.json", &[], Bytes::new())).await.unwrap();
    let (mut body, mut bytes, begun) = (answer.into_body(), Vec::new(), Instant::now());
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(frame.unwrap().data_ref().unwrap());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert!(document["paths"].is_object());
}
