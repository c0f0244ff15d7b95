//! Tests streams of events over connections that break.

use crate::rig::{Manner, Script, answer};
use std::time::Duration;
use tourbillon_client::api::{EventKind, ProblemKind};
use tourbillon_client::{Error, Seen};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n";

fn event(key: &str) -> String {
    format!(
        "data: {{\"at\":\"2026-11-22T16:00:00.000Z\",\"kind\":\"created\",\"namespace\":\"default\",\"key\":\"{key}\"}}\n\n"
    )
}

fn key(seen: Seen) -> String {
    match seen {
        Seen::Event(event) => {
            assert_eq!(event.kind, EventKind::Created);
            event.key.unwrap()
        }
        Seen::Gap { .. } => "gap".to_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_reader_of_events_connects_again_and_says_that_it_missed_some() {
    let refused = r#"{"type":"/problems/unauthorised","title":"A token is needed","status":401}"#;
    let script = Script::start([
        Manner::Half(format!("{HEAD}: hello\n\n{}{}data: {{\"at\"", event("a"), event("b"))),
        Manner::Reset,
        answer("503 Oh", "text/html", "<h1>oh</h1>"),
        Manner::Half(format!("{HEAD}{}", event("c"))),
        answer("401 Unauthorised", "application/problem+json", refused),
    ])
    .await;
    let mut events = script.client().events(Some("default"));
    let mut seen = Vec::new();
    let error = loop {
        match events.next().await {
            Ok(event) => seen.push(key(event)),
            Err(error) => break error,
        }
    };
    assert_eq!(seen, ["a", "b", "gap", "c"]);
    assert_eq!(error.problem(), Some(ProblemKind::Unauthorised));
    assert_eq!(script.requests().len(), 5);
    assert!(script.requests()[0].starts_with("GET /v1/events?namespace=default HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_connection_that_says_nothing_counts_as_broken() {
    let silent = Manner::Hang(format!("{HEAD}{}", event("a")));
    let script = Script::start([silent, Manner::Hang(format!("{HEAD}{}", event("b")))]).await;
    let mut events = script.client().events(None).silence(Duration::from_millis(100));
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(key(events.next().await.unwrap()));
    }
    assert_eq!(seen, ["a", "gap", "b"]);
}

#[tokio::test]
async fn a_service_that_is_not_there_is_an_error_at_once() {
    let script = Script::start([Manner::Reset]).await;
    let mut events = script.client().events(None);
    assert!(matches!(events.next().await, Err(Error::Connection(_))));
    assert_eq!(script.requests().len(), 1);
}
