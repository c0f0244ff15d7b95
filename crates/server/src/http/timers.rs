//! Single timers, by their keys.

use super::answer::Answer;
use super::auth::Right;
use super::extract::{Body, Path, text, trace};
use crate::convert::shown;
use crate::service::{Named, Naming, Service, Verb};
use axum::Json;
use axum::extract::{Request, State};
use http::{HeaderMap, StatusCode};
use tourbillon_api::{Cancelled, Changed, Delay, NewTimer, PlaceOutcome, Placed, Problem, Role, Timer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::new()
        .routes(routes!(put_timer, get_timer, move_timer, cancel_timer))
        .routes(routes!(post_timer))
        .routes(routes!(fire_timer))
        .routes(routes!(pause_timer))
        .routes(routes!(resume_timer))
}

fn naming<'a>(headers: &'a HeaderMap, key: Option<&'a str>) -> Answer<Naming<'a>> {
    let idempotency_key = text(headers, "idempotency-key")?;
    Ok(Naming { key, idempotency_key, trace: trace(headers) })
}

async fn place(
    service: &Service,
    namespace: &str,
    naming: Naming<'_>,
    timer: &NewTimer,
) -> Answer<(StatusCode, Json<Placed>)> {
    let placed = service.creations().place(namespace, naming, timer).await?;
    let status = if placed.outcome == PlaceOutcome::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(placed)))
}

/// Fulfils the creation of a timer without the router, with the same answers as [`put_timer`] and [`post_timer`].
pub(super) async fn make(
    service: &Service,
    namespace: &str,
    key: Option<&str>,
    request: Request,
) -> Answer<(StatusCode, Json<Placed>)> {
    let right = Right::of(request.headers(), request.extensions(), service)?;
    let granted = right.require(Role::Writer, Some(namespace))?;
    let (timer, headers) = granted.read_with_headers(Body::<NewTimer>::of(request)).await?;
    place(service, namespace, naming(&headers, key)?, &timer).await
}

/// Makes a timer with a key, or replaces the timer that has the key.
///
/// With an idempotency key the request may be repeated: see the creation of a timer without a key.
#[utoipa::path(
    put, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers",
    request_body(content = NewTimer, examples(
        ("callback" = (summary = "A callback in 30 days", value = json!({
            "delay_ms": 2_592_000_000_u64,
            "callback": { "url": "https://shop.example/orders/17/expire", "json": { "order": 17 } },
            "labels": ["customer 4"],
            "if_present": "replace"
        }))),
        ("pull" = (summary = "A place in a queue", value = json!({
            "due": "2096-11-22T16:00:00.000Z",
            "pull": { "queue": "mails", "body": "hello" },
            "policy": { "attempts": 3, "backoff": { "kind": "fixed", "pause_ms": 60_000 } }
        }))),
    )),
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("key" = String, Path, description = "The key.", max_length = 255),
        ("Idempotency-Key" = Option<String>, Header, description = "A text that only repetitions of this request have.", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$"),
        ("X-Request-Id" = Option<String>, Header, description = "An id of this request. It is stored with the timer, and each callback has it as `tourbillon-request-id`. A value that is not valid is ignored."),
        ("traceparent" = Option<String>, Header, description = "The W3C trace context of the caller. Each delivery carries the same trace with a span of its own. A value that is not valid is ignored."),
    ),
    responses(
        (status = 201, description = "The timer is stored.", body = Placed),
        (status = 200, description = "The timer was stored before, another one was kept, or it was replaced.", body = Placed),
        (status = 409, description = "Another timer has the key, or a request with the idempotency key is under way.", body = Problem),
        (status = 422, description = "The destination is blocked, the due moment is too far away, or another request had the idempotency key.", body = Problem),
        (status = 429, description = "A limit of the namespace is reached.", body = Problem),
    )
)]
async fn put_timer(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body<NewTimer>,
) -> Answer<(StatusCode, Json<Placed>)> {
    let timer = right.require(Role::Writer, Some(&namespace))?.read(body).await?;
    place(&service, &namespace, naming(&headers, Some(&key))?, &timer).await
}

