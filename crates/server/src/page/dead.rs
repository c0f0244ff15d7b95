//! The dead letters: timers whose deliveries were given up.

use super::fault::Fault;
use super::text::number;
use super::timers::{Asked, Conditions, Row, now, offered};
use super::view::{Frame, done_words, show};
use super::visitor::Visitor;
use crate::convert::unavailable;
use crate::service::Service;
use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use tourbillon_api::Phase;

#[derive(Template)]
#[template(path = "dead.html")]
struct DeadPage<'a> {
    frame: Frame<'a>,
    mark: &'a str,
    asked: &'a Conditions,
    namespaces: Vec<String>,
    rows: Vec<Row>,
    next: Option<String>,
    first: Option<String>,
    may_change: bool,
    count: String,
    is_filtered: bool,
    done: Option<&'static str>,
}

/// Shows the dead letters of a namespace.
pub(super) async fn show_dead(
    State(service): State<Service>,
    visitor: Visitor,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Fault> {
    page(&service, &visitor, asked).await.map_err(|fault| fault.of(&visitor))
}

async fn page(
    service: &Service,
    visitor: &Visitor,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Fault> {
    let asked = Asked::read(asked)?;
    let done = done_words(&asked.done);
    let asked = Conditions { phase: Some(Phase::Dead), ..asked.conditions(visitor)? };
    let (timers, next) = asked.page(service, visitor).await?;
    let counts = service.timers().counts().await.map_err(|error| unavailable(&error))?;
    let of = ((&*asked.namespace).into(), tourbillon_durable::state::Phase::Dead);
    let now = now(service);
    let page = DeadPage {
        frame: Frame::new(visitor, "dead"),
        mark: &visitor.mark,
        namespaces: offered(service, visitor),
        rows: timers.into_iter().map(|timer| Row::new(timer, "/ui/dead", now)).collect(),
        next: next.map(|cursor| asked.address("/ui/dead", Some(&cursor))),
        first: (!asked.cursor.is_empty()).then(|| asked.address("/ui/dead", None)),
        may_change: visitor.writes(&asked.namespace),
        count: number(counts.by_namespace.get(&of).copied().unwrap_or(0)),
        is_filtered: !asked.q.is_empty() || !asked.label.is_empty(),
        done,
        asked: &asked,
    };
    Ok(show(&page))
}
