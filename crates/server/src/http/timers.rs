//! Single timers and their list.

use super::answer::Refused;
use super::auth::Right;
use super::extract::{Body, Path, Query};
use crate::convert::{due, shown, stored_phase, unavailable};
use crate::service::{Naming, Service, by_key};
use axum::Json;
use axum::extract::State;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tourbillon_api::{
    CancelResult, Cancelled, Changed, Delay, NewTimer, Page, Phase, PlaceOutcome, Placed, Problem,
    ProblemKind, Role, Timer,
};
use tourbillon_durable::store::{Cursor, Filter};
use tourbillon_durable::timer::{Address, TimerId};
use tourbillon_durable::{self as durable, Due, Timers, UtcMillis};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::new()
        .routes(routes!(put_timer, get_timer, move_timer, cancel_timer))
        .routes(routes!(post_timer, list_timers))
        .routes(routes!(fire_timer))
}

type Answer<T> = Result<T, Refused>;

/// The text of a header that a client may send once.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Refused> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| {
            Refused(Problem::new(ProblemKind::BadRequest, format!("the header {name} is no visible ASCII")))
        }),
        (Some(_), Some(_)) => {
            Err(Refused(Problem::new(ProblemKind::BadRequest, format!("the header {name} is there twice"))))
        }
    }
}

const LONGEST_IDEMPOTENCY_KEY: usize = 255;

fn naming<'a>(headers: &'a HeaderMap, key: Option<&'a str>) -> Result<Naming<'a>, Refused> {
    let idempotency_key = text(headers, "idempotency-key")?;
    if idempotency_key.is_some_and(|key| key.is_empty() || key.len() > LONGEST_IDEMPOTENCY_KEY) {
        let detail = format!("an idempotency key has 1 to {LONGEST_IDEMPOTENCY_KEY} bytes");
        return Err(Refused(Problem::new(ProblemKind::BadRequest, detail)));
    }
    Ok(Naming { key, idempotency_key, trace: text(headers, "traceparent")? })
}

async fn place(
    service: &Service,
    namespace: &str,
    naming: Naming<'_>,
    timer: &NewTimer,
) -> Answer<(StatusCode, Json<Placed>)> {
    let placed = service.place(namespace, naming, timer).await?;
    let status = if placed.outcome == PlaceOutcome::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(placed)))
}

/// Makes a timer with a key, or replaces the timer that has the key.
#[utoipa::path(
    put, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers", request_body = NewTimer,
    params(("namespace" = String, Path), ("key" = String, Path)),
    responses((status = 201, body = Placed), (status = 200, body = Placed), (status = "default", body = Problem))
)]
async fn put_timer(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
    headers: HeaderMap,
    Body(timer): Body<NewTimer>,
) -> Answer<(StatusCode, Json<Placed>)> {
    right.require(Role::Writer, Some(&namespace))?;
    place(&service, &namespace, naming(&headers, Some(&key))?, &timer).await
}

/// Makes a timer without a key.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers", tag = "timers", request_body = NewTimer,
    params(("namespace" = String, Path)),
    responses((status = 201, body = Placed), (status = 200, body = Placed), (status = "default", body = Problem))
)]
async fn post_timer(
    State(service): State<Service>,
    right: Right,
    Path(namespace): Path<String>,
    headers: HeaderMap,
    Body(timer): Body<NewTimer>,
) -> Answer<(StatusCode, Json<Placed>)> {
    right.require(Role::Writer, Some(&namespace))?;
    place(&service, &namespace, naming(&headers, None)?, &timer).await
}

/// Shows a timer.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers",
    params(("namespace" = String, Path), ("key" = String, Path)),
    responses((status = 200, body = Timer), (status = "default", body = Problem))
)]
async fn get_timer(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
) -> Answer<Json<Timer>> {
    right.require(Role::Reader, Some(&namespace))?;
    let timer = service.stored(&namespace, by_key(&namespace, &key)).await?;
    Ok(Json(shown(&timer, right.sees_payloads(&namespace))))
}

/// Moves a timer's due moment.
#[utoipa::path(
    patch, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers", request_body = Delay,
    params(("namespace" = String, Path), ("key" = String, Path)),
    responses((status = 200, body = Changed), (status = "default", body = Problem))
)]
async fn move_timer(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
    Body(to): Body<Delay>,
) -> Answer<Json<Changed>> {
    right.require(Role::Writer, Some(&namespace))?;
    let timer = service.stored(&namespace, by_key(&namespace, &key)).await?;
    moved(service.timers(), timer.id, &to).await
}

