//! Tests the commands with a service that cannot be reached, breaks connections, or refuses requests.

use crate::rig::{Fake, program, run_at};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket};

const PUT: [&str; 5] = ["put", "--in", "1h", "--callback", "http://127.0.0.1:9/"];

#[tokio::test]
async fn a_service_that_is_not_there_is_unreachable() {
    // The socket keeps its port from others, and does not listen.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    for arguments in [&PUT[..], &["get", "k"], &["cancel", "k"], &["tail"], &["top"], &["bench"]] {
        let run = run_at(&url, arguments).await;
        assert_eq!((run.code, &*run.out), (4, ""), "{arguments:?}: {run:?}");
        let message = format!("tourbillon: the service cannot be reached: {url}: ");
        assert!(run.err.starts_with(&message) && run.err.contains("refused"), "{run:?}");
        assert!(!run.err.contains("client error"), "{run:?}");
    }
}

#[tokio::test]
async fn each_problem_has_its_exit_code() {
    for (status, kind, more, code) in [
        (400, "bad-request", json!({}), 1),
        (401, "unauthorised", json!({}), 6),
        (403, "forbidden", json!({}), 6),
        (404, "not-found", json!({}), 3),
        (409, "key-exists", json!({}), 1),
        (429, "limit-reached", json!({ "retry_after_ms": 60_000 }), 1),
        (503, "store-unavailable", json!({ "outcome": "unknown", "retry_after_ms": 60_000 }), 5),
        (500, "internal", json!({}), 1),
        (418, "teapot", json!({}), 1),
    ] {
        let mut problem = json!({ "type": format!("/problems/{kind}"), "title": "Title", "status": status, "detail": "detail" });
        problem.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let fake = Fake::start(status, problem.clone()).await;
        let run = fake.run(&PUT).await;
        assert_eq!((run.code, &*run.out), (code, ""), "{run:?}");
        assert!(run.err.starts_with("tourbillon: Title: detail"), "{run:?}");
        let run = fake.run(&[&PUT[..], &["--json"]].concat()).await;
        assert_eq!((run.code, &*run.out), (code, ""), "{run:?}");
        let error: Value = serde_json::from_str(&run.err).unwrap();
        assert_eq!((&error["code"], &error["problem"]["title"]), (&json!(code), &json!("Title")));
        assert_eq!(run.err.lines().count(), 1);
    }
}

/// Starts a server that reads one request and closes the connection without an answer. Returns the server's URL.
async fn breaking() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move { stream.read(&mut [0; 65_536]).await });
        }
    });
    url
}

#[tokio::test]
async fn a_change_that_broke_has_an_unknown_outcome_and_a_read_that_broke_has_none() {
    let url = breaking().await;
    for (arguments, code) in [(&PUT[..], 5), (&["cancel", "k"], 5), (&["fire", "k"], 5), (&["get", "k"], 4)] {
        let run = run_at(&url, arguments).await;
        assert_eq!((run.code, &*run.out), (code, ""), "{arguments:?}: {run:?}");
        let says_so = run.err.contains("it is not known whether");
        assert_eq!(says_so, code == 5, "{run:?}");
    }
}

#[tokio::test]
async fn an_answer_of_something_else_is_not_taken_for_the_services() {
    let fake = Fake::start(200, json!("<h1>sign in</h1>")).await;
    assert_eq!(fake.run(&["get", "k"]).await.code, 4);
    assert_eq!(fake.run(&["cancel", "k"]).await.code, 5);
}

#[tokio::test]
async fn cancelled_and_in_flight_and_nothing_to_claim_have_exit_codes() {
    for (result, code) in [("cancelled", 0), ("in-flight", 1), ("not-found", 3)] {
        let fake = Fake::start(200, json!({ "result": result })).await;
        let run = fake.run(&["cancel", "k"]).await;
        assert_eq!((run.code, run.out.trim_end(), &*run.err), (code, result, ""));
    }
    let fake = Fake::start(200, json!({ "claims": [] })).await;
    let run = fake.run(&["claim", "mail", "--json"]).await;
    assert_eq!((run.code, &*run.out, &*run.err), (3, "", ""));
    let operation = json!({
        "id": "9", "state": "failed", "begun": "2026-11-22T16:00:00.000Z", "changed": 5, "in_flight": 1,
        "error": "the disk is full"
    });
    let fake = Fake::start(202, operation).await;
    let run = fake.run(&["cancel-many", "--label", "l"]).await;
    assert_eq!(run.code, 1);
    assert!(run.out.contains("the disk is full"), "{run:?}");
}

#[tokio::test]
async fn timers_that_an_operation_has_refused_are_shown_and_those_that_were_not_replayed_are_a_failure() {
    let operation = |refused: u64| {
        json!({
            "id": "9", "state": "done", "begun": "2026-11-22T16:00:00.000Z", "changed": 5, "in_flight": 0,
            "refused": refused
        })
    };
    let backfill = ["schedule", "backfill", "s", "--from", "2026-11-22T16:00:00Z"];
    for (arguments, code) in
        [(&["dead", "replay-all"][..], 1), (&backfill[..], 0), (&["operation", "9"][..], 0)]
    {
        for (refused, code) in [(0, 0), (3, code)] {
            let fake = Fake::start(200, operation(refused)).await;
            let run = fake.run(arguments).await;
            assert_eq!(run.code, code, "{run:?}");
            assert!(run.out.starts_with("done: 5 "), "{run:?}");
            assert_eq!(run.out.contains(", 3 "), refused > 0, "{run:?}");
        }
    }
}

