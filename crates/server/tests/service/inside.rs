//! Provides a service without sockets. Requests go to its router in the same process.

use crate::document::assert_documented;
use crate::rig::{answered, settings};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tourbillon_durable::store::{MemoryStore, TimerStore};
use tourbillon_server::{Service, Settings, router};
use tower::ServiceExt as _;

/// An answer from the service in the test's process.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or(Value::Null)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the status of the problem in an answer, and the last word of the problem's type. Fails unless the answer
    /// is a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status.as_u16(), "{json}");
        let word = json["type"].as_str().unwrap().strip_prefix("/problems/").unwrap().to_owned();
        (self.status.as_u16(), word)
    }
}

/// A service that runs in the process of the test, without a socket.
pub(crate) struct Inside {
    pub(crate) service: Service,
    pub(crate) router: Router,
}

impl Inside {
    /// Starts a service with a store in memory.
    pub(crate) fn start(folder: &TempDir) -> Self {
        Self::on(folder, Arc::new(MemoryStore::default()))
    }

    pub(crate) fn on(folder: &TempDir, store: Arc<dyn TimerStore>) -> Self {
        Self::open(settings(folder.path()), store)
    }

    pub(crate) fn open(settings: Settings, store: Arc<dyn TimerStore>) -> Self {
        let service = Service::open_on(settings, store).unwrap();
        let router = router(service.clone());
        Self { service, router }
    }

    /// Sends a request to the service. Returns the service's answer.
    pub(crate) async fn ask(&self, request: Request<Body>) -> Answered {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        assert_documented(method.as_str(), &path, parts.status.as_u16());
        Answered { status: parts.status, headers: parts.headers, bytes }
    }

    /// Sends a request with the headers `headers` and the JSON body `body`. If `body` is null, the request has no body.
    pub(crate) async fn with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answered {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value.as_bytes());
        }
        let request = if body.is_null() {
            request.body(Body::empty())
        } else {
            request.header("content-type", "application/json").body(Body::from(body.to_string()))
        };
        self.ask(request.unwrap()).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: Value) -> Answered {
        self.with(method, path, &[], body).await
    }

    /// Sends the same `GET` request until `is_wanted` accepts the answer, and returns this answer. Fails after a
    /// minute.
    pub(crate) async fn until(&self, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        answered(path, async || self.send("GET", path, Value::Null).await.json(), is_wanted).await
    }

    /// Ends the service, so that another service can open the same store.
    pub(crate) async fn stop(self) {
        let service = self.service.clone();
        // Closing the service blocks, and a thread of the runtime must not block.
        tokio::task::spawn_blocking(move || service.close(Duration::from_secs(5))).await.unwrap();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let service = self.service.clone();
        std::thread::spawn(move || service.close(Duration::ZERO)).join().unwrap();
    }
}
