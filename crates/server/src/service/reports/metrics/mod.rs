//! Writes the page of metrics in Prometheus' text format. The files `operations/alerts.yml` and
//! `operations/dashboard.json` refer to the metrics by name.
//!
//! Each metric has all its label values from the start, so an alarm sees each value grow from zero. The number of label
//! values that callers choose is bounded: see [`Tenants`]. The page does not name hosts, which the HTTP interface
//! shows.

mod machine;
mod page;
mod parked;

use super::Condition;
use super::disk::{DiskReads, StoreFiles};
use super::hosts::hosts_now;
use super::nodes::poll_age;
use crate::delivery::Deliveries;
use crate::record::{Idempotency, InFlight, Refusals, StoreTimes, Tenants};
use crate::service::backup::Backups;
use crate::service::operations::Operations;
use crate::settings::Settings;
use crate::state::{Counters, Events, Namespaces};
use crate::telemetry::Telemetry;
use core::time::Duration;
use page::Page;
use parked::ParkedPage;
use std::sync::Arc;
use tourbillon_api::Moment;
use tourbillon_callback::Caller;
use tourbillon_durable::Timers;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Counts, Nodes, Scrub, StoreError, StoreErrorKind};

/// The longest time for which the page of metrics waits for the store.
const SLOW: Duration = Duration::from_secs(3);
/// The label values of the states of stored timers.
const STATES: [(&str, Phase); 4] = [
    ("pending", Phase::Pending),
    ("leased", Phase::Leased),
    ("parked", Phase::Parked),
    ("dead", Phase::Dead),
];

/// Writes the page of metrics for Prometheus.
pub(crate) struct MetricsPage {
    pub(crate) settings: Arc<Settings>,
    pub(crate) timers: Timers,
    pub(crate) namespaces: Arc<Namespaces>,
    pub(crate) condition: Arc<Condition>,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) idempotency: Idempotency,
    pub(crate) caller: Caller,
    pub(crate) events: Events,
    pub(crate) counters: Arc<Counters>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) times: Arc<StoreTimes>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) telemetry: Telemetry,
    pub(crate) backups: Arc<Backups>,
    pub(crate) disk_reads: DiskReads,
}

impl MetricsPage {
    /// Returns the metrics of the service, its deliveries and its timer engine. While the store fails, leaves out the
    /// metrics that need the store.
    pub(crate) async fn text(&self) -> String {
        let mut page = Page::new("tourbillon_");
        page.family("build_info", "gauge", "The version of the service.");
        page.value("build_info", &[("version", env!("CARGO_PKG_VERSION"))], &1);
        page.single("up_seconds", "gauge", "Time since the start.", &self.condition.up().as_secs_f64());
        page.single("alive", "gauge", "1 if the loop polls.", &u8::from(self.condition.alive().is_ok()));
        let store = self.timers.timer_store();
        let now = store.now();
        // These reads have a time limit, so the page has the other metrics even if the store does not answer.
        let (overdue, counts, nodes) = tokio::join!(
            in_time(self.condition.overdue(now)),
            in_time(self.condition.counts()),
            in_time(store.nodes())
        );
        let shards_age = nodes.as_ref().ok().and_then(Option::as_ref).map_or(Duration::ZERO, poll_age);
        let poll_age = self.condition.poll_age(*overdue.as_ref().unwrap_or(&Duration::ZERO)).max(shards_age);
        let help = "Time for which timers are due, or the store fails, and the loop has not polled; in a shared store, also \
                    the time since the last look at the own shard that was left longest.";
        page.single("poll_age_seconds", "gauge", help, &poll_age.as_secs_f64());
        self.write_tenants(&mut page, counts.as_ref().ok());
        self.write_parked(&mut page, counts.as_ref().ok());
        if let Ok(counts) = counts {
            page.counts(&counts);
        }
        page.scrub(self.timers.timer_store().scrub().unwrap_or_default());
        if let Ok(overdue) = overdue {
            let help = "Time for which the oldest timer is due that is pending or put off.";
            page.single("overdue_seconds", "gauge", help, &overdue.as_secs_f64());
        }
        if let Ok(nodes) = &nodes {
            page.nodes(nodes.as_ref());
        }
        let last_fire = self.in_flight.last_fire().map_or(self.condition.up(), |last| now - last);
        let help = "Time since the last delivery started, or since the start of the service.";
        page.single("last_fire_seconds", "gauge", help, &last_fire.as_secs_f64());
        self.write_deliveries(&mut page);
        self.write_requests(&mut page);
        self.write_hosts(&mut page);
        self.write_spans(&mut page);
        let help = "Time of the store's operations, from the call to the answer.";
        page.histograms("store_seconds", help, "op", self.times.all());
        let help = "Changes that the store refused for a reason of its own, by the reason. A limit is none.";
        page.by_label("store_refused_total", "counter", help, "reason", self.refusals.counts());
        let help = "1 if the store refuses changes, or would refuse new timers.";
        let refuses = self.condition.refusal().is_some() || self.timers.timer_store().refuses_new().is_some();
        page.single("store_refuses", "gauge", help, &u8::from(refuses));
        page.add(&self.machine().await);
        self.write_ends(&mut page);
        page.add_text(self.timers.stats().prometheus());
        // Connections and requests have their timeouts in this engine.
        page.add_text(tourbillon::future::global().stats().prometheus());
        page.into_text()
    }

