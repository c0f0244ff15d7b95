//! The HTTP interface: `/v1` and the pages for machines that look after the service.
//!
//! A handler reads a request, asks for the right that it needs, calls the service, and writes the answer. Every error is
//! a [`Problem`](tourbillon_api::Problem).

mod answer;
mod auth;
mod extract;
mod timers;

use crate::service::Service;
use axum::Router;
use axum::middleware::from_fn_with_state;
use tourbillon_api::{Problem, ProblemKind};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// The HTTP interface of a service, and its description.
fn routes() -> (Router<Service>, OpenApi) {
    OpenApiRouter::new().merge(timers::routes()).split_for_parts()
}

/// The HTTP interface of a service.
pub fn router(service: Service) -> Router {
    let (router, _) = routes();
    router
        .fallback(async || answer::Refused(Problem::new(ProblemKind::NotFound, "there is no such path")))
        .method_not_allowed_fallback(async || {
            answer::Refused(Problem::new(ProblemKind::MethodNotAllowed, ""))
        })
        .layer(from_fn_with_state(service.clone(), auth::admit))
        .with_state(service)
}

/// The answer with this problem, for the layers below the routes.
pub(crate) fn refused(problem: Problem) -> axum::response::Response {
    axum::response::IntoResponse::into_response(answer::Refused(problem))
}

/// The OpenAPI document of the HTTP interface.
#[must_use]
pub fn openapi() -> OpenApi {
    routes().1
}
