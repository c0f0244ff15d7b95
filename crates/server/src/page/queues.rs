//! Shows the queues in which due timers wait until receivers fetch them.

use super::conditions::{Search, offered, visible};
use super::fault::Fault;
use super::rows::list_address;
use super::text::{number, span};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::service::Service;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use tourbillon_api::{Moment, QueueView};

/// The greatest number of queues that the page shows. The queues whose oldest timers have waited longest come first.
const MOST: usize = 200;
/// How long a queue's oldest timer must have waited before the page shows the queue as late, in milliseconds.
const LATE: u64 = 60_000;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    namespace: String,
}

struct Row {
    namespace: String,
    queue: String,
    /// The address of the list of the timers that wait in the queue.
    address: String,
    depth: String,
    age: Option<String>,
    oldest: Option<When>,
    receivers: String,
    /// The queue's condition, as a style class and a word, such as "empty" or "late".
    state: (&'static str, &'static str),
}

impl Row {
    fn new(view: QueueView, now: Moment) -> Self {
        let reason = format!("queue:{}/{}", view.namespace, view.queue);
        Self {
            address: list_address("/ui/timers", &view.namespace, ("reason", &reason)),
            depth: number(view.depth),
            age: view.age_ms.map(span),
            oldest: view.oldest_due.map(|at| When::new(at, now)),
            receivers: number(view.receivers),
            state: match (view.depth, view.receivers, view.age_ms.unwrap_or(0)) {
                (0, ..) => ("good", "empty"),
                (_, 0, LATE..) => ("bad", "nobody fetches"),
                (_, _, LATE..) => ("warn", "late"),
                _ => ("good", "moves"),
            },
            namespace: view.namespace,
            queue: view.queue,
        }
    }
}

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage<'a> {
    frame: Frame<'a>,
    namespaces: Vec<(String, bool)>,
    namespace: &'a str,
    rows: Vec<Row>,
    /// The number of queues that the page leaves out, because it shows at most [`MOST`] queues.
    more: usize,
}

/// Shows the page of the queues of a namespace, or of all namespaces.
pub(super) async fn show_queues(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<Asked>,
) -> Result<Response, Fault> {
    let namespace = visible(&asked.namespace, &service, &visitor)?;
    if !namespace.is_empty() {
        service.namespaces().require(&namespace)?;
    }
    let mut queues = service.reports().queues(|name| namespace.is_empty() || *name == *namespace).await?;
    queues.sort_by_key(|queue| core::cmp::Reverse(queue.age_ms));
    let more = queues.len().saturating_sub(MOST);
    queues.truncate(MOST);
    let now = now(&service);
    let page = QueuesPage {
        frame: Frame::new(&visitor, "queues"),
        namespaces: offered(&service, &visitor, &namespace),
        namespace: &namespace,
        rows: queues.into_iter().map(|queue| Row::new(queue, now)).collect(),
        more,
    };
    Ok(show(&page))
}
