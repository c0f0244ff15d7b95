//! The list of timers.

use super::fault::Fault;
use super::text::beginning;
use super::view::{Frame, When, done_words, phase_name, show};
use super::visitor::Visitor;
use crate::convert::{moment, shown, stored_phase, unavailable};
use crate::listing::Listing;
use crate::service::{Named, Service, id};
use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;
use tourbillon_api::{Moment, Phase, Timer};
use tourbillon_durable::store::Filter;
use tourbillon_durable::timer::TimerId;
use url::Url;
use url::form_urlencoded::Serializer;

/// The number of timers on a page.
pub(super) const OF_A_PAGE: u32 = 50;
/// The greatest number of namespaces that a form offers.
const MOST_OFFERED: usize = 100;
/// The longest text of a condition, in bytes, and that of a cursor.
const LONGEST: usize = 255;
const LONGEST_CURSOR: usize = 1_024;

/// The conditions of a list. An empty one is none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    namespace: String,
    /// An id, or the beginning of a key.
    q: String,
    label: String,
    phase: String,
    cursor: String,
    /// The change that led here.
    pub(super) done: String,
}

/// The conditions, read.
#[derive(Debug)]
pub(super) struct Conditions {
    pub(super) namespace: String,
    pub(super) q: String,
    pub(super) label: String,
    pub(super) phase: Option<Phase>,
    pub(super) cursor: String,
}

/// The phases that a stored timer may have.
const PHASES: [Phase; 4] = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead];

impl Asked {
    /// The query of a page, whose texts are not longer than they can be.
    pub(super) fn read(asked: Result<Query<Self>, QueryRejection>) -> Result<Self, Fault> {
        let Query(asked) = asked
            .map_err(|_| Fault::bad("The address cannot be read: a condition is there more than once."))?;
        let texts = [&asked.namespace, &asked.q, &asked.label, &asked.phase];
        if texts.iter().any(|text| text.len() > LONGEST) || asked.cursor.len() > LONGEST_CURSOR {
            return Err(Fault::bad(format!("A condition has at most {LONGEST} bytes.")));
        }
        Ok(asked)
    }

    /// The conditions for this visitor.
    pub(super) fn conditions(self, visitor: &Visitor) -> Result<Conditions, Fault> {
        let Self { namespace, q, label, phase, cursor, .. } = self;
        let phase = match &*phase {
            "" => None,
            name => match PHASES.into_iter().find(|phase| phase_name(*phase) == name) {
                Some(phase) => Some(phase),
                None => return Err(Fault::bad("The phase is pending, leased, parked or dead.")),
            },
        };
        let namespace = match (&*namespace, visitor.only_namespace()) {
            ("", only) => only.unwrap_or("default").to_owned(),
            _ => namespace,
        };
        if !visitor.reads(&namespace) {
            return Err(Fault::forbidden("Your token does not permit to see this namespace."));
        }
        Ok(Conditions { namespace, q: q.trim().to_owned(), label, phase, cursor })
    }
}

impl Conditions {
    /// The address of a page with these conditions.
    pub(super) fn address(&self, path: &str, cursor: Option<&str>) -> String {
        let mut query = Serializer::new(String::new());
        query.append_pair("namespace", &self.namespace);
        for (name, value) in [("q", &*self.q), ("label", &self.label)] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        if let Some(phase) = self.phase.filter(|_| path != "/ui/dead") {
            query.append_pair("phase", phase_name(phase));
        }
        if let Some(cursor) = cursor {
            query.append_pair("cursor", cursor);
        }
        format!("{path}?{}", query.finish())
    }

    fn filter(&self) -> Filter {
        let given = |text: &str| Some(text).filter(|text| !text.is_empty()).map(Into::into);
        Filter {
            namespace: Some((&*self.namespace).into()),
            label: given(&self.label),
            key_prefix: given(&self.q),
            phase: self.phase.map(stored_phase),
            ..Filter::default()
        }
    }

