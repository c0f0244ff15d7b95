//! Answers requests about schedules, which make timers again and again.

use super::answer::Answer;
use super::extract::{Query, page_size};
use super::operations::{Accepted, accepted};
use super::scope::{Body, Name, Needs, Reader, Within, Writer};
use crate::listing::{cursor_text, place_of};
use crate::service::ScheduleCall;
use axum::Json;
use http::StatusCode;
use serde::Deserialize;
use tourbillon_api::{
    Backfill, NewSchedule, Operation, Page, Preview, Problem, Removed, SchedulePatch, ScheduleView, Triggered,
};
use tourbillon_durable::schedule::{ScheduleKey, Schedules};
use tourbillon_durable::store::Cursor;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Lists only schedules whose keys begin with this text.
    key_prefix: Option<String>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// The greatest number of schedules: 50 by default, at most 200.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// Lists schedules, one page at a time, sorted by key.
///
/// The last page has no `next`.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/schedules", tag = "schedules",
    params(ListQuery),
    responses((status = 200, description = "A page.", body = Page<ScheduleView>))
)]
pub(super) async fn list_schedules(
    scope: Within<Reader>,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<ScheduleView>>> {
    let limit = page_size(query.limit, "schedules")?;
    let prefix = query.key_prefix.unwrap_or_default();
    // A cursor is valid only in the list that issued it: with the same namespace and the same beginning of the keys.
    let list = format!("{}/{prefix}/", scope.namespace);
    let place = query.cursor.as_deref().map(|cursor| place_of(cursor, list.as_bytes())).transpose()?;
    let cursor = place.map(|place| Cursor::from_bytes(&place));
    let (schedules, sees_payloads) = (scope.service.schedules(), scope.sees_payloads());
    let (items, next) = schedules.list(&scope.namespace, &prefix, cursor, limit, sees_payloads).await?;
    let next = next.map(|next| cursor_text(list.as_bytes(), next.as_bytes()));
    Ok(Json(Page { items, next }))
}

/// Makes a schedule, or replaces the settings of an existing schedule.
///
/// An existing schedule keeps its counts, and a paused schedule stays paused. If its plan (such as `cron` and `zone`)
/// does not change, the service still handles each past instant that it has not handled yet, within the new start and
/// end. If the plan changes, or if the schedule was parked because its plan could not be followed, the schedule
/// continues with the first instant whose occurrence is not due yet. Past instants that are left out count as missed.
#[utoipa::path(
    put, path = "/v1/namespaces/{namespace}/schedules/{key}", tag = "schedules",
    request_body(content = NewSchedule, examples(
        ("cron" = (summary = "Each working day at nine", value = json!({
            "cron": "0 9 * * MON-FRI", "zone": "Europe/Zurich",
            "callback": { "url": "https://shop.example/reports", "json": { "kind": "daily" } }
        }))),
        ("monthly" = (summary = "At the end of each month", value = json!({
            "monthly": { "day": 31, "time": "18:00" }, "zone": "Europe/Zurich", "missed": "once",
            "overlap": "queue-one", "jitter_ms": 600_000, "pull": { "queue": "invoices" }
        }))),
        ("every" = (summary = "Each minute", value = json!({
            "every_ms": 60_000, "missed": "skip", "pull": { "queue": "probes" }
        }))),
    )),
    responses(
        (status = 201, description = "The schedule is stored.", body = ScheduleView),
        (status = 200, description = "The schedule was changed.", body = ScheduleView),
        (status = 422, description = "The zone is not known, or the destination is blocked.", body = Problem),
        (status = 429, description = "A limit of the namespace is reached.", body = Problem),
    )
)]
pub(super) async fn put_schedule(
    scope: Within<Writer>,
    Name(key): Name,
    body: Body<NewSchedule>,
) -> Answer<(StatusCode, Json<ScheduleView>)> {
    let new = scope.read(body).await?;
    let (schedules, at) = (scope.service.schedules(), at(&scope, key));
    let (is_new, view) = schedules.put(at, &new, scope.sees_payloads()).await?;
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(view)))
}

fn at<R>(scope: &Within<R>, key: String) -> ScheduleKey {
    ScheduleKey::new(scope.namespace.as_str(), key)
}

/// Answers with the schedule that `call` returns.
async fn see<R: Needs>(scope: Within<R>, key: String, call: ScheduleCall) -> Answer<Json<ScheduleView>> {
    let at = at(&scope, key);
    Ok(Json(scope.service.schedules().see(at, scope.sees_payloads(), call).await?))
}

/// Shows a schedule with its next ten instants. Readers see neither headers nor bodies.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/schedules/{key}", tag = "schedules",
    responses((status = 200, description = "The schedule.", body = ScheduleView))
)]
pub(super) async fn get_schedule(scope: Within<Reader>, Name(key): Name) -> Answer<Json<ScheduleView>> {
    see(scope, key, Schedules::get).await
}

