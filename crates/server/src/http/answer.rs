//! Turns a problem, which describes why a request was not fulfilled, into an answer.

use crate::asker;
use crate::request_id::RequestId;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tourbillon_api::{Problem, ProblemKind, Readiness};
use tracing::{error, field, warn};

/// The result of a request's handler: an answer, or a problem that the client gets instead.
pub(super) type Answer<T> = Result<T, Refused>;

/// A problem that a handler returns instead of an answer. As a response, the problem becomes an error for the client.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Problem);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (Self(problem), id) = (self, asker::request_id());
        log(&problem, id.as_ref());
        response(&problem, &problem, id.as_ref())
    }
}

impl Refused {
    /// Makes the error answer to the request with the id `id`. Code that refuses a request before the routes get it
    /// needs this function: [`asker::request_id`], with which `into_response` finds the id, does not know the request
    /// there.
    pub(super) fn answer_to(self, id: &RequestId) -> Response {
        let Self(problem) = self;
        response(&problem, &problem, Some(id))
    }
}

/// Logs that a request failed, if the problem may need an administrator.
fn log(problem: &Problem, id: Option<&RequestId>) {
    let (kind, detail, request) = (problem.kind.path(), &*problem.detail, id.map(RequestId::text));
    match problem.kind {
        ProblemKind::Forbidden => {
            let peer = asker::present().and_then(|asker| asker.peer()).map(field::display);
            warn!(target: "access-refused", peer, request, reason = detail, "a request was refused that is not permitted");
        }
        ProblemKind::Internal => {
            error!(target: "request-failed", request, kind, detail, "a request has failed")
        }
        ProblemKind::StoreUnavailable | ProblemKind::StorageFull | ProblemKind::ReadOnly => {
            warn!(target: "request-failed", request, kind, detail, "a request was refused by the store");
        }
        _ => {}
    }
}

/// The body of an error answer, together with the id of the answered request.
#[derive(Serialize)]
struct Named<'a, T> {
    #[serde(flatten)]
    body: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
}

/// Makes the answer that reports a problem. `body` is the answer's body: the problem, possibly with more fields. `id`
/// is the id of the request.
fn response(problem: &Problem, body: &impl Serialize, id: Option<&RequestId>) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = Named { body, request_id: id.map(RequestId::text) };
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(millis) = problem.retry_after_ms {
        // The header has whole seconds. Rounded down, a pause of less than a second would become zero.
        headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1_000)));
    }
    response
}

/// The body of an answer that says that the service is not ready. It has the fields of a problem, and the reasons why
/// the service is not ready.
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
        response(&self.problem, &self, asker::request_id().as_ref())
    }
}