    /// Returns the metrics of the process and of the disk. Returns an empty page if the disk does not answer.
    async fn machine(&self) -> Page {
        let files = StoreFiles::of(&self.settings);
        self.disk_reads.read(move || machine::page(&files)).await.unwrap_or_else(|| Page::new(""))
    }

    /// Writes the metrics that are moments: the last backup, and the expiry of the certificate. Alarms compare them
    /// with the present time.
    fn write_ends(&self, page: &mut Page) {
        let help =
            "Moment of the last backup that was sent as a whole, in seconds since 1970; 0 if there was none.";
        let last = self.backups.last().map_or(0, Moment::as_millis) / 1_000;
        page.single("last_backup_timestamp_seconds", "gauge", help, &last);
        if let Some(tls) = &self.settings.tls {
            let help =
                "End of the certificate, or of a certificate that vouches for it, in seconds since 1970.";
            page.single("certificate_expiry_timestamp_seconds", "gauge", help, &tls.expiry());
        }
    }

    /// Writes the metrics of each namespace. Without `counts`, leaves out the numbers of stored timers.
    fn write_tenants(&self, page: &mut Page, counts: Option<&Counts>) {
        let namespaces = self.namespaces.all();
        let tenants = self.in_flight.metrics().tenants.all(&namespaces.keys().map(|name| &**name).collect());
        if let Some(counts) = counts {
            page.family("namespace_timers", "gauge", "Stored timers, by the namespace.");
            for (word, phase) in STATES {
                let mut others = counts.of(phase);
                for (name, _) in &tenants {
                    let own = counts.by_namespace.get(&(name.clone(), phase)).copied().unwrap_or(0);
                    others = others.saturating_sub(own);
                    // `Tenants::all` lists the others last. By then, `others` lacks the timers of all namespaces with
                    // their own counts.
                    let shown = if **name == *Tenants::OTHERS { others } else { own };
                    page.value("namespace_timers", &[("namespace", name), ("state", word)], &shown);
                }
            }
        }
        let created = tenants.iter().map(|(name, tenant)| (&**name, &tenant.created));
        let help = "Timers that were made, by the namespace.";
        page.by_label("namespace_created_total", "counter", help, "namespace", created);
        let cancelled = tenants.iter().map(|(name, tenant)| (&**name, &tenant.cancelled));
        let help = "Timers that were cancelled, by the namespace.";
        page.by_label("namespace_cancelled_total", "counter", help, "namespace", cancelled);
        page.family("namespace_fired_total", "counter", "Deliveries that have ended, by the namespace.");
        for (name, tenant) in &tenants {
            for (outcome, count) in tenant.fired.iter() {
                let labels = [("namespace", &**name), ("outcome", outcome)];
                page.value("namespace_fired_total", &labels, count);
            }
        }
    }

    /// Writes the metrics of parked timers. Without `counts`, leaves out their numbers.
    fn write_parked(&self, page: &mut Page, counts: Option<&Counts>) {
        let namespaces = self.namespaces.all();
        // The timers of an unknown namespace are parked as paused.
        let is_paused = |name: &str| namespaces.get(name).is_none_or(|namespace| namespace.limits.paused);
        let (deliveries, is_shared) = (&self.deliveries, self.namespaces.is_shared());
        let mut parked = ParkedPage::new(deliveries.parked(), deliveries.parked_for_others(), is_paused);
        if let Some(counts) = counts {
            // Where other nodes share the store, `counts` has their parked timers, too.
            if !is_shared {
                parked = parked.with_others_of(counts.of(Phase::Parked));
            }
            parked.write_counts(page);
        }
        let tenants = self.in_flight.metrics().tenants.all(&namespaces.keys().map(|name| &**name).collect());
        parked.write_ages(page, &tenants.iter().map(|(name, _)| &**name).collect::<Vec<_>>());
    }

    fn write_deliveries(&self, page: &mut Page) {
        let (metrics, stats) = (self.in_flight.metrics(), self.timers.stats());
        let help = "Time from the due moment to the start of the delivery, or to the stored end of a delivery that succeeded.";
        let lateness = [("start", &metrics.to_start), ("ack", &metrics.to_ack)];
        page.histograms("lateness_seconds", help, "to", lateness);
        let help = "Deliveries that have ended, by the outcome.";
        page.by_label("fired_total", "counter", help, "outcome", metrics.fired.iter());
        let help = "Deliveries and instants of series that were left out.";
        let skipped = [("late", stats.skipped), ("instants", stats.instants_skipped)];
        page.by_label("skipped_total", "counter", help, "reason", skipped);
        let help = "Deliveries that a receiver may have had and gets again, by the cause.";
        page.by_label("duplicates_total", "counter", help, "cause", metrics.duplicates.iter());
        let help = "Timers whose deliveries were given up, by the reason.";
        page.by_label("dead_total", "counter", help, "reason", metrics.dead.iter());
        let help = "Timers at most once that have left the store, and that no receiver is known to have got.";
        page.single("lost_total", "counter", help, &metrics.lost);
        let help = "Deliveries whose lease was lost, or whose answer came after their time.";
        page.single("lease_lost_total", "counter", help, &stats.leases_lost);
        let help = "Time of callbacks, by the class of the answer.";
        page.histograms("callback_seconds", help, "class", metrics.callbacks.iter());
    }

