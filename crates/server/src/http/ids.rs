//! Single timers, by their ids: those without keys, and dead ones, which have left their keys to others.

use super::answer::Answer;
use super::auth::Right;
use super::extract::{Body, Path};
use crate::convert::shown;
use crate::service::{Named, Service, Verb, id};
use axum::Json;
use axum::extract::State;
use tourbillon_api::{Cancelled, Changed, Delay, Problem, Role, Timer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::new()
        .routes(routes!(get_timer_by_id, move_timer_by_id, cancel_timer_by_id))
        .routes(routes!(fire_timer_by_id))
        .routes(routes!(pause_timer_by_id))
        .routes(routes!(resume_timer_by_id))
        .routes(routes!(replay_timer_by_id))
}

/// Shows a timer. Readers see no headers and no body.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/ids/{id}", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
    ),
    responses((status = 200, description = "The timer.", body = Timer))
)]
async fn get_timer_by_id(
    State(service): State<Service>,
    right: Right,
    Path((namespace, text)): Path<(String, String)>,
) -> Answer<Json<Timer>> {
    right.require(Role::Reader, Some(&namespace))?;
    let timer = service.stored_timers().get(&namespace, id(&text)?.into()).await?;
    Ok(Json(shown(&timer, right.sees_payloads(&namespace))))
}

/// Moves a timer's due moment.
#[utoipa::path(
    patch, path = "/v1/namespaces/{namespace}/ids/{id}", tag = "timers",
    request_body(content = Delay, example = json!({ "due": "2096-11-22T16:00:00.000Z" })),
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
    ),
    responses(
        (status = 200, description = "The timer was moved.", body = Changed),
        (status = 409, description = "The timer is being delivered, or is dead.", body = Problem),
        (status = 422, description = "The due moment is too far away.", body = Problem),
    )
)]
async fn move_timer_by_id(
    State(service): State<Service>,
    right: Right,
    Path((namespace, text)): Path<(String, String)>,
    body: Body<Delay>,
) -> Answer<Json<Changed>> {
    let to = right.require(Role::Writer, Some(&namespace))?.read(body).await?;
    Ok(Json(service.changes().move_timer(&namespace, Named::Id(id(&text)?), &to).await?))
}

/// Cancels a timer, or drops a dead one.
///
/// The answer has the status 200 whether or not there is such a timer.
#[utoipa::path(
    delete, path = "/v1/namespaces/{namespace}/ids/{id}", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
    ),
    responses((status = 200, description = "What happened.", body = Cancelled))
)]
async fn cancel_timer_by_id(
    State(service): State<Service>,
    right: Right,
    Path((namespace, text)): Path<(String, String)>,
) -> Answer<Json<Cancelled>> {
    right.require(Role::Writer, Some(&namespace))?;
    Ok(Json(service.changes().cancel(&namespace, Named::Id(id(&text)?)).await?))
}

async fn change(
    service: &Service,
    right: &Right,
    (namespace, text): &(String, String),
    verb: Verb,
) -> Answer<Json<Changed>> {
    right.require(Role::Writer, Some(namespace))?;
    Ok(Json(service.changes().change(namespace, Named::Id(id(text)?), verb).await?))
}

/// Delivers a timer now: one that is pending, paused, or dead.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/ids/{id}/fire", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
    ),
    responses(
        (status = 200, description = "The timer is due.", body = Changed),
        (status = 409, description = "The timer is being delivered, or is dead and its key is another timer's.", body = Problem),
    )
)]
async fn fire_timer_by_id(
    State(service): State<Service>,
    right: Right,
    Path(path): Path<(String, String)>,
) -> Answer<Json<Changed>> {
    change(&service, &right, &path, Verb::Fire).await
}

/// Puts a timer aside until it is resumed.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/ids/{id}/pause", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
    ),
    responses(
        (status = 200, description = "The timer is parked.", body = Changed),
        (status = 409, description = "The timer is being delivered, or is parked.", body = Problem),
    )
)]
async fn pause_timer_by_id(
    State(service): State<Service>,
    right: Right,
    Path(path): Path<(String, String)>,
) -> Answer<Json<Changed>> {
    change(&service, &right, &path, Verb::Pause).await
}

/// Puts a paused timer back.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/ids/{id}/resume", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
    ),
    responses(
        (status = 200, description = "The timer is pending.", body = Changed),
        (status = 409, description = "The timer is not paused.", body = Problem),
    )
)]
async fn resume_timer_by_id(
    State(service): State<Service>,
    right: Right,
    Path(path): Path<(String, String)>,
) -> Answer<Json<Changed>> {
    change(&service, &right, &path, Verb::Resume).await
}

/// Delivers a dead timer again, as if it were new.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/ids/{id}/replay", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
    ),
    responses(
        (status = 200, description = "The timer is due.", body = Changed),
        (status = 409, description = "The timer is not dead, or its key is another timer's.", body = Problem),
    )
)]
async fn replay_timer_by_id(
    State(service): State<Service>,
    right: Right,
    Path(path): Path<(String, String)>,
) -> Answer<Json<Changed>> {
    change(&service, &right, &path, Verb::Replay).await
}
