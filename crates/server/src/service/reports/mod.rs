//! Reports the past, the present and the near future of the service.

mod condition;
mod dead;
mod disk;
mod hosts;
mod liveness;
mod metrics;
mod nodes;
mod queues;
mod sampler;
mod takeovers;

pub(crate) use condition::Condition;
pub(crate) use dead::GroupReport;
pub(crate) use disk::{Disk, DiskReads};
pub(super) use liveness::Liveness;
pub(crate) use metrics::MetricsPage;
pub(super) use sampler::Sampler;
pub(super) use takeovers::Takeovers;

use super::names::by_key;
use super::stored_timers::StoredTimers;
use crate::clock::millis;
use crate::convert::{moment, shown_reason, unavailable};
use crate::delivery::Deliveries;
use crate::record::{Endpoints, Entry, History as Samples, InFlight, Known, MOST_HOSTS, Met};
use crate::settings::Settings;
use crate::state::Namespaces;
use core::time::Duration;
use disk::StoreFiles;
use hosts::{HostNow, hosts_now};
use std::sync::Arc;
use tourbillon_api::{
    self as api, Breaker, EndKind, Endpoint, History, Horizon, HorizonBucket, LatenessBySecond, Moment,
    Nodes, OpenBreaker, Past, PastAttempt, PastEnd, Problem, ProblemKind,
};
use tourbillon_callback::{Caller, HostReport};
use tourbillon_durable::state::State;
use tourbillon_durable::store::Span;
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Timers, UtcMillis};

/// The greatest number of breakers that a report shows for a host. A breaker stops callbacks to a failing host.
const MOST_BREAKERS: usize = 20;

/// Makes reports about a service, for people and programs.
pub(crate) struct Reports {
    pub(super) settings: Arc<Settings>,
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) stored: StoredTimers,
    pub(super) caller: Caller,
    pub(super) deliveries: Arc<Deliveries>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) history: Arc<Samples>,
    pub(super) disk_reads: DiskReads,
}

impl Reports {
    /// Returns the list of the nodes that share the timers, and the list of the shards (the parts into which the timers
    /// are divided). Both lists are empty if this process uses the timers alone.
    pub(crate) async fn nodes(&self) -> Result<Nodes, Problem> {
        let now = moment(self.timers.timer_store().now());
        let nodes = self.timers.timer_store().nodes().await.map_err(|error| unavailable(&error))?;
        let alone =
            || Nodes { now, shared: self.namespaces.is_shared(), nodes: Vec::new(), shards: Vec::new() };
        Ok(nodes.map_or_else(alone, |nodes| nodes::shown(&nodes)))
    }

    /// Returns the history of the service's statistics from the moment `since` on, in at most `points` intervals.
    pub(crate) fn history(&self, since: Option<Moment>, points: usize) -> History {
        self.history.show(moment(self.timers.timer_store().now()), since, points)
    }

    /// Returns how late the deliveries of the last hour began, in 60 groups. Group 0 has the deliveries that were due
    /// in the first second of any minute, and group 59 has the deliveries that were due in the last second.
    pub(crate) fn lateness_by_second(&self) -> LatenessBySecond {
        LatenessBySecond { seconds: self.in_flight.lateness_by_second() }
    }

    /// Returns the past of a timer: its attempts and its end. Fails if the timer is not in the store, and this process
    /// has no history of the timer in memory ([`InFlight`]).
    pub(crate) async fn past(&self, namespace: &str, id: TimerId) -> Result<Past, Problem> {
        // The store is read before the memory. In the other order, a timer whose first attempt succeeds between the two
        // reads would be in neither of them.
        let found = self.stored.get(namespace, id.into()).await;
        let (entry, under_way) = self.in_flight.past(namespace, id);
        let not_found = match found {
            Ok(timer) => return Ok(stored(&timer, entry, under_way)),
            Err(problem) if problem.kind == ProblemKind::NotFound => problem,
            Err(problem) => return Err(problem),
        };
        // A removed namespace has no past, and the timers of other namespaces are not shown.
        self.namespaces.require(namespace)?;
        let mut entry = entry.filter(|entry| *entry.known.namespace == *namespace).ok_or(not_found)?;
        // A dead timer is stored. So another process has dropped or replayed this timer, and its end is unknown.
        entry.end = entry.end.filter(|end| end.how != EndKind::Dead);
        Ok(ended(id, entry, under_way))
    }