#[tokio::test]
async fn each_claim_that_is_not_acknowledged_is_named() {
    let problem = json!({ "type": "/problems/claim-ended", "title": "The claim has ended", "status": 409, "detail": "" });
    let unknown = json!({
        "type": "/problems/store-unavailable", "title": "No store", "status": 503, "detail": "", "outcome": "unknown",
    });
    for (problems, code) in [(vec![&problem, &problem], 1), (vec![&problem, &unknown], 5)] {
        let refused = |nth: usize| json!({ "claim": format!("c{nth}"), "problem": problems[nth] });
        let fake =
            Fake::start(200, json!({ "results": [refused(0), { "claim": "good" }, refused(1)] })).await;
        let run = fake.run(&["ack", "c0", "good", "c1"]).await;
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.err.contains("2 of 3 are not acknowledged: c0: "), "{run:?}");
        assert!(run.err.contains("; c1: ") && !run.err.contains("good"), "{run:?}");
    }
}

#[tokio::test]
async fn an_empty_name_and_a_timeout_of_zero_are_refused_before_anything_is_sent() {
    let fake = Fake::start(404, json!({})).await;
    for arguments in [
        &["get", ""][..],
        &["get", "--id", ""],
        &["cancel", ""],
        &["history", ""],
        &["put", "", "--queue", "q"],
        &["claim", ""],
        &["ack", ""],
        &["ack", "c", ""],
        &["schedule", "get", ""],
        &["ns", "get", ""],
        &["stats", "--timeout", "0s"],
        &["stats", "--timeout", "0ms"],
    ] {
        let run = fake.run(arguments).await;
        assert_eq!(run.code, 2, "{arguments:?}: {run:?}");
        assert_eq!(fake.requests().len(), 0, "{arguments:?}");
    }
}

#[tokio::test]
async fn tail_connects_again_and_says_that_events_are_missing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for n in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 65_536]).await.unwrap() > 0);
            let event = json!({
                "at": "2026-11-22T16:00:00.000Z", "kind": "failed", "namespace": "default", "key": format!("k{n}"),
                "attempt": 2, "late_ms": 1_500, "detail": "\u{1b}[31m500", "missed": n * 3
            });
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            stream.write_all(format!("{head}data: {event}\n\n").as_bytes()).await.unwrap();
        }
    });
    let run = run_at(&url, &["tail", "--count", "2"]).await.ok();
    let lines: Vec<_> = run.lines().collect();
    let event = |key| {
        format!(
            "2026-11-22T16:00:00.000Z failed    default \"{key}\" attempt=2 late=1s500ms \\u{{1b}}[31m500"
        )
    };
    assert_eq!(lines[0], event("k0"));
    assert!(lines[1].starts_with("--- events are missing: the connection broke ("), "{run}");
    assert_eq!(lines[2], "--- 3 events are missing: this reader was too slow");
    assert_eq!(lines[3], event("k1"));
    assert_eq!(lines.len(), 4);
    let lines = run_at(&url, &["tail", "--count", "2", "--json"]).await.lines();
    assert_eq!(lines.len(), 3);
    assert!(lines[1]["gap"].is_string() && lines[2]["key"].is_string(), "{lines:?}");
}

#[tokio::test]
async fn a_reader_that_goes_ends_the_program_quietly() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 65_536]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await.unwrap();
        let event =
            "data: {\"at\":\"2026-11-22T16:00:00.000Z\",\"kind\":\"created\",\"namespace\":\"n\"}\n\n";
        while stream.write_all(event.as_bytes()).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    let mut child =
        program(&["tail", "--url", &url]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).await.unwrap();
    assert!(line.contains("created"), "{line}");
    drop(out);
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[tokio::test]
async fn the_table_of_numbers_is_printed_once_without_a_terminal() {
    let stats = json!({
        "version": "0.1.0", "now": "2026-11-22T16:00:00.000Z", "up_ms": 90_061_000, "pending": 17, "leased": 1,
        "parked": 2, "dead": 3, "overdue_ms": 1_500, "created": 40, "delivered": 15, "failed": 6, "cancelled": 2, "damaged": 0,
        "hosts": [{ "host": "shop.example:443", "running": 4, "failures": 11, "open_for_ms": 9_000 }]
    });
    let fake = Fake::start(200, stats.clone()).await;
    for command in ["top", "stats"] {
        let text = fake.run(&[command]).await.ok();
        for part in ["pending    17", "up         1d1h1m1s", "shop.example:443  4        11        9s"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(fake.run(&[command, "--json"]).await.json(), stats);
    }
    assert_eq!(fake.requests().len(), 4);
}
