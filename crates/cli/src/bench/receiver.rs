//! The server that receives the callbacks of a measurement.

use super::load::histogram;
use core::convert::Infallible;
use core::net::SocketAddr;
use core::time::Duration;
use hdrhistogram::Histogram;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tourbillon_client::api::Moment;

/// The callbacks that arrived at a receiver: how often each of them arrived, and how late.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    /// The number of times that each callback arrived, by the callback's id.
    pub(super) ids: HashMap<Box<str>, u32>,
    /// The number of callbacks that arrived more than once.
    pub(super) repeated: u64,
    /// The times from the due moments of the callbacks to their arrivals, in microseconds.
    pub(super) lateness: Histogram<u64>,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Arrivals {
    /// Returns the time from the first to the last arrival.
    pub(super) fn span(&self) -> Duration {
        self.first.zip(self.last).map_or(Duration::ZERO, |(first, last)| last - first)
    }

    fn note(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(id) = text("webhook-id") else { return };
        let count = self.ids.entry(id.into()).or_default();
        *count += 1;
        match count {
            1 => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let due: Option<Moment> = text("tourbillon-scheduled-for").and_then(|due| due.parse().ok());
                if let Some(due) = due {
                    let late = now.saturating_sub(Duration::from_millis(due.as_millis()));
                    let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                    self.lateness.saturating_record(micros.max(1));
                }
                let now = Instant::now();
                self.first.get_or_insert(now);
                self.last = Some(now);
            }
            2 => self.repeated += 1,
            _ => {}
        }
    }
}

/// An HTTP server that accepts every callback and records when it arrived.
pub(super) struct Receiver {
    address: SocketAddr,
    arrivals: Arc<Mutex<Arrivals>>,
    accepting: AbortHandle,
}

impl Receiver {
    pub(super) async fn start(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let lateness = histogram().map_err(|_| io::Error::other("no histogram"))?;
        let arrivals = Arrivals { ids: HashMap::new(), repeated: 0, lateness, first: None, last: None };
        let arrivals = Arc::new(Mutex::new(arrivals));
        let shared = Arc::clone(&arrivals);
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // An error means that the process has too many open files at the moment. So try again.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let arrivals = Arc::clone(&shared);
                let take = service_fn(move |request| take(request, Arc::clone(&arrivals)));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), take),
                );
            }
        });
        Ok(Self { address, arrivals, accepting: accepting.abort_handle() })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(super) fn arrivals(&self) -> Arrivals {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the callbacks of all timers in `ids` have arrived. Gives up once no callback has arrived for the
    /// time `patience`.
    pub(super) async fn wait_for(&self, ids: &[Box<str>], patience: Duration) {
        let mut seen = (0, Instant::now());
        loop {
            let count = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).ids.len();
            if count > seen.0 {
                seen = (count, Instant::now());
            }
            if count >= ids.len() || seen.1.elapsed() >= patience {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn take(
    request: Request<Incoming>,
    arrivals: Arc<Mutex<Arrivals>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let is_whole = body.collect().await.is_ok();
    if is_whole {
        arrivals.lock().unwrap_or_else(PoisonError::into_inner).note(&parts.headers);
    }
    let mut response = Response::new(Empty::new());
    *response.status_mut() = if is_whole { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST };
    Ok(response)
}