    fn write_requests(&self, page: &mut Page) {
        let counters = &self.counters;
        page.single("created_total", "counter", "Timers that were made.", &counters.created);
        page.single("replaced_total", "counter", "Timers that were replaced.", &counters.replaced);
        page.single("cancelled_total", "counter", "Timers that were cancelled.", &counters.cancelled);
        let help = "Answers, by the first digit of the status.";
        let answers = ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(&counters.answers);
        page.by_label("http_answers_total", "counter", help, "class", answers);
        let help = "Requests whose handler panicked.";
        page.single("http_panics_total", "counter", help, &counters.panics);
        page.single("event_readers", "gauge", "Readers of events.", &self.events.readers());
        page.single("operations", "gauge", "Operations that run.", &self.operations.running());
        let help = "Idempotency keys whose requests are remembered.";
        page.single("idempotency_keys", "gauge", help, &self.idempotency.len());
        let help = "Errors of the history's file. The history goes on in memory.";
        page.single("history_errors_total", "counter", help, &counters.history_errors);
    }

    fn write_spans(&self, page: &mut Page) {
        let help =
            "Spans for the collector: exported, failed on the way to it, or dropped since too many waited.";
        page.by_label("spans_total", "counter", help, "outcome", self.telemetry.counts().all());
    }

    fn write_hosts(&self, page: &mut Page) {
        let hosts = hosts_now(&self.caller);
        page.single("callback_hosts", "gauge", "Hosts of callbacks that are known.", &hosts.len());
        let open = hosts.values().filter(|host| host.open_for().is_some()).count();
        let help = "Hosts of which a breaker is open, for a namespace or for a path.";
        page.single("breaker_open", "gauge", help, &open);
    }
}

/// Waits for a read of the store. Fails if the read takes longer than [`SLOW`].
async fn in_time<T>(read: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::new(StoreErrorKind::Io, "the store has not answered in time"));
    tokio::time::timeout(SLOW, read).await.unwrap_or_else(late)
}

impl Page {
    /// Writes the metrics of the nodes that share the store. If `nodes` is `None`, this process uses the store alone,
    /// and counts as one node.
    fn nodes(&mut self, nodes: Option<&Nodes>) {
        let live = nodes.map_or(1, |nodes| nodes.nodes.iter().filter(|node| node.is_live).count());
        self.single("nodes", "gauge", "Nodes that share the timers and have given a sign of life.", &live);
        let shards = || nodes.iter().flat_map(|nodes| &nodes.shards);
        let free = shards().filter(|shard| shard.owner.is_none() || shard.is_silent).count();
        let help =
            "Shards of the timers that no node delivers at the moment, or whose server does not answer.";
        self.single("shards_without_node", "gauge", help, &free);
        let lost = shards().filter(|shard| shard.is_lost).count();
        let help = "Shards of the timers that their servers have lost, and that wait for `tourbillond mend`.";
        self.single("shards_lost", "gauge", help, &lost);
        let set_backs = nodes.map_or(0, |nodes| nodes.set_backs);
        let help = "How often the data in Redis went back, as after a failover that lost the last writes.";
        self.single("set_backs_total", "counter", help, &set_backs);
        let takeovers: u64 = shards().map(|shard| shard.takeovers).sum();
        let help = "How often a shard was taken from a node that had not given it back, by any node.";
        self.single("takeovers_total", "counter", help, &takeovers);
    }

    /// Writes the metrics of the search for damaged entries in the store. An operator can compute how long a search of
    /// the whole store takes, from the number of timers and the rate of `tourbillon_scrubbed_total`.
    fn scrub(&mut self, scrub: Scrub) {
        let Scrub { entries, walks, damaged, .. } = scrub;
        let help = "Records and entries of indexes that the search for damage has looked at.";
        self.single("scrubbed_total", "counter", help, &entries);
        self.single("scrubs_total", "counter", "Walks through the whole store in search of damage.", &walks);
        let help = "Damaged entries that this search has found, and set aside or mended.";
        self.single("scrub_damaged_total", "counter", help, &damaged);
    }

    fn counts(&mut self, counts: &Counts) {
        let stored = STATES.map(|(word, phase)| (word, counts.of(phase)));
        self.by_label("timers", "gauge", "Stored timers.", "state", stored);
        self.single("quarantined", "gauge", "Records that cannot be read.", &counts.quarantined);
    }
}
