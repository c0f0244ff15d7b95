//! The service's condition: numbers, health, readiness.

use super::Service;
use crate::convert::moment;
use core::fmt::{self, Write as _};
use core::time::Duration;
use tourbillon_api::{HostView, Readiness, ServiceStats};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Counts, StoreError};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Health, UtcMillis};

/// The time for which the store may take for a small read.
const SLOW: Duration = Duration::from_secs(2);
/// The greatest number of hosts that are shown.
const MOST_HOSTS: usize = 100;

impl Service {
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

    /// The numbers of stored timers, schedules apart.
    async fn counts(&self) -> Result<Counts, StoreError> {
        let mut counts = self.timers().counts().await?;
        counts.by_namespace.retain(|(namespace, _), _| **namespace != *Schedules::NAMESPACE);
        Ok(counts)
    }

    /// The time for which the oldest pending timer is due.
    async fn overdue(&self, now: UtcMillis) -> Result<Duration, StoreError> {
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
        let counts = self.counts().await?;
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
            delivered: stats.done.saturating_sub(self.counters().decisions.get()),
            failed: stats.retried + stats.dead,
            cancelled: self.counters().cancelled.get(),
            last_fire: None,
            hosts: self.hosts(),
        })
    }

    /// The numbers of the service, of its deliveries and of its engine in Prometheus' text format. Series that need the
    /// store are left out while it fails.
    pub(crate) async fn metrics(&self) -> String {
        let mut page = Page(String::with_capacity(16 << 10));
        page.family("build_info", "gauge", "The version of the service.");
        page.value("build_info", &[("version", env!("CARGO_PKG_VERSION"))], &1);
        page.single("up_seconds", "gauge", "Time since the start.", &self.up().as_secs_f64());
        page.single("alive", "gauge", "1 if the loop polls.", &u8::from(self.alive().is_ok()));
        if let Ok(counts) = self.counts().await {
            page.counts(&counts);
        }
        let now = self.timers().timer_store().now();
        if let Ok(overdue) = self.overdue(now).await {
            let help = "Time for which the oldest pending timer is due.";
            page.single("overdue_seconds", "gauge", help, &overdue.as_secs_f64());
        }
        let counters = self.counters();
        page.single("created_total", "counter", "Timers that were made.", &counters.created.get());
        page.single("replaced_total", "counter", "Timers that were replaced.", &counters.replaced.get());
        page.single("cancelled_total", "counter", "Timers that were cancelled.", &counters.cancelled.get());
        page.family("http_answers_total", "counter", "Answers, by the first digit of the status.");
        for (class, count) in (1..).zip(&counters.answers) {
            page.value("http_answers_total", &[("class", &format!("{class}xx"))], &count.get());
        }
        page.single(
            "http_panics_total",
            "counter",
            "Requests whose handler panicked.",
            &counters.panics.get(),
        );
        page.single("event_readers", "gauge", "Readers of events.", &self.events().readers());
        page.single("operations", "gauge", "Operations that run.", &self.operations().running());
        let help = "Idempotency keys whose requests are remembered.";
        page.single("idempotency_keys", "gauge", help, &self.idempotency().len());
        let hosts = self.caller().hosts();
        page.single("callback_hosts", "gauge", "Hosts of callbacks that are known.", &hosts.len());
        let open = hosts.iter().filter(|host| host.open_for.is_some()).count();
        page.single("callback_breakers_open", "gauge", "Hosts that get no callbacks for a time.", &open);
        page.0.push_str(&self.timers().stats().prometheus());
        // The engine of the connections' and requests' timeouts.
        let engine = tourbillon::future::global().stats();
        let _infallible = write!(page.0, "{}", engine.prometheus());
        page.0
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A page in Prometheus' text format. All names begin with `tourbillond_`.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible =
            write!(self.0, "# HELP tourbillond_{name} {help}\n# TYPE tourbillond_{name} {kind}\n");
    }

    /// `labels` have values without quotes, backslashes and line feeds.
    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: &dyn fmt::Display) {
        let labels: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _infallible = writeln!(self.0, "tourbillond_{name}{labels} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: &dyn fmt::Display) {
        self.family(name, kind, help);
        self.value(name, &[], value);
    }

    fn counts(&mut self, counts: &Counts) {
        self.family("timers", "gauge", "Stored timers.");
        for (word, phase) in [
            ("pending", Phase::Pending),
            ("leased", Phase::Leased),
            ("parked", Phase::Parked),
            ("dead", Phase::Dead),
        ] {
            self.value("timers", &[("phase", word)], &counts.of(phase));
        }
        self.single("quarantined", "gauge", "Records that cannot be read.", &counts.quarantined);
    }
}
