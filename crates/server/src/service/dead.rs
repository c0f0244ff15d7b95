//! Dead timers in groups: by the place that they went to, and by their last error.

use super::Service;
use crate::convert::{shown, unavailable};
use crate::record::cut;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tourbillon_api::Problem;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::Filter;
use tourbillon_durable::timer::Timer;
use tourbillon_durable::{Change, UtcMillis};
use url::Url;

/// The greatest number of dead timers that are looked at for their groups, and of those that are read at once.
const MOST: usize = 2_000;
const AT_ONCE: u32 = 500;
/// The greatest length of the error of a group, in bytes.
const LONGEST_ERROR: usize = 120;

/// The dead timers that went to one place and had one error last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct DeadGroup {
    /// The host and port of the callbacks, or `queue` and the queue's name; what cannot be read is `elsewhere`.
    pub(crate) place: Box<str>,
    /// The beginning of the last error.
    pub(crate) error: Box<str>,
}

impl DeadGroup {
    /// The group with these words.
    pub(crate) fn new(place: &str, error: &str) -> Self {
        Self { place: place.into(), error: cut(error, LONGEST_ERROR).into() }
    }

    /// The group of a dead timer.
    fn of(timer: &Timer) -> Self {
        let timer = shown(timer, false);
        let host = |url: &str| {
            let url = Url::parse(url).ok()?;
            Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
        };
        let place = match (&timer.callback, &timer.pull) {
            (Some(callback), _) => host(&callback.url).unwrap_or_else(|| "elsewhere".to_owned()),
            (None, Some(pull)) => format!("queue {}", pull.queue),
            (None, None) => "elsewhere".to_owned(),
        };
        Self::new(&place, timer.last_error.as_deref().unwrap_or("without an error"))
    }

    /// Whether a timer is dead and of the group. An empty place, or an empty error, is any.
    pub(crate) fn has(&self, timer: &Timer) -> bool {
        if !matches!(timer.state, State::Dead(_)) {
            return false;
        }
        let of = Self::of(timer);
        let is_of = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        is_of(&self.place, &of.place) && is_of(&self.error, &of.error)
    }
}

/// Dead timers that are replayed, or dropped: all of the namespace, or those for which both conditions hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeadWork {
    pub(crate) label: Option<Box<str>>,
    pub(crate) group: Option<DeadGroup>,
    pub(crate) is_drop: bool,
}

impl DeadWork {
    /// The change of a dead timer, none if it is not meant.
    pub(super) fn change(&self, timer: &Timer) -> Option<Change> {
        let is_meant = self.group.as_ref().is_none_or(|group| group.has(timer));
        is_meant
            .then(|| if self.is_drop { Change::Cancel(timer.id.into()) } else { Change::Replay(timer.id) })
    }
}

/// How many timers a group has in a namespace, and when they died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deaths {
    pub(crate) count: u64,
    pub(crate) first: UtcMillis,
    pub(crate) last: UtcMillis,
}

/// The groups of the dead timers that died last.
#[derive(Debug, Default)]
pub(crate) struct DeadGroups {
    /// The groups, with their namespaces, the largest first.
    pub(crate) groups: Vec<(Box<str>, DeadGroup, Deaths)>,
    /// The number of timers that are in them.
    pub(crate) looked: u64,
    /// Whether there are no other dead timers.
    pub(crate) is_whole: bool,
}

impl Service {
    /// The groups of the dead timers of a namespace, or of all: of those that died last, if there are many.
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
            let page = self.timers().list(filter.clone(), cursor, AT_ONCE).await;
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
        let mut groups: Vec<_> =
            groups.into_iter().map(|((namespace, group), deaths)| (namespace, group, deaths)).collect();
        groups.sort_by_key(|(_, _, deaths)| core::cmp::Reverse((deaths.count, deaths.last)));
        Ok(DeadGroups { groups, looked: looked as u64, is_whole })
    }
}
