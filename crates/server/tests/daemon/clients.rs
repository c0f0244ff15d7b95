//! Provides clients of the service for the tests.

use axum::body::Bytes;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer from the service whose body is JSON.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) json: Value,
}

/// A client of the service's HTTP interface, with or without a token.
#[derive(Clone)]
pub(crate) struct Http {
    base: String,
    token: Option<String>,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Http {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { base: format!("http://{address}"), token: None, client }
    }

    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// Sends a request with the JSON body `body`. If `body` is null, the request has no body. Returns `None` if the
    /// answer is missing or not complete.
    pub(crate) async fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Option<Answer> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if !body.is_null() {
            request = request.header("content-type", "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.client.request(request.body(Full::new(body)).unwrap()).await.ok()?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.ok()?.to_bytes();
        let json = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).ok()? };
        Some(Answer { status: parts.status, headers: parts.headers, json })
    }

    /// Sends a request whose answer may be any bytes. Returns the answer's status and bytes. `None` if the answer is
    /// not complete.
    pub(crate) async fn bytes(&self, method: &str, path: &str) -> Option<(StatusCode, Vec<u8>)> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = self.client.request(request.body(Full::default()).unwrap()).await.ok()?;
        let status = response.status();
        Some((status, response.into_body().collect().await.ok()?.to_bytes().to_vec()))
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.try_send(method, path, &[], body).await.expect("an answer")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &Value::Null).await
    }
}

/// Returns the path of the timer with the key `key` in the namespace `default`.
pub(crate) fn timer(key: &str) -> String {
    format!("/v1/namespaces/default/timers/{key}")
}

/// Returns a timer that calls `url` after `delay_ms`. If the call fails, the timer's policy repeats it soon.
pub(crate) fn callback(url: &str, delay_ms: u64) -> Value {
    json!({
        "delay_ms": delay_ms,
        "callback": { "url": url },
        "policy": { "backoff": { "kind": "fixed", "pause_ms": 100 } },
    })
}

/// Returns a timer that is due only after the end of the test.
pub(crate) fn far() -> Value {
    callback("http://receiver.test:9999/", 3_600_000)
}

/// A connection on which a test sends and reads bytes without an HTTP client.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Sends bytes to the server. Returns false if the server has closed the connection.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }

    /// Reads until the server closes the connection, or until the time `within` has passed. Returns the text of the
    /// read bytes, and whether the server has closed the connection.
    pub(crate) async fn rest(&mut self, within: Duration) -> (String, bool) {
        let mut bytes = Vec::new();
        let closed = tokio::time::timeout(within, self.0.read_to_end(&mut bytes)).await.is_ok();
        (String::from_utf8_lossy(&bytes).into_owned(), closed)
    }

    /// Reads the head of the next answer from the server.
    pub(crate) async fn head(&mut self) -> String {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(b"\r\n\r\n") {
            let read = tokio::time::timeout(Duration::from_secs(20), self.0.read(&mut byte))
                .await
                .expect("an answer");
            if read.unwrap_or(0) == 0 {
                break;
            }
            bytes.push(byte[0]);
        }
        String::from_utf8(bytes).unwrap()
    }
}
