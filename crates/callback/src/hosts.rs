//! What each host may take: so many callbacks at a time, and none while it fails.
//!
//! ```text
//!            10 failures in a row, or 10 of the last 20
//!   closed ─────────────────────────────────────────────► open(until) ◄──┐
//!     ▲                                                     │ until      │ failure: twice the pause
//!     └──────────────── success ◄── half open: one callback ◄┘ ──────────┘
//! ```
//! A callback that was under way when the breaker opened changes nothing at its end: it says how the host was before.
//!
//! A callback that its host may not take now is *parked*: it is tried later, and that is no attempt.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The limits of each host.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HostLimits {
    /// The greatest number of callbacks at a time. 16 by default.
    pub concurrency: usize,
    /// The number of failures in a row after which the host gets no callbacks for a while. 10 by default.
    pub failures: u32,
    /// The first such while, which doubles with each failure after it. 10 s by default.
    pub first_pause: Duration,
    /// The longest such while. 5 min by default.
    pub longest_pause: Duration,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self {
            concurrency: 16,
            failures: 10,
            first_pause: Duration::from_secs(10),
            longest_pause: Duration::from_secs(300),
        }
    }
}

/// The pause of a callback for which its host has no place.
const NO_PLACE: Duration = Duration::from_millis(250);
/// The number of the last outcomes of which a half must not be failures.
const WINDOW: u32 = 20;
/// Hosts that are remembered. Beyond this number those are forgotten that have no running callback and no pause, and if
/// there are still as many, those that have a pause.
const MOST_HOSTS: usize = 10_000;

/// All hosts.
#[derive(Clone)]
pub(crate) struct Hosts {
    limits: HostLimits,
    states: Arc<Mutex<HashMap<Box<str>, Host>>>,
}

#[derive(Debug, Default)]
struct Host {
    running: usize,
    in_a_row: u32,
    /// The last outcomes, the latest in the lowest bit; a failure is a one.
    window: u32,
    known: u32,
    open: Option<Open>,
    /// How often the breaker has opened.
    openings: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// The moment of the failure that opened the breaker first.
    since: Instant,
    until: Instant,
    pause: Duration,
    is_probed: bool,
}

/// The state of one host, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostReport {
    /// The host and port.
    pub host: Box<str>,
    /// The callbacks under way.
    pub running: usize,
    /// The failures since the last success.
    pub failures: u32,
    /// The time for which the host gets no callbacks, if its breaker is not closed. Once it is zero, one callback finds
    /// out whether the host works.
    pub open_for: Option<Duration>,
    /// The time since the breaker opened, if it is not closed.
    pub open_since: Option<Duration>,
}

/// The right to send one callback to a host.
pub(crate) struct Permit {
    hosts: Hosts,
    host: Box<str>,
    /// How often the breaker had opened.
    openings: u64,
    is_settled: bool,
}

