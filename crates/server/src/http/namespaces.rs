//! Answers requests about namespaces, their limits and their signing secrets.

use super::answer::Answer;
use super::auth::Permission;
use super::scope::{Admin, Body, Everywhere, Name, Reader, Within};
use crate::service::Service;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use tourbillon_api::{LimitsPatch, NamespaceLimits, NamespaceView, NewSecret, Problem, Role};

/// Lists the namespaces that the token may read.
#[utoipa::path(
    get, path = "/v1/namespaces", tag = "namespaces",
    responses((status = 200, description = "The namespaces.", body = Vec<NamespaceView>))
)]
pub(super) async fn list_namespaces(
    State(service): State<Service>,
    permission: Permission,
) -> Answer<Json<Vec<NamespaceView>>> {
    let may_see = |name: &str| permission.permits(Role::Reader, Some(name));
    Ok(Json(service.namespace_admin().views(may_see).await?))
}

/// Sets the limits of a namespace, and creates the namespace if it does not exist. A limit that the request leaves out
/// is removed.
#[utoipa::path(
    put, path = "/v1/namespaces/{namespace}", tag = "namespaces", request_body(content = NamespaceLimits, example = json!({ "rate_per_second": 100, "allowed_hosts": ["*.shop.example"] })),
    responses(
        (status = 201, description = "The namespace was made.", body = NamespaceView),
        (status = 200, description = "The limits were set.", body = NamespaceView),
    )
)]
pub(super) async fn put_namespace(
    // The request needs the role in all namespaces, since a tenant must not set its own limits.
    all: Everywhere<Admin>,
    Name(namespace): Name,
    body: Body<NamespaceLimits>,
) -> Answer<(StatusCode, Json<NamespaceView>)> {
    let limits = all.read(body).await?;
    let (is_new, view) = all.service.namespace_admin().set(&namespace, limits).await?;
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(view)))
}

/// Changes only those limits of a namespace that the request has. Creates the namespace if it does not exist.
#[utoipa::path(
    patch, path = "/v1/namespaces/{namespace}", tag = "namespaces",
    request_body(content = LimitsPatch, example = json!({ "rate_per_second": 100, "concurrency": null })),
    responses(
        (status = 201, description = "The namespace was made.", body = NamespaceView),
        (status = 200, description = "The limits were changed.", body = NamespaceView),
    )
)]
pub(super) async fn patch_namespace(
    all: Everywhere<Admin>,
    Name(namespace): Name,
    body: Body<LimitsPatch>,
) -> Answer<(StatusCode, Json<NamespaceView>)> {
    let patch = all.read(body).await?;
    let (is_new, view) = all.service.namespace_admin().patch(&namespace, patch).await?;
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(view)))
}

/// Shows a namespace with its limits and counts.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}", tag = "namespaces",
    responses((status = 200, description = "The namespace.", body = NamespaceView))
)]
pub(super) async fn get_namespace(scope: Within<Reader>) -> Answer<Json<NamespaceView>> {
    Ok(Json(scope.service.namespace_admin().view(&scope.namespace).await?))
}

/// Removes a namespace. The namespace must have no timers.
#[utoipa::path(
    delete, path = "/v1/namespaces/{namespace}", tag = "namespaces",
    responses(
        (status = 204, description = "The namespace was removed."),
        (status = 409, description = "The namespace has timers, or cannot be removed.", body = Problem),
    )
)]
pub(super) async fn delete_namespace(all: Everywhere<Admin>, Name(namespace): Name) -> Answer<StatusCode> {
    all.service.namespace_admin().remove(&namespace).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a signing secret, which only this answer shows.
///
/// For a day, callbacks are signed with the previous secret as well. At most ten secrets sign at a time: a new one
/// displaces the oldest.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/secrets", tag = "namespaces",
    responses(
        (status = 201, description = "The secret. It is not shown again.", body = NewSecret),
    )
)]
pub(super) async fn make_secret(scope: Within<Admin>) -> Answer<(StatusCode, Json<NewSecret>)> {
    Ok((StatusCode::CREATED, Json(scope.service.namespace_admin().make_secret(&scope.namespace).await?)))
}