    /// Returns the past of the stored timer with this key. Without such a timer, returns the past of the timer that
    /// last had the key, from the histories and running deliveries in the memory of this process ([`InFlight`]).
    pub(crate) async fn past_of_key(&self, namespace: &str, key: &str) -> Result<Past, Problem> {
        let found = self.stored.get(namespace, by_key(namespace, key)).await;
        let id = match found {
            Ok(timer) => timer.id,
            Err(problem) if problem.kind == ProblemKind::NotFound => {
                self.in_flight.last_of(namespace, key).ok_or(problem)?
            }
            Err(problem) => return Err(problem),
        };
        self.past(namespace, id).await
    }

    /// Returns the namespace of the timer with this id. Returns `None` if the timer is not in the store, and this
    /// process has no history of the timer in memory ([`InFlight`]).
    pub(crate) async fn namespace_of(&self, id: TimerId) -> Result<Option<Box<str>>, Problem> {
        let stored = self.timers.get(id).await.map_err(|error| unavailable(&error))?;
        Ok(stored.map(|timer| timer.namespace).or_else(|| self.in_flight.namespace_of(id)))
    }

    /// Returns a page of at most `limit` timers that have ended, the latest first, from the histories in the memory of
    /// this process ([`InFlight`]). With `before`, the page has only timers whose last event has a lower number. If
    /// more timers may follow, also returns the value of `before` for the next page.
    pub(crate) fn ended_lately(
        &self,
        before: Option<u64>,
        limit: usize,
        is_wanted: impl Fn(&Known, EndKind) -> bool,
    ) -> (Vec<Past>, Option<u64>) {
        let (entries, next) = self.in_flight.ended_lately(before, limit, is_wanted);
        (entries.into_iter().map(|(id, entry)| ended(id, entry, None)).collect(), next)
    }

    /// Returns the hosts that have lately received callbacks, ordered by name.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        let now = self.timers.timer_store().now();
        let mut met = self.endpoints.all();
        let mut hosts = hosts_now(&self.caller);
        let parked = self.deliveries.parked();
        for (host, at_present) in &hosts {
            // The statistics have only hosts of callbacks that have ended. A host whose first callback still runs is
            // shown, too.
            if met.len() < MOST_HOSTS && (at_present.running > 0 || at_present.open_for().is_some()) {
                met.entry(host.clone()).or_default();
            }
        }
        let view = |(host, met): (Box<str>, Met)| {
            let here = parked.iter().filter(|(reason, _)| reason.is_of_host(&host));
            let parked = here.map(|(_, timers)| timers.count).sum();
            let at_present = hosts.remove(&host).unwrap_or_default();
            endpoint(host, met, at_present, parked, now)
        };
        let mut endpoints: Vec<_> = met.into_iter().map(view).collect();
        endpoints.sort_unstable_by(|a, b| a.host.cmp(&b.host));
        endpoints
    }

    /// Returns the breakers of all callback hosts.
    pub(crate) fn breakers(&self) -> Vec<HostReport> {
        self.caller.hosts()
    }

    /// Ends the pause of callbacks to a host, and closes the host's breakers. At first only a few of the timers that
    /// wait for the host become due. The others become due once the host has answered.
    pub(crate) fn reopen_host(&self, host: &str) {
        self.caller.close_breakers(host);
        self.deliveries.reopen(host);
    }

    /// Measures the file system of the store. Returns `None` if nodes share the timers, if the system does not report
    /// the values, or if the disk does not answer in time.
    pub(crate) async fn disk(&self) -> Option<Disk> {
        if self.namespaces.is_shared() {
            return None;
        }
        self.disk_reads.measure(StoreFiles::of(&self.settings), self.settings.keep_free).await
    }

    /// Counts the pending timers, grouped by the time until they are due.
    pub(crate) async fn horizon(&self) -> Result<Horizon, Problem> {
        let horizon = self.timers.horizon().await.map_err(|error| unavailable(&error))?;
        let bucket = |span: &Span| HorizonBucket {
            within_ms: span.within.map(millis),
            count: span.count,
            at_least: !span.is_exact,
        };
        Ok(Horizon {
            now: moment(horizon.now),
            buckets: horizon.spans.iter().map(bucket).collect(),
            unplaced: horizon.unplaced,
        })
    }
}

