//! Sums up the present state of each callback host over all namespaces.

use core::time::Duration;
use std::collections::BTreeMap;
use tourbillon_callback::{Caller, HostReport};

/// The present state of a host that gets callbacks, over all namespaces.
#[derive(Debug, Default)]
pub(super) struct HostNow {
    /// The number of running callbacks to the host.
    pub(super) running: u64,
    /// The number of callbacks to the host that have failed since the last success. Each namespace and each path of the
    /// host has its own number of failures, and this field has the greatest of these numbers.
    pub(super) failures: u32,
    /// The open and half-open breakers of the host. An open breaker stops callbacks to a failing host or path. The
    /// breaker that will stay open for the longest time comes first.
    pub(super) open: Vec<HostReport>,
}

impl HostNow {
    /// Returns the longest time for which a breaker of the host will stay open, or zero if its breakers are only
    /// half-open. Returns `None` if all breakers are closed.
    pub(super) fn open_for(&self) -> Option<Duration> {
        self.open.first().and_then(|report| report.open_for)
    }
}

/// Returns the present state of each host to which callbacks were sent, by the host's name.
pub(super) fn hosts_now(caller: &Caller) -> BTreeMap<Box<str>, HostNow> {
    let mut hosts: BTreeMap<Box<str>, HostNow> = BTreeMap::new();
    for report in caller.hosts() {
        let host = hosts.entry(report.host.clone()).or_default();
        host.failures = host.failures.max(report.failures);
        // The report of a path repeats the number of all running callbacks to the host, so the number is added only
        // once.
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
