//! Answers requests for lists of queues, with the timers and receivers that wait in each.

use super::answer::Answer;
use super::auth::Permission;
use super::scope::{Reader, Within};
use crate::service::Service;
use axum::Json;
use axum::extract::State;
use tourbillon_api::{QueueView, Role};

/// Lists the queues of a namespace in which timers or receivers wait: at most 1,000, sorted by name.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/queues", tag = "claims",
    responses((status = 200, description = "The queues.", body = Vec<QueueView>))
)]
pub(super) async fn list_queues(scope: Within<Reader>) -> Answer<Json<Vec<QueueView>>> {
    scope.service.namespaces().require(&scope.namespace)?;
    Ok(Json(scope.service.reports().queues(|name| *name == *scope.namespace).await?))
}

/// Lists the queues of all namespaces that the token may read: at most 1,000, sorted by namespace and name.
#[utoipa::path(
    get, path = "/v1/queues", tag = "claims",
    responses((status = 200, description = "The queues.", body = Vec<QueueView>))
)]
pub(super) async fn list_all_queues(
    State(service): State<Service>,
    permission: Permission,
) -> Answer<Json<Vec<QueueView>>> {
    let may_see = |name: &str| permission.permits(Role::Reader, Some(name));
    Ok(Json(service.reports().queues(may_see).await?))
}
