//! Shows the timers that ended lately, from the histories in memory. Of these timers, the store has only the dead.

use super::conditions::{Search, existing, offered};
use super::fault::Fault;
use super::rows::{address, whole_list};
use super::text::with_query;
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::record::Known;
use crate::service::Service;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use tourbillon_api::{EndKind, Moment, Past};

/// The number of timers on one page of the list of ended timers.
const OF_A_PAGE: usize = 50;
/// The greatest number of ended timers with the same key that a search shows.
const MOST_OF_A_KEY: usize = 10;
/// The greatest length of the text of one condition, in bytes.
const LONGEST: usize = 255;

/// The ways in which a timer ends. An address names each of them by a word.
const ENDS: [(&str, EndKind); 6] = [
    ("delivered", EndKind::Delivered),
    ("dead", EndKind::Dead),
    ("failed", EndKind::Failed),
    ("cancelled", EndKind::Cancelled),
    ("replaced", EndKind::Replaced),
    ("skipped", EndKind::Skipped),
];

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    namespace: String,
    /// The text with which the key of each listed timer begins.
    q: String,
    /// A word of [`ENDS`], the way in which the listed timers ended. If the text is empty, the list has timers with any
    /// end.
    how: String,
    /// The number of the latest event of the last timer on the previous page. Events of timers in memory are numbered
    /// in their order. This page shows only timers whose latest events have lower numbers.
    before: Option<u64>,
}

/// Returns the word for the way in which a timer ended.
pub(super) fn how(past: &Past) -> &'static str {
    let kind = past.end.as_ref().map(|end| end.how);
    ENDS.iter().find(|(_, end)| Some(*end) == kind).map_or("ended", |(word, _)| word)
}

/// Returns the style class that colours the way in which a timer ended.
fn class(past: &Past) -> &'static str {
    match past.end.as_ref().map(|end| end.how) {
        Some(EndKind::Delivered) => "good",
        Some(EndKind::Dead | EndKind::Failed | EndKind::Skipped) => "bad",
        _ => "",
    }
}

/// Returns the detail of a timer's end, such as its error, or an empty text.
fn detail(past: &Past) -> &str {
    past.end.as_ref().and_then(|end| end.detail.as_deref()).unwrap_or_default()
}

/// Returns the ended timers that had the key `key`, the latest first. Leaves dead timers out, because the store still
/// has them. `is_meant` returns whether the timers of a namespace are included.
pub(super) fn of_key(service: &Service, key: &str, is_meant: impl Fn(&str) -> bool) -> Vec<Past> {
    let is_meant = |known: &Known, how| {
        how != EndKind::Dead && known.key.as_deref() == Some(key) && is_meant(&known.namespace)
    };
    service.reports().ended_lately(None, MOST_OF_A_KEY, is_meant).0
}

#[derive(Template)]
#[template(path = "ended.html")]
struct EndedPage<'a> {
    frame: Frame<'a>,
    namespaces: Vec<(String, bool)>,
    namespace: &'a str,
    q: &'a str,
    ends: Vec<(&'static str, bool)>,
    rows: Vec<Past>,
    now: Moment,
    next: Option<String>,
    first: Option<String>,
    is_filtered: bool,
}

pub(super) async fn show_ended(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<Query>,
) -> Result<Response, Fault> {
    if [&asked.namespace, &asked.q, &asked.how].iter().any(|text| text.len() > LONGEST) {
        return Err(Fault::bad(format!("A condition has at most {LONGEST} bytes.")));
    }
    let namespace = existing(&asked.namespace, &service, &visitor)?;
    let kind = ENDS.iter().find(|(word, _)| *word == asked.how).map(|(_, kind)| *kind);
    if kind.is_none() && !asked.how.is_empty() {
        return Err(Fault::bad("A timer ends as delivered, dead, cancelled, replaced or skipped."));
    }
    let q = asked.q.trim();
    let (pasts, next) = service.reports().ended_lately(asked.before, OF_A_PAGE, |known, how| {
        // Only a visitor who may see all namespaces gets here with an empty namespace, so no timer needs another check.
        (namespace.is_empty() || *known.namespace == *namespace)
            && kind.is_none_or(|kind| kind == how)
            && (q.is_empty() || known.key.as_deref().is_some_and(|key| key.starts_with(q)))
    });
    let address = |before: Option<u64>| {
        let before = before.map(|before| before.to_string()).unwrap_or_default();
        let conditions = [("namespace", &*namespace), ("q", q), ("how", &asked.how), ("before", &before)];
        with_query("/ui/ended", &conditions)
    };
    let page = EndedPage {
        frame: Frame::new(&visitor, "ended"),
        namespaces: offered(&service, &visitor, &namespace),
        ends: ENDS.iter().map(|(word, end)| (*word, kind == Some(*end))).collect(),
        rows: pasts,
        now: now(&service),
        next: next.map(|next| address(Some(next))),
        first: asked.before.map(|_| address(None)),
        is_filtered: !q.is_empty() || kind.is_some(),
        namespace: &namespace,
        q,
    };
    Ok(show(&page))
}
