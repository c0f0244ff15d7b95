//! The HTTP interface: the routes under `/v1`, and the routes for programs that watch the service, such as `/metrics`.
//!
//! A handler reads a request, checks that the request has the role that it needs, calls the service, and writes the
//! answer. Every error is a [`Problem`](tourbillon_api::Problem).

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
mod routes;
mod rules;
mod schedules;
mod scope;
mod timers;
mod view;

pub(crate) use limits::Interface;

use crate::request_id::RequestId;
use crate::service::Service;
use crate::settings::Settings;
use axum::Router;
use axum::response::Response;
use routes::routes;
use tourbillon_api::{Problem, ProblemKind};
use utoipa::openapi::OpenApi;

/// Returns the greatest size of the body of a request about a single timer, in bytes.
///
/// The timer's URL, headers and body count twice, because each of their characters may be escaped. A body in base 64
/// fits, too. All other parts together have 16 KiB.
fn longest_body(settings: &Settings) -> usize {
    let rules = &settings.rules;
    2 * (rules.body + rules.url + rules.headers) + (16 << 10)
}

/// Returns the HTTP interface of a service as a tower service, for a server without axum.
pub(crate) fn interface(service: Service) -> Interface {
    let (router, document) = routes();
    document::publish(&document);
    of_routes(service, router.merge(crate::page::routes()), &document)
}

/// Returns the HTTP interface of the addresses for probes: `/healthz`, `/readyz` and `/metrics` without a token, and
/// nothing else.
pub(crate) fn probes(service: Service) -> Interface {
    of_routes(service, report::probes(), &openapi())
}

/// Makes an interface of these routes. `document` names the query parameters that a request may have.
fn of_routes(service: Service, routes: Router<Service>, document: &OpenApi) -> Interface {
    let router = routes
        .fallback(async || answer::Refused(Problem::new(ProblemKind::NotFound, "there is no such path")))
        // This call must follow `merge`: axum sets the fallback only in the routes that exist at the time of the call.
        // The pages keep a fallback of their own.
        .method_not_allowed_fallback(async || {
            answer::Refused(Problem::new(ProblemKind::MethodNotAllowed, ""))
        })
        .with_state(service.clone());
    let longest_body = longest_body(service.settings());
    Interface::new(service, document::queries(document), longest_body, router)
}

/// Returns the HTTP interface of a service as a router of axum.
pub fn router(service: Service) -> Router {
    Router::new().fallback_service(interface(service))
}

/// Makes the answer to the request with the id `id`. The answer reports `problem`. Code that runs before the routes
/// uses this function.
pub(crate) fn refused(problem: Problem, id: &RequestId) -> Response {
    answer::Refused(problem).answer_to(id)
}

/// Returns the OpenAPI document of the HTTP interface.
#[must_use]
pub fn openapi() -> OpenApi {
    routes().1
}
