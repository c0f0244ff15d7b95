//! The hosts of callbacks at present, over all namespaces.

use core::time::Duration;
use std::collections::BTreeMap;
use tourbillon_callback::{Caller, HostReport};

/// A host, as the namespaces meet it at present.
#[derive(Debug, Default)]
pub(super) struct HostNow {
    /// The callbacks under way.
    pub(super) running: u64,
    /// The greatest number of failures in a row, of a namespace to the host or to a path that is shut.
    pub(super) failures: u32,
    /// The breakers that are not closed. Those that are open for the longest time come first.
    pub(super) open: Vec<HostReport>,
}

impl HostNow {
    /// The longest time for which nothing is sent, if a breaker is not closed.
    pub(super) fn open_for(&self) -> Option<Duration> {
        self.open.first().and_then(|report| report.open_for)
    }
}

/// The hosts that have had callbacks, by their names.
pub(super) fn hosts_now(caller: &Caller) -> BTreeMap<Box<str>, HostNow> {
    let mut hosts: BTreeMap<Box<str>, HostNow> = BTreeMap::new();
    for report in caller.hosts() {
        let host = hosts.entry(report.host.clone()).or_default();
        host.failures = host.failures.max(report.failures);
        if report.path.is_none() {
            host.running += report.running as u64;
        }
        if report.open_for.is_some() {
            host.open.push(report);
        }
    }
    hosts.values_mut().for_each(|host| host.open.sort_by_key(|report| core::cmp::Reverse(report.open_for)));
    hosts
}
