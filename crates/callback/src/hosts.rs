//! Keeps track of failing hosts, for each tenant, and holds back callbacks to them.
//!
//! # Tenants
//! Each tenant has its own breakers for a host, which callbacks of other tenants do not affect. If tenants shared
//! breakers, one tenant could stop the callbacks of all tenants to a host. For example, callbacks with too short a
//! timeout fail and open the breaker.
//!
//! # Hosts and paths
//! Each host of a tenant has a [`Breaker`]. Each path of the host that has refused callbacks lately has a breaker, too:
//!
//! | a callback | its path | its host |
//! |---|---|---|
//! | the receiver takes it, or refuses only this callback (4xx) | works | works |
//! | no connection, or no answer in time | | fails |
//! | 429 or 5xx | fails | fails; only the first refusal of each path since the host's last success counts |
//!
//! So a path that keeps refusing is shut: it gets no callbacks for a pause. A host is shut if many of its paths refuse
//! in a row. If a host was shut because it was silent, any answer shows that the host works again.
//!
//! A callback that must not be sent now is *parked*: it is tried later, and the delay does not count as an attempt.

use crate::breaker::{Breaker, Cause, Sign};
use crate::limits::HostLimits;
use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The number of hosts that are remembered, over all tenants. To make room for a further host, all idle hosts are
/// forgotten. A host is idle if it has no running callback, and if callbacks may be sent to all its paths. If this is
/// not enough, the tenant with the most hosts loses all its hosts without a running callback.
const MOST_HOSTS: usize = 10_000;
/// The number of paths that are remembered for each host of a tenant. To make room for a further path, a host forgets
/// each path to which callbacks may be sent at that moment. The host keeps the paths that get no callbacks at that
/// moment.
const MOST_PATHS: usize = 64;

/// The breakers of all hosts, and the numbers of running callbacks. Clones share the same hosts.
#[derive(Clone)]
pub(crate) struct Hosts {
    limits: HostLimits,
    states: Arc<Mutex<HashMap<Key, Host>>>,
}

/// The key of a host's state: the host, and the tenant whose callbacks go to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    tenant: Box<str>,
    host: Box<str>,
}

#[derive(Debug)]
struct Host {
    running: usize,
    breaker: Breaker,
    /// The paths of the host that have recently refused callbacks (answered with 429 or 5xx).
    paths: HashMap<Box<str>, Path>,
}

/// The place to which a tenant's callback goes.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
}

#[derive(Debug)]
struct Path {
    breaker: Breaker,
    /// Whether the path has refused a callback (answered with 429 or 5xx) since the host's last success.
    has_refused: bool,
}

/// Says whether a whole host gets no callbacks for a while, or only a single path of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole host gets no callbacks.
    Host,
    /// Only the callback's path gets no callbacks.
    Path,
}

/// A report on the state of a host or of a path, for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostReport {
    /// The tenant whose callbacks the report covers.
    pub tenant: Box<str>,
    /// The name or address of the host, and the port.
    pub host: Box<str>,
    /// The path that the report covers. `None` if it covers the whole host. A path has a report while its breaker is
    /// not closed.
    pub path: Option<Box<str>>,
    /// The number of callbacks to the host that are under way.
    pub running: usize,
    /// The number of failures that the breaker has counted since the last success.
    pub failures: u32,
    /// The time, from the moment of this report, for which no further callbacks are sent. Afterwards a single callback
    /// probes whether the receiver works. `None` if the breaker is closed.
    pub open_for: Option<Duration>,
    /// The time from the opening of the breaker to the moment of this report. `None` if the breaker is closed.
    pub open_since: Option<Duration>,
}

/// The permission to send a callback. The callback counts as running until the permission is settled or dropped.
pub(crate) struct Permit {
    hosts: Hosts,
    key: Key,
    path: Box<str>,
    openings: Openings,
    is_settled: bool,
}

