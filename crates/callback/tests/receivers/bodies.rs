//! Tests bodies: answers whose bodies do not end, and callbacks without a body.

use crate::{ATTEMPT, Manner, Receiver, answer, send_to, settings};
use std::time::{Duration, Instant};
use tourbillon_callback::{Attempt, Callback, Caller, Failure, Outcome, Rules};

/// The headers of answers whose bodies never end properly. The first header promises more bytes than come. The second
/// header announces chunks, and the last chunk never comes. An answer without a header ends with the connection.
const HEADS: [&str; 3] = ["content-length: 100000\r\n", "transfer-encoding: chunked\r\n\r\nffffff", ""];

#[tokio::test]
async fn the_head_decides_though_the_body_comes_by_drips_for_ever() {
    for rest in HEADS {
        for (status, is_delivered) in [("200 OK", true), ("503 Away", false)] {
            let begin = Instant::now();
            let manner = Manner::Drip(format!("HTTP/1.1 {status}\r\n{rest}\r\n"));
            let (outcome, _receiver) = send_to(manner, Duration::from_secs(20)).await;
            let took = begin.elapsed();
            match (outcome, is_delivered) {
                (Outcome::Delivered(answer), true) => assert_eq!(answer.status, 200),
                (Outcome::Failed { failure: Failure::Status(answer), .. }, false) => {
                    assert_eq!(answer.status, 503);
                }
                (outcome, _) => panic!("{status} {rest:?}: {outcome:?}"),
            }
            assert!(took < Duration::from_secs(5), "{status} {rest:?} took {took:?}");
        }
    }
}

#[tokio::test]
async fn the_head_decides_though_nothing_of_the_body_comes() {
    for rest in ["content-length: 10\r\n", "transfer-encoding: chunked\r\n", ""] {
        let manner = Manner::Answer(format!("HTTP/1.1 200 OK\r\n{rest}\r\n"));
        // The time limit of the body counts by itself, so it may end later than the attempt's.
        let (outcome, _receiver) = send_to(manner, Duration::from_millis(500)).await;
        assert!(matches!(outcome, Outcome::Delivered(_)), "{rest:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn an_answer_may_have_hundreds_of_headers() {
    let headers: String = (0..500).map(|n| format!("x-{n}: {n}\r\n")).collect();
    let (outcome, _receiver) = send_to(answer("200 OK", &headers), ATTEMPT.timeout).await;
    assert!(matches!(outcome, Outcome::Delivered(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_head_that_does_not_end_ends_with_the_time() {
    for head in ["HTTP/1.1 200 OK\r\nx-long: ", "HTTP/1.1 2", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 "] {
        let (outcome, _receiver) = send_to(Manner::Drip(head.into()), Duration::from_millis(300)).await;
        assert!(matches!(outcome, Outcome::Failed { .. }), "{head:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_callback_without_a_body_says_that_its_length_is_zero() {
    let receiver = Receiver::start(answer("204 No Content", "")).await;
    let caller = Caller::new(settings()).unwrap();
    let mut rules = Rules::default();
    rules.allow_http = true;
    for (method, body) in [
        ("POST", ""),
        ("PUT", ""),
        ("PATCH", ""),
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "x"),
        ("DELETE", "x"),
    ] {
        let callback = Callback::new(&receiver.url(), method, [], body, &rules).unwrap();
        let outcome = caller.send(&callback, Attempt { ..ATTEMPT }).await;
        assert!(matches!(outcome, Outcome::Delivered(_)), "{method}: {outcome:?}");
        let request = receiver.requests().pop().unwrap().to_lowercase();
        let lengths: Vec<&str> = request.lines().filter(|line| line.starts_with("content-length")).collect();
        let wanted: &[&str] = match (method, body) {
            ("GET" | "DELETE", "") => &[],
            (_, "") => &["content-length: 0"],
            _ => &["content-length: 1"],
        };
        assert_eq!(lengths, wanted, "{method} {body:?}");
        assert!(!request.contains("transfer-encoding"), "{request}");
    }
}
