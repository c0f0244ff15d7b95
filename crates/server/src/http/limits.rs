//! What is the same for all requests: limits of their heads, the parameters that they may have, and a problem in place of a
//! panic.

use super::answer::Refused;
use super::auth::{admit, challenge};
use super::document::Queries;
use crate::service::Service;
use axum::extract::{DefaultBodyLimit, MatchedPath, Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use core::panic::AssertUnwindSafe;
use futures_util::FutureExt as _;
use http::header::{AUTHORIZATION, CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method};
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use tourbillon_api::{Problem, ProblemKind};

/// The greatest length of a path with its query, in bytes.
const LONGEST_URI: usize = 8 << 10;
/// The greatest length of all headers' names and values, in bytes.
const LONGEST_HEADERS: usize = 8 << 10;

/// The service, the parameters of its paths, and the greatest body of a request whose path has no limit of its own, in
/// bytes.
pub(super) struct Limits {
    pub(super) service: Service,
    pub(super) queries: Queries,
    pub(super) longest_body: usize,
}

/// Fulfils a request within the limits, and counts its answer.
///
/// This is the one layer of all routes: the router copies a route with its layers several times for each request.
pub(super) async fn keep(State(limits): State<Arc<Limits>>, mut request: Request, next: Next) -> Response {
    let counters = limits.service.counters();
    let has_token = request.headers().contains_key(AUTHORIZATION);
    DefaultBodyLimit::max(limits.longest_body).apply(&mut request);
    let admitted = check(&limits.queries, &request).and_then(|()| admit(&limits.service, &request));
    let mut response = match admitted {
        Err(problem) => Refused(problem).into_response(),
        Ok(()) => AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
            counters.panics.add(1);
            Refused(Problem::new(ProblemKind::Internal, "")).into_response()
        }),
    };
    challenge(&mut response, has_token);
    counters.answered(response.status().as_u16());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn check(queries: &Queries, request: &Request) -> Result<(), Problem> {
    let too_large = |detail: &str| Problem::new(ProblemKind::TooLarge, detail);
    let uri = request.uri();
    if uri.path().len() + uri.query().map_or(0, str::len) > LONGEST_URI {
        return Err(too_large("the path with the query has more than 8 KiB"));
    }
    let headers = request.headers().iter();
    if headers.map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() > LONGEST_HEADERS {
        return Err(too_large("the headers have more than 8 KiB"));
    }
    let (Some(query), Some(path)) = (uri.query(), request.extensions().get::<MatchedPath>()) else {
        return Ok(());
    };
    let bad = |detail: String| Problem::new(ProblemKind::BadRequest, detail);
    if percent_decode_str(query).decode_utf8().is_err() {
        return Err(bad("the query is no UTF-8".to_owned()));
    }
    let method = if *request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let Some(known) = queries.get(&(path.as_str().to_owned(), method.to_string())) else { return Ok(()) };
    let Query(pairs) =
        Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|rejection| bad(rejection.body_text()))?;
    match pairs.iter().find(|(name, _)| !known.contains(name)) {
        Some((name, _)) => Err(bad(format!("there is no parameter {name:?}"))),
        None => Ok(()),
    }
}
