//! Lists of timers.

use super::answer::{Answer, Refused};
use super::auth::Right;
use super::extract::{Path, Query};
use crate::convert::{shown, stored_phase, unavailable};
use crate::service::Service;
use axum::Json;
use axum::extract::State;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::Deserialize;
use tourbillon_api::{Moment, Page, Phase, Problem, ProblemKind, Role, Timer};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{self, Cursor, Filter};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub(super) fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::new().routes(routes!(list_timers))
}

/// The conditions of a list, all of which hold for its timers.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// The phase.
    phase: Option<Phase>,
    /// A label.
    label: Option<String>,
    /// The beginning of the key. Dead timers have left their keys, and are listed by it only with `phase=dead`.
    key_prefix: Option<String>,
    /// The moment before which the timers are due.
    due_before: Option<Moment>,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// The greatest number of timers: 50 by default, at most 200.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

const MOST_OF_A_PAGE: u32 = 200;
/// The greatest number of pages of the store that one page is made of.
const MOST_PAGES: usize = 10;

/// Lists timers, a page at a time.
///
/// A page may have fewer timers than asked for, and even none, although there are further ones: the list is at its end when
/// `next` is missing. The order is, for the first of these conditions that is given, that of the ids (a label), of the keys
/// (the beginning of the key, unless the phase is `dead`), of the due moments (`pending`), of the ends of deliveries' leases
/// (`leased`), or of the moments of death (`dead`); otherwise that of the ids.
#[utoipa::path(
    get, path = "/v1/namespaces/{namespace}/timers", tag = "timers",
    params(("namespace" = String, Path, description = "The namespace."), ListQuery),
    responses((status = 200, description = "A page.", body = Page<Timer>))
)]
async fn list_timers(
    State(service): State<Service>,
    right: Right,
    Path(namespace): Path<String>,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<Timer>>> {
    right.require(Role::Reader, Some(&namespace))?;
    service.namespace(&namespace)?;
    let limit = query.limit.unwrap_or(50);
    if !(1..=MOST_OF_A_PAGE).contains(&limit) {
        return Err(Refused(Problem::new(
            ProblemKind::BadRequest,
            format!("a page has 1 to {MOST_OF_A_PAGE} timers"),
        )));
    }
    let due_before = query.due_before.map(|moment| UtcMillis::from_millis(moment.as_millis()));
    let filter = Filter {
        namespace: Some(namespace.as_str().into()),
        label: query.label.map(Into::into),
        key_prefix: query.key_prefix.map(Into::into),
        phase: query.phase.map(stored_phase),
        kind: None,
    };
    let list = List { mark: mark(&filter, due_before), filter, due_before };
    let cursor = query.cursor.as_deref().map(|cursor| list.cursor(cursor)).transpose()?;
    let page = list.page(&service, cursor, limit).await.map_err(|error| Refused(unavailable(&error)))?;
    let with_payloads = right.sees_payloads(&namespace);
    Ok(Json(Page {
        items: page.timers.iter().map(|timer| shown(timer, with_payloads)).collect(),
        next: page.next.map(|cursor| list.shown_cursor(&cursor)),
    }))
}

/// A list, of which a cursor shows a place.
struct List {
    filter: Filter,
    due_before: Option<UtcMillis>,
    /// The mark of the list's cursors, since a cursor means nothing in another list.
    mark: [u8; 8],
}

/// The name space of lists.
const LISTS: Uuid = Uuid::from_u128(0x0c1d_91a5_6f3a_4e0c_b7c4_7f2d_5a6e_9b13);

fn mark(filter: &Filter, due_before: Option<UtcMillis>) -> [u8; 8] {
    let list = serde_json::to_vec(&(filter, due_before)).unwrap_or_default();
    let [.., a, b, c, d, e, f, g, h] = Uuid::new_v5(&LISTS, &list).into_bytes();
    [a, b, c, d, e, f, g, h]
}

impl List {
    /// The place that a cursor shows.
    fn cursor(&self, text: &str) -> Answer<Cursor> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let place = bytes.as_deref().and_then(|bytes| bytes.strip_prefix(&self.mark));
        place.map(Cursor::from_bytes).ok_or_else(|| {
            Refused(Problem::new(ProblemKind::BadRequest, "the cursor is of another list, or of none"))
        })
    }

    fn shown_cursor(&self, cursor: &Cursor) -> String {
        BASE64_URL_SAFE_NO_PAD.encode([&self.mark, cursor.as_bytes()].concat())
    }

    async fn page(
        &self,
        service: &Service,
        mut cursor: Option<Cursor>,
        limit: u32,
    ) -> Result<store::Page, store::StoreError> {
        let is_by_due = self.filter.phase == Some(tourbillon_durable::state::Phase::Pending)
            && self.filter.label.is_none()
            && self.filter.key_prefix.is_none();
        let mut page = store::Page::default();
        for _ in 0..MOST_PAGES {
            page = service.timers().list(self.filter.clone(), cursor, limit).await?;
            if let Some(before) = self.due_before {
                let is_over = is_by_due && page.timers.last().is_some_and(|timer| timer.due >= before);
                page.timers.retain(|timer| timer.due < before);
                if is_over {
                    page.next = None;
                }
            }
            if !page.timers.is_empty() || page.next.is_none() {
                break;
            }
            cursor = page.next.clone();
        }
        Ok(page)
    }
}
