//! Tests clients that send too slowly, send too much, or open too many connections.

use crate::clients::{Http, Raw, far, timer};
use crate::process::{Daemon, SOON, folder};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(300);
/// The pause between two bytes of a slow client. The pause is shorter than every timeout of the service.
const PAUSE: Duration = Duration::from_millis(50);

fn start(folder: &std::path::Path, more: &[&str]) -> Daemon {
    let timeouts = ["--timeouts-header=300ms", "--timeouts-body=300ms", "--timeouts-idle=600ms"];
    Daemon::start(folder, &[&timeouts, more].concat())
}

/// Sends `byte` again and again until the server closes the connection. Returns the time until the connection was
/// closed.
async fn trickle(raw: &mut Raw, byte: &[u8]) -> Duration {
    let begun = Instant::now();
    while raw.send(byte).await {
        assert!(begun.elapsed() < SOON, "the connection is open after {:?}", begun.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    begun.elapsed()
}

async fn is_served(address: SocketAddr) -> bool {
    Http::new(address).get(&timer("k")).await.status == 404
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_senders_are_cut() {
    let folder = folder();
    let daemon = start(folder.path(), &[]);
    let address = daemon.address;
    let silent = tokio::spawn(async move {
        let begun = Instant::now();
        let (sent, closed) = Raw::connect(address).await.rest(SOON).await;
        assert!(closed && sent.is_empty(), "{sent}");
        begun.elapsed()
    });
    let preface = tokio::spawn(async move {
        let mut raw = Raw::connect(address).await;
        assert!(raw.send(b"PRI * HT").await);
        let begun = Instant::now();
        assert!(raw.rest(SOON).await.1);
        begun.elapsed()
    });
    let header = tokio::spawn(async move {
        let mut raw = Raw::connect(address).await;
        assert!(raw.send(b"GET / HTTP/1.1\r\nx: ").await);
        trickle(&mut raw, b"x").await
    });
    let second_header = tokio::spawn(async move {
        let mut raw = Raw::connect(address).await;
        assert!(raw.send(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n").await);
        assert!(raw.head().await.starts_with("HTTP/1.1 404"));
        assert!(raw.send(b"GET / HTTP/1.1\r\nx: ").await);
        trickle(&mut raw, b"x").await
    });
    let idle = tokio::spawn(async move {
        let mut raw = Raw::connect(address).await;
        assert!(raw.send(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n").await);
        assert!(raw.head().await.starts_with("HTTP/1.1 404"));
        let begun = Instant::now();
        assert!(raw.rest(SOON).await.1);
        begun.elapsed()
    });
    let body = tokio::spawn(async move {
        let mut raw = Raw::connect(address).await;
        let head = "PUT /v1/namespaces/default/timers/k HTTP/1.1\r\nhost: localhost\r\n\
            content-type: application/json\r\ncontent-length: 10000\r\n\r\n{";
        assert!(raw.send(head.as_bytes()).await);
        let begun = Instant::now();
        let (answer, closed) = loop {
            // The answer comes before the body is complete.
            let (answer, closed) = raw.rest(PAUSE).await;
            if !answer.is_empty() || closed {
                break (answer + &raw.rest(SOON).await.0, true);
            }
            assert!(raw.send(b" ").await && begun.elapsed() < SOON);
        };
        assert!(closed && answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert!(
            answer.contains("application/problem+json") && answer.contains("/problems/timeout"),
            "{answer}"
        );
        begun.elapsed()
    });
    let begun = Instant::now();
    while begun.elapsed() < 2 * TIMEOUT {
        assert!(is_served(address).await, "others are served meanwhile");
        tokio::time::sleep(PAUSE).await;
    }
    for (name, stalled, least) in [
        ("silent", silent, TIMEOUT),
        ("preface", preface, TIMEOUT / 2),
        ("header", header, TIMEOUT),
        ("second header", second_header, TIMEOUT),
        ("idle", idle, TIMEOUT + TIMEOUT / 2),
        ("body", body, TIMEOUT),
    ] {
        let took = stalled.await.unwrap();
        assert!(took >= least && took < Duration::from_secs(10), "{name}: {took:?}");
    }
    assert!(is_served(address).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_wait_leave_a_place_to_others_and_stay_open() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &["--limits-connections=4"]);
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut raw = Raw::connect(daemon.address).await;
        let poll = "POST /v1/namespaces/default/queues/q/claims HTTP/1.1\r\nhost: localhost\r\n\
            content-type: application/json\r\ncontent-length: 17\r\n\r\n{\"wait_ms\":20000}";
        assert!(raw.send(poll.as_bytes()).await);
        match raw.rest(Duration::from_millis(500)).await {
            (answer, false) if answer.is_empty() => waiting.push(raw),
            (answer, _) => assert!(answer.starts_with("HTTP/1.1 429"), "{answer}"),
        }
    }
    assert!((1..4).contains(&waiting.len()), "{}", waiting.len());
    for _ in 0..20 {
        let mut raw = Raw::connect(daemon.address).await;
        let request = b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        assert!(raw.send(request).await);
        let (answer, _) = raw.rest(SOON).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    for raw in &mut waiting {
        assert!(!raw.rest(PAUSE).await.1, "a connection that waits is closed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_the_limits_are_refused() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &["--limits-request=20KiB"]);
    let mut raw = Raw::connect(daemon.address).await;
    let header = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(20 << 10));
    let _may_be_cut = raw.send(header.as_bytes()).await;
    let answer = raw.rest(SOON).await.0;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");

    let put = "PUT /v1/namespaces/default/timers/k HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for (length, start) in [("content-length: 20481", ""), ("transfer-encoding: chunked", "5001\r\n")] {
        let mut raw = Raw::connect(daemon.address).await;
        assert!(raw.send(format!("{put}{length}\r\n\r\n{start}").as_bytes()).await);
        if !start.is_empty() {
            let _may_be_cut = raw.send(" ".repeat(0x5001).as_bytes()).await;
        }
        let answer = raw.rest(SOON).await.0;
        assert!(
            answer.starts_with("HTTP/1.1 413") && answer.contains("/problems/too-large"),
            "{length}: {answer}"
        );
    }
    let http = Http::new(daemon.address);
    assert_eq!(http.send("PUT", &timer("k"), &far()).await.status, 201);
}

/// A connection refuses some requests before a handler reads them, and replaces the answers to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_has_its_line_and_its_count_with_the_status_that_was_sent() {
    let folder = folder();
    let daemon = start(folder.path(), &["--log-level", "debug", "--limits-request=20KiB"]);
    let http = Http::new(daemon.address);
    let answers = async || {
        let (_, page) = http.bytes("GET", "/metrics").await.unwrap();
        let page = String::from_utf8(page).unwrap();
        let line = page.lines().find(|line| line.starts_with("tourbillon_http_answers_total{class=\"4xx\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).expect("a count of answers")
    };
    let before = answers().await;
    let put = |path: &str, rest: &str| {
        format!("PUT {} HTTP/1.1\r\ncontent-type: application/json\r\n{rest}", timer(path))
    };
    let chunks = format!("5001\r\n{}", " ".repeat(0x5001));
    let rows = [
        ("late", put("late", "host: localhost\r\ncontent-length: 100\r\n\r\n{"), 408),
        ("long", put("long", "host: localhost\r\ncontent-length: 20481\r\n\r\n"), 413),
        ("chunked", put("chunked", "host: localhost\r\ntransfer-encoding: chunked\r\n\r\n") + &chunks, 413),
        ("hosts", put("hosts", "host: localhost\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"), 400),
        ("no-host", put("no-host", "content-length: 0\r\n\r\n"), 400),
        ("read", put("read", "host: localhost\r\ncontent-length: 2\r\n\r\n{}"), 400),
    ];
    for (key, request, status) in &rows {
        let mut raw = Raw::connect(daemon.address).await;
        let _may_be_cut = raw.send(request.as_bytes()).await;
        let head = raw.head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{key}: {head}");
        let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).expect("an id").to_owned();
        let line = daemon.line(&id).await;
        assert!(
            line.contains("a request was answered") && line.contains(&format!("status={status}")),
            "{line}"
        );
        assert!(line.contains(&timer(key)), "{line}");
        let lines =
            daemon.log().lines().filter(|line| line.contains(&id) && line.contains("status=")).count();
        assert_eq!(lines, 1, "{key}");
    }
    assert_eq!(answers().await - before, rows.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_is_spoken_without_tls_too_and_an_idle_connection_ends() {
    use axum::body::Bytes;
    use axum::http::{Request, Version};
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let folder = folder();
    let daemon = start(folder.path(), &[]);
    let stream = tokio::net::TcpStream::connect(daemon.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    for _ in 0..3 {
        let uri = format!("http://{}{}", daemon.address, timer("k"));
        let request = Request::get(uri).body(Full::<Bytes>::default()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (404, Version::HTTP_2));
        response.into_body().collect().await.unwrap();
    }
    let begun = Instant::now();
    let _how = tokio::time::timeout(SOON, connection).await.expect("the connection is idle and ends");
    assert!(begun.elapsed() >= TIMEOUT, "{:?}", begun.elapsed());
}

/// A client asks for thirty megabytes of answers and reads none of them. The service cuts the connection, although the
/// client goes on sending bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_of_its_answers_is_cut() {
    let folder = folder();
    let more =
        ["--timeouts-write=300ms", "--timeouts-header=1h", "--timeouts-idle=1h", "--limits-connections=1"];
    let daemon = Daemon::start(folder.path(), &more);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut raw = Raw(socket.connect(daemon.address).await.unwrap());
    let request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert!(raw.send(&request.repeat(160)).await);
    let took = trickle(&mut raw, b"G").await;
    assert!(took >= TIMEOUT, "{took:?}");
    // The limit is a single connection, which is free again.
    let begun = Instant::now();
    while Http::new(daemon.address)
        .try_send("GET", &timer("k"), &[], &serde_json::Value::Null)
        .await
        .is_none()
    {
        assert!(begun.elapsed() < SOON);
        tokio::time::sleep(PAUSE).await;
    }
}
