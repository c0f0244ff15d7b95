//! Tests the lines of the log that the process writes.

use crate::clients::{Http, callback, timer};
use crate::process::{Daemon, folder, program};
use crate::receiver::Receiver;
use axum::http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

/// Parses the service's log, whose lines are JSON. Fails if a line lacks a field that all lines must have.
fn lines(daemon: &Daemon) -> Vec<Value> {
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let at = line["timestamp"].as_str().unwrap();
        assert!(at.parse::<tourbillon_api::Moment>().is_ok() && at.ends_with('Z'), "{at}");
        for field in ["level", "target", "message"] {
            assert!(line[field].as_str().is_some_and(|text| !text.is_empty()), "{line}");
        }
        line
    };
    daemon.log().lines().map(line).collect()
}

/// Returns the lines of the service's log whose field `target` is `kind`.
fn of_kind(daemon: &Daemon, kind: &str) -> Vec<Value> {
    lines(daemon).into_iter().filter(|line| line["target"] == kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_has_its_moment_in_utc_its_level_and_its_kind() {
    let folder = folder();
    let mut daemon = Daemon::start(folder.path(), &[]);
    daemon.signal(Signal::TERM);
    daemon.end(Duration::from_secs(20));
    daemon.line("stopped after").await;
    for line in daemon.log().lines() {
        let mut parts = line.split_whitespace();
        let (at, level, kind) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        assert!(at.parse::<tourbillon_api::Moment>().is_ok() && at.ends_with('Z'), "{line}");
        assert!(["INFO", "WARN"].contains(&level) && ["start:", "stop:"].contains(&kind), "{line}");
    }
    assert_eq!(daemon.log().lines().count(), 4, "{}", daemon.log());

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut quiet = program(folder.path(), &["--data", "data", "--listen", &address, "--log-level", "error"]);
    let failed = quiet.env("TOURBILLON_LOG_FORMAT", "json").output().unwrap();
    let log = String::from_utf8(failed.stderr).unwrap();
    let line: Value = serde_json::from_str(&log).unwrap_or_else(|error| panic!("{error}: {log}"));
    assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"start".into()), "{line}");
    assert!(line["message"].as_str().unwrap().contains(&address), "{line}");
    assert_eq!(failed.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_dies_has_a_line_and_a_storm_of_deaths_has_few() {
    const STORM: usize = 200;
    let folder = folder();
    let receiver = Receiver::start(Duration::ZERO).await;
    receiver.answer(StatusCode::GONE);
    let daemon = Daemon::start(folder.path(), &["--log-format", "json"]);
    let http = Http::new(daemon.address);
    let mut gone = callback(&receiver.url("/"), 0);
    gone["callback"]["body"] = "of the customer".into();
    gone["callback"]["headers"] = json!({ "authorization": "hunter2" });
    let key = "a%20key%0A%1B[2J%20of%20two%20lines";
    let made = http.send("PUT", &timer(key), &gone).await;
    assert_eq!(made.status, 201, "{}", made.json);
    daemon.line("timer-died").await;
    let line = &of_kind(&daemon, "timer-died")[0];
    assert_eq!((&line["level"], &line["namespace"]), (&"WARN".into(), &"default".into()), "{line}");
    assert_eq!((&line["id"], &line["attempt"]), (&made.json["id"], &1.into()), "{line}");
    assert_eq!(line["key"], "a key\n\u{1b}[2J of two lines", "JSON has the key itself, in one line");
    assert!(line["error"].as_str().unwrap().contains("no more callbacks"), "{line}");

    let puts = (0..STORM).map(|n| json!({ "put": { "key": format!("k{n}"), "timer": gone } }));
    let batch = json!({ "changes": puts.collect::<Vec<_>>() });
    assert_eq!(http.send("POST", "/v1/namespaces/default/batch", &batch).await.status, 200);
    daemon.line("more of this kind").await;
    let more = &of_kind(&daemon, "more")[0];
    let written = of_kind(&daemon, "timer-died").len();
    assert!(written <= 20, "{written} lines");
    assert_eq!(
        (&more["kind"], &more["count"]),
        (&"timer-died".into(), &(STORM + 1 - written).into()),
        "{more}"
    );
    for secret in ["customer", "hunter2"] {
        assert!(!daemon.log().contains(secret), "{}", daemon.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_that_opens_and_closes_has_a_line_each_and_values_stay_in_their_line() {
    let folder = folder();
    let receiver = Receiver::start(Duration::ZERO).await;
    receiver.answer(StatusCode::SERVICE_UNAVAILABLE);
    let daemon = Daemon::start(folder.path(), &["--deliveries-host-failures", "2"]);
    let http = Http::new(daemon.address);
    for key in ["a", "b%0Ac", "d"] {
        let mut failing = callback(&receiver.url("/"), 0);
        failing["policy"] = json!({ "attempts": 1 });
        assert_eq!(http.send("PUT", &timer(key), &failing).await.status, 201);
    }
    let opened = daemon.line("a breaker has opened").await;
    assert!(opened.contains(&receiver.address.to_string()) && opened.contains("pause_ms="), "{opened}");
    assert!(opened.contains("the path gets no callbacks") && opened.contains("part=\"path\""), "{opened}");
    assert!(
        daemon.log().lines().all(|line| line.starts_with("20")),
        "each line begins with its moment: {}",
        daemon.log()
    );
    receiver.answer(StatusCode::NO_CONTENT);
    let probe = callback(&receiver.url("/"), 0);
    assert_eq!(http.send("PUT", &timer("probe"), &probe).await.status, 201);
    daemon.line("a breaker has closed").await;
}