async fn moved(timers: &Timers, id: TimerId, to: &Delay) -> Answer<Json<Changed>> {
    let to = match due(to.due, to.delay_ms, "")? {
        Some(Due::At(moment)) => moment,
        Some(Due::After(delay)) => timers.timer_store().now() + delay,
        None => return Err(Refused(Problem::field("", "one of `due` and `delay_ms`"))),
    };
    changed(id, timers.move_to(id, to).await.map_err(|error| unavailable(&error))?)
}

fn changed(id: TimerId, changed: durable::Changed) -> Answer<Json<Changed>> {
    match changed {
        durable::Changed::Changed => Ok(Json(Changed { id: id.to_string() })),
        durable::Changed::NotFound => {
            Err(Refused(Problem::new(ProblemKind::NotFound, "there is no such timer")))
        }
        durable::Changed::KeyExists(holder) => {
            Err(Refused(Problem::new(ProblemKind::KeyExists, format!("the timer {holder} has the key"))))
        }
        durable::Changed::Refused(phase) => {
            Err(Refused(Problem::new(ProblemKind::WrongPhase, format!("the timer is {phase:?}"))))
        }
        other => Err(Refused(Problem::new(ProblemKind::Internal, format!("{other:?}")))),
    }
}

/// Cancels a timer, or drops a dead one.
#[utoipa::path(
    delete, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers",
    params(("namespace" = String, Path), ("key" = String, Path)),
    responses((status = 200, body = Cancelled), (status = "default", body = Problem))
)]
async fn cancel_timer(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
) -> Answer<Json<Cancelled>> {
    right.require(Role::Writer, Some(&namespace))?;
    service.namespace(&namespace)?;
    cancelled(service.timers(), by_key(&namespace, &key)).await
}

async fn cancelled(timers: &Timers, at: Address) -> Answer<Json<Cancelled>> {
    let result = match timers.cancel(at).await.map_err(|error| unavailable(&error))? {
        durable::Cancelled::Cancelled(_) => CancelResult::Cancelled,
        durable::Cancelled::InFlight => CancelResult::InFlight,
        _ => CancelResult::NotFound,
    };
    Ok(Json(Cancelled { result }))
}

/// Delivers a timer now.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers/{key}/fire", tag = "timers",
    params(("namespace" = String, Path), ("key" = String, Path)),
    responses((status = 200, body = Changed), (status = "default", body = Problem))
)]
async fn fire_timer(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
) -> Answer<Json<Changed>> {
    right.require(Role::Writer, Some(&namespace))?;
    let timer = service.stored(&namespace, by_key(&namespace, &key)).await?;
    changed(timer.id, service.timers().fire(timer.id).await.map_err(|error| unavailable(&error))?)
}

/// The conditions of a list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// The phase.
    phase: Option<Phase>,
    /// A label.
    label: Option<String>,
    /// The beginning of the key.
    key_prefix: Option<String>,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// The greatest number of timers: 50 by default, at most 200.
    limit: Option<u32>,
}

const MOST_OF_A_PAGE: u32 = 200;

/// Lists timers, a page at a time.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/timers", tag = "timers",
    params(("namespace" = String, Path), ListQuery),
    responses((status = 200, body = Page<Timer>), (status = "default", body = Problem))
)]
async fn list_timers(
    State(service): State<Service>,
    right: Right,
    Path(namespace): Path<String>,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<Timer>>> {
    right.require(Role::Reader, Some(&namespace))?;
    service.namespace(&namespace)?;
    let limit = query.limit.unwrap_or(50);
    if !(1..=MOST_OF_A_PAGE).contains(&limit) {
        return Err(Refused(Problem::new(
            ProblemKind::BadRequest,
            format!("a page has 1 to {MOST_OF_A_PAGE} timers"),
        )));
    }
    let cursor = query.cursor.map(|cursor| BASE64_URL_SAFE_NO_PAD.decode(cursor)).transpose();
    let cursor =
        cursor.map_err(|_| Refused(Problem::new(ProblemKind::BadRequest, "the cursor cannot be read")))?;
    let filter = Filter {
        namespace: Some(namespace.as_str().into()),
        label: query.label.map(Into::into),
        key_prefix: query.key_prefix.map(Into::into),
        phase: query.phase.map(stored_phase),
        kind: None,
    };
    let cursor = cursor.as_deref().map(Cursor::from_bytes);
    let page = service.timers().list(filter, cursor, limit).await.map_err(|error| unavailable(&error))?;
    let with_payloads = right.sees_payloads(&namespace);
    Ok(Json(Page {
        items: page.timers.iter().map(|timer| shown(timer, with_payloads)).collect(),
        next: page.next.map(|cursor| BASE64_URL_SAFE_NO_PAD.encode(cursor.as_bytes())),
    }))
}

#[expect(dead_code, reason = "the addresses by id follow")]
fn now(timers: &Timers) -> UtcMillis {
    timers.timer_store().now()
}
