//! Sends a request, repeats it if that is safe, and decides whether it succeeded, failed, or has an unknown outcome.
//!
//! | what happens | a read | a creation with an idempotency key | another change |
//! |---|---|---|---|
//! | no connection | again | again | again |
//! | the connection breaks after the request was sent | again | again | unknown outcome |
//! | no answer in time | [`Error::Timeout`] | again | unknown outcome |
//! | 5xx or 408 without a problem | again if a gateway answered | again | unknown outcome |
//! | a problem with an unknown outcome, or the service cannot work now | again | again | [`Error::Problem`] |
//! | another problem | [`Error::Problem`] | [`Error::Problem`] | [`Error::Problem`] |
//! | 2xx that cannot be read | [`Error::Decode`] | unknown outcome | unknown outcome |
//! | another status without a problem | [`Error::Decode`] | [`Error::Decode`] | [`Error::Decode`] |
//!
//! A *problem* is the service's description of an error in JSON. *Again* means that the request is repeated.
//!
//! If no repetition succeeds and the outcome of any attempt is unknown, the outcome of the call is unknown. There is
//! one exception: if the last answer proves that no earlier attempt had an effect, the call fails with that answer.
//! Three answers prove this: the request cannot be read, its content is refused, or another timer has its key.

use crate::connect::Connector;
use crate::error::{Error, with_causes};
use bytes::Bytes;
use core::time::Duration;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tourbillon_api::{FieldFault, Problem, ProblemKind};

/// The greatest size of an answer of the service, in bytes.
const LARGEST_ANSWER: usize = 16 << 20;

/// The longest pause before a request is repeated. If the service asks for a longer pause, the client does not repeat
/// the request.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The effect of a request on the service. The effect decides whether the request may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The request does not change the service.
    Read,
    /// The request makes a timer under an idempotency key. The service recognises a repeated request by the key, so the
    /// request may be repeated.
    Creation,
    /// The request changes the service, but not as a [`Creation`](Self::Creation) does. If it was sent, it must not be
    /// repeated, because the service could fulfil it twice.
    Change,
}

/// A request of the client to the service.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// The path of the request's URL, with the query.
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) effect: Effect,
    /// The longest time for which the service may delay its answer, because it waits for a timer to become due
    /// ([`Queue::claim`](crate::Queue::claim)). This time is added to the client's timeout.
    pub(crate) wait: Duration,
    /// A further status, outside of 2xx, that counts as a success of this request. `None` if only 2xx counts.
    pub(crate) also: Option<StatusCode>,
}

impl Call {
    pub(crate) fn read(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: None,
            headers: Vec::new(),
            effect: Effect::Read,
            wait: Duration::ZERO,
            also: None,
        }
    }

    pub(crate) fn change(method: Method, path: String) -> Self {
        Self { method, effect: Effect::Change, ..Self::read(path) }
    }

    /// Fails if a segment of the path is empty. The service has no such path, and would answer, as for a timer that
    /// does not exist, that it finds nothing.
    fn check(&self) -> Result<(), Error> {
        let path = self.path.split('?').next().unwrap_or_default();
        match path.ends_with('/') || path.contains("//") {
            true => Err(Error::Invalid("a key, an id or another name in its path is empty".into())),
            false => Ok(()),
        }
    }

    pub(crate) fn json(self, body: &impl serde::Serialize) -> Result<Self, Error> {
        let body = serde_json::to_vec(body).map_err(|error| Error::Invalid(error.to_string().into()))?;
        Ok(Self { body: Some(body.into()), ..self })
    }
}

/// Sends all requests of a client to its service.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) client: Client<Connector, Full<Bytes>>,
    /// The part of the service's URL before the paths of requests: scheme, host and perhaps a path. There is no slash
    /// at the end.
    pub(crate) base: Box<str>,
    pub(crate) authorisation: Option<HeaderValue>,
    pub(crate) timeout: Duration,
    pub(crate) repeats: u32,
}

/// A failed attempt to send a request. The value also says whether the request may be repeated.
#[derive(Debug)]
struct Failed {
    error: Error,
    /// The least pause before the request is repeated. `None` if the request must not be repeated.
    again: Option<Duration>,
}

/// The stage at which an exchange with the service failed. The stage determines whether the service may have fulfilled
/// the request.
enum Broken {
    /// The exchange failed before the request was sent. The text says why.
    Before(String),
    /// The exchange failed after the request was sent. The service may have received the request. The text says why.
    After(String),
    /// The answer did not come within the client's time limit.
    Late,
}

