//! Shows the dead timers in groups. The timers of a group have the same receiver and the same last error.

use super::conditions::{InNamespace, Search, existing, offered};
use super::fault::Fault;
use super::rows::whole_list;
use super::text::{number, with_query};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::convert::moment;
use crate::service::{DeadGroup, GroupReport, Service};
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use tourbillon_api::Moment;

/// The greatest number of groups of dead timers that the page shows.
const MOST: usize = 100;

/// Returns the address of the list of a group's dead timers.
fn address(namespace: &str, group: &DeadGroup) -> String {
    with_query("/ui/dead", &[("namespace", namespace), ("place", &group.place), ("error", &group.error)])
}

#[derive(Template)]
#[template(path = "groups.html")]
struct GroupsPage<'a> {
    frame: Frame<'a>,
    namespaces: Vec<(String, bool)>,
    namespace: &'a str,
    /// The groups, the largest first.
    rows: Vec<GroupReport>,
    now: Moment,
    /// The number of groups that the page leaves out because there are too many.
    more: usize,
    /// The number of dead timers in all groups. If there are more than about 2,000 dead timers, the groups contain only
    /// the timers that died last.
    looked: String,
    is_whole: bool,
}

pub(super) async fn show_groups(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<InNamespace>,
) -> Result<Response, Fault> {
    let namespace = existing(&asked.namespace, &service, &visitor)?;
    let mut found = service.reports().dead_groups(Some(&*namespace).filter(|name| !name.is_empty())).await?;
    let more = found.groups.len().saturating_sub(MOST);
    found.groups.truncate(MOST);
    let page = GroupsPage {
        frame: Frame::new(&visitor, "dead"),
        namespaces: offered(&service, &visitor, &namespace),
        namespace: &namespace,
        rows: found.groups,
        now: now(&service),
        more,
        looked: number(found.looked),
        is_whole: found.is_whole,
    };
    Ok(show(&page))
}
