//! The hosts that callbacks go to.

use super::fault::Fault;
use super::text::{ago_or_in, number, span};
use super::timers::now;
use super::view::{Frame, When, show};
use super::visitor::Visitor;
use crate::service::Service;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use tourbillon_api::{Breaker, Endpoint};

/// The greatest number of hosts on the page. Hosts whose breakers are not closed come first.
const MOST: usize = 200;

struct Row {
    host: String,
    breaker: &'static str,
    class: &'static str,
    /// How long ago this state of the breaker began.
    since: Option<String>,
    open_for: Option<String>,
    running: String,
    in_a_row: u32,
    parked: String,
    deliveries: String,
    /// The share of recent callbacks that failed, in percent.
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
    rows: Vec<Row>,
    /// The number of hosts that are not on the page.
    more: usize,
}

/// Shows the hosts.
pub(super) async fn show_endpoints(
    State(service): State<Service>,
    visitor: Visitor,
) -> Result<Response, Fault> {
    if !visitor.reads_all() {
        let detail = "The hosts are those of all namespaces, and your token is for one.";
        return Err(Fault::forbidden(detail).of(&visitor));
    }
    let now = now(&service);
    let mut endpoints = service.endpoints();
    endpoints.sort_by_key(|endpoint| endpoint.breaker == Breaker::Closed);
    let more = endpoints.len().saturating_sub(MOST);
    endpoints.truncate(MOST);
    let row = |endpoint: Endpoint| {
        let (breaker, class) = match endpoint.breaker {
            Breaker::Closed => ("closed", "good"),
            Breaker::HalfOpen => ("half open", "warn"),
            Breaker::Open => ("open", "bad"),
        };
        // In tenths of a percent, without a floating point.
        let share = (endpoint.recent_errors * 1_000).checked_div(endpoint.recent);
        let time = |millis: Option<u64>| millis.map_or_else(|| "–".to_owned(), span);
        Row {
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
    Ok(show(&EndpointsPage { frame: Frame::new(&visitor, "endpoints"), rows, more }))
}