/// Makes a timer without a key.
///
/// With an idempotency key the request may be repeated: while the timer is stored, and for an hour after its end, no
/// second timer is made and the answer is `repeated`. The same idempotency key with another request is refused with
/// `idempotency-mismatch`; after a restart of the service that holds for timers that are still stored only. A request
/// that comes while another one with the key is under way gets `idempotency-in-progress`. Requests that were refused
/// are not remembered.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers", tag = "timers",
    request_body(content = NewTimer, example = json!({
        "delay_ms": 60_000,
        "callback": { "url": "https://shop.example/reminders", "json": { "customer": 4 } }
    })),
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("Idempotency-Key" = Option<String>, Header, description = "A text that only repetitions of this request have.", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$"),
        ("X-Request-Id" = Option<String>, Header, description = "An id of this request. It is stored with the timer, and each callback has it as `tourbillon-request-id`. A value that is not valid is ignored."),
        ("traceparent" = Option<String>, Header, description = "The W3C trace context of the caller. Each delivery carries the same trace with a span of its own. A value that is not valid is ignored."),
    ),
    responses(
        (status = 201, description = "The timer is stored.", body = Placed, example = json!({
            "id": "01935560-1c40-7a5e-8b6c-2f9a3d1e4b70", "outcome": "created"
        })),
        (status = 200, description = "The timer was stored by an earlier request.", body = Placed),
        (status = 409, description = "A request with the idempotency key is under way.", body = Problem),
        (status = 422, description = "The destination is blocked, the due moment is too far away, or another request had the idempotency key.", body = Problem),
        (status = 429, description = "A limit of the namespace is reached.", body = Problem),
    )
)]
async fn post_timer(
    State(service): State<Service>,
    right: Right,
    Path(namespace): Path<String>,
    headers: HeaderMap,
    body: Body<NewTimer>,
) -> Answer<(StatusCode, Json<Placed>)> {
    let timer = right.require(Role::Writer, Some(&namespace))?.read(body).await?;
    place(&service, &namespace, naming(&headers, None)?, &timer).await
}

/// Shows a timer. Readers see no headers and no body.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("key" = String, Path, description = "The key.", max_length = 255),
    ),
    responses((status = 200, description = "The timer.", body = Timer))
)]
async fn get_timer(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
) -> Answer<Json<Timer>> {
    right.require(Role::Reader, Some(&namespace))?;
    let timer = service.stored_timers().get(&namespace, Named::Key(&key).address(&namespace)).await?;
    Ok(Json(shown(&timer, right.sees_payloads(&namespace))))
}

/// Moves a timer's due moment.
#[utoipa::path(
    patch, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers",
    request_body(content = Delay, example = json!({ "delay_ms": 3_600_000 })),
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("key" = String, Path, description = "The key.", max_length = 255),
    ),
    responses(
        (status = 200, description = "The timer was moved.", body = Changed),
        (status = 409, description = "The timer is being delivered, or is dead.", body = Problem),
        (status = 422, description = "The due moment is too far away.", body = Problem),
    )
)]
async fn move_timer(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
    body: Body<Delay>,
) -> Answer<Json<Changed>> {
    let to = right.require(Role::Writer, Some(&namespace))?.read(body).await?;
    Ok(Json(service.changes().move_timer(&namespace, Named::Key(&key), &to).await?))
}

/// Cancels a timer.
///
/// The answer has the status 200 whether or not there is such a timer.
#[utoipa::path(
    delete, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("key" = String, Path, description = "The key.", max_length = 255),
    ),
    responses((status = 200, description = "What happened.", body = Cancelled, example = json!({ "result": "cancelled" })))
)]
async fn cancel_timer(
    State(service): State<Service>,
    right: Right,
    Path((namespace, key)): Path<(String, String)>,
) -> Answer<Json<Cancelled>> {
    right.require(Role::Writer, Some(&namespace))?;
    Ok(Json(service.changes().cancel(&namespace, Named::Key(&key)).await?))
}

async fn change(
    service: &Service,
    right: &Right,
    (namespace, key): &(String, String),
    verb: Verb,
) -> Answer<Json<Changed>> {
    right.require(Role::Writer, Some(namespace))?;
    Ok(Json(service.changes().change(namespace, Named::Key(key), verb).await?))
}

/// Delivers a timer now: one that is pending or paused.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers/{key}/fire", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("key" = String, Path, description = "The key.", max_length = 255),
    ),
    responses(
        (status = 200, description = "The timer is due.", body = Changed),
        (status = 409, description = "The timer is being delivered.", body = Problem),
    )
)]
async fn fire_timer(
    State(service): State<Service>,
    right: Right,
    Path(path): Path<(String, String)>,
) -> Answer<Json<Changed>> {
    change(&service, &right, &path, Verb::Fire).await
}

/// Puts a timer aside until it is resumed.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers/{key}/pause", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("key" = String, Path, description = "The key.", max_length = 255),
    ),
    responses(
        (status = 200, description = "The timer is parked.", body = Changed),
        (status = 409, description = "The timer is being delivered, or is parked.", body = Problem),
    )
)]
async fn pause_timer(
    State(service): State<Service>,
    right: Right,
    Path(path): Path<(String, String)>,
) -> Answer<Json<Changed>> {
    change(&service, &right, &path, Verb::Pause).await
}

/// Puts a paused timer back.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers/{key}/resume", tag = "timers",
    params(
        ("namespace" = String, Path, description = "The namespace."),
        ("key" = String, Path, description = "The key.", max_length = 255),
    ),
    responses(
        (status = 200, description = "The timer is pending.", body = Changed),
        (status = 409, description = "The timer is not paused.", body = Problem),
    )
)]
async fn resume_timer(
    State(service): State<Service>,
    right: Right,
    Path(path): Path<(String, String)>,
) -> Answer<Json<Changed>> {
    change(&service, &right, &path, Verb::Resume).await
}
