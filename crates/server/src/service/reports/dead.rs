//! Counts dead timers in groups with the same destination and the same last error.

use super::Reports;
use crate::convert::unavailable;
use crate::service::operations::DeadGroup;
use std::collections::BTreeMap;
use tourbillon_api::Problem;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::Filter;

/// The number of dead timers after which no more dead timers are counted for a report.
const MOST: usize = 2_000;
/// The number of dead timers in one read of the store.
const AT_ONCE: u32 = 50;

/// A group of dead timers in one namespace.
#[derive(Debug)]
pub(crate) struct GroupReport {
    pub(crate) namespace: Box<str>,
    pub(crate) group: DeadGroup,
    pub(crate) deaths: Deaths,
}

/// The number of a group's dead timers in one namespace, and the moments of the first and the last death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deaths {
    pub(crate) count: u64,
    pub(crate) first: UtcMillis,
    pub(crate) last: UtcMillis,
}

/// The groups of dead timers. If there are more than [`MOST`] dead timers, the groups count only the latest deaths.
#[derive(Debug, Default)]
pub(crate) struct DeadGroups {
    /// The groups of dead timers in each namespace. The largest group comes first.
    pub(crate) groups: Vec<GroupReport>,
    /// The number of dead timers that were counted.
    pub(crate) looked: u64,
    /// Whether all dead timers were counted.
    pub(crate) is_whole: bool,
}

impl Reports {
    /// Groups the dead timers of a namespace, or of all namespaces if `namespace` is `None`. If there are more than
    /// [`MOST`] dead timers, groups only the latest deaths.
    pub(crate) async fn dead_groups(&self, namespace: Option<&str>) -> Result<DeadGroups, Problem> {
        let filter = Filter {
            namespace: namespace.map(Into::into),
            phase: Some(Phase::Dead),
            descending: true,
            ..Filter::default()
        };
        let mut groups: BTreeMap<(Box<str>, DeadGroup), Deaths> = BTreeMap::new();
        let (mut looked, mut cursor) = (0, None);
        let is_whole = loop {
            let page = self.timers.list(filter.clone(), cursor, AT_ONCE).await;
            let page = page.map_err(|error| unavailable(&error))?;
            for timer in &page.timers {
                let State::Dead(death) = &timer.state else { continue };
                looked += 1;
                let deaths = groups
                    .entry((timer.namespace.clone(), DeadGroup::of(timer)))
                    .or_insert(Deaths { count: 0, first: death.at, last: death.at });
                deaths.count += 1;
                deaths.first = deaths.first.min(death.at);
                deaths.last = deaths.last.max(death.at);
            }
            match page.next {
                None => break true,
                Some(_) if looked >= MOST => break false,
                next => cursor = next,
            }
        };
        let report = |((namespace, group), deaths)| GroupReport { namespace, group, deaths };
        let mut groups: Vec<_> = groups.into_iter().map(report).collect();
        groups.sort_by_key(|report| core::cmp::Reverse((report.deaths.count, report.deaths.last)));
        Ok(DeadGroups { groups, looked: looked as u64, is_whole })
    }
}