impl Transport {
    /// Sends a request, and decodes its answer from JSON.
    pub(crate) async fn send<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        self.send_for(call, |bytes| serde_json::from_slice(bytes).map_err(|error| error.to_string())).await
    }

    /// Sends a request, and decodes its answer by `decode`.
    pub(crate) async fn send_for<T>(
        &self,
        call: &Call,
        decode: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, Error> {
        call.check()?;
        let mut doubt = None;
        let mut sent = 0;
        loop {
            let Failed { error, again } = match self.attempt(call, &decode).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            match again {
                Some(pause) if sent < self.repeats => {
                    if error.is_unknown_outcome() {
                        doubt = Some(error.to_string());
                    }
                    tokio::time::sleep(pause.max(back_off(sent))).await;
                    sent += 1;
                }
                _ => {
                    return Err(match doubt {
                        Some(doubt) if !error.is_unknown_outcome() && !holds_for_all(&error) => {
                            Error::UnknownOutcome(format!("{doubt}; at the last repetition: {error}").into())
                        }
                        _ => error,
                    });
                }
            }
        }
    }

    async fn attempt<T>(
        &self,
        call: &Call,
        decode: &impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, Failed> {
        let time = self.timeout.saturating_add(call.wait);
        let exchange = async {
            let response = self.head(call).await?;
            let status = response.status();
            Ok((
                status,
                body(response).await.map_err(|reason| Broken::After(format!("{status}, but {reason}")))?,
            ))
        };
        let exchanged = tokio::time::timeout(time, exchange).await.unwrap_or(Err(Broken::Late));
        let (status, body) = exchanged.map_err(|broken| failed_exchange(broken, call.effect))?;
        if status.is_success() || call.also == Some(status) {
            return decode(&body).map_err(|fault| {
                let reason = format!("{fault}: {}", beginning(&body)).into();
                let error = match call.effect {
                    Effect::Read => Error::Decode { status: status.as_u16(), reason },
                    _ => Error::UnknownOutcome(reason),
                };
                Failed { error, again: None }
            });
        }
        Err(refused(status, &body, call.effect))
    }

    /// Sends a request for a stream of events. Returns once the head of the answer has arrived. The body of the answer
    /// is endless.
    pub(crate) async fn open(&self, path: &str) -> Result<Response<Incoming>, Error> {
        let mut call = Call::read(path.to_owned());
        call.headers.push((ACCEPT, HeaderValue::from_static("text/event-stream")));
        self.begin(&call).await
    }

    /// Sends a request that changes nothing, and does not repeat it. Returns once the head of the answer has arrived.
    pub(crate) async fn begin(&self, call: &Call) -> Result<Response<Incoming>, Error> {
        call.check()?;
        let head = tokio::time::timeout(self.timeout, self.head(call)).await.unwrap_or(Err(Broken::Late));
        let response = head.map_err(|broken| failed_exchange(broken, Effect::Read).error)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = tokio::time::timeout(self.timeout, body(response)).await;
        let body = body.map_err(|_| Error::Timeout)?.unwrap_or_default();
        Err(refused(status, &body, Effect::Read).error)
    }

    async fn head(&self, call: &Call) -> Result<Response<Incoming>, Broken> {
        let mut request = Request::new(Full::new(call.body.clone().unwrap_or_default()));
        *request.method_mut() = call.method.clone();
        let uri = format!("{}{}", self.base, call.path);
        *request.uri_mut() = uri.parse().map_err(|error| Broken::Before(format!("{uri}: {error}")))?;
        let headers = request.headers_mut();
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("tourbillon-client/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(authorisation) = &self.authorisation {
            headers.insert(AUTHORIZATION, authorisation.clone());
        }
        if call.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers.extend(call.headers.iter().cloned());
        self.client.request(request).await.map_err(|error| {
            // The text of the error only names a part of the client. The error's cause says what happened.
            let cause = core::error::Error::source(&error).map_or_else(|| error.to_string(), with_causes);
            let text = format!("{}: {cause}", self.base);
            if error.is_connect() || is_unsent(&error) { Broken::Before(text) } else { Broken::After(text) }
        })
    }
}

/// Returns whether an error means that the request was not sent, because its connection had already ended.
fn is_unsent(error: &(dyn core::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        next = error.source();
    }
    false
}

async fn body(response: Response<Incoming>) -> Result<Bytes, String> {
    match Limited::new(response.into_body(), LARGEST_ANSWER).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(format!("the answer has more than {LARGEST_ANSWER} bytes"))
        }
        Err(error) => Err(with_causes(&*error)),
    }
}

