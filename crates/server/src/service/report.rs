//! The service's condition: numbers, health, readiness.

use super::Service;
use crate::convert::moment;
use core::time::Duration;
use std::sync::PoisonError;
use std::time::Instant;
use tourbillon_api::{HostView, Readiness, ServiceStats};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::StoreError;
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Health, Stats, UtcMillis};

/// The time after which a loop that does not poll counts as dead.
const DEAD: Duration = Duration::from_secs(30);
/// The time for which the store may take for a small read.
const SLOW: Duration = Duration::from_secs(2);
/// The greatest number of hosts that are shown.
const MOST_HOSTS: usize = 100;

impl Service {
    /// Whether the loop that delivers timers polls the store. If it does not, only a new start of the process helps. A
    /// store that fails is no reason: see the path `/readyz`.
    ///
    /// # Errors
    ///
    /// Fails with the reason for a person.
    pub fn alive(&self) -> Result<(), Box<str>> {
        let health = self.timers().health();
        if let Health::StoreHangs(time) = health {
            return Err(format!("the loop has waited for the store for {} s", time.as_secs()).into());
        }
        let running = self.timers().stats().running;
        let since_poll = self.since_poll();
        match health {
            Health::Overdue(time)
                if time > DEAD && running < self.settings().concurrency && since_poll > DEAD =>
            {
                let seconds = since_poll.as_secs();
                Err(format!("timers are due, and the loop has not polled for {seconds} s").into())
            }
            _ => Ok(()),
        }
    }

    /// The time since the loop was seen to poll.
    fn since_poll(&self) -> Duration {
        let Stats { claims, .. } = self.timers().stats();
        let mut seen = self.0.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0 != claims {
            *seen = (claims, Instant::now());
        }
        seen.1.elapsed()
    }

    /// The time for which timers are due, or the store fails, and the loop has not polled.
    pub(super) fn poll_age(&self) -> Duration {
        let since_poll = self.since_poll();
        match self.timers().health() {
            Health::StoreHangs(time) => time,
            Health::StoreFails { since, .. } => since,
            Health::Overdue(time) => time.min(since_poll),
            _ => Duration::ZERO,
        }
    }

    /// Whether the store can be used, by a small read and by the last errors.
    pub(crate) async fn readiness(&self) -> Readiness {
        let mut reasons = Vec::new();
        if self.stop().has_begun() {
            reasons.push("the service is stopping".to_owned());
        }
        match self.timers().health() {
            Health::StoreFails { since, error } => {
                reasons.push(format!("the store has failed for {} s: {error}", since.as_secs()));
            }
            Health::StoreHangs(time) => {
                reasons.push(format!("the store has given no answer for {} s", time.as_secs()));
            }
            _ => {}
        }
        let read = self.timers().get(TimerId::from_u128(0));
        match tokio::time::timeout(SLOW, read).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => reasons.push(format!("the store cannot be read: {error}")),
            Err(_) => reasons.push(format!("a read takes longer than {} s", SLOW.as_secs())),
        }
        Readiness { ok: reasons.is_empty(), reasons }
    }

    /// The time for which the oldest pending timer is due.
    pub(super) async fn overdue(&self, now: UtcMillis) -> Result<Duration, StoreError> {
        let store = self.timers().timer_store();
        let first = store.upcoming(UtcMillis::ZERO, now, 1).await?;
        Ok(first.first().map_or(Duration::ZERO, |(due, _)| now - *due))
    }

    fn hosts(&self) -> Vec<HostView> {
        let hosts = self.caller().hosts().into_iter().take(MOST_HOSTS);
        let view = hosts.map(|host| HostView {
            host: host.host.into(),
            running: host.running as u64,
            failures: host.failures,
            open_for_ms: host.open_for.map(millis),
        });
        view.collect()
    }

    /// The numbers of the service, for a person.
    pub(crate) async fn stats(&self) -> Result<ServiceStats, StoreError> {
        let counts = self.timers().counts().await?;
        let stats = self.timers().stats();
        let now = self.timers().timer_store().now();
        Ok(ServiceStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: moment(now),
            up_ms: millis(self.up()),
            pending: counts.of(Phase::Pending),
            leased: counts.of(Phase::Leased),
            parked: counts.of(Phase::Parked),
            dead: counts.of(Phase::Dead),
            overdue_ms: millis(self.overdue(now).await?),
            created: self.counters().created.get(),
            delivered: stats.done,
            failed: stats.retried + stats.dead,
            cancelled: self.counters().cancelled.get(),
            last_fire: self.flights().last_fire().map(moment),
            hosts: self.hosts(),
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
