//! The page of a request that was not fulfilled.

use super::view::{Frame, show};
use super::visitor::Visitor;
use askama::Template;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tourbillon_api::{Problem, ProblemKind};

/// The answer to a request that was not fulfilled.
#[derive(Debug)]
pub(super) struct Fault {
    problem: Box<Problem>,
    /// The visitor, whose page has the way to the other pages.
    visitor: Option<Box<Visitor>>,
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

impl Fault {
    /// The fault of a request that cannot be read. `detail` must not have parts of the request.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Problem::new(ProblemKind::BadRequest, detail).into()
    }

    /// The fault of a visitor who may not do this.
    pub(super) fn forbidden(detail: &str) -> Self {
        Problem::new(ProblemKind::Forbidden, detail).into()
    }

    pub(super) fn no_page() -> Self {
        Problem::new(ProblemKind::NotFound, "There is no such page.").into()
    }

    pub(super) fn wrong_method() -> Self {
        Problem::new(ProblemKind::MethodNotAllowed, "").into()
    }

    /// The fault, with the way to the other pages.
    pub(super) fn of(mut self, visitor: &Visitor) -> Self {
        self.visitor = Some(Box::new(visitor.clone()));
        self
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self { problem: Box::new(problem), visitor: None }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let Self { problem, visitor } = self;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let page = FaultPage {
            frame: Frame { visitor: visitor.as_deref(), at: "", is_live: false },
            title: &problem.title,
            detail: &problem.detail,
            faults: problem
                .errors
                .iter()
                .map(|fault| &*fault.detail)
                .filter(|fault| *fault != problem.detail)
                .collect(),
            is_unknown: problem.outcome.is_some(),
        };
        (status, show(&page)).into_response()
    }
}
