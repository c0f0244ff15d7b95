//! Answers requests of programs that watch the condition of the service.

use super::answer::{Answer, NotReady, Refused};
use super::auth::Permission;
use super::document;
use super::scope::{Everywhere, Reader};
use crate::convert::unavailable;
use crate::service::Service;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use http::HeaderName;
use http::header::CONTENT_TYPE;
use tourbillon::Prometheus;
use tourbillon_api::{Problem, ProblemKind, Readiness, ServiceStats};

/// Shows whether the loop that delivers timers is polling.
///
/// If it is not, only a restart of the process helps. There is one exception: if this node cannot reach a store that
/// several nodes share, the loop continues by itself once the node can.
#[utoipa::path(
    get, path = "/healthz", tag = "service", security(()),
    responses(
        (status = 200, description = "It polls.", body = Readiness, example = json!({ "ok": true })),
        (status = 503, description = "It does not poll.", body = NotReady, content_type = "application/problem+json"),
    )
)]
pub(super) async fn healthz(State(service): State<Service>) -> Result<Json<Readiness>, NotReady> {
    match service.healthy() {
        Ok(()) => Ok(Json(Readiness { ok: true, reasons: Vec::new() })),
        Err(reason) => Err(not_ready(Readiness { ok: false, reasons: vec![reason.into()] })),
    }
}

fn not_ready(readiness: Readiness) -> NotReady {
    NotReady::new(Problem::new(ProblemKind::StoreUnavailable, readiness.reasons.join("; ")), readiness)
}

/// Shows whether the store can be used.
#[utoipa::path(
    get, path = "/readyz", tag = "service",
    responses(
        (status = 200, description = "It can.", body = Readiness, example = json!({ "ok": true })),
        (status = 503, description = "It cannot.", body = NotReady, content_type = "application/problem+json"),
    )
)]
pub(super) async fn readyz(
    State(service): State<Service>,
    _permission: Permission,
) -> Result<Json<Readiness>, NotReady> {
    ready(&service).await
}

type Text<T> = ([(HeaderName, &'static str); 1], T);

/// Returns the routes of the addresses for probes, which need no token.
pub(super) fn probes() -> Router<Service> {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(async |State(service): State<Service>| ready(&service).await))
        .route("/metrics", get(async |State(service): State<Service>| numbers(&service).await))
}

async fn ready(service: &Service) -> Result<Json<Readiness>, NotReady> {
    let readiness = service.condition().readiness().await;
    if readiness.ok { Ok(Json(readiness)) } else { Err(not_ready(readiness)) }
}

async fn numbers(service: &Service) -> Text<String> {
    ([(CONTENT_TYPE, Prometheus::CONTENT_TYPE)], service.metrics().text().await)
}

/// Shows the metrics of the service in Prometheus' text format.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    responses((status = 200, description = "The numbers.", body = String, content_type = "text/plain"))
)]
pub(super) async fn metrics(all: Everywhere<Reader>) -> Answer<Text<String>> {
    Ok(numbers(&all.service).await)
}

/// Shows this OpenAPI document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "service",
    responses((status = 200, description = "The document.", body = Object))
)]
pub(super) async fn openapi(_permission: Permission) -> Text<&'static str> {
    ([(CONTENT_TYPE, "application/json")], document::text())
}

/// Shows the counts of the service.
#[utoipa::path(
    get, path = "/v1/stats", tag = "service",
    responses((status = 200, description = "The numbers.", body = ServiceStats))
)]
pub(super) async fn stats(all: Everywhere<Reader>) -> Answer<Json<ServiceStats>> {
    all.service.condition().stats().await.map(Json).map_err(|error| Refused(unavailable(&error)))
}
