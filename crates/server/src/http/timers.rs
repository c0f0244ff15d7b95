//! Answers requests that make, show or change a single timer.
//!
//! A request names a timer by its key or by its id. A timer without a key is named by its id. A dead timer is named by
//! its id, too, because another timer may use its key.

use super::answer::Answer;
use super::auth::Permission;
use super::extract::{text, trace};
use super::scope::{Body, Name, Reader, TimerName, Within, Writer};
use crate::convert::shown;
use crate::service::{Naming, Verb};
use axum::Json;
use http::{HeaderName, StatusCode};
use tourbillon_api::{Cancelled, Changed, Delay, NewTimer, Past, PlaceOutcome, Placed, Problem, Timer};

/// The header with the key that a client chooses for a request. All repetitions of the request have the same key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Makes a timer from a request's body. The type of `scope` proves that the request has the role of a writer.
async fn place(
    scope: Within<Writer>,
    key: Option<&str>,
    body: Body<NewTimer>,
) -> Answer<(StatusCode, Json<Placed>)> {
    let (timer, headers) = scope.read_with_headers(body).await?;
    let idempotency_key = text(&headers, &IDEMPOTENCY_KEY)?;
    let naming = Naming { key, idempotency_key, trace: trace(&headers), ..Naming::default() };
    let placed = scope.service.creations().place(&scope.namespace, naming, &timer).await?;
    let status = if placed.outcome == PlaceOutcome::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(placed)))
}

/// Makes a timer with a key, or replaces the timer that has the key.
///
/// With an idempotency key, the request may be repeated safely: see the creation of a timer without a key.
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
        ("Idempotency-Key" = Option<String>, Header, description = "A text that only repetitions of this request have.", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$"),
        ("X-Request-Id" = Option<String>, Header, description = "An id of this request. It is stored with the timer, and each callback has it as `tourbillon-request-id`. A value that is not valid is ignored."),
        ("traceparent" = Option<String>, Header, description = "The W3C trace context of the caller. Each delivery carries the same trace with a span of its own. A value that is not valid is ignored."),
    ),
    responses(
        (status = 201, description = "The timer is stored.", body = Placed),
        (status = 200, description = "An earlier request stored the timer, the timer that has the key was kept, or the new timer replaced it.", body = Placed),
        (status = 409, description = "Another timer has the key, or a request with the idempotency key is under way.", body = Problem),
        (status = 422, description = "The destination is blocked, the due moment is too far away, or another request had the idempotency key.", body = Problem),
        (status = 429, description = "A limit of the namespace is reached.", body = Problem),
    )
)]
pub(super) async fn put_timer(
    scope: Within<Writer>,
    Name(key): Name,
    body: Body<NewTimer>,
) -> Answer<(StatusCode, Json<Placed>)> {
    place(scope, Some(&key), body).await
}

/// Makes a timer without a key.
///
/// With an idempotency key, the request may be repeated safely: while the timer is stored, and for an hour after its
/// end, a repetition makes no second timer and the answer is `repeated`. A different request with the same idempotency
/// key is refused with `idempotency-mismatch`, unless its timer has ended and the service no longer remembers the first
/// request, for example after a restart. The answer is `repeated` then, too: it has the id of the timer that has ended,
/// and no key, and no timer is made. A request that arrives while another request with the same idempotency key is in
/// progress gets `idempotency-in-progress`. Refused requests are not remembered.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers", tag = "timers",
    request_body(content = NewTimer, example = json!({
        "delay_ms": 60_000,
        "callback": { "url": "https://shop.example/reminders", "json": { "customer": 4 } }
    })),
    params(
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
pub(super) async fn post_timer(
    scope: Within<Writer>,
    body: Body<NewTimer>,
) -> Answer<(StatusCode, Json<Placed>)> {
    place(scope, None, body).await
}

/// Shows a timer. Readers see no headers and no body.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers",
    responses((status = 200, description = "The timer.", body = Timer))
)]
pub(super) async fn get_timer(scope: Within<Reader>, timer: TimerName) -> Answer<Json<Timer>> {
    let stored =
        scope.service.stored_timers().get(&scope.namespace, timer.named().address(&scope.namespace)).await?;
    Ok(Json(shown(&stored, scope.sees_payloads())))
}

