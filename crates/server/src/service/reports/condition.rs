//! Judges whether the service is alive, healthy and ready, and reports its statistics.

use super::hosts::hosts_now;
use super::liveness::Liveness;
use crate::clock::millis;
use crate::convert::moment;
use crate::record::{InFlight, Refusals};
use crate::state::{Counters, Namespaces, Stop, Tokens};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_api::{HostView, Readiness, ServiceStats};
use tourbillon_callback::Caller;
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Counts, StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Health, Timers, UtcMillis};

/// The longest time for which the check of readiness waits for its small read of the store.
const SLOW: Duration = Duration::from_secs(2);
/// The time for which a shared store must have failed before this node is unhealthy.
const OUT: Duration = Duration::from_secs(2);
/// The greatest number of callback hosts that the statistics show.
const MOST_HOSTS: usize = 100;

/// Judges the condition of the service, and reports its statistics.
pub(crate) struct Condition {
    pub(crate) timers: Timers,
    pub(crate) namespaces: Arc<Namespaces>,
    pub(crate) tokens: Tokens,
    pub(crate) caller: Caller,
    pub(crate) counters: Arc<Counters>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) stop: Stop,
    /// The greatest number of timers that are handled at the same time. While this number is reached, the loop that
    /// delivers timers claims no further timers.
    pub(crate) capacity: usize,
    pub(crate) liveness: Mutex<Liveness>,
    pub(crate) begun: Instant,
}