fn endpoint(host: Box<str>, mut met: Met, at_present: HostNow, parked: u64, now: UtcMillis) -> Endpoint {
    let recent = met.recent(now);
    let open_for = at_present.open_for();
    let breakers: Vec<_> =
        at_present.open.into_iter().take(MOST_BREAKERS).map(|report| open_breaker(report, now)).collect();
    Endpoint {
        host: host.into(),
        breaker: match open_for {
            None => Breaker::Closed,
            Some(Duration::ZERO) => Breaker::HalfOpen,
            Some(_) => Breaker::Open,
        },
        since: breakers.first().map(|breaker| breaker.since),
        open_for_ms: open_for.map(millis),
        breakers,
        running: at_present.running,
        failures_in_a_row: at_present.failures,
        parked,
        deliveries: met.deliveries,
        errors: met.errors,
        recent: recent.count,
        recent_errors: recent.errors,
        p50_ms: recent.p50_ms,
        p99_ms: recent.p99_ms,
        last: (met.deliveries > 0).then(|| moment(met.last)),
        last_error: met.last_error.map(Into::into),
    }
}

fn open_breaker(report: HostReport, now: UtcMillis) -> OpenBreaker {
    let since = now.as_millis().saturating_sub(report.open_since.map_or(0, millis));
    OpenBreaker {
        namespace: report.tenant.into(),
        path: report.path.map(Into::into),
        since: Moment::from_millis(since),
        open_for_ms: report.open_for.map_or(0, millis),
        failures_in_a_row: report.failures,
    }
}

/// Makes the report on the past of a stored timer. `entry` is the timer's history in memory, and `under_way` is its
/// running attempt.
fn stored(timer: &Timer, entry: Option<Entry>, under_way: Option<PastAttempt>) -> Past {
    let remembered = ended(timer.id, entry.unwrap_or_default(), under_way);
    let end = match &timer.state {
        State::Dead(death) => {
            let error = timer.last_error.as_deref();
            let detail = error.unwrap_or_else(|| shown_reason(death.reason, error)).to_owned();
            Some(PastEnd { at: moment(death.at), how: EndKind::Dead, detail: Some(detail) })
        }
        _ => None,
    };
    let parked_for = match &timer.state {
        State::Parked(reason) => Some(reason.as_ref().to_owned()),
        _ => remembered.parked_for.clone(),
    };
    Past {
        namespace: timer.namespace.to_string(),
        key: timer.key.as_deref().map(str::to_owned),
        phase: timer.state.phase(),
        created: Some(moment(timer.created)),
        scheduled: Some(moment(timer.scheduled)),
        due: matches!(timer.state, State::Pending | State::Parked(_)).then(|| moment(timer.due)),
        deliveries: timer.deliveries,
        parked_for,
        end,
        ..remembered
    }
}

/// Makes the report on the past of a timer that is no longer stored. `entry` is the timer's history in memory, and
/// `under_way` is its running attempt.
fn ended(id: TimerId, entry: Entry, under_way: Option<PastAttempt>) -> Past {
    let Entry { known, end, .. } = entry;
    let is_withdrawn = matches!(end, Some(PastEnd { how: EndKind::Cancelled | EndKind::Replaced, .. }));
    Past {
        id: id.to_string(),
        namespace: known.namespace.into(),
        key: known.key.map(Into::into),
        phase: match &under_way {
            Some(_) => api::Phase::Leased,
            None if is_withdrawn => api::Phase::Withdrawn,
            None => api::Phase::Done,
        },
        created: known.created.map(moment),
        scheduled: known.scheduled.map(moment),
        due: None,
        deliveries: known.deliveries,
        interrupted: entry.interrupted.into_iter().map(moment).collect(),
        replayed: entry.replayed.into_iter().map(moment).collect(),
        attempts: entry.attempts.into_iter().chain(under_way).collect(),
        parks: entry.parks,
        parked_for: entry.parked_for.map(Into::into),
        end,
    }
}
