//! Sends callbacks, and interprets the answers.

use crate::callback::Callback;
use crate::dial::{Dialler, blocked_in, shortage_in};
use crate::guard::{Blocked, Guard};
use crate::hosts::{HostReport, Hosts, Part, Permit, Shown, Target};
use crate::limits::HostLimits;
use crate::names::{self, Resolver};
use crate::sign::{Secret, signatures};
use crate::wire::{Connections, Exchange, Watched, is_unsent, lost};
use bytes::Bytes;
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Settings of a [`Caller`].
#[derive(Clone)]
#[non_exhaustive]
pub struct CallerSettings {
    /// Decides to which addresses callbacks may be sent.
    pub guard: Guard,
    /// The limits that decide when the breakers of hosts open, and for how long.
    pub hosts: HostLimits,
    /// The longest time for each step of a connection: to resolve the name, to connect to one of the name's addresses,
    /// and to get the receiver's first byte of the TLS handshake. 5 s by default.
    pub connect_timeout: Duration,
    /// The greatest number of bytes of an answer's body that are read and returned; 4 KiB by default. If the body is
    /// longer, the rest is not read, and the connection is closed.
    pub answer: usize,
    /// The longest pause for which a receiver may ask with `Retry-After`; a day by default.
    pub longest_retry_after: Duration,
    /// The function that resolves names. `None` selects the default resolver, which blocks no thread, caches addresses
    /// for at most a minute, and asks `name_servers`.
    pub resolver: Option<Resolver>,
    /// The name servers that the default resolver asks. If the list is empty, the resolver asks the system's name
    /// servers, which it reads from `/etc/resolv.conf` at the first look-up. Names in `/etc/hosts` take precedence.
    pub name_servers: Vec<SocketAddr>,
    /// Certificates, in DER, that are trusted in addition to the public authorities of the web.
    pub certificates: Vec<Vec<u8>>,
}

impl Default for CallerSettings {
    fn default() -> Self {
        Self {
            guard: Guard::default(),
            hosts: HostLimits::default(),
            connect_timeout: Duration::from_secs(5),
            answer: 4 << 10,
            longest_retry_after: Duration::from_secs(86_400),
            resolver: None,
            name_servers: Vec::new(),
            certificates: Vec::new(),
        }
    }
}

impl fmt::Debug for CallerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerSettings")
            .field("guard", &self.guard)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// A single attempt to send a callback.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The tenant to which the callback belongs, or an empty text if there is only one tenant. Callbacks affect only
    /// the breakers of their own tenant.
    pub tenant: &'a str,
    /// The id of the callback. All attempts of a callback have the same id, so that the receiver can recognise a
    /// repeated attempt. The id must not contain a full stop.
    pub id: &'a str,
    /// The number of this attempt among the attempts of the callback, counted from 1.
    pub number: u32,
    /// The moment at which the callback was due, as a text of RFC 3339.
    pub scheduled_for: &'a str,
    /// The value of the header `traceparent`. `None` leaves the header out.
    pub trace: Option<&'a str>,
    /// The secrets with which the attempt is signed. Each secret adds a signature.
    pub secrets: &'a [Secret],
    /// The longest time from the start of the attempt to the head of the answer.
    pub timeout: Duration,
    /// Whether the receiver must not get the request twice, even if the connection breaks. The request then has a
    /// connection of its own.
    pub is_once: bool,
}

/// The outcome of an attempt to send a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The receiver has taken the callback.
    Delivered(CallbackResponse),
    /// The receiver has refused the callback, or it is unknown whether the receiver took it. The caller may send the
    /// callback again.
    Failed {
        /// The reason why the attempt failed.
        failure: Failure,
        /// The pause for which the receiver asks with the header `Retry-After`. `None` without this header.
        retry_after: Option<Duration>,
    },
    /// The receiver answered 410, which asks for no more callbacks to the URL.
    Gone(CallbackResponse),
    /// The destination is blocked, so another attempt would not help.
    Blocked(Blocked),
    /// The callback was not sent, because this machine lacked something for a connection: a file descriptor, a port or
    /// memory. This is not the receiver's fault, and does not count as an attempt.
    Unsent {
        /// The text that says what the machine lacked.
        error: Box<str>,
    },
    /// The callback was not sent, because earlier callbacks to its host or path have failed. A parked callback does
    /// not count as an attempt.
    Parked {
        /// The part of the receiver to which no callbacks are sent at present: the host or the path.
        at: Part,
        /// The time until a callback may be sent again.
        for_: Duration,
    },
}

