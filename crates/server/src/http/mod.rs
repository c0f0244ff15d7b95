//! The HTTP interface: `/v1` and the pages for machines that look after the service.
//!
//! A handler reads a request, asks for the right that it needs, calls the service, and writes the answer. Every error is
//! a [`Problem`](tourbillon_api::Problem).

mod answer;
mod auth;
mod claims;
mod extract;
mod namespaces;
mod timers;

use crate::service::Service;
use axum::Router;
use tourbillon_api::{Problem, ProblemKind};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// The HTTP interface of a service, and its description.
fn routes() -> (Router<Service>, OpenApi) {
    OpenApiRouter::new()
        .merge(timers::routes())
        .merge(namespaces::routes())
        .merge(claims::routes())
        .split_for_parts()
}

/// The HTTP interface of a service.
pub fn router(service: Service) -> Router {
    let (router, _) = routes();
    router
        .fallback(async || answer::Refused(Problem::new(ProblemKind::NotFound, "there is no such path")))
        .method_not_allowed_fallback(async || {
            answer::Refused(Problem::new(ProblemKind::MethodNotAllowed, ""))
        })
        .with_state(service)
}

/// The OpenAPI document of the HTTP interface.
#[must_use]
pub fn openapi() -> OpenApi {
    routes().1
}