fn failed_exchange(broken: Broken, effect: Effect) -> Failed {
    let (error, may_repeat) = match (broken, effect) {
        (Broken::Before(reason), _) => (Error::Connection(reason.into()), true),
        (Broken::After(reason), Effect::Read) => (Error::Connection(reason.into()), true),
        (Broken::After(reason), _) => (Error::UnknownOutcome(reason.into()), effect == Effect::Creation),
        (Broken::Late, Effect::Read) => (Error::Timeout, false),
        (Broken::Late, _) => {
            (Error::UnknownOutcome("the service did not answer in time".into()), effect == Effect::Creation)
        }
    };
    Failed { error, again: may_repeat.then_some(Duration::ZERO) }
}

/// Returns the failure for an answer whose status is not a success. The failure also says whether the request may be
/// repeated.
fn refused(status: StatusCode, body: &[u8], effect: Effect) -> Failed {
    if let Some(problem) = problem(status, body) {
        let may_repeat = match problem.kind {
            ProblemKind::StoreUnavailable | ProblemKind::Stopping => true,
            ProblemKind::IdempotencyInProgress | ProblemKind::Timeout => effect == Effect::Creation,
            _ => problem.outcome.is_some(),
        };
        let pause = problem.retry_after_ms.map_or(Duration::ZERO, Duration::from_millis);
        let may_repeat = may_repeat && effect != Effect::Change && pause <= LONGEST_PAUSE;
        return Failed { error: Error::Problem(Box::new(problem)), again: may_repeat.then_some(pause) };
    }
    let reason = || format!("no problem in JSON: {}", beginning(body)).into();
    let may_be_done = status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT;
    if may_be_done && effect != Effect::Read {
        let error = Error::UnknownOutcome(format!("the answer is {status} and {}", reason()).into());
        return Failed { error, again: (effect == Effect::Creation).then_some(Duration::ZERO) };
    }
    let is_gateway = [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT]
        .contains(&status);
    Failed {
        error: Error::Decode { status: status.as_u16(), reason: reason() },
        again: (is_gateway && effect == Effect::Read).then_some(Duration::ZERO),
    }
}

/// A problem (a description of an error) that a later version of the service may have sent. Unknown fields and kinds
/// are accepted.
#[derive(Deserialize)]
struct LaterProblem {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    errors: Vec<FieldFault>,
    #[serde(default)]
    outcome: Option<String>,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

/// Reads the problem in an answer. Replaces a kind that this version does not know by the general kind for the status.
fn problem(status: StatusCode, body: &[u8]) -> Option<Problem> {
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        return Some(problem);
    }
    let LaterProblem { kind, title, detail, errors, outcome, retry_after_ms } =
        serde_json::from_slice(body).ok()?;
    let known = match status {
        StatusCode::UNAUTHORIZED => ProblemKind::Unauthorised,
        StatusCode::FORBIDDEN => ProblemKind::Forbidden,
        StatusCode::NOT_FOUND => ProblemKind::NotFound,
        StatusCode::TOO_MANY_REQUESTS => ProblemKind::LimitReached,
        _ if status.is_client_error() => ProblemKind::BadRequest,
        _ => ProblemKind::Internal,
    };
    let detail = if detail.is_empty() { kind } else { format!("{detail} ({kind})") };
    Some(Problem { kind: known, title, status: status.as_u16(), detail, errors, outcome, retry_after_ms })
}

/// Returns whether the error of the last attempt proves that the earlier attempts, which sent the same request, have
/// changed nothing. Such an error means that the service refuses the request each time: the request cannot be read, its
/// content is refused, or another timer has its key.
fn holds_for_all(error: &Error) -> bool {
    match error {
        Error::Problem(problem) => {
            [400, 413, 415, 422].contains(&problem.status) || problem.kind == ProblemKind::KeyExists
        }
        Error::Invalid(_) => true,
        _ => false,
    }
}

/// Returns the pause before a repetition: a random time between half of a bound and the bound. The bound is 100 ms at
/// first, then 200 ms, and so on up to 3.2 s.
fn back_off(sent: u32) -> Duration {
    let longest = 100_u64 << sent.min(5);
    Duration::from_millis(longest / 2 + fastrand::u64(..=longest / 2))
}

/// Returns the start of a body as text, for people to read.
fn beginning(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.is_empty() { "empty".to_owned() } else { format!("{text:?}") }
}
