//! Answers that are problems.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tourbillon_api::{Problem, Readiness};

/// An answer, or a problem.
pub(super) type Answer<T> = Result<T, Refused>;

/// The answer to a request that was not fulfilled.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Problem);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        response(&problem, &problem)
    }
}

/// A problem with the members of another value.
fn response(problem: &Problem, body: &impl Serialize) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(millis) = problem.retry_after_ms {
        headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1_000)));
    }
    response
}

/// The problem of a service that cannot work, with its reasons.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct NotReady {
    #[serde(flatten)]
    problem: Problem,
    #[serde(flatten)]
    readiness: Readiness,
}

impl NotReady {
    pub(super) fn new(problem: Problem, readiness: Readiness) -> Self {
        Self { problem, readiness }
    }
}

impl IntoResponse for NotReady {
    fn into_response(self) -> Response {
        response(&self.problem, &self)
    }
}
