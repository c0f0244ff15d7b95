//! Answers requests for reports on the past, the present and the near future of the service. The answers come from
//! counters and need no search through the timers.

use super::answer::{Answer, Refused};
use super::extract::Query;
use super::scope::{Everywhere, Reader};
use axum::Json;
use serde::Deserialize;
use tourbillon_api::{Endpoint, History, Horizon, LatenessBySecond, Moment, Nodes, Problem, ProblemKind};

/// The greatest number of intervals in an answer about the service's history.
const MOST_POINTS: u32 = 1_000;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// The start of the history. By default 72 hours ago, which is also the earliest possible start.
    since: Option<Moment>,
    /// The greatest number of intervals: 360 by default, at most 1,000.
    #[param(minimum = 1, maximum = 1000)]
    points: Option<u32>,
}

/// Shows the counts of the service over the last 72 hours.
#[utoipa::path(
    get, path = "/v1/history", tag = "service", params(HistoryQuery),
    responses((status = 200, description = "The numbers.", body = History))
)]
pub(super) async fn history(
    all: Everywhere<Reader>,
    Query(query): Query<HistoryQuery>,
) -> Answer<Json<History>> {
    let points = query.points.unwrap_or(360);
    if !(1..=MOST_POINTS).contains(&points) {
        let detail = format!("an answer has 1 to {MOST_POINTS} intervals");
        return Err(Refused(Problem::new(ProblemKind::BadRequest, detail)));
    }
    Ok(Json(all.service.reports().history(query.since, points as usize)))
}

/// Shows how late the deliveries of the last hour began. Groups the deliveries by the second of the minute at which
/// they were due.
#[utoipa::path(
    get, path = "/v1/lateness", tag = "service",
    responses((status = 200, description = "The sixty seconds.", body = LatenessBySecond))
)]
pub(super) async fn lateness(all: Everywhere<Reader>) -> Answer<Json<LatenessBySecond>> {
    Ok(Json(all.service.reports().lateness_by_second()))
}

/// Shows the hosts of the latest callbacks, at most 1,000.
#[utoipa::path(
    get, path = "/v1/endpoints", tag = "service",
    responses((status = 200, description = "The hosts.", body = Vec<Endpoint>))
)]
pub(super) async fn endpoints(all: Everywhere<Reader>) -> Answer<Json<Vec<Endpoint>>> {
    Ok(Json(all.service.reports().endpoints()))
}

/// Shows how many timers are pending, by the time until they are due.
#[utoipa::path(
    get, path = "/v1/horizon", tag = "service",
    responses((status = 200, description = "The numbers.", body = Horizon))
)]
pub(super) async fn horizon(all: Everywhere<Reader>) -> Answer<Json<Horizon>> {
    Ok(Json(all.service.reports().horizon().await?))
}

/// Shows the nodes that share the timers, and the shards that each of them delivers.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "service",
    responses((status = 200, description = "The nodes.", body = Nodes))
)]
pub(super) async fn nodes(all: Everywhere<Reader>) -> Answer<Json<Nodes>> {
    Ok(Json(all.service.reports().nodes().await?))
}
