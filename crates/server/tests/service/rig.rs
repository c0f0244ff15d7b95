//! Provides a service on a port of its own, and a receiver of callbacks.

use crate::document::assert_documented;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tourbillon_server::{Service, Settings, router};

/// The longest time for which a test waits for an event that should come within seconds. The time is long, because the
/// machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A callback that a test's receiver has got.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A receiver of callbacks. The receiver answers with the statuses that a test gives, one after another, and then with
/// 204.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    pub(crate) statuses: Arc<Mutex<Vec<StatusCode>>>,
    received: mpsc::UnboundedReceiver<Received>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let statuses = Arc::new(Mutex::new(Vec::<StatusCode>::new()));
        let state = (sender, Arc::clone(&statuses));
        let app = axum::Router::new().fallback(receive).with_state(state);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, statuses, received }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits for the next callback to the receiver. Fails after a minute.
    pub(crate) async fn next(&mut self) -> Received {
        tokio::time::timeout(SOON, self.received.recv()).await.expect("a callback").unwrap()
    }
}

type ReceiverState = (mpsc::UnboundedSender<Received>, Arc<Mutex<Vec<StatusCode>>>);

async fn receive(State((sender, statuses)): State<ReceiverState>, request: Request) -> StatusCode {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let path = parts.uri.path().to_owned();
    let received = Received { method: parts.method, path, headers: parts.headers, body };
    sender.send(received).unwrap();
    let mut statuses = statuses.lock().unwrap();
    if statuses.is_empty() { StatusCode::NO_CONTENT } else { statuses.remove(0) }
}

/// A running service for a test, at a port of its own. Dropping the value ends the service.
pub(crate) struct Rig {
    pub(crate) service: Service,
    pub(crate) address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    server: tokio::task::JoinHandle<()>,
    settings: Settings,
    /// The folder of the service's files. Dropping the value removes the folder. `None` once the service has restarted,
    /// because the new service then owns the folder.
    folder: Option<TempDir>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a service. `change` first changes the usual settings of tests.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path());
        settings.least_pause = Duration::ZERO;
        change(&mut settings);
        Self::open(settings, folder).await
    }

    /// Starts a service with `settings`, on the files in `folder`. The service may not send callbacks to its own
    /// address.
    async fn open(mut settings: Settings, folder: TempDir) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        settings.caller.guard.own = vec![address];
        let mut opened = Service::open(settings.clone());
        // The connections of the former service keep the store until they are closed.
        for _ in 0..500 {
            if opened.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            opened = Service::open(settings.clone());
        }
        let service = opened.unwrap();
        let app = router(service.clone());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { service, address, client, server, settings, folder: Some(folder) }
    }

    /// Ends the service, and calls `change` with the folder of the service's files. Then starts the service again at
    /// another port.
    pub(crate) async fn restart_after(mut self, change: impl FnOnce(&Path)) -> Self {
        let (settings, folder) = (self.settings.clone(), self.folder.take().unwrap());
        let service = self.service.clone();
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
        drop(self);
        change(folder.path());
        Self::open(settings, folder).await
    }

    /// Sends a request with the JSON body `body` to the service. If `body` is null, the request has no body.
    pub(crate) async fn send(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        self.send_text(method, path, if body.is_null() { String::new() } else { body.to_string() }).await
    }

    /// Sends the same `GET` request until `is_wanted` accepts the answer, and returns this answer. Fails after a
    /// minute.
    pub(crate) async fn until(&self, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        answered(path, async || self.send("GET", path, Value::Null).await.1, is_wanted).await
    }

    /// Sends a request to the service, with the text `body` as its body.
    pub(crate) async fn send_text(&self, method: &str, path: &str, body: String) -> (StatusCode, Value) {
        let request = hyper::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .unwrap();
        let response = self.client.request(request).await.unwrap();
        let status = response.status();
        assert_documented(method, path, status.as_u16());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() })
    }
}

/// Returns settings for a service that permits callbacks to this machine, and callbacks without TLS.
pub(crate) fn settings(folder: &Path) -> Settings {
    let mut settings = Settings::new(folder);
    settings.rules.allow_http = true;
    settings.caller.guard.allowed = vec!["127.0.0.0/8".parse().unwrap()];
    settings
}

/// Calls `ask` until it returns a value, and returns this value. Fails after a minute with `condition` in the message.
pub(crate) async fn eventually<T>(condition: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(begun.elapsed() < SOON, "in vain: {condition}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a request by `send` until `is_wanted` accepts the answer, and returns this answer. Fails after a minute.
/// `path` is the path of the request, for the message.
pub(crate) async fn answered(
    path: &str,
    mut send: impl AsyncFnMut() -> Value,
    is_wanted: impl Fn(&Value) -> bool,
) -> Value {
    let begun = Instant::now();
    loop {
        let json = send().await;
        if is_wanted(&json) {
            return json;
        }
        assert!(begun.elapsed() < SOON, "{path} shows {json}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server.abort();
        let service = self.service.clone();
        // Closing the service blocks, and a thread of the runtime must not block.
        std::thread::spawn(move || service.close(Duration::ZERO)).join().unwrap();
    }
}
