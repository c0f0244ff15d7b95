//! What people look at: the past, the present and the near future of the service. All answers come from counters.

use super::answer::{Answer, Refused};
use super::auth::Right;
use super::extract::{Path, Query};
use crate::service::{Service, id};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tourbillon_api::{
    Endpoint, History, Horizon, LatenessBySecond, Moment, Nodes, Past, Problem, ProblemKind, Role,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::new()
        .routes(routes!(history))
        .routes(routes!(lateness))
        .routes(routes!(past))
        .routes(routes!(past_of_key))
        .routes(routes!(endpoints))
        .routes(routes!(horizon))
        .routes(routes!(nodes))
}

/// The greatest number of intervals of an answer.
const MOST_POINTS: u32 = 1_000;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// The first moment: 72 hours ago by default, and at the earliest.
    since: Option<Moment>,
    /// The greatest number of intervals: 360 by default, at most 1,000.
    #[param(minimum = 1, maximum = 1000)]
    points: Option<u32>,
}

/// Shows the service's numbers of the last 72 hours.
#[utoipa::path(
    get, path = "/v1/history", tag = "service", params(HistoryQuery),
    responses((status = 200, description = "The numbers.", body = History))
)]
async fn history(
    State(service): State<Service>,
    right: Right,
    Query(query): Query<HistoryQuery>,
) -> Answer<Json<History>> {
    right.require(Role::Reader, None)?;
    let points = query.points.unwrap_or(360);
    if !(1..=MOST_POINTS).contains(&points) {
        let detail = format!("an answer has 1 to {MOST_POINTS} intervals");
        return Err(Refused(Problem::new(ProblemKind::BadRequest, detail)));
    }
    Ok(Json(service.reports().history(query.since, points as usize)))
}

/// Shows how late the deliveries of the last hour were, by the second of the minute for which they were due.
#[utoipa::path(
    get, path = "/v1/lateness", tag = "service",
    responses((status = 200, description = "The sixty seconds.", body = LatenessBySecond))
)]
async fn lateness(State(service): State<Service>, right: Right) -> Answer<Json<LatenessBySecond>> {
    right.require(Role::Reader, None)?;
    Ok(Json(service.reports().lateness_by_second()))
}

/// Shows the past of a timer that is stored, or that has ended not long ago.
///
/// The attempts are remembered in memory, those of some ten thousand timers, and not over a restart of the service.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/ids/{id}/past", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
    ),
    responses((status = 200, description = "The past.", body = Past))
)]
async fn past(
    State(service): State<Service>,
    right: Right,
    Path((namespace, text)): Path<(String, String)>,
) -> Answer<Json<Past>> {
    right.require(Role::Reader, Some(&namespace))?;
    let past = service.reports().past(&namespace, id(&text)?).await?;
    Ok(Json(permitted(past, &right)))
}

/// Shows the past of the timer that has the key, or else of the last one that had it and has ended not long ago.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/timers/{key}/past", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("key" = String, Path, description = "The key.", max_length = 255),
    ),
    responses((status = 200, description = "The past.", body = Past))
)]
async fn past_of_key(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
) -> Answer<Json<Past>> {
    right.require(Role::Reader, Some(&namespace))?;
    let past = service.reports().past_of_key(&namespace, &key).await?;
    Ok(Json(permitted(past, &right)))
}

/// A past without the answers of receivers, unless the visitor may see payloads.
fn permitted(mut past: Past, right: &Right) -> Past {
    if !right.sees_payloads(&past.namespace) {
        past.attempts.iter_mut().for_each(|attempt| attempt.answer = None);
    }
    past
}

/// Shows the hosts that callbacks go to, at most 1,000: those of the latest callbacks.
#[utoipa::path(
    get, path = "/v1/endpoints", tag = "service",
    responses((status = 200, description = "The hosts.", body = Vec<Endpoint>))
)]
async fn endpoints(State(service): State<Service>, right: Right) -> Answer<Json<Vec<Endpoint>>> {
    right.require(Role::Reader, None)?;
    Ok(Json(service.reports().endpoints()))
}

/// Shows the number of pending timers by the time until they are due.
#[utoipa::path(
    get, path = "/v1/horizon", tag = "service",
    responses((status = 200, description = "The numbers.", body = Horizon))
)]
async fn horizon(State(service): State<Service>, right: Right) -> Answer<Json<Horizon>> {
    right.require(Role::Reader, None)?;
    Ok(Json(service.reports().horizon().await?))
}

/// Shows the nodes that share the timers, and the shards that each of them delivers.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "service",
    responses((status = 200, description = "The nodes.", body = Nodes))
)]
async fn nodes(State(service): State<Service>, right: Right) -> Answer<Json<Nodes>> {
    right.require(Role::Reader, None)?;
    Ok(Json(service.reports().nodes().await?))
}
