//! Answers requests that make many changes at once.

use super::answer::{Answer, Refused};
use super::extract::trace;
use super::scope::{Body, Within, Writer};
use axum::Json;
use tourbillon_api::{Batch, BatchAnswer, Problem, ProblemKind};
use tourbillon_durable::Timers;

/// The greatest size of the body of a batch request, in bytes.
pub(super) const LONGEST: usize = 8 << 20;

/// Makes at most 1,000 changes in one transaction.
///
/// The answer has one result for each change, in the same order, and each change sees the effects of the changes
/// before it. So a cancellation makes room for a creation that comes after it. A refused change does not stop the
/// others: its result is a problem, and the status of the answer is still 200. A request that cannot be read changes
/// nothing. If two changes have the same idempotency key, the second gets `idempotency-in-progress`. The body may have
/// at most 8 MiB.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/batch", tag = "timers",
    request_body(content = Batch, example = json!({ "changes": [
        { "put": { "key": "order 17", "timer": { "delay_ms": 60_000, "callback": { "url": "https://shop.example/17" } } } },
        { "move": { "key": "order 16", "to": { "delay_ms": 3_600_000 } } },
        { "cancel": { "key": "order 15" } }
    ] })),
    params(
        ("X-Request-Id" = Option<String>, Header, description = "An id of this request. It is stored with its timers, and each callback has it as `tourbillon-request-id`. A value that is not valid is ignored."),
        ("traceparent" = Option<String>, Header, description = "The W3C trace context of the caller. Each delivery carries the same trace with a span of its own. A value that is not valid is ignored."),
    ),
    responses((status = 200, description = "A result for each change.", body = BatchAnswer, example = json!({ "results": [
        { "placed": { "id": "01935560-1c40-7a5e-8b6c-2f9a3d1e4b70", "key": "order 17", "outcome": "created" } },
        { "problem": { "type": "/problems/not-found", "title": "Not found", "status": 404, "detail": "there is no such timer" } },
        { "cancelled": { "result": "cancelled" } }
    ] })))
)]
pub(super) async fn batch(scope: Within<Writer>, body: Body<Batch>) -> Answer<Json<BatchAnswer>> {
    let (batch, headers) = scope.read_with_headers(body).await?;
    let most = Timers::MOST_CHANGES;
    if batch.changes.len() > most {
        let detail = format!("a batch has at most {most} changes");
        return Err(Refused(
            Problem::new(ProblemKind::TooLarge, detail.clone()).with_field("/changes", detail),
        ));
    }
    let results = scope.service.changes().batch(&scope.namespace, trace(&headers), &batch.changes).await?;
    Ok(Json(BatchAnswer { results }))
}
