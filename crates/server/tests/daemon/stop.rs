//! Tests the end of a service by a signal, under load.

use crate::clients::{Http, Raw, callback, far, timer};
use crate::process::{Daemon, folder, until};
use crate::receiver::Receiver;
use rustix::process::Signal;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The time that the program may take to end, in addition to the time of the setting `drain`.
const SECOND: Duration = Duration::from_secs(1);
/// The time that a busy machine may add to the end of the program.
const SLACK: Duration = Duration::from_secs(3);

/// Makes timers until the service has ended. Returns the keys of the acknowledged timers.
async fn make_until_the_end(http: Http, name: usize) -> Vec<String> {
    let mut made = Vec::new();
    for number in 0.. {
        let key = format!("{name}-{number}");
        match http.try_send("PUT", &timer(&key), &[], &far()).await {
            Some(answer) if answer.status == 201 => made.push(key),
            Some(answer) => {
                assert_eq!(answer.status, 503, "{}", answer.json);
                break;
            }
            None => break,
        }
    }
    made
}

async fn make_due(http: &Http, receiver: &Receiver, count: usize) {
    for number in 0..count {
        let due = callback(&receiver.url(&format!("/{number}")), 0);
        assert_eq!(http.send("PUT", &timer(&format!("d{number}")), &due).await.status, 201);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_done_at_the_end_is_given_back_within_a_second() {
    const COUNT: usize = 40;
    let (folder, receiver) = (folder(), Receiver::start(Duration::from_secs(3_600)).await);
    // Of the 64 deliveries at a time, an unknown host gets a quarter.
    let mut daemon =
        Daemon::start(folder.path(), &["--drain", "300ms", "--deliveries-host-concurrency", "64"]);
    let http = Http::new(daemon.address);
    make_due(&http, &receiver, COUNT).await;
    let makers: Vec<_> = (0..4).map(|name| tokio::spawn(make_until_the_end(http.clone(), name))).collect();
    until("callbacks are under way", || receiver.count() >= 16).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = receiver.log();

    let begun = Instant::now();
    daemon.signal(Signal::TERM);
    let status = daemon.end(Duration::from_secs(20));
    let took = begun.elapsed();
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    assert!(took < Duration::from_millis(300) + SECOND + SLACK, "{took:?}: {}", daemon.log());
    let line = daemon.line("given back").await;
    assert!(!line.contains(" 0 given back"), "{line}");
    let mut made = Vec::new();
    for maker in makers {
        made.extend(maker.await.unwrap());
    }
    assert!(!made.is_empty());

    receiver.set_pause(Duration::ZERO);
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let begun = Instant::now();
    until("all are delivered", || {
        let log = receiver.log();
        log.iter()
            .filter(|received| received.answered)
            .map(|received| &received.id)
            .collect::<BTreeSet<_>>()
            .len()
            == COUNT
    })
    .await;
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("stopped in {took:?}; delivered after the next start in {:?}", begun.elapsed());
    }
    // A delivery that the stop has cut does not count as an attempt. So the next delivery is the first attempt again.
    for cut in &before {
        let again = receiver.log().into_iter().filter(|received| received.answered && received.id == cut.id);
        assert!(
            again.clone().count() == 1 && again.clone().all(|received| received.attempt == "1"),
            "{cut:?}"
        );
    }
    for key in &made {
        assert_eq!(http.get(&timer(key)).await.status, 200, "{key} was acknowledged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_under_way_are_finished_and_not_repeated() {
    let (folder, receiver) = (folder(), Receiver::start(Duration::from_millis(400)).await);
    let mut daemon = Daemon::start(folder.path(), &[]);
    make_due(&Http::new(daemon.address), &receiver, 12).await;
    until("callbacks are under way", || receiver.count() >= 12).await;
    daemon.signal(Signal::TERM);
    let status = daemon.end(Duration::from_secs(20));
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    daemon.line(" 0 given back").await;
    assert!(receiver.log().iter().all(|received| received.answered));

    let _daemon = Daemon::start(folder.path(), &[]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(receiver.count(), 12, "none is repeated");
}

/// Clients stop in the middle of a connection, each client at another point. The clients do not delay the service's
/// end, even with long timeouts and a long `drain`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_stand_still_do_not_delay_the_end() {
    let folder = folder();
    let long =
        ["--drain", "1h", "--timeouts-header", "1h", "--timeouts-body", "1h", "--timeouts-write", "1h"];
    let mut daemon = Daemon::start(folder.path(), &long);
    let http = Http::new(daemon.address);
    // The timers are so large that an answer with all of them does not fit into the buffers of the sockets.
    let body = "x".repeat(60_000);
    for key in 0..200 {
        let far = json!({ "delay_ms": 600_000, "labels": ["long"], "pull": { "queue": "q", "body": body } });
        assert_eq!(http.send("PUT", &timer(&format!("{key}")), &far).await.status, 201);
    }
    let head = |line: &str, rest: &str| format!("{line} HTTP/1.1\r\nhost: localhost\r\n{rest}");
    let put = head(
        &format!("PUT {}", timer("k")),
        "content-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    );
    let list = head("GET /v1/namespaces/default/timers?limit=200", "\r\n");
    let settings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
    let mut clients = Vec::new();
    for sent in ["", "GE", "GET /healthz HTTP/1.1\r\nhost: lo", &put, &list, settings] {
        let mut raw = Raw::connect(daemon.address).await;
        assert!(raw.send(sent.as_bytes()).await);
        clients.push(raw);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(Duration::from_secs(20)).code(), Some(0), "{}", daemon.log());
    let took = begun.elapsed();
    assert!(took < 2 * SECOND + SLACK, "{took:?}: {}", daemon.log());
    drop(clients);
}

/// A connection without a running request does not delay the service's end. This holds for a connection that was never
/// used too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_request_end_at_once() {
    let folder = folder();
    let mut daemon = Daemon::start(folder.path(), &["--drain", "1h"]);
    let kept = Http::new(daemon.address);
    assert_eq!(kept.get("/healthz").await.status, 200);
    let mut part = Raw::connect(daemon.address).await;
    assert!(part.send(b"GET /healthz HTTP/1.1\r\nhost: lo").await);
    let _silent = Raw::connect(daemon.address).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(Duration::from_secs(20)).code(), Some(0), "{}", daemon.log());
    let line = daemon.line("stopped after").await;
    let seconds: f64 =
        line.split("stopped after ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(seconds < 0.9, "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_the_service_at_once() {
    let (folder, receiver) = (folder(), Receiver::start(Duration::from_secs(3_600)).await);
    let mut daemon = Daemon::start(folder.path(), &["--drain", "1h"]);
    make_due(&Http::new(daemon.address), &receiver, 1).await;
    until("a callback is under way", || receiver.count() == 1).await;
    daemon.signal(Signal::INT);
    daemon.line("stopping").await;
    daemon.signal(Signal::HUP);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(Duration::from_secs(20)).code(), Some(143), "{}", daemon.log());
}
