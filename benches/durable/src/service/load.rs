//! The load. Connections create one timer after another, with a plain HTTP client.

use crate::ours::{Failure, Pace, Payload, check, key};
use bytes::Bytes;
use core::net::SocketAddr;
use hdrhistogram::Histogram;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::net::TcpStream;
use tourbillon_api::{Batch, BatchResult, Callback, Change, Moment, NewTimer, PlaceOutcome};
use tourbillon_client::Client;

/// Returns timer `n`, which calls `url`. Its payload is the same as in the library's turns.
pub(super) fn timer(n: usize, due: u64, url: &str) -> Result<NewTimer, Failure> {
    let body = serde_json::to_string(&Payload::new(n, due))?;
    Ok(NewTimer::callback(Callback { body: Some(body), ..Callback::post(url) }).at(Moment::from_millis(due)))
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    drop(tokio::spawn(connection));
    Ok(sender)
}

/// Creates timer `n` under its key, and checks the status of the answer.
async fn create(
    sender: &mut SendRequest<Full<Bytes>>,
    host: &str,
    (n, due): (usize, u64),
    url: &str,
) -> Result<(), Failure> {
    let body = serde_json::to_vec(&timer(n, due, url)?)?;
    let request = Request::builder()
        .method(Method::PUT)
        .uri(format!("/v1/namespaces/default/timers/{}", key(n)))
        .header(HOST, host)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body.into()))?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    check(status == StatusCode::CREATED, || format!("{status}: {}", String::from_utf8_lossy(&answer)))
}

/// Creates timers 0 to `total` over `connections` connections. Each connection waits for an answer before its next
/// request.
pub(super) async fn waiting(
    address: SocketAddr,
    connections: usize,
    total: usize,
    due: impl Fn() -> u64 + Clone + Send + 'static,
) -> Result<Pace, Failure> {
    let mut senders = Vec::new();
    for _ in 0..connections {
        senders.push(connect(address).await?);
    }
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let callers = senders.into_iter().map(|mut sender| {
        let (next, due) = (Arc::clone(&next), due.clone());
        tokio::spawn(async move {
            let host = address.to_string();
            let mut times = Histogram::<u64>::new(3)?;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= total {
                    return Ok::<_, Failure>(times);
                }
                let start = Instant::now();
                // Nothing is due during this run, so no receiver is called.
                create(&mut sender, &host, (n, due()), "http://127.0.0.1:1024/").await?;
                times.record(u64::try_from(start.elapsed().as_nanos())?)?;
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut times = Histogram::<u64>::new(3)?;
    for caller in callers {
        times.add(caller.await??)?;
    }
    Ok(Pace::of(total, begin.elapsed(), &times))
}

/// Creates timers 0 to `total` in batches of 1,000, with the service's own client library.
pub(super) async fn fill(
    client: &Client,
    total: usize,
    url: &str,
    mut due: impl FnMut() -> u64,
) -> Result<(), Failure> {
    let timers = client.namespace("default");
    for first in (0..total).step_by(1_000) {
        let changes = (first..total.min(first + 1_000)).map(|n| {
            Ok(Change::Put {
                key: Some(key(n)),
                idempotency_key: None,
                timer: Box::new(timer(n, due(), url)?),
            })
        });
        let batch = Batch { changes: changes.collect::<Result<_, Failure>>()? };
        let answer = timers.batch(&batch).await?;
        let is_made = |result: &&BatchResult| matches!(result, BatchResult::Placed(placed) if placed.outcome == PlaceOutcome::Created);
        let made = answer.results.iter().filter(is_made).count();
        check(made == batch.changes.len(), || format!("{made} of {} timers were made", batch.changes.len()))?;
    }
    Ok(())
}
