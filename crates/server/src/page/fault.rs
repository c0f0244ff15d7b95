//! Makes the pages that tell a visitor why a request was not fulfilled.

use super::view::{Frame, show};
use super::visitor::Visitor;
use askama::Template;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tourbillon_api::{Problem, ProblemKind};

/// The reason why the service did not do as a visitor asked. As a response, the fault becomes a page for the visitor.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    problem: Box<Problem>,
}

#[derive(Template)]
#[template(path = "fault.html")]
struct FaultPage<'a> {
    frame: Frame<'a>,
    title: &'a str,
    detail: &'a str,
    faults: Vec<&'a str>,
    is_unknown: bool,
}

/// The detail of a [`Fault`] for a visitor whose token does not permit the visitor to see a namespace.
pub(super) const UNSEEN: &str = "Your token does not permit to see this namespace.";
/// The detail of a [`Fault`] for a visitor whose token does not permit changes of timers and schedules in a namespace.
pub(super) const UNCHANGED: &str = "Your token does not permit changes in this namespace.";

impl Fault {
    /// Makes the fault for a request that cannot be read. `detail` must not repeat parts of the request.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Problem::new(ProblemKind::BadRequest, detail).into()
    }

    /// Makes the fault for a visitor whose token does not permit the request.
    pub(super) fn forbidden(detail: &str) -> Self {
        Problem::new(ProblemKind::Forbidden, detail).into()
    }

    /// Fails with `detail` unless the visitor's token permits the request.
    pub(super) fn unless(is_permitted: bool, detail: &str) -> Result<(), Self> {
        if is_permitted { Ok(()) } else { Err(Self::forbidden(detail)) }
    }

    pub(super) fn no_page() -> Self {
        Problem::new(ProblemKind::NotFound, "There is no such page.").into()
    }

    pub(super) fn wrong_method() -> Self {
        Problem::new(ProblemKind::MethodNotAllowed, "").into()
    }

    /// Renders the fault as a page for the visitor. If the visitor is known, the page links to the other pages.
    pub(super) fn page(&self, visitor: Option<&Visitor>) -> Response {
        let Self { problem } = self;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let page = FaultPage {
            frame: Frame { visitor, at: "", is_live: false },
            title: &problem.title,
            detail: &problem.detail,
            faults: problem
                .errors
                .iter()
                .map(|fault| &*fault.detail)
                // `Problem::field` makes a problem with the same detail as its faulty field. The page shows the detail
                // only once.
                .filter(|fault| *fault != problem.detail)
                .collect(),
            is_unknown: problem.outcome.is_some(),
        };
        (status, show(&page)).into_response()
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self { problem: Box::new(problem) }
    }
}

impl IntoResponse for Fault {
    /// Attaches the fault to an empty response. Later the middleware `guard` renders the fault as a page, because only
    /// `guard` knows the visitor.
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}