impl Condition {
    /// Returns the time since the start of the service.
    pub(crate) fn up(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Checks that the loop that delivers timers polls the store, as [`Service::alive`](crate::Service::alive)
    /// describes.
    pub(crate) fn alive(&self) -> Result<(), Box<str>> {
        let (health, stats) = (self.timers.health(), self.timers.stats());
        self.liveness().judge(&health, stats.claims, stats.running, self.capacity, Instant::now())
    }

    /// Checks that the service delivers timers and reaches a shared store, as
    /// [`Service::healthy`](crate::Service::healthy) describes.
    pub(crate) fn healthy(&self) -> Result<(), Box<str>> {
        self.alive()?;
        match self.timers.health() {
            Health::StoreFails { since, error } if self.namespaces.is_shared() && since > OUT => {
                Err(format!("the store has failed for {} s: {error}", since.as_secs()).into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the time for which due timers have not been claimed. While the store fails or hangs, this is the time
    /// since the failure began. Otherwise it is the shorter of two times: `overdue`, and the time since the last claim
    /// of the loop that delivers timers. `overdue` is the time since the due moment of the oldest pending timer.
    pub(crate) fn poll_age(&self, overdue: Duration) -> Duration {
        let silent = self.liveness().silence(self.timers.stats().claims, Instant::now());
        match self.timers.health() {
            Health::StoreHangs(time) => time,
            Health::StoreFails { since, .. } => since,
            // The result is at most the time since the last claim, and at most the time for which a timer has been due.
            _ => overdue.min(silent),
        }
    }

    fn liveness(&self) -> MutexGuard<'_, Liveness> {
        self.liveness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the service is ready and, if it is not, all reasons. The check examines the last errors of the
    /// store, and makes a small read.
    pub(crate) async fn readiness(&self) -> Readiness {
        let mut reasons = Vec::new();
        if self.stop.has_begun() {
            reasons.push("the service is stopping".to_owned());
        }
        match self.timers.health() {
            Health::StoreFails { since, error } => {
                reasons.push(format!("the store has failed for {} s: {error}", since.as_secs()));
            }
            Health::StoreHangs(time) => {
                reasons.push(format!("the store has given no answer for {} s", time.as_secs()));
            }
            _ => {}
        }
        if let Some(fault) = self.tokens.fault() {
            reasons.push(fault.into());
        }
        reasons.extend(self.namespaces.fault());
        let mut is_part_away = false;
        match tokio::time::timeout(SLOW, self.parts_away()).await {
            Ok(Ok((0, _))) => {}
            Ok(Ok((away, all))) if 2 * away >= all => {
                reasons.push(format!(
                    "{away} of {all} shards of the timers are away, or their servers have lost them"
                ));
            }
            Ok(Ok(_)) => is_part_away = true,
            Ok(Err(error)) => reasons.push(format!("the store cannot be read: {error}")),
            Err(_) => reasons.push(format!("a read takes longer than {} s", SLOW.as_secs())),
        }
        if let Some(error) = self.refusal() {
            // The refusal may come from shards that cannot be reached, while the other shards accept changes.
            let may_be_of_part = matches!(error.kind(), StoreErrorKind::Io | StoreErrorKind::Unknown);
            if !(is_part_away && may_be_of_part) {
                reasons.push(format!("changes are refused: {error}"));
            }
        }
        Readiness { ok: reasons.is_empty(), reasons }
    }

    /// Returns the error of the last refused change if the store still refuses changes. If only creations were refused,
    /// the refusal ends with the next successful creation, otherwise with any successful change. It also ends after ten
    /// seconds without a refused change, unless the store itself reports that it refuses creations.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.refusals.lasting(self.timers.timer_store().refuses_new()).map(|refusal| refusal.error)
    }

    /// Makes a small read of the store. Returns the number of the store's shards that cannot be used, and the number of
    /// all shards.
    ///
    /// A node counts as ready while more than half of the shards can be used. The other nodes cannot use the missing
    /// shards either, so it would not help to send the requests to them.
    async fn parts_away(&self) -> Result<(usize, usize), StoreError> {
        let Some(nodes) = self.timers.timer_store().nodes().await? else {
            return self.timers.get(TimerId::from_u128(0)).await.map(|_| (0, 1));
        };
        let away = nodes.shards.iter().filter(|shard| shard.is_silent || shard.is_lost);
        Ok((away.count(), nodes.shards.len()))
    }

    /// Counts the stored timers, without the internal timers of schedules.
    pub(crate) async fn counts(&self) -> Result<Counts, StoreError> {
        let mut counts = self.timers.counts().await?;
        counts.by_namespace.retain(|(namespace, _), _| !namespace.starts_with(Schedules::NAMESPACES));
        Ok(counts)
    }

    /// Returns the time since the due moment of the oldest timer that is pending, or that this node has put off. Zero
    /// if no such timer is due.
    pub(crate) async fn overdue(&self, now: UtcMillis) -> Result<Duration, StoreError> {
        let store = self.timers.timer_store();
        let pending = store.upcoming(UtcMillis::ZERO, now, 1).await?.first().map(|(due, _)| *due);
        let first = pending.into_iter().chain(self.timers.stats().next_due).min();
        Ok(first.map_or(Duration::ZERO, |due| now - due))
    }

    fn hosts(&self) -> Vec<HostView> {
        let hosts = hosts_now(&self.caller).into_iter().take(MOST_HOSTS);
        let view = hosts.map(|(name, host)| HostView {
            host: name.into(),
            running: host.running,
            failures: host.failures,
            open_for_ms: host.open_for().map(millis),
        });
        view.collect()
    }

    /// Returns how many of `done` successful deliveries delivered timers of users. The other deliveries are those of
    /// the internal timers of schedules.
    pub(crate) fn delivered(&self, done: u64) -> u64 {
        // `done` was read before this counter, so the difference could be negative for a moment.
        done.saturating_sub(self.counters.decisions.get())
    }

    /// Returns how many deliveries of users' timers have failed. The runtime's own numbers leave out the last delivery
    /// of a timer that was cancelled during this delivery, or that is delivered at most once.
    pub(crate) fn failed(&self) -> u64 {
        let fired = &self.in_flight.metrics().fired;
        fired.of("failed").get() + fired.of("dead").get()
    }

    /// Returns the statistics of the service for people.
    pub(crate) async fn stats(&self) -> Result<ServiceStats, StoreError> {
        let counts = self.counts().await?;
        let stats = self.timers.stats();
        let now = self.timers.timer_store().now();
        Ok(ServiceStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: moment(now),
            up_ms: millis(self.up()),
            pending: counts.of(Phase::Pending),
            leased: counts.of(Phase::Leased),
            parked: counts.of(Phase::Parked),
            dead: counts.of(Phase::Dead),
            damaged: counts.quarantined,
            overdue_ms: millis(self.overdue(now).await?),
            created: self.counters.created.get(),
            delivered: self.delivered(stats.done),
            failed: self.failed(),
            cancelled: self.counters.cancelled.get(),
            last_fire: self.in_flight.last_fire().map(moment),
            hosts: self.hosts(),
        })
    }
}
