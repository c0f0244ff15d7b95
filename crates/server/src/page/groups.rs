//! Shows the dead timers in groups. The timers of a group have the same receiver and the same last error.

use super::conditions::{Search, offered, visible};
use super::fault::Fault;
use super::text::number;
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::convert::moment;
use crate::service::{DeadGroup, Service};
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use url::form_urlencoded::Serializer;

/// The greatest number of groups of dead timers that the page shows.
const MOST: usize = 100;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    namespace: String,
}

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
    mark: &'a str,
    namespaces: Vec<(String, bool)>,
    namespace: &'a str,
    rows: Vec<Row>,
    /// The number of groups that the page leaves out, because it shows at most [`MOST`] groups.
    more: usize,
    /// The number of dead timers in all groups. In a very large store, the groups contain only the timers that died
    /// last.
    looked: String,
    is_whole: bool,
}

/// Shows dead timers in groups by receiver and last error. The timers are those of a namespace, or of all namespaces.
pub(super) async fn show_groups(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<Asked>,
) -> Result<Response, Fault> {
    let namespace = visible(&asked.namespace, &service, &visitor)?;
    if !namespace.is_empty() {
        service.namespaces().require(&namespace)?;
    }
    let found = service.reports().dead_groups(Some(&*namespace).filter(|name| !name.is_empty())).await?;
    let now = now(&service);
    let more = found.groups.len().saturating_sub(MOST);
    let rows = found.groups.into_iter().take(MOST).map(|(namespace, group, deaths)| {
        let mut query = Serializer::new(String::new());
        query.append_pair("namespace", &namespace);
        query.append_pair("place", &group.place).append_pair("error", &group.error);
        Row {
            address: format!("/ui/dead?{}", query.finish()),
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
        mark: &visitor.mark,
        namespaces: offered(&service, &visitor, &namespace),
        namespace: &namespace,
        rows: rows.collect(),
        more,
        looked: number(found.looked),
        is_whole: found.is_whole,
    };
    Ok(show(&page))
}