/// A callback that may be sent now. Dropping this value gives the permission back.
#[must_use = "the callback is not sent yet"]
pub struct Admitted<'a> {
    caller: &'a Caller,
    callback: &'a Callback,
    permit: Permit,
}

impl Admitted<'_> {
    /// Sends the callback, as [`Caller::send`] does. The attempt's tenant must be the tenant of the admission.
    pub async fn send(self, attempt: Attempt<'_>) -> Outcome {
        let Self { caller, callback, permit } = self;
        let begin = Instant::now();
        let outcome = match tokio::time::timeout(attempt.timeout, caller.request(callback, attempt)).await {
            Ok(Ok(response)) => caller.outcome(response, begin).await,
            Ok(Err(failed)) => failed,
            Err(_) => Outcome::Failed { failure: Failure::Timeout, retry_after: None },
        };
        permit.settle(shown(&outcome));
        outcome
    }
}

impl fmt::Debug for Admitted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").field("callback", &self.callback).finish_non_exhaustive()
    }
}

/// A receiver's answer, with the start of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallbackResponse {
    /// The HTTP status of the answer.
    pub status: StatusCode,
    /// The start of the answer's body, up to [`CallerSettings::answer`] bytes.
    pub head: Bytes,
    /// The duration of the attempt: from its start to the moment at which the bytes in `head` had been read.
    pub took: Duration,
}

impl CallbackResponse {
    /// Returns whether the answer means that the receiver does not work at present. Such answers have the status 429
    /// or a status 5xx.
    #[must_use]
    pub fn is_of_fault(&self) -> bool {
        self.status.is_server_error() || self.status == StatusCode::TOO_MANY_REQUESTS
    }
}

/// The reason why an attempt to send a callback failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The receiver answered with a status other than 2xx and 410. A redirection is such an answer, and is never
    /// followed.
    Status(CallbackResponse),
    /// The receiver did not answer in time.
    Timeout,
    /// The connection failed, for the reason in this text.
    Connection(Box<str>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(answer) if answer.status.is_redirection() => {
                write!(f, "the receiver redirects ({}), which is not followed", answer.status)
            }
            Self::Status(answer) => write!(f, "the receiver answered {}", answer.status),
            Self::Timeout => f.write_str("the receiver did not answer in time"),
            Self::Connection(error) => write!(f, "the connection failed: {error}"),
        }
    }
}

/// The time for which an idle connection is kept. Common servers close an idle connection after 5 s, so this time is
/// shorter.
const IDLE: Duration = Duration::from_secs(4);
/// The greatest number of idle connections, to all hosts together. Further connections are closed after their answer.
/// Each idle connection takes a file descriptor and a port of this machine.
const MOST_IDLE: usize = 512;
/// The pause before an attempt with [`Attempt::is_once`] tries to connect again, if this machine lacked a file
/// descriptor, a port or memory.
const SHORT: Duration = Duration::from_millis(500);
/// The longest time for which the body of an answer is read. The body does not change the outcome.
const BODY: Duration = Duration::from_secs(1);
/// The greatest number of headers in an answer.
const HEADERS: usize = 512;
/// The greatest number of connections that an attempt tries. If a connection ends before any byte of the request is
/// sent, the attempt tries another connection. After this number of connections, the attempt fails.
const CLOSED: usize = 32;

