//! Shows the dead timers: those whose deliveries were given up.

use super::conditions::{Conditions, Query, Search, offered};
use super::fault::Fault;
use super::rows::{address, death, error, labels, name, target, whole_list};
use super::text::number;
use super::view::{Frame, When, done_words, now, show};
use super::visitor::Visitor;
use crate::convert::{shown, unavailable};
use crate::service::Service;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use tourbillon_api::{Moment, Timer};
use tourbillon_durable::state::Phase;

#[derive(Template)]
#[template(path = "dead.html")]
struct DeadPage<'a> {
    frame: Frame<'a>,
    asked: &'a Conditions,
    namespaces: Vec<(String, bool)>,
    rows: Vec<Timer>,
    now: Moment,
    next: Option<String>,
    first: Option<String>,
    /// The address of the present list, with its conditions.
    here: String,
    /// The address of the page that groups dead timers by receiver and error.
    groups: String,
    may_change: bool,
    /// Whether the page offers buttons that change all listed timers together. The list must belong to a single
    /// namespace in which the visitor may change timers.
    may_change_all: bool,
    count: String,
    done: Option<&'static str>,
}

pub(super) async fn show_dead(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<Query>,
) -> Result<Response, Fault> {
    let done = done_words(&asked.done);
    let asked = asked.admit()?.of_the_dead(&service, &visitor)?;
    let listed = asked.page(&service).await?;
    let counts = service.timers().counts().await.map_err(|error| unavailable(&error))?;
    let is_counted = |name: &str| visitor.reads(name) && (asked.is_of_all() || *name == *asked.namespace);
    // The internal timers of schedules never become dead, so these counts do not include them.
    let dead =
        counts.by_namespace.iter().filter(|((name, phase), _)| *phase == Phase::Dead && is_counted(name));
    let is_one = !asked.is_of_all();
    let page = DeadPage {
        frame: Frame::new(&visitor, "dead"),
        namespaces: offered(&service, &visitor, &asked.namespace),
        rows: listed.timers.iter().map(|timer| shown(timer, false)).collect(),
        now: now(&service),
        next: listed.next.map(|cursor| asked.address("/ui/dead", Some(&cursor))),
        first: (!asked.cursor.is_empty()).then(|| asked.address("/ui/dead", None)),
        here: asked.address("/ui/dead", Some(&asked.cursor)),
        groups: whole_list("/ui/dead/groups", &asked.namespace),
        may_change: if is_one { visitor.writes(&asked.namespace) } else { visitor.writes_all() },
        // The changes of all dead timers select by label, receiver and error only. If the list has another condition,
        // such a change would also affect timers that the list leaves out.
        may_change_all: is_one
            && visitor.writes(&asked.namespace)
            && !asked.has_range()
            && asked.q.is_empty(),
        count: number(dead.map(|(_, count)| count).sum()),
        done,
        asked: &asked,
    };
    Ok(show(&page))
}
