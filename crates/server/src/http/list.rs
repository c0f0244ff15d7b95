//! Answers requests for lists of timers.

use super::answer::Answer;
use super::auth::Right;
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
    /// The phase.
    phase: Option<Phase>,
    /// The reason for which the timers are parked, as their `reason` has it: `queue:default/emails` for example.
    reason: Option<String>,
    /// A label.
    label: Option<String>,
    /// The beginning of the key. Dead timers have left their keys, and are listed by it only with `phase=dead`.
    key_prefix: Option<String>,
    /// The moment before which the timers are due.
    due_before: Option<Moment>,
    /// The moment after which the timers are due.
    due_after: Option<Moment>,
    /// The moment after which the timers were made. A moment in the future finds the timers that were made while the
    /// clock was ahead.
    created_after: Option<Moment>,
    /// The direction: `asc` by default.
    #[param(inline)]
    order: Option<Order>,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// The greatest number of timers: 50 by default, at most 200.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// The direction of a list.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// In the list's order.
    Asc,
    /// From its last timer back.
    Desc,
}

/// Lists timers, a page at a time.
///
/// The list is at its end when `next` is missing. Without a condition, or by the phase alone, a page has timers unless
/// there are none left, whatever other namespaces have; a namespace with more than 50,000 timers on Redis, or a million
/// in a file, may still have empty pages. By other conditions a page may have fewer timers than asked for, even none,
/// although more follow. A page of more than 50 ends early if their bodies have a megabyte together.
///
/// The order is, for the first of these conditions that is given, that of the ids (a label), of
/// the keys (the beginning of the key, unless the phase is `dead`), of the due moments (a reason, `pending`), of the
/// ends of deliveries' leases (`leased`), or of the moments of death (`dead`); otherwise that of the ids.
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
    page(&scope.service, &scope.right, Some(&scope.namespace), query).await
}

/// Lists the timers of all namespaces, a page at a time.
///
/// As the list of one namespace. By a label or by the beginning of the key the order is that of the namespaces first.
#[utoipa::path(
    get, path = "/v1/timers", tag = "timers", params(ListQuery),
    responses((status = 200, description = "A page.", body = Page<Timer>))
)]
pub(super) async fn list_all_timers(
    all: Everywhere<Reader>,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<Timer>>> {
    page(&all.service, &all.right, None, query).await
}

async fn page(
    service: &Service,
    right: &Right,
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
    let items = timers.iter().map(|timer| shown(timer, right.sees_payloads(&timer.namespace))).collect();
    Ok(Json(Page { items, next }))
}