/// Sends callbacks. Clones share the connections and the breakers.
#[derive(Clone)]
pub struct Caller {
    client: Client<Watched<HttpsConnector<Dialler>>, Full<Bytes>>,
    /// A client that opens a new connection for each request, and closes it after the answer.
    on_new: Client<Watched<HttpsConnector<Dialler>>, Full<Bytes>>,
    connections: Arc<Connections>,
    hosts: Hosts,
    settings: Arc<CallerSettings>,
}

/// The error for a certificate that cannot be read.
#[derive(Clone, Debug)]
pub struct CertificateError(Box<str>);

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a certificate cannot be read: {}", self.0)
    }
}

impl core::error::Error for CertificateError {}

impl Caller {
    /// Makes a caller with these settings.
    ///
    /// # Errors
    ///
    /// Fails if a certificate cannot be read.
    pub fn new(settings: CallerSettings) -> Result<Self, CertificateError> {
        let fault = |error: rustls::Error| CertificateError(error.to_string().into());
        let mut roots = rustls::RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for certificate in &settings.certificates {
            roots.add(certificate.clone().into()).map_err(fault)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(fault)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let dialler = Dialler {
            guard: Arc::new(settings.guard.clone()),
            resolver: settings
                .resolver
                .clone()
                .unwrap_or_else(|| names::resolver(settings.name_servers.clone(), settings.connect_timeout)),
            timeout: settings.connect_timeout,
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(dialler);
        let connections = Arc::<Connections>::default();
        let client = |most_idle: usize| {
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(most_idle)
                .pool_timer(TokioTimer::new())
                .http1_max_headers(HEADERS)
                .retry_canceled_requests(false)
                .build(Watched::new(connector.clone(), Arc::clone(&connections), settings.answer))
        };
        let (client, on_new) = (client(MOST_IDLE), client(0));
        let hosts = Hosts::new(settings.hosts);
        Ok(Self { client, on_new, connections, hosts, settings: Arc::new(settings) })
    }

    /// Sends a callback once.
    ///
    /// The head of the answer must arrive within the attempt's timeout, and decides the outcome. The body is then read
    /// for at most a second.
    ///
    /// A server may close a kept connection at any moment. If the connection closes within a second of the request,
    /// before any byte of an answer, the callback is sent again at once on a new connection. An attempt with
    /// [`is_once`](Attempt::is_once) uses no kept connection, and is never sent again.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the receiver may still have got the callback.
    pub async fn send(&self, callback: &Callback, attempt: Attempt<'_>) -> Outcome {
        match self.admit(callback, attempt.tenant) {
            Ok(admitted) => admitted.send(attempt).await,
            Err((at, for_)) => Outcome::Parked { at, for_ },
        }
    }

    /// Permits an attempt to send a tenant's callback, without sending it. [`Admitted::send`] then sends the callback.
    /// For callers that must record the attempt before the receiver can get the callback.
    ///
    /// # Errors
    ///
    /// Fails if earlier callbacks to the host or its path have failed. The error has the part that gets no callbacks at
    /// present, and the time until a callback may be sent again, as [`Outcome::Parked`] does.
    pub fn admit<'a>(
        &'a self,
        callback: &'a Callback,
        tenant: &str,
    ) -> Result<Admitted<'a>, (Part, Duration)> {
        let to = Target { tenant, host: &callback.host(), path: callback.path() };
        let permit = self.hosts.admit(to, Instant::now())?;
        Ok(Admitted { caller: self, callback, permit })
    }

