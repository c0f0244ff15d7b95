//! Shows the hosts to which callbacks go, with the state of each host's circuit breaker.

use super::conditions::{Done, Search};
use super::fault::Fault;
use super::posted::Posted;
use super::rows::list_address;
use super::text::{ago_or_in, number, span};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::audit::{Deed, End};
use crate::service::Service;
use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use tourbillon_api::{AuditAction, Breaker, Endpoint, Moment};

/// The greatest number of hosts that the page shows. Hosts with an open or half-open circuit breaker come first.
const MOST: usize = 200;

/// Returns the word for the state of a host's circuit breaker, and the style class that colours the word.
fn breaker(breaker: Breaker) -> (&'static str, &'static str) {
    match breaker {
        Breaker::Closed => ("closed", "good"),
        Breaker::HalfOpen => ("half open", "warn"),
        Breaker::Open => ("open", "bad"),
    }
}

/// Returns the text of the button that closes a host's circuit breaker. The button also makes the host's parked timers
/// (timers that wait for the host) pending again. `None` if the breaker is closed and no timer is parked.
fn action(endpoint: &Endpoint) -> Option<&'static str> {
    match (endpoint.breaker, endpoint.parked) {
        (Breaker::Closed, 0) => None,
        (Breaker::Closed, _) => Some("Put parked back"),
        _ => Some("Close the breaker"),
    }
}

/// Returns the address of the list of dead timers whose callbacks went to a host.
fn dead(endpoint: &Endpoint) -> String {
    list_address("/ui/dead", "", ("place", &endpoint.host))
}

/// Returns the share of recent callbacks to a host that failed, in percent.
fn errors(endpoint: &Endpoint) -> String {
    // The share is counted in tenths of a percent, which needs no floating point.
    let share = (endpoint.recent_errors * 1_000).checked_div(endpoint.recent);
    share.map_or_else(|| "–".to_owned(), |share| format!("{}.{} %", share / 10, share % 10))
}

#[derive(Template)]
#[template(path = "endpoints.html")]
struct EndpointsPage<'a> {
    frame: Frame<'a>,
    may_change: bool,
    done: bool,
    rows: Vec<Endpoint>,
    now: Moment,
    /// The number of hosts that the page leaves out because there are too many.
    more: usize,
}

/// Shows the page of the hosts to which callbacks go. Fails unless the visitor may see the whole service.
pub(super) async fn show_endpoints(
    State(service): State<Service>,
    visitor: Visitor,
    asked: Result<Search<Done>, Fault>,
) -> Result<Response, Fault> {
    // The query only chooses a message, so a query that cannot be read does not hide the page.
    let done = asked.is_ok_and(|Search(asked)| !asked.done.is_empty());
    let detail = "The hosts are those of all namespaces, and your token permits a single namespace.";
    Fault::unless(visitor.reads_all(), detail)?;
    let mut endpoints = service.reports().endpoints();
    // The sort is stable, so both the hosts with closed breakers and the other hosts stay ordered by name.
    endpoints.sort_by_key(|endpoint| endpoint.breaker == Breaker::Closed);
    let more = endpoints.len().saturating_sub(MOST);
    endpoints.truncate(MOST);
    let (frame, may_change) = (Frame::new(&visitor, "endpoints"), visitor.writes_all());
    Ok(show(&EndpointsPage { frame, may_change, done, rows: endpoints, now: now(&service), more }))
}

/// Closes a host's circuit breaker, so that callbacks to the host go out at once. Also makes the host's parked timers
/// (timers that wait for the host) pending again.
pub(super) async fn reopen(State(service): State<Service>, form: Posted) -> Result<Response, Fault> {
    let detail = "The host is one of all namespaces, which your token does not permit to change.";
    Fault::unless(form.visitor.writes_all(), detail)?;
    let host = form.fields.get("host");
    if !service.reports().endpoints().iter().any(|endpoint| endpoint.host == host) {
        return Err(Fault::bad("Nothing was changed: the host has got no callbacks."));
    }
    let entry = service.audit().begin(Deed::new(AuditAction::ReopenHost).target(host));
    service.reports().reopen_host(host);
    entry.end(End::done()).await;
    Ok(Redirect::to("/ui/endpoints?done=reopen").into_response())
}