/// Moves a timer's due moment.
///
/// A parked timer that is moved into the future becomes pending, unless it is paused.
#[utoipa::path(
    patch, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers",
    request_body(content = Delay, example = json!({ "delay_ms": 3_600_000 })),
    responses(
        (status = 200, description = "The timer was moved.", body = Changed),
        (status = 409, description = "The timer is being delivered, or is dead.", body = Problem),
        (status = 422, description = "The due moment is too far away.", body = Problem),
    )
)]
pub(super) async fn move_timer(
    scope: Within<Writer>,
    timer: TimerName,
    body: Body<Delay>,
) -> Answer<Json<Changed>> {
    let to = scope.read(body).await?;
    Ok(Json(scope.service.changes().move_timer(&scope.namespace, timer.named(), &to).await?))
}

/// Cancels a timer. If the request names a dead timer by its id, drops the timer.
///
/// The status of the answer is 200 whether or not there was such a timer.
#[utoipa::path(
    delete, path = "/v1/namespaces/{namespace}/timers/{key}", tag = "timers",
    responses((status = 200, description = "What happened.", body = Cancelled, example = json!({ "result": "cancelled" })))
)]
pub(super) async fn cancel_timer(scope: Within<Writer>, timer: TimerName) -> Answer<Json<Cancelled>> {
    Ok(Json(scope.service.changes().cancel(&scope.namespace, timer.named()).await?))
}

async fn change(scope: Within<Writer>, timer: TimerName, verb: Verb) -> Answer<Json<Changed>> {
    Ok(Json(scope.service.changes().change(&scope.namespace, timer.named(), verb).await?))
}

/// Delivers a timer now. The timer must be pending or paused. If it is named by its id, it may also be dead.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers/{key}/fire", tag = "timers",
    responses(
        (status = 200, description = "The timer is due.", body = Changed),
        (status = 409, description = "The timer is being delivered, or is dead and its key is another timer's.", body = Problem),
    )
)]
pub(super) async fn fire_timer(scope: Within<Writer>, timer: TimerName) -> Answer<Json<Changed>> {
    change(scope, timer, Verb::Fire).await
}

/// Pauses a timer: it is not delivered until it is resumed.
///
/// The timer may be pending, or parked for any reason.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers/{key}/pause", tag = "timers",
    responses(
        (status = 200, description = "The timer is parked.", body = Changed),
        (status = 409, description = "The timer is being delivered, or is dead.", body = Problem),
    )
)]
pub(super) async fn pause_timer(scope: Within<Writer>, timer: TimerName) -> Answer<Json<Changed>> {
    change(scope, timer, Verb::Pause).await
}

/// Resumes a paused timer.
///
/// If the timer was parked for another reason before its pause, and that reason still holds, it is parked again.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/timers/{key}/resume", tag = "timers",
    responses(
        (status = 200, description = "The timer is pending.", body = Changed),
        (status = 409, description = "The timer is not paused.", body = Problem),
    )
)]
pub(super) async fn resume_timer(scope: Within<Writer>, timer: TimerName) -> Answer<Json<Changed>> {
    change(scope, timer, Verb::Resume).await
}

/// Delivers a dead timer again, as if it were new.
///
/// A dead timer can be named only by its id, because another timer may use its key.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/ids/{id}/replay", tag = "timers",
    responses(
        (status = 200, description = "The timer is due.", body = Changed),
        (status = 409, description = "The timer is not dead, or its key is another timer's.", body = Problem),
    )
)]
pub(super) async fn replay_timer(scope: Within<Writer>, timer: TimerName) -> Answer<Json<Changed>> {
    change(scope, timer, Verb::Replay).await
}

/// Shows the past of a timer: its attempts and its end. The timer is still stored, or it has ended recently.
///
/// If several timers have had the same key, the key names the last of them. The service remembers attempts in memory,
/// for about ten thousand timers, and forgets them when it restarts.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/timers/{key}/past", tag = "timers",
    responses((status = 200, description = "The past.", body = Past))
)]
pub(super) async fn past(scope: Within<Reader>, timer: TimerName) -> Answer<Json<Past>> {
    let past = match &timer {
        TimerName::Id(id) => scope.service.reports().past(&scope.namespace, *id).await?,
        TimerName::Key(key) => scope.service.reports().past_of_key(&scope.namespace, key).await?,
    };
    Ok(Json(permitted(past, &scope.permission)))
}

/// Removes the answers of receivers from a timer's past, unless the request may see payloads.
fn permitted(mut past: Past, permission: &Permission) -> Past {
    if !permission.sees_payloads(&past.namespace) {
        past.attempts.iter_mut().for_each(|attempt| attempt.answer = None);
    }
    past
}
