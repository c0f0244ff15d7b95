//! The HTTP interface: `/v1` and the pages for machines that look after the service.
//!
//! A handler reads a request, asks for the right that it needs, calls the service, and writes the answer. Every error
//! is a [`Problem`](tourbillon_api::Problem).

mod answer;
mod audit;
mod auth;
mod backup;
mod batch;
mod claims;
mod document;
mod events;
mod extract;
mod json;
mod limits;
mod list;
mod namespaces;
mod operations;
mod queues;
mod report;
mod rules;
mod schedules;
mod scope;
mod timers;
mod view;

pub(crate) use limits::Interface;

use crate::asker::RequestId;
use crate::service::Service;
use crate::settings::Settings;
use axum::Router;
use axum::response::Response;
use tourbillon_api::{Problem, ProblemKind};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// The HTTP interface of a service, and its description.
fn routes() -> (Router<Service>, OpenApi) {
    let (router, document) = OpenApiRouter::new()
        .merge(timers::routes())
        .merge(list::routes())
        .merge(batch::routes())
        .merge(operations::routes())
        .merge(events::routes())
        .merge(report::routes())
        .merge(view::routes())
        .merge(namespaces::routes())
        .merge(claims::routes())
        .merge(queues::routes())
        .merge(schedules::routes())
        .merge(backup::routes())
        .merge(audit::routes())
        .split_for_parts();
    (router, document::complete(document))
}

/// The greatest body of a request about one timer, in bytes: the timer's body in base 64, or as text of which each
/// character is escaped, and as much for the other parts.
fn longest_body(settings: &Settings) -> usize {
    let rules = &settings.rules;
    2 * (rules.body + rules.url + rules.headers) + (16 << 10)
}

/// The HTTP interface of a service, for a server that needs no router of axum.
pub(crate) fn interface(service: Service) -> Interface {
    let (router, document) = routes();
    document::publish(&document);
    let router = router
        .merge(crate::page::routes())
        .fallback(async || answer::Refused(Problem::new(ProblemKind::NotFound, "there is no such path")))
        .method_not_allowed_fallback(async || {
            answer::Refused(Problem::new(ProblemKind::MethodNotAllowed, ""))
        })
        .with_state(service.clone());
    let longest_body = longest_body(service.settings());
    Interface::new(service, document::queries(&document), longest_body, router)
}

/// The HTTP interface of a service.
pub fn router(service: Service) -> Router {
    Router::new().fallback_service(interface(service))
}

/// The answer with this problem to the request with this id, for the layers below the routes.
pub(crate) fn refused(problem: Problem, id: &RequestId) -> Response {
    answer::Refused(problem).answer_to(id)
}

/// The OpenAPI document of the HTTP interface.
#[must_use]
pub fn openapi() -> OpenApi {
    routes().1
}
