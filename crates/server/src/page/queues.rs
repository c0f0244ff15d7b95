//! Shows the queues in which due timers wait until receivers fetch them.

use super::conditions::{InNamespace, Search, existing, offered};
use super::fault::Fault;
use super::rows::list_address;
use super::text::{number, span};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::service::Service;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use tourbillon_api::{Moment, QueueView};

/// The greatest number of queues that the page shows. The queues whose oldest timers have waited longest come first.
const MOST: usize = 200;
/// The time for which a queue's oldest timer must have waited before the page shows the queue as late, in milliseconds.
const LATE: u64 = 60_000;

/// Returns the address of the list of the timers that wait in a queue.
fn address(queue: &QueueView) -> String {
    let reason = format!("queue:{}/{}", queue.namespace, queue.queue);
    list_address("/ui/timers", &queue.namespace, ("reason", &reason))
}

/// Returns the condition of a queue, as a style class and a word.
fn state(queue: &QueueView) -> (&'static str, &'static str) {
    match (queue.depth, queue.receivers, queue.age_ms.unwrap_or(0)) {
        (0, ..) => ("good", "empty"),
        (_, 0, LATE..) => ("bad", "nobody fetches"),
        (_, _, LATE..) => ("warn", "late"),
        _ => ("good", "moves"),
    }
}

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage<'a> {
    frame: Frame<'a>,
    namespaces: Vec<(String, bool)>,
    namespace: &'a str,
    rows: Vec<QueueView>,
    now: Moment,
    /// The number of queues that the page leaves out because there are too many.
    more: usize,
}

pub(super) async fn show_queues(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<InNamespace>,
) -> Result<Response, Fault> {
    let namespace = existing(&asked.namespace, &service, &visitor)?;
    // Only a visitor who may see all namespaces gets here with an empty namespace, so no queue needs another check.
    let mut queues = service.reports().queues(|name| namespace.is_empty() || *name == *namespace).await?;
    // A queue without waiting timers has no age. `None` is less than any age, so these queues come last.
    queues.sort_by_key(|queue| core::cmp::Reverse(queue.age_ms));
    let more = queues.len().saturating_sub(MOST);
    queues.truncate(MOST);
    let page = QueuesPage {
        frame: Frame::new(&visitor, "queues"),
        namespaces: offered(&service, &visitor, &namespace),
        namespace: &namespace,
        rows: queues,
        now: now(&service),
        more,
    };
    Ok(show(&page))
}
