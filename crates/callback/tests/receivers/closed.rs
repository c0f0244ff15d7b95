//! Tests receivers that close a kept connection at some moment before the first byte of an answer. On a new connection
//! they answer.

use crate::{ATTEMPT, callback, read_request, settings};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tourbillon_callback::{Attempt, Callback, Caller, Failure, Outcome, Rules};

/// How a receiver ends a connection after its first answer.
#[derive(Clone, Copy, Debug)]
enum Close {
    /// Closes the connection at once after the answer.
    AtOnce,
    /// Closes the connection 30 ms after the answer. The next request may come during these 30 ms.
    AfterAWhile,
    /// Closes the connection when the first byte of the next request has come.
    WithinTheRequest,
    /// Closes the connection when the next request has come.
    AfterTheRequest,
    /// Resets the connection when the first byte of the next request has come.
    ResetWithinTheRequest,
    /// Resets the connection when the next request has come.
    ResetAfterTheRequest,
    /// Closes the connection in the middle of the next answer's head.
    WithinTheAnswer,
    /// Closes the connection some time after the next request has come, as if after work for the request.
    AfterWork,
    /// Closes the connection, and later each new connection at once, as if the next request had killed the receiver.
    Dies,
}

struct Receiver {
    address: SocketAddr,
    /// The number of requests that came on a connection after its first request. For a receiver that dies, the number
    /// of requests after the receiver's first answer.
    again: Arc<AtomicUsize>,
}

impl Receiver {
    async fn start(close: Close) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self { address: listener.local_addr().unwrap(), again: Arc::default() };
        let again = Arc::clone(&receiver.again);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, close, Arc::clone(&again)));
            }
        });
        receiver
    }
}

