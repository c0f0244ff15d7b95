//! Answers that are problems.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use tourbillon_api::Problem;

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
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = problem.retry_after_ms;
        let mut response = (status, Json(problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(millis) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1_000)));
        }
        response
    }
}
