//! Sends spans to an OpenTelemetry collector by OTLP over HTTP. A *span* is the record of one piece of work in a trace.

use bytes::Bytes;
use core::time::Duration;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use std::sync::Arc;

/// The longest time for a request to the collector, including the time to connect.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time to connect to the collector.
const CONNECT: Duration = Duration::from_secs(5);
/// The pause before a batch of spans is sent again, if the collector asks for no other pause.
const PAUSE: Duration = Duration::from_secs(1);
/// The greatest number of bytes that are read from an answer of the collector.
const LONGEST_ANSWER: usize = 64 << 10;

/// The reason why the collector did not take a batch of spans.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Box<str>,
    /// The pause before the batch of spans may be sent again. `None` if the batch must not be sent again, because the
    /// collector has refused it or may already have it.
    pub(super) again_after: Option<Duration>,
}

/// A client that sends batches of spans to an OpenTelemetry collector. Each request has the headers `headers`.
pub(super) struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: Uri,
    headers: HeaderMap,
}

impl Collector {
    /// Makes a client of the collector at a URL. Fails if the URL, a header or a certificate is not valid.
    pub(super) fn new(
        endpoint: &str,
        headers: &[(String, String)],
        certificates: &[Vec<u8>],
    ) -> Result<Self, Box<str>> {
        let uri: Uri = endpoint.parse().map_err(|error| format!("{endpoint:?} is not a URL: {error}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(format!("{endpoint:?} is not a URL of http or https").into());
        }
        let mut map = HeaderMap::new();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        map.insert(USER_AGENT, HeaderValue::from_static(concat!("tourbillond/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in headers {
            // The message does not repeat the header's value, which may be secret.
            let fault = || format!("the header {name:?} for the collector cannot be sent");
            let header: HeaderName = name.parse().map_err(|_| fault())?;
            let mut value: HeaderValue = value.parse().map_err(|_| fault())?;
            value.set_sensitive(header == AUTHORIZATION || name.contains("key"));
            map.insert(header, value);
        }
        let fault = |error: rustls::Error| error.to_string();
        let mut roots = rustls::RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for certificate in certificates {
            roots.add(certificate.clone().into()).map_err(fault)?;
        }
        // Without this provider, rustls panics if the process has no default provider and links two providers.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(fault)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        // The TLS connector opens its connections through this connector, which would refuse URLs of https otherwise.
        connector.enforce_http(false);
        // This timeout ends before `PATIENCE`. So a batch that was never sent is sent again, unlike a batch whose
        // answer is late.
        connector.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, endpoint: uri, headers: map })
    }

    /// Sends a batch of spans to the collector. Returns how many spans of the batch the collector refused.
    pub(super) async fn send(&self, batch: Bytes) -> Result<u64, Failed> {
        let late = || Failed { error: "no answer in time".into(), again_after: None };
        tokio::time::timeout(PATIENCE, self.exchange(batch)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn exchange(&self, batch: Bytes) -> Result<u64, Failed> {
        let mut request = Request::new(Full::new(batch));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        *request.headers_mut() = self.headers.clone();
        let response = self.client.request(request).await.map_err(|error| {
            let cause = core::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let error = format!("{error}{}", cause.unwrap_or_default()).into();
            // By the rules of OTLP, a client repeats a request if the server disconnects without an answer.
            Failed { error, again_after: Some(PAUSE) }
        })?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        if !status.is_success() {
            return Err(Failed {
                error: format!("it answered {status}").into(),
                again_after: is_passing(status).then(|| pause(&headers)),
            });
        }
        // If the answer cannot be decoded, the collector has still taken all spans, as the status says.
        let answer = body.ok().and_then(|body| ExportTraceServiceResponse::decode(body.to_bytes()).ok());
        let partial = answer.and_then(|answer| answer.partial_success);
        Ok(partial.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or(0)))
    }
}

/// Returns whether a batch may be sent again after an answer with this status, by the rules of OTLP.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// Returns the pause for which the collector's answer asks in the header `Retry-After`, in seconds. A date in the
/// header is ignored.
fn pause(headers: &HeaderMap) -> Duration {
    let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    asked.map_or(PAUSE, Duration::from_secs)
}