/// Changes only those fields of a schedule that the request has.
#[utoipa::path(
    patch, path = "/v1/namespaces/{namespace}/schedules/{key}", tag = "schedules",
    request_body(content = SchedulePatch, example = json!({ "overlap": "allow", "zone": "America/New_York" })),
    responses(
        (status = 200, description = "The schedule was changed.", body = ScheduleView),
        (status = 422, description = "The zone is not known, or the destination is blocked.", body = Problem),
        (status = 429, description = "A limit of the namespace is reached.", body = Problem),
    )
)]
pub(super) async fn patch_schedule(
    scope: Within<Writer>,
    Name(key): Name,
    body: Body<SchedulePatch>,
) -> Answer<Json<ScheduleView>> {
    let patch = scope.read(body).await?;
    let (schedules, at) = (scope.service.schedules(), at(&scope, key));
    Ok(Json(schedules.patch(at, patch, scope.sees_payloads()).await?))
}

/// Removes a schedule.
///
/// Its stored occurrences stay. They can be cancelled by their label, `schedule:` followed by the key. The status of
/// the answer is 200 whether or not there was such a schedule.
#[utoipa::path(
    delete, path = "/v1/namespaces/{namespace}/schedules/{key}", tag = "schedules",
    responses((status = 200, description = "What happened.", body = Removed, example = json!({ "removed": true })))
)]
pub(super) async fn delete_schedule(scope: Within<Writer>, Name(key): Name) -> Answer<Json<Removed>> {
    Ok(Json(scope.service.schedules().remove(at(&scope, key)).await?))
}

/// Pauses a schedule: it makes no occurrences for instants during the pause. Stored occurrences are not affected.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/schedules/{key}/pause", tag = "schedules",
    responses((status = 200, description = "The schedule is paused.", body = ScheduleView))
)]
pub(super) async fn pause_schedule(scope: Within<Writer>, Name(key): Name) -> Answer<Json<ScheduleView>> {
    see(scope, key, Schedules::pause).await
}

/// Resumes a schedule that is paused or parked.
///
/// A schedule is parked if its plan cannot be followed, for example because the service does not know the time zone.
/// After a pause, the schedule continues with the first instant whose occurrence is not due yet. The instants that
/// passed while the schedule was parked count as missed.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/schedules/{key}/resume", tag = "schedules",
    responses(
        (status = 200, description = "The schedule is active.", body = ScheduleView),
        (status = 422, description = "The zone is not known.", body = Problem),
    )
)]
pub(super) async fn resume_schedule(scope: Within<Writer>, Name(key): Name) -> Answer<Json<ScheduleView>> {
    see(scope, key, Schedules::resume).await
}

/// Makes an occurrence of a schedule now, whether or not the schedule is paused or another occurrence is under way.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/schedules/{key}/trigger", tag = "schedules",
    responses((status = 200, description = "The occurrence is stored and due.", body = Triggered))
)]
pub(super) async fn trigger_schedule(scope: Within<Writer>, Name(key): Name) -> Answer<Json<Triggered>> {
    Ok(Json(scope.service.schedules().trigger(at(&scope, key)).await?))
}

/// Makes an occurrence of a schedule for each past instant in a range.
///
/// The id of an occurrence is derived from its instant. So an instant whose occurrence is stored, or ended within the
/// last hour, gets no second occurrence and is counted in `refused`. The operation continues after a restart of the
/// service.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/schedules/{key}/backfill", tag = "schedules",
    request_body(content = Backfill, example = json!({ "from": "2026-11-01T00:00:00.000Z" })),
    responses(
        (status = 202, description = "The operation has begun. The header `Location` has its path.", body = Operation),
        (status = 422, description = "The zone is not known.", body = Problem),
        (status = 429, description = "Too many operations run.", body = Problem),
    )
)]
pub(super) async fn backfill_schedule(
    scope: Within<Writer>,
    Name(key): Name,
    body: Body<Backfill>,
) -> Answer<Accepted> {
    let backfill = scope.read(body).await?;
    let operation = scope.service.schedules().backfill(at(&scope, key), &backfill).await?;
    Ok(accepted(&scope.namespace, operation))
}

/// Shows the next ten instants of a schedule without making it. The callback or the queue may be missing.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/previews", tag = "schedules",
    request_body(content = NewSchedule, example = json!({ "cron": "30 2 * * *", "zone": "Europe/Zurich" })),
    responses(
        (status = 200, description = "The instants.", body = Preview),
        (status = 422, description = "The zone is not known, or the destination is blocked.", body = Problem),
    )
)]
pub(super) async fn preview_schedule(
    scope: Within<Reader>,
    body: Body<NewSchedule>,
) -> Answer<Json<Preview>> {
    let new = scope.read(body).await?;
    Ok(Json(scope.service.schedules().preview(&scope.namespace, &new)?))
}
