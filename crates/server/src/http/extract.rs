//! Extracts the query and the headers of requests. A part that cannot be read becomes a problem for the
//! client.

use super::answer::Refused;
use super::json::read_query;
use crate::state::Trace;
use axum::extract::FromRequestParts;
use axum::extract::rejection::QueryRejection;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use serde::de::DeserializeOwned;
use tourbillon_api::{Problem, ProblemKind};

/// The query parameters of a request, read as a `T`.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let axum::extract::Query(pairs) = axum::extract::Query::from_request_parts(parts, state)
            .await
            .map_err(|rejection: QueryRejection| {
                Refused(Problem::new(ProblemKind::BadRequest, rejection.body_text()))
            })?;
        Ok(Self(read_query(pairs)?))
    }
}

/// Returns the number of items on a page of a list: the client's `limit`, or 50 without a limit. Fails unless the
/// number is from 1 to 200. `items` is the noun for the items in the text of the error, for example "timers".
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
/// other characters than visible ASCII and spaces.
pub(super) fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refused> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            // `to_str` also permits tabs.
            Ok(text) if !text.contains('\t') => Ok(Some(text)),
            _ => Err(Refused(Problem::new(
                ProblemKind::BadRequest,
                format!("the header {name} has other characters than visible ASCII and spaces"),
            ))),
        },
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
