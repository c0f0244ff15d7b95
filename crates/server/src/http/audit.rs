//! Answers requests for the audit trail.

use super::answer::Answer;
use super::auth::Right;
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
    /// The namespace. It is needed by a token that is for one namespace only.
    namespace: Option<String>,
    /// The name of a token, or its id.
    token: Option<String>,
    /// The kind of change.
    action: Option<AuditAction>,
    /// The moment of the first entries.
    since: Option<Moment>,
    /// The moment before which the entries are.
    until: Option<Moment>,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// The greatest number of entries: 50 by default, at most 200.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// Lists the changes with their authors, the newest first, a page at a time.
///
/// The trail has each change of a namespace, its limits and secrets, of the tokens, and of many timers at a time; each
/// change that was made on the page; and backups and restores. Changes of single timers and schedules by programs are
/// not in it. It has no secrets and no payloads. The list is at its end when `next` is missing. On Redis each node has
/// the changes that it was asked for.
#[utoipa::path(
    get, path = "/v1/audit", tag = "service",
    params(AuditQuery),
    responses((status = 200, description = "A page.", body = Page<AuditEntry>))
)]
pub(super) async fn list_audit(
    State(service): State<Service>,
    right: Right,
    Query(query): Query<AuditQuery>,
) -> Answer<Json<Page<AuditEntry>>> {
    let AuditQuery { namespace, token, action, since, until, cursor, limit } = query;
    right.require(Role::Admin, namespace.as_deref())?;
    let limit = page_size(limit, "entries")?;
    let wanted = Wanted { namespace, token, action, since, until };
    Ok(Json(service.audit().entries(wanted, cursor.as_deref(), limit).await?))
}
