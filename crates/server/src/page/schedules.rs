//! Shows the list of schedules.

use super::conditions::{Search, offered, visible};
use super::fault::Fault;
use super::rows::whole_list;
use super::schedule::{address, done_words, plan, state};
use super::text::{number, with_query};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::listing::{cursor_text, place_of};
use crate::service::Service;
use crate::walk::Place;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use tourbillon_api::{Moment, ScheduleView};

/// The number of schedules on one page of the list.
const OF_A_PAGE: u32 = 50;
/// The greatest number of reads from the store for one page of the list. Because of this limit, a page may be short
/// although more schedules follow.
const MOST_ASKED: usize = 50;
/// The greatest length of each of the two conditions on the listed schedules, in bytes. The conditions are the
/// namespace and the beginning of the key.
const LONGEST: usize = 255;
/// The greatest length of the cursor in an address, in bytes. The cursor names a position in the list.
const LONGEST_CURSOR: usize = 1_024;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    namespace: String,
    /// The text with which the key of each listed schedule begins.
    q: String,
    cursor: String,
    /// A word for the visitor's last change, such as `pause`, for which the page shows a message. Empty if the visitor
    /// has made no change.
    done: String,
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage<'a> {
    frame: Frame<'a>,
    namespace: &'a str,
    namespaces: Vec<(String, bool)>,
    q: &'a str,
    rows: Vec<ScheduleView>,
    now: Moment,
    next: Option<String>,
    first: Option<String>,
    done: Option<&'static str>,
}

pub(super) async fn show_schedules(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<Query>,
) -> Result<Response, Fault> {
    let Query { namespace, q, cursor, done } = asked;
    if namespace.len() > LONGEST || q.len() > LONGEST || cursor.len() > LONGEST_CURSOR {
        return Err(Fault::bad(format!("A condition has at most {LONGEST} bytes.")));
    }
    let namespace = visible(&namespace, &service, &visitor)?;
    // A cursor is valid only in the list that issued it: with the same namespace and the same beginning of the keys.
    let mark = format!("{namespace}/{q}/");
    let place = if cursor.is_empty() {
        None
    } else {
        // Anybody can forge a cursor. So the namespace in the cursor is checked, too.
        let is_asked = |place: &Place| namespace.is_empty() || *place.namespace == *namespace;
        let place = Place::of(&place_of(&cursor, mark.as_bytes())?).filter(is_asked);
        Some(place.ok_or_else(|| Fault::bad("The cursor is of another list, or of none."))?)
    };
    let (views, next) = walk(&service, &namespace, &q, place).await?;
    let address = |cursor: &str| {
        with_query("/ui/schedules", &[("namespace", &*namespace), ("q", &q), ("cursor", cursor)])
    };
    let next = next.map(|next| cursor_text(mark.as_bytes(), &next.bytes()));
    let page = SchedulesPage {
        frame: Frame::new(&visitor, "schedules"),
        namespaces: offered(&service, &visitor, &namespace),
        rows: views,
        now: now(&service),
        next: next.map(|cursor| address(&cursor)),
        first: (!cursor.is_empty()).then(|| address("")),
        done: done_words(&done),
        namespace: &namespace,
        q: &q,
    };
    Ok(show(&page))
}

/// Reads one page of schedules, from the position `place` on. Also returns the position of the next page, or `None` at
/// the end of the list. An empty namespace stands for all namespaces.
async fn walk(
    service: &Service,
    namespace: &str,
    q: &str,
    place: Option<Place>,
) -> Result<(Vec<ScheduleView>, Option<Place>), Fault> {
    let all = service.namespaces().all();
    let is_of_all = namespace.is_empty();
    let mut place = match place {
        None if is_of_all => Place::behind(&all, None, false),
        None => Some(Place { namespace: namespace.into(), cursor: None }),
        place => place,
    };
    let mut views = Vec::new();
    for _ in 0..MOST_ASKED {
        let Some(Place { namespace, cursor }) = place else { break };
        let left = OF_A_PAGE.saturating_sub(u32::try_from(views.len()).unwrap_or(OF_A_PAGE));
        let (found, next) = service.schedules().list(&namespace, q, cursor, left, false).await?;
        views.extend(found);
        // The position moves on before the page may end, because it becomes the cursor of the next page.
        place = match next {
            Some(next) => Some(Place { namespace, cursor: Some(next) }),
            None if is_of_all => Place::behind(&all, Some(&namespace), false),
            None => None,
        };
        if views.len() >= OF_A_PAGE as usize {
            break;
        }
    }
    Ok((views, place))
}