    /// A page of the list, and the cursor of the next one.
    pub(super) async fn page(
        &self,
        service: &Service,
        visitor: &Visitor,
    ) -> Result<(Vec<Timer>, Option<String>), Fault> {
        service.namespace(&self.namespace)?;
        let listing = Listing::new(self.filter(), None);
        let cursor = match &*self.cursor {
            "" => None,
            cursor => Some(
                listing
                    .cursor(cursor)
                    .map_err(|_| Fault::bad("The cursor is of another list, or of none."))?,
            ),
        };
        let page = listing.page(service.timers(), cursor, OF_A_PAGE).await;
        let page = page.map_err(|error| unavailable(&error))?;
        let with_payloads = visitor.writes(&self.namespace);
        let timers = page.timers.iter().map(|timer| shown(timer, with_payloads)).collect();
        Ok((timers, page.next.map(|cursor| listing.shown_cursor(&cursor))))
    }
}

/// The namespaces that a form offers.
pub(super) fn offered(service: &Service, visitor: &Visitor) -> Vec<String> {
    let all = service.namespaces().all();
    let visible = all.keys().filter(|name| visitor.reads(name)).take(MOST_OFFERED);
    visible.map(|name| name.to_string()).collect()
}

/// The service's time.
pub(super) fn now(service: &Service) -> Moment {
    moment(service.timers().timer_store().now())
}

/// The address of a timer's page.
pub(super) fn address(namespace: &str, id: &str) -> String {
    format!("/ui/timers/{namespace}/{id}")
}

/// The place that a timer is delivered to, in short.
pub(super) fn target(timer: &Timer) -> String {
    if let Some(callback) = &timer.callback {
        let host = Url::parse(&callback.url).ok().map(|url| {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}{port}{}", url.host_str().unwrap_or_default(), url.path())
        });
        let method = callback.method.as_deref().unwrap_or("POST");
        return format!("{method} {}", beginning(&host.unwrap_or_else(|| callback.url.clone()), 60));
    }
    timer.pull.as_ref().map_or_else(String::new, |pull| format!("queue {}", pull.queue))
}

/// The labels of a timer, with the addresses of their lists.
pub(super) fn labels(timer: &Timer, path: &str) -> Vec<(String, String)> {
    let address = |label: &String| {
        let mut query = Serializer::new(String::new());
        query.append_pair("namespace", &timer.namespace).append_pair("label", label);
        (label.clone(), format!("{path}?{}", query.finish()))
    };
    timer.labels.iter().map(address).collect()
}

/// A row of a list.
pub(super) struct Row {
    pub(super) timer: Timer,
    pub(super) address: String,
    pub(super) phase: &'static str,
    pub(super) due: When,
    pub(super) died: Option<When>,
    pub(super) target: String,
    pub(super) error: String,
    /// Why it is dead, in few words.
    pub(super) reason: &'static str,
    /// Its labels, with the addresses of their lists.
    pub(super) labels: Vec<(String, String)>,
    pub(super) is_overdue: bool,
}

impl Row {
    pub(super) fn new(timer: Timer, path: &str, now: Moment) -> Self {
        Self {
            address: address(&timer.namespace, &timer.id),
            phase: phase_name(timer.phase),
            due: When::new(timer.due, now),
            died: timer.dead_since.map(|at| When::new(at, now)),
            target: target(&timer),
            error: beginning(timer.last_error.as_deref().unwrap_or(""), 80),
            reason: death(timer.reason.as_deref().unwrap_or("")),
            labels: labels(&timer, path),
            is_overdue: timer.phase == Phase::Pending && timer.due < now,
            timer,
        }
    }
}

/// The reason of a death, in few words.
fn death(reason: &str) -> &'static str {
    match reason {
        "attempts" => "all attempts failed",
        "deliveries" => "no delivery had an end",
        "age" => "too old for another attempt",
        "blocked-destination" => "destination blocked",
        "refused" => "refused by the receiver",
        "plan" => "its plan cannot be followed",
        _ => "",
    }
}

