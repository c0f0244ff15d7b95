//! Extracts the body, the query and the headers of requests. A part that cannot be read becomes a problem for the
//! client.

use super::answer::Refused;
use super::json;
use crate::bodies::Hold;
use crate::state::Trace;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use core::convert::Infallible;
use core::hash::Hash;
use core::marker::PhantomData;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use serde::de::DeserializeOwned;
use tourbillon_api::{Problem, ProblemKind};

/// The JSON body of a request before it is read. Only a handler that has checked the request's role can read the body.
#[derive(Debug)]
pub(super) struct Body<T> {
    request: Request,
    kind: PhantomData<fn() -> T>,
}

impl<T: Send, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Infallible> {
        Ok(Self { request, kind: PhantomData })
    }
}

impl<T: DeserializeOwned> Body<T> {
    /// Reads the JSON body as a `T`. Returns the value and the request's headers. The body's bytes count towards the
    /// memory limit for bodies until `hold` is dropped.
    pub(super) async fn read<C: Clone + Eq + Hash>(self, hold: &Hold<C>) -> Result<(T, HeaderMap), Refused> {
        let mut request = self.request;
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        let kind = kind.split(';').next().unwrap_or("").trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(Refused(Problem::new(
                ProblemKind::UnsupportedMediaType,
                format!("the type is {kind:?}"),
            )));
        }
        let headers = core::mem::take(request.headers_mut());
        let bytes = hold.read(request).await.map_err(|fault| Refused(fault.into()))?;
        Ok((json::read(&bytes)?, headers))
    }
}

/// The query parameters of a request, read as a `T`.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        axum::extract::Query::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Query(query)| Self(query))
            .map_err(|rejection: QueryRejection| {
                Refused(Problem::new(ProblemKind::BadRequest, rejection.body_text()))
            })
    }
}

/// Returns the number of items that a client wants on a page of a list, 50 without `limit`. Fails unless the number is
/// from 1 to 200. In the error, `items` is the word for the items.
pub(super) fn page_size(limit: Option<u32>, items: &str) -> Result<u32, Refused> {
    const MOST: u32 = 200;
    let limit = limit.unwrap_or(50);
    let refused =
        || Refused(Problem::new(ProblemKind::BadRequest, format!("a page has 1 to {MOST} {items}")));
    (1..=MOST).contains(&limit).then_some(limit).ok_or_else(refused)
}

/// The header in which a caller sends its W3C trace context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Returns the text of the header `name`. `None` if the header is missing. Fails if the header occurs twice or has
/// other characters than visible ASCII.
pub(super) fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refused> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| {
            Refused(Problem::new(
                ProblemKind::BadRequest,
                format!("the header {name} has other characters than visible ASCII"),
            ))
        }),
        (Some(_), Some(_)) => {
            Err(Refused(Problem::new(ProblemKind::BadRequest, format!("the header {name} is there twice"))))
        }
    }
}

/// Returns the trace to which a request belongs, from its W3C trace context. `None` if the context is missing or
/// invalid.
pub(super) fn trace(headers: &HeaderMap) -> Option<Trace> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Trace::parse(value.to_str().ok()?),
        _ => None,
    }
}
