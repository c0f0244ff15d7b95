//! Shows the list of timers.

use super::conditions::{Conditions, PHASES, Query, Search, offered};
use super::ended::{how, of_key};
use super::fault::Fault;
use super::rows::{address, error, labels, list_address, name, target, whole_list};
use super::view::{Frame, When, done_words, now, phase_name, show};
use super::visitor::Visitor;
use crate::convert::shown;
use crate::service::Service;
use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use tourbillon_api::{Moment, Past, Phase, Timer};
use tourbillon_durable::timer::TimerId;

/// The form field that the buttons send to change all timers of a list. It selects these timers by a single condition.
struct Many<'a> {
    field: &'a str,
    value: &'a str,
}

#[derive(Template)]
#[template(path = "timers.html")]
struct TimersPage<'a> {
    frame: Frame<'a>,
    asked: &'a Conditions,
    namespaces: Vec<(String, bool)>,
    phases: Vec<(&'static str, bool)>,
    rows: Vec<Timer>,
    now: Moment,
    /// The ended timers whose key equals the text in the search field.
    ended: Vec<Past>,
    /// The address of the list of ended timers whose keys begin with the text in the search field.
    ended_address: String,
    next: Option<String>,
    first: Option<String>,
    many: Option<Many<'a>>,
    /// Whether the page asks the visitor to choose a namespace. A visitor can change all listed timers together only in
    /// a single namespace.
    wants_namespace: bool,
    /// The message about the visitor's last change. `None` if the visitor does not come from a change.
    done: Option<&'static str>,
}

/// Shows the list of timers. If the search field has the id of a timer, redirects to the page of this timer. Does the
/// same if a search finds a single ended timer and no stored timer.
pub(super) async fn show_timers(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<Query>,
) -> Result<Response, Fault> {
    let done = done_words(&asked.done);
    let asked = asked.admit()?.conditions(&service, &visitor)?;
    let is_first = asked.cursor.is_empty();
    if is_first && let Some(found) = find(&service, &visitor, &asked).await? {
        return Ok(Redirect::to(&found).into_response());
    }
    let listed = asked.page(&service).await?;
    let ended = if is_first { ended(&service, &visitor, &asked) } else { Vec::new() };
    // A page may be empty although later pages have timers, so the redirect also needs a list without a next page.
    if let ([only], true, None) = (&*ended, listed.timers.is_empty(), &listed.next) {
        return Ok(Redirect::to(&address(&only.namespace, &only.id)).into_response());
    }
    let many = many(&asked).filter(|_| !listed.timers.is_empty());
    let page = TimersPage {
        frame: Frame::new(&visitor, "timers"),
        namespaces: offered(&service, &visitor, &asked.namespace),
        phases: PHASES.iter().map(|phase| (phase_name(*phase), asked.phase == Some(*phase))).collect(),
        rows: listed.timers.iter().map(|timer| shown(timer, false)).collect(),
        now: now(&service),
        ended,
        ended_address: list_address("/ui/ended", &asked.namespace, ("q", &asked.q)),
        next: listed.next.map(|cursor| asked.address("/ui/timers", Some(&cursor))),
        first: (!is_first).then(|| asked.address("/ui/timers", None)),
        wants_namespace: many.is_some() && asked.is_of_all(),
        many: many.filter(|_| !asked.is_of_all() && visitor.writes(&asked.namespace)),
        done,
        asked: &asked,
    };
    Ok(show(&page))
}

/// Returns a single condition that selects all timers of the list: a label, or the beginning of a key. `None` if the
/// list has another condition, or both of these conditions.
fn many(asked: &Conditions) -> Option<Many<'_>> {
    let others =
        asked.phase.is_some() || !asked.reason.is_empty() || asked.has_range() || asked.group.is_some();
    match (&*asked.label, &*asked.q) {
        _ if others => None,
        (label, "") if !label.is_empty() => Some(Many { field: "label", value: label }),
        ("", prefix) if !prefix.is_empty() => Some(Many { field: "key_prefix", value: prefix }),
        _ => None,
    }
}

/// Returns the address of the page for the timer whose id is in the search field. Returns `None` if the text is not the
/// id of a timer in the listed namespaces, or if the visitor may not see the timer.
async fn find(service: &Service, visitor: &Visitor, asked: &Conditions) -> Result<Option<String>, Fault> {
    let Ok(id) = asked.q.parse::<TimerId>() else { return Ok(None) };
    let namespace = service.reports().namespace_of(id).await?;
    let is_meant = |name: &str| visitor.reads(name) && (asked.is_of_all() || *name == *asked.namespace);
    Ok(namespace.filter(|name| is_meant(name)).map(|name| address(&name, &id.to_string())))
}

/// Returns the ended timers whose key equals the text in the search field. Returns none if the list has another
/// condition, because an ended timer has neither a phase nor a due moment.
fn ended(service: &Service, visitor: &Visitor, asked: &Conditions) -> Vec<Past> {
    if asked.q.is_empty() || asked.is_filtered_beyond_the_search() {
        return Vec::new();
    }
    let is_meant = |name: &str| visitor.reads(name) && (asked.is_of_all() || *name == *asked.namespace);
    of_key(service, &asked.q, is_meant)
}