/// The offer to change all timers of a condition.
pub(super) struct Many<'a> {
    pub(super) field: &'a str,
    pub(super) value: &'a str,
}

#[derive(Template)]
#[template(path = "timers.html")]
struct TimersPage<'a> {
    frame: Frame<'a>,
    mark: &'a str,
    asked: &'a Conditions,
    namespaces: Vec<String>,
    phases: Vec<(&'static str, bool)>,
    rows: Vec<Row>,
    next: Option<String>,
    first: Option<String>,
    order: &'static str,
    many: Option<Many<'a>>,
    is_filtered: bool,
    /// The change that led here.
    done: Option<&'static str>,
}

impl Conditions {
    /// The order of the list.
    fn order(&self) -> &'static str {
        match self {
            Self { label, .. } if !label.is_empty() => "by id",
            Self { q, phase, .. } if !q.is_empty() && *phase != Some(Phase::Dead) => "by key",
            Self { phase: Some(Phase::Pending), .. } => "by due moment",
            Self { phase: Some(Phase::Leased), .. } => "by the end of the lease",
            Self { phase: Some(Phase::Dead), .. } => "by the moment of death",
            Self { phase: Some(Phase::Parked), .. } => "by reason",
            _ => "by id",
        }
    }
}

/// Shows the list, or the one timer whose id or key was asked for.
async fn page(
    service: &Service,
    visitor: &Visitor,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Fault> {
    let asked = Asked::read(asked)?;
    let done = done_words(&asked.done);
    let asked = asked.conditions(visitor)?;
    if asked.cursor.is_empty()
        && let Some(found) = find(service, &asked).await?
    {
        return Ok(Redirect::to(&found).into_response());
    }
    let (timers, next) = asked.page(service, visitor).await?;
    let now = now(service);
    let is_some = !timers.is_empty();
    let many = match (&*asked.label, &*asked.q, asked.phase) {
        (label, "", None) if !label.is_empty() => Some(Many { field: "label", value: label }),
        ("", prefix, None) if !prefix.is_empty() => Some(Many { field: "key_prefix", value: prefix }),
        _ => None,
    };
    let page = TimersPage {
        frame: Frame::new(visitor, "timers"),
        mark: &visitor.mark,
        namespaces: offered(service, visitor),
        phases: PHASES.iter().map(|phase| (phase_name(*phase), asked.phase == Some(*phase))).collect(),
        rows: timers.into_iter().map(|timer| Row::new(timer, "/ui/timers", now)).collect(),
        next: next.map(|cursor| asked.address("/ui/timers", Some(&cursor))),
        first: (!asked.cursor.is_empty()).then(|| asked.address("/ui/timers", None)),
        order: asked.order(),
        many: many.filter(|_| is_some && visitor.writes(&asked.namespace)),
        is_filtered: !asked.q.is_empty() || !asked.label.is_empty() || asked.phase.is_some(),
        done,
        asked: &asked,
    };
    Ok(show(&page))
}

/// The address of the timer whose id was asked for.
async fn find(service: &Service, asked: &Conditions) -> Result<Option<String>, Fault> {
    let Ok(id) = asked.q.parse::<TimerId>() else { return Ok(None) };
    let found = service.past(&asked.namespace, id).await.is_ok()
        || service.stored(&asked.namespace, Named::Id(id).address(&asked.namespace)).await.is_ok();
    Ok(found.then(|| address(&asked.namespace, &id.to_string())))
}

/// Shows the list.
pub(super) async fn show_timers(
    State(service): State<Service>,
    visitor: Visitor,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Fault> {
    page(&service, &visitor, asked).await.map_err(|fault| fault.of(&visitor))
}

/// The id of a timer in an address.
pub(super) fn id_of(text: &str) -> Result<TimerId, Fault> {
    id(text).map_err(|_| Fault::no_page())
}
