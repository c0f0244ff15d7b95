//! Shows the nodes that share the timers, and the shards that the nodes own.

use super::chart::{self, Chart};
use super::fault::Fault;
use super::text::{number, span};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::service::Service;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use std::collections::HashMap;
use tourbillon_api::{Moment, Node, Nodes, Shard};

/// The greatest number of nodes that the page shows.
const MOST: usize = 100;
/// The greatest number of shards in the table of overdue shards, and in the sentence about lost shards.
const MOST_LATE: usize = 10;
/// The time for which a shard's first timer must have been due before the page shows the shard as late, in
/// milliseconds.
const LATE: u64 = 1_000;

struct Late {
    number: u16,
    node: String,
    overdue: String,
    takeovers: String,
}

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage<'a> {
    frame: Frame<'a>,
    is_shared: bool,
    rows: Vec<&'a Node>,
    shards: &'a [Shard],
    now: Moment,
    /// The number of nodes that the page leaves out because there are too many.
    more: usize,
    chart: Option<Chart>,
    /// The number of the last shard. The first shard has the number 0.
    last: u16,
    takeovers: String,
    taken: Option<When>,
    /// The number of shards that no node owns.
    free: usize,
    /// The number of shards whose Redis server does not answer, so their state is unknown.
    silent: usize,
    /// The numbers of the shards whose data is lost from their Redis servers, as a text.
    lost: String,
    late: Vec<Late>,
}

/// Shows the page of the nodes that share the timers. Fails unless the visitor may see the whole service.
pub(super) async fn show_nodes(State(service): State<Service>, visitor: Visitor) -> Result<Response, Fault> {
    let detail = "The nodes have the timers of all namespaces, and your token permits a single namespace.";
    Fault::unless(visitor.reads_all(), detail)?;
    let nodes = service.reports().nodes().await?;
    Ok(page(&visitor, &nodes, now(&service)))
}

/// Returns the shards that a node owns.
fn own<'s>(node: &Node, shards: &'s [Shard]) -> impl Iterator<Item = &'s Shard> + Clone {
    shards.iter().filter(|shard| shard.owner.as_ref() == Some(&node.incarnation))
}

/// Returns how long the oldest due timer of a node has been due, over all shards of the node.
fn overdue(node: &Node, shards: &[Shard]) -> String {
    let own = own(node, shards);
    // The lateness of a silent shard is not known, so the greatest lateness is not known either.
    match own.clone().filter(|shard| shard.silent).count() {
        0 => own.map(|shard| shard.overdue_ms).max().map_or_else(|| "–".to_owned(), span),
        silent => format!("not known of {silent} shards"),
    }
}

/// Returns how long ago a node last looked for due timers. If the times of its shards differ, the longest time counts.
fn polled(node: &Node, shards: &[Shard]) -> String {
    let polled = own(node, shards).filter_map(|shard| shard.polled_ms_ago).max();
    polled.map_or_else(|| "–".to_owned(), |age| format!("{} ago", span(age)))
}

/// Lists the numbers of the shards whose data is lost. If there are too many, lists the first numbers and counts the
/// others.
fn lost(shards: &[Shard]) -> String {
    let lost: Vec<_> =
        shards.iter().filter(|shard| shard.lost).map(|shard| shard.number.to_string()).collect();
    match lost.len() {
        count if count > MOST_LATE => {
            format!("{} and {} others", lost[..MOST_LATE].join(", "), count - MOST_LATE)
        }
        _ => lost.join(", "),
    }
}

fn page(visitor: &Visitor, nodes: &Nodes, now: Moment) -> Response {
    let mut listed: Vec<_> = nodes.nodes.iter().collect();
    // Live nodes come first, so the limit leaves out nodes that are gone.
    listed.sort_by_key(|node| !node.live);
    let more = listed.len().saturating_sub(MOST);
    listed.truncate(MOST);
    // A shard may belong to a node beyond the limit, so the names include all nodes.
    let names: HashMap<_, _> = nodes.nodes.iter().map(|node| (&*node.incarnation, &*node.name)).collect();
    let is_late = |shard: &&Shard| shard.silent || shard.lost || shard.overdue_ms >= LATE;
    let mut late: Vec<_> = nodes.shards.iter().filter(is_late).collect();
    late.sort_by_key(|shard| core::cmp::Reverse((shard.lost, shard.silent, shard.overdue_ms)));
    late.truncate(MOST_LATE);
    let name_of = |shard: &Shard| {
        let owner = shard.owner.as_deref();
        owner.map_or("none", |owner| names.get(owner).copied().unwrap_or(owner)).to_owned()
    };
    let late_row = |shard: &&Shard| Late {
        number: shard.number,
        node: name_of(shard),
        overdue: match shard {
            shard if shard.lost => "lost".to_owned(),
            shard if shard.silent => "not known".to_owned(),
            shard => span(shard.overdue_ms),
        },
        takeovers: number(shard.takeovers),
    };
    show(&NodesPage {
        frame: Frame::new(visitor, "nodes"),
        is_shared: nodes.shared,
        rows: listed,
        shards: &nodes.shards,
        now,
        more,
        chart: chart::shards(nodes, MOST),
        last: nodes.shards.last().map_or(0, |shard| shard.number),
        takeovers: number(nodes.shards.iter().map(|shard| shard.takeovers).sum()),
        taken: nodes.shards.iter().filter_map(|shard| shard.taken_over).max().map(|at| When::new(at, now)),
        free: nodes
            .shards
            .iter()
            // The page reports silent and lost shards in sentences of their own.
            .filter(|shard| shard.owner.is_none() && !shard.silent && !shard.lost)
            .count(),
        silent: nodes.shards.iter().filter(|shard| shard.silent).count(),
        lost: lost(&nodes.shards),
        late: late.iter().map(late_row).collect(),
    })
}
