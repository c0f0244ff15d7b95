//! The load with the least possible work in the client. The requests are made before the measurement, and one thread
//! sends them on plain sockets.
//!
//! Service and load share the processors. So a client that takes less time leaves more to the service. If a client
//! makes its requests during the measurement, that work is part of the figure.

use super::load::timer;
use crate::ours::{Failure, Pace, check, key};
use core::net::SocketAddr;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Returns the bytes of the request that creates timer `n`.
fn request(address: SocketAddr, n: usize, due: u64) -> Result<Vec<u8>, Failure> {
    // Nothing is due during this run, so no receiver is called.
    let body = serde_json::to_string(&timer(n, due, "http://127.0.0.1:1024/")?)?;
    let key = key(n);
    let head = format!(
        "PUT /v1/namespaces/default/timers/{key} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    Ok((head + &body).into_bytes())
}

/// Returns the length of the HTTP answer at the beginning of `bytes`. `None` until the answer's head is complete.
fn length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
    let lines = core::str::from_utf8(&bytes[..head]).ok()?.lines();
    let body = lines.filter_map(|line| line.strip_prefix("content-length: ")).next()?;
    Some(head + 4 + body.parse::<usize>().ok()?)
}

/// Sends HTTP requests on a connection, and waits for each answer before the next request.
async fn converse(
    address: SocketAddr,
    requests: Arc<Vec<Vec<u8>>>,
    next: Arc<AtomicUsize>,
) -> Result<Histogram<u64>, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut times = Histogram::<u64>::new(3)?;
    let mut answer = vec![0; 4_096];
    while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
        let start = Instant::now();
        stream.write_all(request).await?;
        let mut read = 0;
        while length(&answer[..read]) != Some(read) {
            let more = stream.read(&mut answer[read..]).await?;
            check(more > 0, || format!("no end of the answer after {read} bytes"))?;
            read += more;
        }
        check(answer.starts_with(b"HTTP/1.1 201 "), || {
            String::from_utf8_lossy(&answer[..read]).into_owned()
        })?;
        times.record(u64::try_from(start.elapsed().as_nanos())?)?;
    }
    Ok(times)
}

/// Creates timers 0 to `total` over `connections` connections. Each connection waits for an answer before its next
/// request.
pub(super) fn waiting(
    address: SocketAddr,
    connections: usize,
    total: usize,
    due: impl Fn() -> u64,
) -> Result<(Pace, f64), Failure> {
    let requests: Vec<_> = (0..total).map(|n| request(address, n, due())).collect::<Result<_, _>>()?;
    let requests = Arc::new(requests);
    let run = move || -> Result<(Pace, f64), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let begin = (Instant::now(), crate::process::cpu_seconds(std::process::id()));
        let times = runtime.block_on(async {
            let next = Arc::new(AtomicUsize::new(0));
            let callers: Vec<_> = (0..connections)
                .map(|_| tokio::spawn(converse(address, Arc::clone(&requests), Arc::clone(&next))))
                .collect();
            let mut times = Histogram::<u64>::new(3)?;
            for caller in callers {
                times.add(caller.await??)?;
            }
            Ok::<_, Failure>(times)
        })?;
        let cpu = crate::process::cpu_seconds(std::process::id()) - begin.1;
        Ok((Pace::of(total, begin.0.elapsed(), &times), cpu))
    };
    thread::spawn(run).join().map_err(|_| "the load has panicked")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_its_length_once_its_head_is_there() {
        let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(length(answer), Some(answer.len()));
        for end in 0..answer.len() - 2 {
            assert_eq!(length(&answer[..end]), None, "{end}");
        }
        assert_eq!(length(b"HTTP/1.1 201 Created\r\n\r\n"), None);
    }

    #[test]
    fn a_request_says_how_long_its_body_is() {
        let request = String::from_utf8(request(([127, 0, 0, 1], 7).into(), 3, 1).unwrap()).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("PUT /v1/namespaces/default/timers/{} HTTP/1.1\r\n", key(3))));
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
    }
}
