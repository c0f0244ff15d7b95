//! Records how fast and with which errors the hosts of callbacks answer.

use super::percentiles::Percentiles;
use crate::text::cut;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_durable::UtcMillis;

/// The greatest number of remembered hosts. Beyond this number, the host with the oldest last callback is forgotten.
pub(crate) const MOST_HOSTS: usize = 1_000;
/// The length of a *generation*, in milliseconds. The recent statistics of a host cover the present and the previous
/// generation.
const GENERATION: u64 = 3_600_000;
/// The greatest length of a remembered error of a callback, in bytes.
const LONGEST_ERROR: usize = 200;

/// A callback that has ended: its moment, its duration, and its error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) at: UtcMillis,
    pub(crate) took_ms: u64,
    /// The error of the callback. `None` if the callback succeeded.
    pub(crate) error: Option<&'a str>,
}

/// The statistics of all callbacks to a host. If the service forgets the host, the next callback to the host begins new
/// statistics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    pub(crate) deliveries: u64,
    pub(crate) errors: u64,
    pub(crate) last: UtcMillis,
    pub(crate) last_error: Option<Box<str>>,
    present: Generation,
    before: Generation,
}

#[derive(Clone, Debug, Default)]
struct Generation {
    begun: UtcMillis,
    times: Percentiles,
    errors: u64,
}

/// Statistics of the callbacks to a host in the last one to two hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recent {
    pub(crate) count: u64,
    pub(crate) errors: u64,
    pub(crate) p50_ms: Option<u64>,
    pub(crate) p99_ms: Option<u64>,
}

impl Met {
    fn note(&mut self, sent: Sent<'_>) {
        self.turn(sent.at);
        self.deliveries += 1;
        self.last = sent.at;
        self.present.times.record(sent.took_ms);
        if let Some(error) = sent.error {
            self.errors += 1;
            self.present.errors += 1;
            self.last_error = Some(cut(error, LONGEST_ERROR).into());
        }
    }

    /// Begins a new generation of a host's statistics if the present generation is over. The present generation then
    /// becomes the previous generation.
    fn turn(&mut self, now: UtcMillis) {
        // By default a generation begins in 1970, so the first callback to a host always begins a new generation.
        let age = (now - self.present.begun).as_millis();
        if age < GENERATION.into() {
            return;
        }
        // After a whole generation without a callback, the statistics are too old even for the previous generation.
        let is_next = age < (2 * GENERATION).into();
        let begun = if is_next { self.present.begun + Duration::from_millis(GENERATION) } else { now };
        let present = core::mem::replace(&mut self.present, Generation { begun, ..Generation::default() });
        self.before = if is_next { present } else { Generation::default() };
    }

    pub(crate) fn recent(&mut self, now: UtcMillis) -> Recent {
        // Apart from this call, only callbacks turn the generations. The last callback may be hours ago.
        self.turn(now);
        let mut times = self.present.times.clone();
        times.add(&self.before.times);
        Recent {
            count: times.count(),
            errors: self.present.errors + self.before.errors,
            p50_ms: times.percentile(50.0),
            p99_ms: times.percentile(99.0),
        }
    }
}

/// The statistics of the callbacks to each remembered host, by the host's name and port. The service remembers the
/// [`MOST_HOSTS`] hosts that got callbacks last.
#[derive(Debug, Default)]
pub(crate) struct Endpoints(Mutex<HashMap<Box<str>, Met>>);

impl Endpoints {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Met>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a callback to the statistics of `host`, which got the callback.
    pub(crate) fn note(&self, host: &str, sent: Sent<'_>) {
        let mut hosts = self.lock();
        if let Some(met) = hosts.get_mut(host) {
            met.note(sent);
            return;
        }
        if hosts.len() >= MOST_HOSTS {
            let oldest = hosts.iter().min_by_key(|(_, met)| met.last).map(|(host, _)| host.clone());
            oldest.and_then(|host| hosts.remove(&host));
        }
        hosts.entry(host.into()).or_default().note(sent);
    }

    /// Returns the statistics of each remembered host, by the host's name and port.
    pub(crate) fn all(&self) -> HashMap<Box<str>, Met> {
        self.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(at: u64, took_ms: u64, error: Option<&str>) -> Sent<'_> {
        Sent { at: UtcMillis::from_millis(1_800_000_000_000 + at), took_ms, error }
    }

    #[test]
    fn a_host_has_its_numbers_and_percentiles_of_the_last_hours() {
        let endpoints = Endpoints::default();
        for took in 1..=100 {
            endpoints.note("a:443", sent(took, took, (took > 90).then_some("the receiver answered 500\n!")));
        }
        let mut met = endpoints.all().remove("a:443").unwrap();
        assert_eq!((met.deliveries, met.errors), (100, 10));
        assert_eq!(met.last_error.as_deref(), Some("the receiver answered 500 !"));
        let recent = met.recent(met.last);
        assert_eq!((recent.count, recent.errors), (100, 10));
        assert!((50..=62).contains(&recent.p50_ms.unwrap()), "{recent:?}");
        assert!((99..=100).contains(&recent.p99_ms.unwrap()), "{recent:?}");
        let after = |millis| UtcMillis::from_millis(met.last.as_millis() + millis);
        assert_eq!(met.clone().recent(after(GENERATION + 1)).count, 100);
        assert_eq!(
            met.clone().recent(after(2 * GENERATION + 1)),
            Recent { count: 0, errors: 0, p50_ms: None, p99_ms: None }
        );
    }

    #[test]
    fn the_host_of_the_oldest_callback_is_forgotten() {
        let endpoints = Endpoints::default();
        for n in 0..MOST_HOSTS as u64 {
            endpoints.note(&format!("h{n}:443"), sent(n, 1, None));
        }
        endpoints.note("h0:443", sent(5_000, 1, None));
        endpoints.note("new:443", sent(5_001, 1, None));
        let all = endpoints.all();
        assert_eq!(all.len(), MOST_HOSTS);
        assert!(all.contains_key("h0:443") && all.contains_key("new:443") && !all.contains_key("h1:443"));
    }
}