/// The numbers that [`Breaker::begin`] returned at a callback's start, for the host's breaker and the path's breaker.
/// At the callback's end, they show whether a breaker has opened during the callback.
#[derive(Clone, Copy)]
struct Openings {
    of_host: u64,
    of_path: u64,
}

/// The evidence that an ended callback gives about its receiver. [`Host::end`] converts it to a [`Sign`] for the
/// breaker of the host, and to a second `Sign` for the breaker of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The callback shows that the receiver works.
    Works,
    /// The receiver cannot be reached, or does not answer in time.
    Silent,
    /// The receiver answers with a status which shows that it does not work.
    Refuses,
    /// The callback shows nothing about the receiver.
    Nothing,
}

impl Hosts {
    pub(crate) fn new(limits: HostLimits) -> Self {
        Self { limits, states: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Host>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits a tenant's callback to a path of a host. Fails if the host or the path gets no callbacks at present. The
    /// error contains the part that gets no callbacks (host or path), and the time after which to try again.
    pub(crate) fn admit(&self, to: Target<'_>, now: Instant) -> Result<Permit, (Part, Duration)> {
        let Target { tenant, host, path } = to;
        let mut states = self.lock();
        let key = Key { tenant: tenant.into(), host: host.into() };
        if states.len() >= MOST_HOSTS && !states.contains_key(&key) {
            forget_some(&mut states, now);
        }
        let state = states.entry(key.clone()).or_insert_with(Host::new);
        if let Some(rest) = state.breaker.rest(now) {
            return Err((Part::Host, rest));
        }
        if let Some(rest) = state.paths.get(path).and_then(|path| path.breaker.rest(now)) {
            return Err((Part::Path, rest));
        }
        state.running += 1;
        let of_path = state.paths.get_mut(path).map_or(0, |path| path.breaker.begin());
        let openings = Openings { of_host: state.breaker.begin(), of_path };
        Ok(Permit { hosts: self.clone(), key, path: path.into(), openings, is_settled: false })
    }

    fn settle(&self, permit: &Permit, shown: Shown, now: Instant) {
        if let Some(state) = self.lock().get_mut(&permit.key) {
            state.running -= 1;
            state.end(&permit.path, permit.openings, shown, &self.limits, now);
        }
    }

    /// Closes the breakers of a host and of its paths, for all tenants.
    pub(crate) fn close_breakers(&self, host: &str) {
        for (_, state) in self.lock().iter_mut().filter(|(key, _)| *key.host == *host) {
            state.breaker.close();
            state.paths.values_mut().for_each(|path| path.breaker.close());
        }
    }

    pub(crate) fn report(&self, now: Instant) -> Vec<HostReport> {
        let states = self.lock();
        let mut all = Vec::with_capacity(states.len());
        for (key, state) in &*states {
            let report = |path: Option<&str>, breaker: &Breaker| HostReport {
                tenant: key.tenant.clone(),
                host: key.host.clone(),
                path: path.map(Into::into),
                running: state.running,
                failures: breaker.in_a_row(),
                open_for: breaker.open().map(|open| open.until.saturating_duration_since(now)),
                open_since: breaker.open().map(|open| now.saturating_duration_since(open.since)),
            };
            all.push(report(None, &state.breaker));
            let open = state.paths.iter().filter(|(_, path)| path.breaker.open().is_some());
            all.extend(open.map(|(name, path)| report(Some(name), &path.breaker)));
        }
        all
    }
}

/// Forgets hosts to make room for a new host, because [`MOST_HOSTS`] hosts are remembered. Keeps the hosts that have
/// running callbacks.
fn forget_some(states: &mut HashMap<Key, Host>, now: Instant) {
    states.retain(|_, host| host.running > 0 || host.rests(now));
    if states.len() < MOST_HOSTS {
        return;
    }
    let mut of_tenants: HashMap<&str, usize> = HashMap::new();
    states.keys().for_each(|key| *of_tenants.entry(&key.tenant).or_default() += 1);
    let largest = of_tenants.into_iter().max_by_key(|(_, hosts)| *hosts).map(|(tenant, _)| Box::from(tenant));
    let is_of_largest = |key: &Key| largest.as_ref() == Some(&key.tenant);
    states.retain(|key, host| host.running > 0 || !is_of_largest(key));
}

impl Host {
    fn new() -> Self {
        Self { running: 0, breaker: Breaker::new(Cause::Silence), paths: HashMap::new() }
    }

    fn end(&mut self, path: &str, openings: Openings, shown: Shown, limits: &HostLimits, now: Instant) {
        let sign = match shown {
            Shown::Works => Sign::Works,
            Shown::Silent => Sign::Fails(Cause::Silence),
            Shown::Refuses => self.refusal(path, now),
            Shown::Nothing => Sign::Nothing,
        };
        self.breaker.end(openings.of_host, sign, limits, now);
        if sign == Sign::Works {
            self.paths.values_mut().for_each(|path| path.has_refused = false);
        }
        let Some(entry) = self.paths.get_mut(path) else { return };
        let sign = match shown {
            Shown::Works => Sign::Works,
            Shown::Refuses => Sign::Fails(Cause::Answer),
            Shown::Silent | Shown::Nothing => Sign::Nothing,
        };
        entry.breaker.end(openings.of_path, sign, limits, now);
        if entry.breaker.is_spotless() {
            self.paths.remove(path);
        }
    }

    /// Records that a path has refused a callback with 429 or 5xx. Returns the evidence that the refusal gives about
    /// the host.
    fn refusal(&mut self, path: &str, now: Instant) -> Sign {
        let is_new = !self.paths.contains_key(path);
        if is_new && self.paths.len() >= MOST_PATHS {
            self.paths.retain(|_, path| path.breaker.rest(now).is_some());
        }
        if is_new && self.paths.len() < MOST_PATHS {
            self.paths.insert(path.into(), Path { breaker: Breaker::new(Cause::Answer), has_refused: false });
        }
        let refusing = self.paths.get_mut(path);
        let is_repeated = refusing.is_some_and(|path| core::mem::replace(&mut path.has_refused, true));
        match self.breaker.open().map(|open| open.cause) {
            Some(Cause::Silence) => Sign::Works,
            Some(Cause::Answer) => Sign::Fails(Cause::Answer),
            None if is_repeated => Sign::Nothing,
            None => Sign::Fails(Cause::Answer),
        }
    }

    fn rests(&self, now: Instant) -> bool {
        self.breaker.rests(now) || self.paths.values().any(|path| path.breaker.rests(now))
    }
}

impl Permit {
    /// Records that the callback for which this permit was given has ended. `shown` says whether the receiver works.
    pub(crate) fn settle(mut self, shown: Shown) {
        self.is_settled = true;
        self.hosts.settle(&self, shown, Instant::now());
    }
}

/// Dropping a permit without a call of [`settle`](Permit::settle) records the end of the callback, as with
/// [`Shown::Nothing`].
impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_settled {
            self.hosts.settle(self, Shown::Nothing, Instant::now());
        }
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("hosts", &self.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Target<'_> = Target { tenant: "", host: "a:443", path: "/" };

    fn hosts() -> Hosts {
        Hosts::new(HostLimits::default())
    }

    fn at(path: &str) -> Target<'_> {
        Target { path, ..A }
    }

    fn send(hosts: &Hosts, to: Target<'_>, shown: Shown, times: usize) {
        for _ in 0..times {
            hosts.admit(to, Instant::now()).map_err(|(part, _)| part).unwrap().settle(shown);
        }
    }

    fn rest(hosts: &Hosts, to: Target<'_>) -> Option<(Part, Duration)> {
        hosts.admit(to, Instant::now()).err()
    }

    /// Returns the part of the receiver that gets no callbacks now. Returns `None` if both the host and the path get
    /// callbacks.
    fn shut(hosts: &Hosts, to: Target<'_>) -> Option<Part> {
        rest(hosts, to).map(|(part, _)| part)
    }

    #[test]
    fn a_host_that_is_silent_gets_one_callback_after_a_pause() {
        let hosts = hosts();
        send(&hosts, A, Shown::Silent, 9);
        send(&hosts, A, Shown::Works, 1);
        // With nine more failures there are 19 outcomes. The share of failures counts only from twenty outcomes on.
        send(&hosts, A, Shown::Silent, 9);
        assert_eq!(rest(&hosts, A), None);
        send(&hosts, A, Shown::Silent, 1);
        let (part, pause) = rest(&hosts, at("/other")).unwrap();
        assert!(part == Part::Host && pause > Duration::from_secs(9), "{pause:?}");
        let later = Instant::now() + Duration::from_secs(11);
        let probe = hosts.admit(A, later).ok().unwrap();
        assert!(hosts.admit(A, later).is_err(), "one at a time");
        probe.settle(Shown::Silent);
        let (_, pause) = rest(&hosts, A).unwrap();
        assert!(pause > Duration::from_secs(19), "{pause:?}");
        let probe = hosts.admit(A, later + Duration::from_secs(20)).ok().unwrap();
        drop(probe);
        hosts.admit(A, later + Duration::from_secs(20)).ok().unwrap().settle(Shown::Works);
        assert_eq!(rest(&hosts, A), None);
        assert_eq!(hosts.report(Instant::now())[0].failures, 0);
    }

    #[test]
    fn callbacks_that_were_under_way_when_the_breaker_opened_change_nothing() {
        let hosts = hosts();
        for (silent_or_refuses, part) in [(Shown::Silent, Part::Host), (Shown::Refuses, Part::Path)] {
            let under_way: Vec<Permit> =
                (0..16).map(|_| hosts.admit(A, Instant::now()).ok().unwrap()).collect();
            let ends =
                [silent_or_refuses; 13].into_iter().chain([Shown::Works, silent_or_refuses, Shown::Works]);
            under_way.into_iter().zip(ends).for_each(|(permit, shown)| permit.settle(shown));
            let (shut, pause) = rest(&hosts, A).unwrap();
            let is_one_opening = pause > Duration::from_secs(9) && pause <= Duration::from_secs(10);
            assert!(shut == part && is_one_opening, "{pause:?}");
            hosts.admit(A, Instant::now() + Duration::from_secs(11)).ok().unwrap().settle(Shown::Works);
            assert_eq!(rest(&hosts, A), None, "the probe decides");
        }
    }

    #[test]
    fn a_breaker_that_is_closed_by_hand_forgets_the_failures_before() {
        let hosts = hosts();
        let before = hosts.admit(A, Instant::now()).ok().unwrap();
        send(&hosts, A, Shown::Silent, 10);
        assert_eq!(shut(&hosts, A), Some(Part::Host));
        hosts.close_breakers("a:443");
        before.settle(Shown::Silent);
        send(&hosts, A, Shown::Silent, 9);
        let report = &hosts.report(Instant::now())[0];
        assert_eq!((report.failures, report.open_for), (9, None));
        send(&hosts, A, Shown::Silent, 1);
        assert_eq!(shut(&hosts, A), Some(Part::Host), "it opens again");
    }

    #[test]
    fn what_a_tenant_does_shuts_a_host_for_no_other() {
        let hosts = hosts();
        for shown in [Shown::Silent, Shown::Refuses] {
            send(&hosts, A, shown, 10);
            assert!(shut(&hosts, A).is_some());
            assert_eq!(shut(&hosts, Target { tenant: "t", ..A }), None);
            hosts.close_breakers("a:443");
        }
        assert_eq!(shut(&hosts, A), None);
    }

    #[test]
    fn a_path_that_refuses_shuts_itself_only() {
        let hosts = hosts();
        for _ in 0..9 {
            send(&hosts, at("/bad"), Shown::Refuses, 1);
            send(&hosts, at("/good"), Shown::Works, 1);
        }
        send(&hosts, at("/bad"), Shown::Refuses, 1);
        assert_eq!((shut(&hosts, at("/bad")), shut(&hosts, at("/good"))), (Some(Part::Path), None));
        let reports = hosts.report(Instant::now());
        let open: Vec<_> = reports.iter().filter(|report| report.open_for.is_some()).collect();
        assert_eq!(open.len(), 1);
        assert_eq!((open[0].path.as_deref(), open[0].failures), (Some("/bad"), 10));
        let probe = hosts.admit(at("/bad"), Instant::now() + Duration::from_secs(11)).ok().unwrap();
        assert_eq!(shut(&hosts, at("/bad")), Some(Part::Path), "one at a time");
        probe.settle(Shown::Works);
        assert_eq!(shut(&hosts, at("/bad")), None);
    }

    #[test]
    fn a_host_of_which_ten_paths_refuse_in_a_row_is_shut() {
        let hosts = hosts();
        for path in 0..9 {
            send(&hosts, at(&path.to_string()), Shown::Refuses, 2);
        }
        send(&hosts, at("good"), Shown::Works, 1);
        for path in 0..10 {
            assert_eq!(shut(&hosts, at("good")), None, "{path}");
            send(&hosts, at(&path.to_string()), Shown::Refuses, 1);
        }
        assert_eq!(shut(&hosts, at("good")), Some(Part::Host));
        // A probe that is refused doubles the pause of the host.
        hosts.admit(at("0"), Instant::now() + Duration::from_secs(11)).ok().unwrap().settle(Shown::Refuses);
        assert!(rest(&hosts, at("good")).unwrap().1 > Duration::from_secs(19));
    }

    #[test]
    fn a_refusal_shows_that_a_silent_host_is_back() {
        let hosts = hosts();
        send(&hosts, A, Shown::Silent, 10);
        hosts.admit(A, Instant::now() + Duration::from_secs(11)).ok().unwrap().settle(Shown::Refuses);
        assert_eq!(shut(&hosts, A), None);
    }

    #[test]
    fn the_memory_for_hosts_that_fail_is_bounded_and_a_tenant_takes_it_from_itself() {
        let hosts = Hosts::new(HostLimits { failures: 1, ..HostLimits::default() });
        let now = Instant::now();
        let runs = hosts.admit(Target { host: "runs:443", ..A }, now).ok().unwrap();
        let of_other = Target { tenant: "other", ..A };
        send(&hosts, of_other, Shown::Silent, 1);
        for number in 0..3 * MOST_HOSTS {
            hosts
                .admit(Target { host: &format!("{number}:443"), ..A }, now)
                .ok()
                .unwrap()
                .settle(Shown::Silent);
            assert!(hosts.lock().len() <= MOST_HOSTS, "{number}");
        }
        let runs_still =
            hosts.report(now).into_iter().any(|host| &*host.host == "runs:443" && host.running == 1);
        assert!(runs_still, "a host keeps the count of its callbacks");
        assert_eq!(shut(&hosts, of_other), Some(Part::Host));
        drop(runs);
        for path in 0..10 * MOST_PATHS {
            let _shut = hosts.admit(at(&path.to_string()), now).map(|permit| permit.settle(Shown::Refuses));
        }
        assert!(hosts.lock().values().all(|host| host.paths.len() <= MOST_PATHS));
    }

    #[test]
    fn half_of_the_last_twenty_is_too_many() {
        for (failure, part) in [(Shown::Silent, Part::Host), (Shown::Refuses, Part::Path)] {
            let hosts = hosts();
            for _ in 0..10 {
                send(&hosts, A, failure, 1);
                send(&hosts, A, Shown::Works, 1);
            }
            send(&hosts, A, failure, 1);
            assert_eq!(shut(&hosts, A), Some(part));
        }
    }
}
