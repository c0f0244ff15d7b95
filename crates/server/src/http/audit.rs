//! Answers requests for the audit trail.

use super::answer::Answer;
use super::auth::Permission;
use super::extract::{Query, page_size};
use crate::audit::Wanted;
use crate::service::Service;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tourbillon_api::{AuditAction, AuditEntry, Moment, Page, Role};

/// The query parameters of the audit trail. An entry must meet all conditions that are present.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Lists only changes in this namespace. Required if the caller's token is limited to one namespace.
    namespace: Option<String>,
    /// The name or the id of the token that made the change.
    token: Option<String>,
    /// The kind of change.
    action: Option<AuditAction>,
    /// Lists only entries from this moment on.
    since: Option<Moment>,
    /// Lists only entries before this moment.
    until: Option<Moment>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// The greatest number of entries: 50 by default, at most 200.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// Lists the audit trail, one page at a time: who changed what, with the latest change first.
///
/// The trail records each change of a namespace, of its limits and secrets, of tokens, and of many timers at once;
/// each change that was made on the web page; and each backup and restore. It does not record the changes that
/// programs make to single timers and schedules. It contains no secrets and no payloads. The last page has no `next`.
/// On Redis, each node lists only the changes that it was asked to make.
#[utoipa::path(
    get, path = "/v1/audit", tag = "service",
    params(AuditQuery),
    responses((status = 200, description = "A page.", body = Page<AuditEntry>))
)]
pub(super) async fn list_audit(
    State(service): State<Service>,
    permission: Permission,
    Query(query): Query<AuditQuery>,
) -> Answer<Json<Page<AuditEntry>>> {
    let AuditQuery { namespace, token, action, since, until, cursor, limit } = query;
    permission.require(Role::Admin, namespace.as_deref())?;
    let limit = page_size(limit, "entries")?;
    let wanted = Wanted { namespace, token, action, since, until };
    Ok(Json(service.audit().entries(wanted, cursor.as_deref(), limit).await?))
}
