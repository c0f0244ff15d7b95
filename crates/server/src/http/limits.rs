//! Surrounds all handlers. Limits the size of a request's path and headers, and refuses unknown query parameters.
//! Answers a panic of a handler with a problem. Logs and counts the answers.

use super::answer::Refused;
use super::auth::{admit, challenge};
use super::document::Queries;
use crate::asker::Asker;
use crate::clock::millis;
use crate::request_id::REQUEST_ID;
use crate::service::Service;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, Request};
use axum::response::{IntoResponse as _, Response};
use core::convert::Infallible;
use core::panic::AssertUnwindSafe;
use core::pin::Pin;
use core::task::{Context, Poll};
use futures_util::FutureExt as _;
use http::header::{AUTHORIZATION, CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method};
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use std::time::Instant;
use tourbillon_api::{Problem, ProblemKind};
use tower_service::Service as HttpService;
use tracing::{Level, debug, enabled, field};

/// The greatest length of a request's path and query together, in bytes.
const LONGEST_URI: usize = 8 << 10;
/// The greatest length of the names and values of all headers of a request, in bytes.
const LONGEST_HEADERS: usize = 8 << 10;
/// A zero byte as a path and a query write it. They cannot have the byte itself.
const ZERO_BYTE: &str = "%00";

/// The HTTP interface of a service: all handlers, and the limits that every request must keep. A clone shares the state
/// of the original.
#[derive(Clone)]
pub(crate) struct Interface(Arc<Inner>);

struct Inner {
    service: Service,
    /// The names of the query parameters that a request may have, by its path and method.
    queries: Queries,
    /// The greatest size of a request's body, in bytes, on routes without a limit of their own.
    longest_body: usize,
    router: Router,
}

impl Interface {
    pub(super) fn new(service: Service, queries: Queries, longest_body: usize, router: Router) -> Self {
        Self(Arc::new(Inner { service, queries, longest_body, router }))
    }
}

impl HttpService<Request> for Interface {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let account = this.account(&request);
            let mut response = this.answer(&account, request).await;
            account.settle(&mut response);
            Ok(response)
        })
    }
}

/// A request whose answer is not logged and counted yet. A connection may send another answer than the handler has
/// made, or refuse a request before the handler gets it. So the sender of the answer calls
/// [`settle`](Account::settle).
#[must_use = "each answer is logged and counted"]
pub(crate) struct Account {
    interface: Arc<Inner>,
    asker: Arc<Asker>,
    /// The method and the path of the request, and the moment of its arrival. `None` if the log does not have requests.
    asked: Option<(Method, String, Instant)>,
}

impl Account {
    /// Adds the request's id to the answer that is sent, counts the answer, and logs it at the level `debug`.
    pub(crate) fn settle<B>(self, response: &mut http::Response<B>) {
        let Self { interface, asker, asked } = self;
        let status = response.status().as_u16();
        if let Some(id) = asker.id().header() {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        interface.service.counters().answered(status);
        if let Some((method, path, begun)) = asked {
            let (request, peer) = (asker.id().text(), asker.peer().map(field::display));
            let took_ms = millis(begun.elapsed());
            debug!(target: "request", request, peer, %method, path, status, took_ms, "a request was answered");
        }
    }
}

impl Interface {
    /// Begins the account of a request that has arrived.
    pub(crate) fn account<B>(&self, request: &http::Request<B>) -> Account {
        let asker = Arc::new(Asker::of(request, self.0.service.settings().behind_proxy));
        let asked = enabled!(target: "request", Level::DEBUG)
            .then(|| (request.method().clone(), request.uri().path().to_owned(), Instant::now()));
        Account { interface: Arc::clone(&self.0), asker, asked }
    }

    /// Makes the answer to a request. While the handler runs, it can find the sender of the request: the [`Asker`].
    pub(crate) async fn answer(&self, account: &Account, request: Request) -> Response {
        account.asker.await_with(self.0.answer_within_limits(request)).await
    }
}

impl Inner {
    /// Checks the limits of a request, and lets the router answer it.
    ///
    /// The checks are not layers of the router, because the router copies a route with its layers several times for
    /// each request.
    async fn answer_within_limits(&self, mut request: Request) -> Response {
        let counters = self.service.counters();
        let has_token = request.headers().contains_key(AUTHORIZATION);
        // A route with a limit of its own replaces this value later, by a layer of the router.
        DefaultBodyLimit::max(self.longest_body).apply(&mut request);
        let admitted = check(&self.queries, &request).and_then(|()| admit(&self.service, &request));
        let mut response = match admitted {
            Err(problem) => Refused(problem).into_response(),
            Ok(()) => {
                // A panic must not end the connection, on which other requests may be under way.
                // The call stands inside the `async` block, because `catch_unwind` catches only panics of a poll.
                let answered =
                    AssertUnwindSafe(async { self.router.clone().call(request).await }).catch_unwind().await;
                answered.map(|response| response.unwrap_or_else(|never| match never {})).unwrap_or_else(
                    |_| {
                        counters.panics.add(1);
                        Refused(Problem::new(ProblemKind::Internal, "")).into_response()
                    },
                )
            }
        };
        challenge(&mut response, has_token);
        let headers = response.headers_mut();
        // An answer depends on the token and on the time, so no cache may keep it.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}

fn check(queries: &Queries, request: &Request) -> Result<(), Problem> {
    let too_large = |detail: &str| Problem::new(ProblemKind::TooLarge, detail);
    let uri = request.uri();
    let bad = |detail: String| Problem::new(ProblemKind::BadRequest, detail);
    if uri.path().len() + uri.query().map_or(0, str::len) > LONGEST_URI {
        return Err(too_large("the path with the query has more than 8 KiB"));
    }
    let headers = request.headers().iter();
    if headers.map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() > LONGEST_HEADERS {
        return Err(too_large("the headers have more than 8 KiB"));
    }
    // No name in a path and no text in a query may have a zero byte, because no store keeps such a text.
    if uri.path().contains(ZERO_BYTE) {
        return Err(bad("the path has a zero byte".to_owned()));
    }
    let Some(query) = uri.query() else { return Ok(()) };
    if query.contains(ZERO_BYTE) {
        return Err(bad("the query has a zero byte".to_owned()));
    }
    // The parser below would replace invalid bytes without an error, so the service would see another text than the
    // client sent.
    if percent_decode_str(query).decode_utf8().is_err() {
        return Err(bad("the query is not UTF-8".to_owned()));
    }
    // The document lacks the pages for browsers, and paths that do not exist. The router answers requests for them.
    let Some(known) = queries.of(uri.path(), request.method()) else { return Ok(()) };
    let Query(pairs) =
        Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|rejection| bad(rejection.body_text()))?;
    match pairs.iter().find(|(name, _)| !known.contains(name)) {
        Some((name, _)) => Err(bad(format!("there is no parameter {name:?}"))),
        None => Ok(()),
    }
}
