//! Shows the dead timers in groups. The timers of a group have the same receiver and the same last error.

use super::conditions::{InNamespace, Search, existing, offered};
use super::fault::Fault;
use super::text::{number, query};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::convert::moment;
use crate::service::{DeadGroup, Service};
use askama::Template;
use axum::extract::State;
use axum::response::Response;

/// The greatest number of groups of dead timers that the page shows.
const MOST: usize = 100;

struct Row {
    namespace: Box<str>,
    group: DeadGroup,
    /// The address of the list of the group's dead timers.
    address: String,
    count: String,
    first: When,
    last: When,
    may_change: bool,
}

#[derive(Template)]
#[template(path = "groups.html")]
struct GroupsPage<'a> {
    frame: Frame<'a>,
    namespaces: Vec<(String, bool)>,
    namespace: &'a str,
    rows: Vec<Row>,
    /// The number of groups that the page leaves out because there are too many.
    more: usize,
    /// The number of dead timers that the groups count. In a very large store, they count only the timers that died
    /// last.
    looked: String,
    is_whole: bool,
}

/// Shows dead timers in groups by receiver and last error. The timers are those of a namespace, or of all namespaces.
pub(super) async fn show_groups(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<InNamespace>,
) -> Result<Response, Fault> {
    let namespace = existing(&asked.namespace, &service, &visitor)?;
    let found = service.reports().dead_groups(Some(&*namespace).filter(|name| !name.is_empty())).await?;
    let now = now(&service);
    let more = found.groups.len().saturating_sub(MOST);
    let rows = found.groups.into_iter().take(MOST).map(|(namespace, group, deaths)| {
        let conditions = [("namespace", &*namespace), ("place", &group.place), ("error", &group.error)];
        Row {
            address: format!("/ui/dead?{}", query(&conditions)),
            count: number(deaths.count),
            first: When::new(moment(deaths.first), now),
            last: When::new(moment(deaths.last), now),
            may_change: visitor.writes(&namespace),
            namespace,
            group,
        }
    });
    let page = GroupsPage {
        frame: Frame::new(&visitor, "dead"),
        namespaces: offered(&service, &visitor, &namespace),
        namespace: &namespace,
        rows: rows.collect(),
        more,
        looked: number(found.looked),
        is_whole: found.is_whole,
    };
    Ok(show(&page))
}
