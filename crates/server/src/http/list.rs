//! Answers requests for lists of timers.

use super::answer::Answer;
use super::auth::Permission;
use super::extract::{Query, page_size};
use super::scope::{Everywhere, Reader, Within};
use crate::convert::shown;
use crate::listing::{Listed, Listing};
use crate::service::Service;
use axum::Json;
use serde::Deserialize;
use tourbillon_api::{Moment, Page, Phase, Timer};
use tourbillon_durable::store::Filter;

/// The query parameters of a list of timers. A timer must meet all conditions that are present.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Lists only timers in this phase.
    phase: Option<Phase>,
    /// Lists only timers that are parked for this reason, such as `queue:default/emails`. A parked timer has it in
    /// `reason`.
    reason: Option<String>,
    /// Lists only timers with this label.
    label: Option<String>,
    /// Lists only timers whose keys begin with this text. A dead timer has given up its key. This condition finds it by
    /// its former key, but only together with `phase=dead`. A timer that was cancelled or replaced during its delivery
    /// has given up its key, too, and this condition does not find it.
    key_prefix: Option<String>,
    /// Lists only timers that are due before this moment.
    due_before: Option<Moment>,
    /// Lists only timers that are due after this moment.
    due_after: Option<Moment>,
    /// Lists only timers that were made after this moment. A moment in the future finds the timers that were made
    /// while the service's clock was ahead.
    created_after: Option<Moment>,
    /// Whether the list is ascending (`asc`, the default) or descending (`desc`).
    #[param(inline)]
    order: Option<Order>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// The greatest number of timers: 50 by default, at most 200.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// Whether a list is ascending or descending.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// Ascending: the timer with the least id, key or moment comes first.
    Asc,
    /// Descending: the timer with the greatest id, key or moment comes first.
    Desc,
}

/// Lists timers, one page at a time.
///
/// The last page has no `next`. A page may have fewer timers than `limit`, or none, although more timers follow. If the
/// request has no condition, or only `phase`, only the last page can be empty. There is one exception: if a namespace
/// has more than a million timers (50,000 on Redis), a page may be empty because of the timers of other namespaces. A
/// page of more than 50 timers ends early once the bodies of its timers have a megabyte together.
///
/// The order depends on the conditions of the request. The first line of this table that fits decides:
///
/// | condition | order |
/// |---|---|
/// | `label` | by id |
/// | `key_prefix`, without `phase=dead` | by key |
/// | `reason` or `phase=pending` | by due moment |
/// | `phase=parked` | by reason; by due moment in SQLite and PostgreSQL |
/// | `phase=leased` | by the end of the delivery's lease |
/// | `phase=dead` | by the moment of death |
/// | none of these | by id |
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/timers", tag = "timers",
    params(ListQuery),
    responses((status = 200, description = "A page.", body = Page<Timer>))
)]
pub(super) async fn list_timers(
    scope: Within<Reader>,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<Timer>>> {
    scope.service.namespaces().require(&scope.namespace)?;
    page(&scope.service, &scope.permission, Some(&scope.namespace), query).await
}

/// Lists the timers of all namespaces, one page at a time.
///
/// The conditions and pages are the same as in the list of one namespace. With `label` or `key_prefix`, the timers are
/// sorted first by namespace.
#[utoipa::path(
    get, path = "/v1/timers", tag = "timers", params(ListQuery),
    responses((status = 200, description = "A page.", body = Page<Timer>))
)]
pub(super) async fn list_all_timers(
    all: Everywhere<Reader>,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<Timer>>> {
    page(&all.service, &all.permission, None, query).await
}

async fn page(
    service: &Service,
    permission: &Permission,
    namespace: Option<&str>,
    query: ListQuery,
) -> Answer<Json<Page<Timer>>> {
    let limit = page_size(query.limit, "timers")?;
    let filter = Filter {
        namespace: namespace.map(Into::into),
        label: query.label.map(Into::into),
        key_prefix: query.key_prefix.map(Into::into),
        phase: query.phase,
        kind: None,
        reason: query.reason.map(Into::into),
        due_after: query.due_after.map(Into::into),
        due_before: query.due_before.map(Into::into),
        created_after: query.created_after.map(Into::into),
        descending: matches!(query.order, Some(Order::Desc)),
    };
    let Listed { timers, next } = Listing::new(filter).page(service, query.cursor.as_deref(), limit).await?;
    let items = timers.iter().map(|timer| shown(timer, permission.sees_payloads(&timer.namespace))).collect();
    Ok(Json(Page { items, next }))
}