    /// Sends the request of an attempt, and waits for the head of the answer. If this machine lacks a file descriptor,
    /// a port or memory, an attempt with [`Attempt::is_once`] tries again within its timeout.
    async fn request(
        &self,
        callback: &Callback,
        attempt: Attempt<'_>,
    ) -> Result<Response<Incoming>, Outcome> {
        let failed = |error: &dyn fmt::Display| Outcome::Failed {
            failure: Failure::Connection(error.to_string().into()),
            retry_after: None,
        };
        let begun = Instant::now();
        let _busy = self.connections.begin_request();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut request = Request::new(Full::new(callback.body.clone()));
        *request.method_mut() = callback.method.clone();
        match callback.url.as_str().parse() {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => return Err(failed(&error)),
        }
        *request.headers_mut() = callback.headers.clone();
        if let Err(error) = add_headers(request.headers_mut(), callback, attempt, now) {
            return Err(failed(&error));
        }
        let answered = match attempt.is_once {
            true => loop {
                match self.answer_once(request.clone()).await {
                    // Nothing was sent. The caller may be unable to postpone the callback, so this call tries again.
                    Err(Some(error))
                        if shortage_in(&error).is_some()
                            && begun.elapsed().saturating_add(SHORT) < attempt.timeout =>
                    {
                        tokio::time::sleep(SHORT).await;
                    }
                    answered => break answered,
                }
            },
            false => self.answer(request).await,
        };
        let error = match answered {
            Ok(response) => return Ok(response),
            Err(Some(error)) => error,
            Err(None) => return Err(failed(&"each connection ends before an answer")),
        };
        if let Some(shortage) = shortage_in(&error) {
            return Err(Outcome::Unsent { error: shortage.to_string().into() });
        }
        // The text of the error only names a part of the client. The error's cause says what happened.
        let cause = || core::error::Error::source(&error).map_or_else(|| error.to_string(), with_causes);
        let cause = || explained(cause());
        Err(blocked_in(&error).map_or_else(|| failed(&cause()), Outcome::Blocked))
    }

    /// Sends the request, and returns the head of the answer. If a connection ends before any byte of the request is
    /// sent, the request goes to another connection. If a kept connection closes while the request is on its way, the
    /// request is sent once more. Fails with `None` if no connection took the request.
    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Option<Error>> {
        // With too many idle connections, no further one is kept.
        let client = if self.connections.idle() < MOST_IDLE { &self.client } else { &self.on_new };
        for _ in 0..CLOSED {
            let (mut tried, mut exchange) = (request.clone(), None);
            let connection = capture_connection(&mut tried);
            let sent = tokio::select! {
                biased;
                sent = client.request(tried) => Some(sent),
                () = lost(connection, &mut exchange) => None,
            };
            match sent {
                Some(Ok(response)) => return Ok(response),
                None => {}
                Some(Err(error)) if is_unsent(&error) => {}
                Some(Err(_)) if exchange.is_some_and(|exchange| exchange.met_a_close()) => {
                    return self.on_new.request(request).await.map_err(Some);
                }
                Some(Err(error)) => return Err(Some(error)),
            }
        }
        Err(None)
    }

    /// Does the same as [`answer`](Self::answer), but the receiver gets no byte of the request twice. The request goes
    /// to a new connection, because a server may close a kept connection just as the request arrives.
    async fn answer_once(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Option<Error>> {
        // The receiver then closes the connection first, and the port stays in the state TIME_WAIT at the receiver.
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        for _ in 0..CLOSED {
            let (mut tried, mut exchange) = (request.clone(), None);
            let connection = capture_connection(&mut tried);
            let sent = tokio::select! {
                biased;
                sent = self.on_new.request(tried) => sent.map_err(Some),
                () = lost(connection, &mut exchange) => Err(None),
            };
            let has_written = || exchange.as_ref().is_some_and(Exchange::has_written);
            match sent {
                Err(Some(error)) if is_unsent(&error) && !has_written() => {}
                Err(None) if !has_written() => {}
                ended => return ended,
            }
        }
        Err(None)
    }

    /// Reads the body of an answer, and returns the outcome of the attempt.
    async fn outcome(&self, response: Response<Incoming>, begin: Instant) -> Outcome {
        let (parts, mut body) = response.into_parts();
        let mut head = Vec::new();
        // The status has already decided the outcome. So a broken or endless body changes nothing.
        let until = tokio::time::Instant::now() + BODY;
        while head.len() < self.settings.answer
            && let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until, body.frame()).await
        {
            if let Some(data) = frame.data_ref() {
                let room = self.settings.answer - head.len();
                head.extend_from_slice(&data[..data.len().min(room)]);
            }
        }
        let answer = CallbackResponse { status: parts.status, head: head.into(), took: begin.elapsed() };
        if parts.status.is_success() {
            return Outcome::Delivered(answer);
        }
        if parts.status == StatusCode::GONE {
            return Outcome::Gone(answer);
        }
        let retry_after = parts.headers.get(RETRY_AFTER).and_then(|value| pause_of(value, SystemTime::now()));
        let retry_after = retry_after.map(|pause| pause.min(self.settings.longest_retry_after));
        Outcome::Failed { failure: Failure::Status(answer), retry_after }
    }

