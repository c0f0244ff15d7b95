//! The receiver of callbacks. It takes a millisecond for each callback.

use crate::ours::{Deliveries, Failure, Payload};
use bytes::Bytes;
use core::convert::Infallible;
use core::net::SocketAddr;
use core::time::Duration;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tourbillon_api::Moment;

/// The shortest time that the receiver takes for a callback.
const SERVICE_TIME: Duration = Duration::from_millis(1);

pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    deliveries: Arc<Deliveries>,
    running: AtomicUsize,
    most: AtomicUsize,
    /// The id of each timer's first callback.
    ids: Mutex<HashMap<usize, Box<str>>>,
    /// A description of the first callback that failed its check. `None` if all callbacks have passed.
    fault: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Receiver {
    pub(super) async fn start(deliveries: &Arc<Deliveries>) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            deliveries: Arc::clone(deliveries),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            ids: Mutex::default(),
            fault: Mutex::default(),
        });
        let all = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _small_answers = stream.set_nodelay(true);
                let all = Arc::clone(&all);
                let take = service_fn(move |request| take(request, Arc::clone(&all)));
                let connection = hyper::server::conn::http1::Builder::new();
                drop(tokio::spawn(connection.serve_connection(TokioIo::new(stream), take)));
            }
        });
        Ok(Self { address, shared, accepting: accepting.abort_handle() })
    }

    /// Returns the largest number of callbacks that the receiver handled at a time. Fails if a callback failed its
    /// check.
    pub(super) fn most(&self) -> Result<usize, Failure> {
        match lock(&self.shared.fault).take() {
            Some(fault) => Err(format!("the check failed: {fault}").into()),
            None => Ok(self.shared.most.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    /// Checks a callback, and notes that it arrives now.
    fn note(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let payload: Payload = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        self.deliveries.note(&payload);
        let scheduled: Option<Moment> = text("tourbillon-scheduled-for").and_then(|due| due.parse().ok());
        if scheduled.is_none_or(|scheduled| scheduled.as_millis() != payload.due) {
            return Err(format!(
                "timer {} was for {}, and came as for {scheduled:?}",
                payload.n, payload.due
            ));
        }
        let id = text("webhook-id").ok_or("a callback without an id")?;
        let mut ids = lock(&self.ids);
        let first = ids.entry(payload.n).or_insert_with(|| id.into());
        if **first == *id { Ok(()) } else { Err(format!("timer {} came as {first} and as {id}", payload.n)) }
    }
}

async fn take(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let running = shared.running.fetch_add(1, Ordering::Relaxed) + 1;
    shared.most.fetch_max(running, Ordering::Relaxed);
    let (parts, body) = request.into_parts();
    let noted = match body.collect().await {
        Ok(body) => shared.note(&parts.headers, &body.to_bytes()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(fault) = noted {
        lock(&shared.fault).get_or_insert(fault);
    }
    tokio::time::sleep(SERVICE_TIME).await;
    shared.running.fetch_sub(1, Ordering::Relaxed);
    let mut response = Response::new(Empty::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