async fn serve(mut stream: TcpStream, close: Close, again: Arc<AtomicUsize>) {
    if read_request(&mut stream).await.is_none() {
        return;
    }
    if matches!(close, Close::Dies) && again.load(Ordering::Relaxed) > 0 {
        again.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    if stream.write_all(answer).await.is_err() {
        return;
    }
    match close {
        Close::AtOnce => return,
        Close::AfterAWhile => return tokio::time::sleep(Duration::from_millis(30)).await,
        Close::WithinTheRequest | Close::ResetWithinTheRequest => {
            let mut byte = [0];
            if stream.read(&mut byte).await.is_ok_and(|read| read == 1) {
                again.fetch_add(1, Ordering::Relaxed);
            }
        }
        Close::AfterTheRequest
        | Close::ResetAfterTheRequest
        | Close::WithinTheAnswer
        | Close::AfterWork
        | Close::Dies => {
            if read_request(&mut stream).await.is_some() {
                again.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    match close {
        Close::ResetWithinTheRequest | Close::ResetAfterTheRequest => {
            stream.set_zero_linger().unwrap();
        }
        Close::WithinTheAnswer => drop(stream.write_all(b"HTTP/1.1 20").await),
        Close::AfterWork => tokio::time::sleep(Duration::from_millis(1_500)).await,
        _ => {}
    }
}

/// The ways to close a kept connection before any byte of an answer.
const BEFORE_AN_ANSWER: [Close; 6] = [
    Close::AtOnce,
    Close::AfterAWhile,
    Close::WithinTheRequest,
    Close::AfterTheRequest,
    Close::ResetWithinTheRequest,
    Close::ResetAfterTheRequest,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_connection_that_is_closed_at_any_moment_costs_no_attempt() {
    for close in BEFORE_AN_ANSWER {
        let receiver = Receiver::start(close).await;
        let caller = Caller::new(settings()).unwrap();
        let callback = callback(&format!("http://{}/", receiver.address));
        // At first one request at a time is sent. Then sixteen are sent together, and find many kept connections.
        for (rounds, at_once) in [(150, 1), (55, 16)] {
            for round in 0..rounds {
                let sent = (0..at_once).map(|_| {
                    let (caller, callback) = (caller.clone(), callback.clone());
                    tokio::spawn(async move { caller.send(&callback, ATTEMPT).await })
                });
                for outcome in sent.collect::<Vec<_>>() {
                    let outcome = outcome.await.unwrap();
                    assert!(matches!(outcome, Outcome::Delivered(_)), "{close:?}: {outcome:?}");
                }
                if matches!(close, Close::AfterAWhile) && round % 8 == 0 {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
            }
        }
        let again = receiver.again.load(Ordering::Relaxed);
        let is_read = !matches!(close, Close::AtOnce | Close::AfterAWhile);
        assert!(again > 100 || !is_read, "{close:?}: {again} requests came on kept connections");
    }
}

/// The test checks receivers that must have got the request: an answer has begun, or there was time for some work. A
/// request that kills the receiver is sent once more, and not on each kept connection.
#[tokio::test]
async fn what_a_receiver_has_had_for_longer_is_a_failure_and_sent_once_more_at_most() {
    for (close, times) in [(Close::WithinTheAnswer, 1), (Close::AfterWork, 1), (Close::Dies, 2)] {
        let receiver = Receiver::start(close).await;
        let caller = Caller::new(settings()).unwrap();
        let callback = callback(&format!("http://{}/", receiver.address));
        // These requests leave several kept connections.
        let sent = (0..8).map(|_| {
            let (caller, callback) = (caller.clone(), callback.clone());
            tokio::spawn(async move { caller.send(&callback, ATTEMPT).await })
        });
        for outcome in sent.collect::<Vec<_>>() {
            assert!(matches!(outcome.await.unwrap(), Outcome::Delivered(_)), "{close:?}");
        }
        let outcome = caller.send(&callback, ATTEMPT).await;
        assert!(
            matches!(outcome, Outcome::Failed { failure: Failure::Connection(_), .. }),
            "{close:?}: {outcome:?}"
        );
        assert_eq!(receiver.again.load(Ordering::Relaxed), times, "{close:?}");
    }
}

/// The test checks callbacks that must not come twice. The receivers end kept connections in all ways, and the first
/// callbacks leave several kept connections.
#[tokio::test]
async fn a_callback_at_most_once_comes_once_however_connections_end() {
    for close in BEFORE_AN_ANSWER.into_iter().chain([Close::WithinTheAnswer, Close::AfterWork]) {
        let receiver = Receiver::start(close).await;
        let caller = Caller::new(settings()).unwrap();
        let callback = callback(&format!("http://{}/", receiver.address));
        for (attempts, is_once) in [(8, false), (8, true)] {
            let sent = (0..attempts).map(|_| {
                let (caller, callback) = (caller.clone(), callback.clone());
                tokio::spawn(async move { caller.send(&callback, Attempt { is_once, ..ATTEMPT }).await })
            });
            for outcome in sent.collect::<Vec<_>>() {
                let outcome = outcome.await.unwrap();
                assert!(matches!(outcome, Outcome::Delivered(_)), "{close:?}: {outcome:?}");
            }
        }
        assert_eq!(receiver.again.load(Ordering::Relaxed), 0, "{close:?}: a kept connection was used");
    }
}

/// The test checks a new connection on which a callback at most once meets the end at any moment. The receiver counts
/// the connections on which bytes of the callback came.
#[tokio::test]
async fn a_callback_at_most_once_is_sent_again_only_if_nothing_was_sent() {
    for (read, is_reset) in [(0, false), (0, true), (1, false), (1, true), (60_000, false), (60_000, true)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let read_from = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&read_from);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; read];
                if stream.read_exact(&mut bytes).await.is_ok() && read > 0 {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                if is_reset {
                    stream.set_zero_linger().unwrap();
                }
            }
        });
        let mut rules = Rules::default();
        rules.allow_http = true;
        let body = vec![b' '; 60_000];
        let callback = Callback::new(&format!("http://{address}/"), "POST", [], body, &rules).unwrap();
        let attempt = Attempt { is_once: true, ..ATTEMPT };
        let outcome = Caller::new(settings()).unwrap().send(&callback, attempt).await;
        assert!(matches!(outcome, Outcome::Failed { .. }), "{read} {is_reset}: {outcome:?}");
        assert_eq!(read_from.load(Ordering::Relaxed), usize::from(read > 0), "{read} {is_reset}");
    }
}

/// The test checks a new connection on which bytes of an answer come before the request has ended, and which then ends.
#[tokio::test]
async fn a_new_connection_that_ends_after_the_beginning_of_an_answer_is_a_failure() {
    for beginning in ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 4"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let mut some = [0; 1_000];
                let _read = stream.read(&mut some).await;
                drop(stream.write_all(beginning.as_bytes()).await);
                tokio::time::sleep(Duration::from_millis(50)).await;
                let _read = stream.read(&mut some).await;
            }
        });
        let mut rules = Rules::default();
        rules.allow_http = true;
        let body = vec![b' '; 60_000];
        let callback = Callback::new(&format!("http://{address}/"), "POST", [], body, &rules).unwrap();
        let outcome = Caller::new(settings()).unwrap().send(&callback, ATTEMPT).await;
        assert!(matches!(outcome, Outcome::Failed { .. }), "{beginning:?}: {outcome:?}");
        assert_eq!(connections.load(Ordering::Relaxed), 1, "{beginning:?}");
    }
}