    /// Closes the breakers of a host and of its paths, for all tenants. Callbacks to the host are then sent again at
    /// once.
    pub fn close_breakers(&self, host: &str) {
        self.hosts.close_breakers(host);
    }

    /// Returns a report for each tenant and each host to which the tenant's callbacks were sent. A path has its own
    /// report while its breaker is not closed.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostReport> {
        self.hosts.report(Instant::now())
    }
}

/// Returns the evidence that the outcome of an attempt gives about the receiver. Any answer other than 429 or 5xx shows
/// that the receiver works.
fn shown(outcome: &Outcome) -> Shown {
    match outcome {
        Outcome::Failed { failure: Failure::Status(answer), .. } if answer.is_of_fault() => Shown::Refuses,
        Outcome::Failed { failure: Failure::Status(_), .. } => Shown::Works,
        Outcome::Failed { .. } => Shown::Silent,
        Outcome::Delivered(_) | Outcome::Gone(_) => Shown::Works,
        // The receiver was not called.
        Outcome::Blocked(_) | Outcome::Parked { .. } | Outcome::Unsent { .. } => Shown::Nothing,
    }
}

fn add_headers(
    headers: &mut HeaderMap,
    callback: &Callback,
    attempt: Attempt<'_>,
    now: u64,
) -> Result<(), http::header::InvalidHeaderValue> {
    let mut insert = |name: &'static str, value: &str| {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value)?);
        Ok(())
    };
    insert("webhook-id", attempt.id)?;
    insert("webhook-timestamp", &now.to_string())?;
    if !attempt.secrets.is_empty() {
        insert("webhook-signature", &signatures(attempt.secrets, attempt.id, now, &callback.body))?;
    }
    insert("tourbillon-attempt", &attempt.number.to_string())?;
    insert("tourbillon-scheduled-for", attempt.scheduled_for)?;
    if let Some(trace) = attempt.trace {
        insert("traceparent", trace)?;
    }
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("tourbillon/", env!("CARGO_PKG_VERSION"))));
    if callback.body.is_empty() {
        // For these methods some servers answer 411 if the length is missing.
        if [Method::POST, Method::PUT, Method::PATCH].contains(&callback.method) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
    } else {
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    }
    Ok(())
}

/// Reads the pause from a header `Retry-After`, which is a number of seconds or a date.
fn pause_of(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that is too great for the type asks for a pause that is longer than any limit.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
}

/// Replaces the text of a common error of TLS that few people understand. Returns any other text unchanged.
fn explained(text: String) -> String {
    if text.contains("CaUsedAsEndEntity") {
        return "the receiver has the certificate of an authority (CA:TRUE), which identifies no receiver: give it a \
                certificate that the authority has signed, or a self-signed certificate with CA:FALSE"
            .to_owned();
    }
    text
}

/// Returns the text of an error, followed by the texts of all its causes.
fn with_causes(error: &(dyn core::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_seconds_or_dates() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let pause = |text: &'static str| pause_of(&HeaderValue::from_static(text), now);
        assert_eq!(pause("120"), Some(Duration::from_secs(120)));
        assert_eq!(pause("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(pause("Sun, 06 Nov 1994 08:49:00 GMT"), Some(Duration::ZERO));
        assert_eq!(pause("99999999999999999999999"), Some(Duration::from_secs(u64::MAX)));
        for text in ["", "soon", "-1", "+1", "1.5"] {
            assert_eq!(pause(text), None, "{text}");
        }
    }
}
