//! Answers requests for operations: changes of many timers, which continue in the background after the answer.

use super::answer::{Answer, Refused};
use super::scope::{Body, Name, Reader, Within, Writer};
use crate::service::Work;
use axum::Json;
use http::header::LOCATION;
use http::{HeaderName, StatusCode};
use tourbillon_api::{CancelMany, Operation, Page, Problem, ProblemKind, ReplayMany};

pub(super) type Accepted = (StatusCode, [(HeaderName, String); 1], Json<Operation>);

async fn begin(scope: &Within<Writer>, work: Work) -> Answer<Accepted> {
    Ok(accepted(&scope.namespace, scope.service.operations().begin(&scope.namespace, work).await?))
}

/// Makes the answer to a request that has begun an operation. The answer has the operation's address.
pub(super) fn accepted(namespace: &str, operation: Operation) -> Accepted {
    let location = format!("/v1/namespaces/{namespace}/operations/{}", operation.id);
    (StatusCode::ACCEPTED, [(LOCATION, location)], Json(operation))
}

/// Cancels all timers that have a label, or whose keys begin with a text, including dead timers.
///
/// Timers that are made after the answer are not cancelled. The operation continues after a restart of the service,
/// and can be read for an hour after its end. If the service was killed, the operation's counts may be too low.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/cancellations", tag = "operations",
    request_body(content = CancelMany, example = json!({ "label": "customer 4" })),
    responses(
        (status = 202, description = "The operation has begun. The header `Location` has its path.", body = Operation),
        (status = 429, description = "Too many operations run.", body = Problem),
    )
)]
pub(super) async fn cancel_timers(scope: Within<Writer>, body: Body<CancelMany>) -> Answer<Accepted> {
    let which = scope.read(body).await?;
    let (CancelMany { label: Some(text), key_prefix: None }
    | CancelMany { label: None, key_prefix: Some(text) }) = &which
    else {
        return Err(Refused(Problem::field("", "one of `label` and `key_prefix`")));
    };
    if text.is_empty() {
        return Err(Refused(Problem::field("", "an empty text would be all timers")));
    }
    begin(&scope, Work::Cancel(which)).await
}

/// Delivers dead timers again, as if they were new: all dead timers of the namespace, or those with a label.
///
/// Timers that die after the answer stay dead. So do timers whose keys other timers use by now.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/replays", tag = "operations",
    request_body(content = ReplayMany, example = json!({})),
    responses(
        (status = 202, description = "The operation has begun. The header `Location` has its path.", body = Operation),
        (status = 429, description = "Too many operations run.", body = Problem),
    )
)]
pub(super) async fn replay_timers(scope: Within<Writer>, body: Body<ReplayMany>) -> Answer<Accepted> {
    let which = scope.read(body).await?;
    begin(&scope, Work::Replay(which)).await
}

/// Lists the operations that are running or ended within the last hour, the latest first.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/operations", tag = "operations",
    responses((status = 200, description = "All of them: there is no further page.", body = Page<Operation>))
)]
pub(super) async fn list_operations(scope: Within<Reader>) -> Answer<Json<Page<Operation>>> {
    let items = scope.service.operations().list(&scope.namespace).await?;
    Ok(Json(Page { items, next: None }))
}

/// Shows an operation.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/operations/{id}", tag = "operations",
    responses((status = 200, description = "The operation.", body = Operation))
)]
pub(super) async fn get_operation(scope: Within<Reader>, Name(id): Name) -> Answer<Json<Operation>> {
    let operation = scope.service.operations().find(&scope.namespace, &id).await?;
    operation
        .map(Json)
        .ok_or_else(|| Refused(Problem::new(ProblemKind::NotFound, "there is no such operation")))
}
