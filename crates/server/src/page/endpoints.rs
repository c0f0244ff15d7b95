//! Shows the hosts to which callbacks go, with the state of each host's circuit breaker.

use super::conditions::Search;
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
use serde::Deserialize;
use tourbillon_api::{AuditAction, Breaker, Endpoint};

/// The greatest number of hosts that the page shows. Hosts with an open or half-open circuit breaker come first.
const MOST: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    /// A word for the visitor's last change. After the change, the browser was redirected here, and the page says that
    /// callbacks to a host go out again. Empty if there was no change.
    done: String,
}

struct Row {
    host: String,
    /// The text of the button that closes the host's circuit breaker and puts the host's parked timers back. `None` if
    /// the breaker is closed and no timer is parked.
    action: Option<&'static str>,
    /// The address of the list of dead timers whose callbacks went to the host.
    dead: String,
    breaker: &'static str,
    class: &'static str,
    /// The text that says how long ago the host's circuit breaker changed to its present state.
    since: Option<String>,
    open_for: Option<String>,
    running: String,
    in_a_row: u32,
    parked: String,
    deliveries: String,
    /// The percentage of recent callbacks that failed, as a text.
    errors: String,
    p50: String,
    p99: String,
    last: Option<When>,
    last_error: Option<String>,
}

#[derive(Template)]
#[template(path = "endpoints.html")]
struct EndpointsPage<'a> {
    frame: Frame<'a>,
    mark: &'a str,
    may_change: bool,
    done: bool,
    rows: Vec<Row>,
    /// The number of hosts that the page leaves out, because it shows at most [`MOST`] hosts.
    more: usize,
}

/// Shows the page of the hosts to which callbacks go. Fails unless the visitor may see the whole service.
pub(super) async fn show_endpoints(
    State(service): State<Service>,
    visitor: Visitor,
    asked: Result<Search<Asked>, Fault>,
) -> Result<Response, Fault> {
    let done = asked.is_ok_and(|Search(asked)| !asked.done.is_empty());
    if !visitor.reads_all() {
        let detail = "The hosts are those of all namespaces, and your token is for one.";
        return Err(Fault::forbidden(detail));
    }
    let now = now(&service);
    let mut endpoints = service.reports().endpoints();
    endpoints.sort_by_key(|endpoint| endpoint.breaker == Breaker::Closed);
    let more = endpoints.len().saturating_sub(MOST);
    endpoints.truncate(MOST);
    let row = |endpoint: Endpoint| {
        let (breaker, class) = match endpoint.breaker {
            Breaker::Closed => ("closed", "good"),
            Breaker::HalfOpen => ("half open", "warn"),
            Breaker::Open => ("open", "bad"),
        };
        // The share is counted in tenths of a percent, which needs no floating point.
        let share = (endpoint.recent_errors * 1_000).checked_div(endpoint.recent);
        let time = |millis: Option<u64>| millis.map_or_else(|| "–".to_owned(), span);
        Row {
            action: match (endpoint.breaker, endpoint.parked) {
                (Breaker::Closed, 0) => None,
                (Breaker::Closed, _) => Some("Put parked back"),
                _ => Some("Close the breaker"),
            },
            dead: list_address("/ui/dead", "", ("place", &endpoint.host)),
            breaker,
            class,
            since: endpoint.since.map(|at| ago_or_in(at.as_millis(), now.as_millis())),
            open_for: endpoint.open_for_ms.map(span),
            running: number(endpoint.running),
            in_a_row: endpoint.failures_in_a_row,
            parked: number(endpoint.parked),
            deliveries: number(endpoint.deliveries),
            errors: share.map_or_else(|| "–".to_owned(), |share| format!("{}.{} %", share / 10, share % 10)),
            p50: time(endpoint.p50_ms),
            p99: time(endpoint.p99_ms),
            last: endpoint.last.map(|at| When::new(at, now)),
            last_error: endpoint.last_error,
            host: endpoint.host,
        }
    };
    let rows = endpoints.into_iter().map(row).collect();
    let (mark, may_change) = (&*visitor.mark, visitor.writes_all());
    let frame = Frame::new(&visitor, "endpoints");
    Ok(show(&EndpointsPage { frame, mark, may_change, done, rows, more }))
}

/// Closes a host's circuit breaker and puts the host's parked timers back. From then on, callbacks to the host go out
/// at once.
pub(super) async fn reopen(State(service): State<Service>, form: Posted) -> Result<Response, Fault> {
    if !form.visitor.writes_all() {
        let detail = "The host is one of all namespaces, which your token does not permit to change.";
        return Err(Fault::forbidden(detail));
    }
    let host = form.fields.get("host");
    if !service.reports().endpoints().iter().any(|endpoint| endpoint.host == host) {
        return Err(Fault::bad("Nothing was changed: the host has got no callbacks."));
    }
    let note = service.audit().begin(Deed::new(AuditAction::ReopenHost).target(host));
    service.reports().reopen_host(host);
    note.end(End::done()).await;
    Ok(Redirect::to("/ui/endpoints?done=reopen").into_response())
}