impl Hosts {
    pub(crate) fn new(limits: HostLimits) -> Self {
        Self { limits, states: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Host>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place at the host. Fails with the time after which to ask again.
    pub(crate) fn admit(&self, host: &str, now: Instant) -> Result<Permit, Duration> {
        let mut states = self.lock();
        if states.len() >= MOST_HOSTS && !states.contains_key(host) {
            let rests = |host: &Host| host.open.is_some_and(|open| open.until > now);
            states.retain(|_, host| host.running > 0 || rests(host));
            if states.len() >= MOST_HOSTS {
                states.retain(|_, host| host.running > 0);
            }
        }
        let state = states.entry(host.into()).or_default();
        if state.running >= self.limits.concurrency {
            return Err(NO_PLACE);
        }
        if let Some(open) = &mut state.open {
            if open.is_probed {
                return Err(NO_PLACE);
            }
            if let Some(rest) = open.until.checked_duration_since(now).filter(|rest| !rest.is_zero()) {
                return Err(rest);
            }
            open.is_probed = true;
        }
        state.running += 1;
        let openings = state.openings;
        Ok(Permit { hosts: self.clone(), host: host.into(), openings, is_settled: false })
    }

    fn settle(&self, permit: &Permit, outcome: Option<bool>, now: Instant) {
        let mut states = self.lock();
        let Some(state) = states.get_mut(&permit.host) else { return };
        state.running -= 1;
        if state.openings != permit.openings {
            return;
        }
        match outcome {
            None => {
                if let Some(open) = &mut state.open {
                    open.is_probed = false;
                }
            }
            Some(true) => {
                state.in_a_row = 0;
                state.note(0);
                if state.open.take().is_some() {
                    (state.window, state.known) = (0, 0);
                }
            }
            Some(false) => {
                state.in_a_row += 1;
                state.note(1);
                let fails = state.in_a_row >= self.limits.failures
                    || state.known >= WINDOW && state.window.count_ones() >= WINDOW / 2;
                let pause = match state.open {
                    Some(open) => Some((open.pause * 2).min(self.limits.longest_pause)),
                    None => fails.then_some(self.limits.first_pause),
                };
                if let Some(pause) = pause {
                    state.openings += 1;
                    let since = state.open.map_or(now, |open| open.since);
                    state.open = Some(Open { since, until: now + pause, pause, is_probed: false });
                }
            }
        }
    }

    pub(crate) fn report(&self, now: Instant) -> Vec<HostReport> {
        let states = self.lock();
        let report = |(host, state): (&str, &Host)| HostReport {
            host: host.into(),
            running: state.running,
            failures: state.in_a_row,
            open_for: state.open.map(|open| open.until.saturating_duration_since(now)),
            open_since: state.open.map(|open| now.saturating_duration_since(open.since)),
        };
        states.iter().map(|(host, state)| report((host, state))).collect()
    }
}

impl Host {
    fn note(&mut self, outcome: u32) {
        self.window = (self.window << 1 | outcome) & ((1 << WINDOW) - 1);
        self.known = (self.known + 1).min(WINDOW);
    }
}

impl Permit {
    /// Gives the place back with the outcome: whether the host answered as a host does that works.
    pub(crate) fn settle(mut self, works: bool) {
        self.is_settled = true;
        self.hosts.settle(&self, Some(works), Instant::now());
    }
}

/// A callback that was given up has no outcome.
impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_settled {
            self.hosts.settle(self, None, Instant::now());
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

    fn fail(hosts: &Hosts, times: usize) {
        for _ in 0..times {
            hosts.admit("a:443", Instant::now()).unwrap().settle(false);
        }
    }

    #[test]
    fn a_host_takes_so_many_at_a_time() {
        let hosts = Hosts::new(HostLimits::default());
        let now = Instant::now();
        let permits: Vec<Permit> = (0..16).map(|_| hosts.admit("a:443", now).unwrap()).collect();
        assert!(hosts.admit("a:443", now).is_err());
        assert!(hosts.admit("b:443", now).is_ok());
        drop(permits);
        assert!(hosts.admit("a:443", now).is_ok());
    }

    #[test]
    fn a_host_that_fails_gets_one_callback_after_a_pause() {
        let hosts = Hosts::new(HostLimits::default());
        fail(&hosts, 9);
        hosts.admit("a:443", Instant::now()).unwrap().settle(true);
        // Nine of ten have failed, and twenty are not known yet.
        fail(&hosts, 9);
        assert!(hosts.admit("a:443", Instant::now()).is_ok());
        fail(&hosts, 1);
        let rest = hosts.admit("a:443", Instant::now()).err().unwrap();
        assert!(rest > Duration::from_secs(9), "{rest:?}");
        let later = Instant::now() + Duration::from_secs(11);
        let probe = hosts.admit("a:443", later).unwrap();
        assert!(hosts.admit("a:443", later).is_err(), "one at a time");
        probe.settle(false);
        let rest = hosts.admit("a:443", Instant::now()).err().unwrap();
        assert!(rest > Duration::from_secs(19), "{rest:?}");
        let probe = hosts.admit("a:443", later + Duration::from_secs(20)).unwrap();
        drop(probe);
        hosts.admit("a:443", later + Duration::from_secs(20)).unwrap().settle(true);
        assert!(hosts.admit("a:443", Instant::now()).is_ok());
        assert_eq!(hosts.report(Instant::now())[0].failures, 0);
    }

    #[test]
    fn callbacks_that_were_under_way_when_the_breaker_opened_change_nothing() {
        let hosts = Hosts::new(HostLimits::default());
        let under_way: Vec<Permit> = (0..16).map(|_| hosts.admit("a:443", Instant::now()).unwrap()).collect();
        let ends = [false; 13].into_iter().chain([true, false, true]);
        under_way.into_iter().zip(ends).for_each(|(permit, works)| permit.settle(works));
        let rest = hosts.admit("a:443", Instant::now()).err().unwrap();
        assert!(rest > Duration::from_secs(9) && rest <= Duration::from_secs(10), "one opening: {rest:?}");
        let later = Instant::now() + Duration::from_secs(11);
        hosts.admit("a:443", later).unwrap().settle(true);
        assert!(hosts.admit("a:443", Instant::now()).is_ok(), "the probe decides");
    }

    #[test]
    fn the_memory_for_hosts_that_fail_is_bounded() {
        let hosts = Hosts::new(HostLimits { failures: 1, ..HostLimits::default() });
        let now = Instant::now();
        let runs = hosts.admit("runs:443", now).unwrap();
        for number in 0..3 * MOST_HOSTS {
            hosts.admit(&format!("{number}:443"), now).unwrap().settle(false);
            assert!(hosts.lock().len() <= MOST_HOSTS, "{number}");
        }
        assert!(hosts.lock().contains_key("runs:443"), "a host keeps the count of its callbacks");
        drop(runs);
    }

    #[test]
    fn half_of_the_last_twenty_is_too_many() {
        let hosts = Hosts::new(HostLimits::default());
        for _ in 0..10 {
            hosts.admit("a:443", Instant::now()).unwrap().settle(true);
            fail(&hosts, 1);
        }
        assert!(hosts.admit("a:443", Instant::now()).is_err());
    }
}
