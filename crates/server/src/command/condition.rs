//! Logs changes in the condition of a running service. The condition is checked about once a second.

use crate::clock::millis;
use crate::service::Service;
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_callback::HostReport;
use tourbillon_durable::Health;
use tourbillon_durable::store::StoreError;
use tracing::{error, info, warn};

/// The condition of the service at the last check. Each check logs the changes of the condition.
#[derive(Debug, Default)]
pub(super) struct Condition {
    fault: Option<&'static str>,
    is_dead: bool,
    refuses: bool,
    has_no_collector: bool,
    /// The number of damaged entries that the search for damage in the store has found so far.
    damaged: u64,
    breakers: Breakers,
}

impl Condition {
    pub(super) fn look(&mut self, service: &Service) {
        self.note_refusal(service.condition().refusal().as_ref());
        self.note_collector(service.telemetry().fault().as_deref());
        self.note_health(&service.timers().health());
        self.note_damage(service.timers().timer_store().scrub().unwrap_or_default().damaged);
        self.breakers.note(&service.reports().breakers());
    }

    /// Logs that the loop that delivers timers has died or revived since the last check.
    pub(super) fn note_loop(&mut self, alive: &Result<(), Box<str>>) {
        match alive {
            Err(reason) if !self.is_dead => error!(target: "loop", "the loop is dead: {reason}"),
            Ok(()) if self.is_dead => info!(target: "loop", "the loop polls again"),
            _ => {}
        }
        self.is_dead = alive.is_err();
    }

    /// Logs that the collector of spans has begun to refuse spans, or accepts them again, since the last check.
    fn note_collector(&mut self, fault: Option<&str>) {
        match fault {
            Some(error) if !self.has_no_collector => {
                warn!(target: "collector", "the collector takes no spans, and they are dropped: {error}");
            }
            None if self.has_no_collector => info!(target: "collector", "the collector takes spans again"),
            _ => {}
        }
        self.has_no_collector = fault.is_some();
    }

    /// Logs that the store has begun to refuse changes, or accepts them again, since the last check.
    fn note_refusal(&mut self, refusal: Option<&StoreError>) {
        match refusal {
            Some(error) if !self.refuses => {
                error!(target: "write-refused", "the store refuses changes: {error}");
            }
            None if self.refuses => info!(target: "write-refused", "the store takes changes again"),
            _ => {}
        }
        self.refuses = refusal.is_some();
    }

    /// Logs how many damaged entries of the store were found since the last check.
    fn note_damage(&mut self, damaged: u64) {
        let count = damaged.saturating_sub(self.damaged);
        if count > 0 {
            error!(target: "damage", count, "the search for damage has found damaged entries of the store");
        }
        self.damaged = damaged;
    }

    fn note_health(&mut self, health: &Health) {
        let fault = match health {
            Health::StoreFails { .. } => Some("the store fails"),
            Health::StoreHangs(_) => Some("the store gives no answer"),
            _ => None,
        };
        // Only the kind of the fault is compared. The text of an error may differ at each check, and would fill the
        // log.
        if fault == self.fault {
            return;
        }
        match (fault, health) {
            (Some(fault), Health::StoreFails { error, .. }) => error!(target: "store", "{fault}: {error}"),
            (Some(fault), _) => error!(target: "store", "{fault}"),
            (None, _) => info!(target: "store", "the store works again"),
        }
        self.fault = fault;
    }
}

/// The hosts whose circuit breaker was open at the last check. Such hosts get no callbacks. A breaker that opens and
/// closes between two checks is not logged.
#[derive(Debug, Default)]
struct Breakers(BTreeSet<Box<str>>);

impl Breakers {
    fn note(&mut self, hosts: &[HostReport]) {
        let open: BTreeMap<_, _> = hosts
            .iter()
            .filter_map(|report| Some((report.host.clone(), (report, report.open_for?))))
            .collect();
        for (host, (report, rest)) in &open {
            if !self.0.contains(host) {
                let (failures, pause_ms) = (report.failures, millis(*rest));
                warn!(target: "breaker", %host, failures, pause_ms, "a breaker has opened: the host gets no callbacks");
            }
        }
        for host in self.0.iter().filter(|host| !open.contains_key(*host)) {
            info!(target: "breaker", %host, "a breaker has closed: the host gets callbacks again");
        }
        self.0 = open.into_keys().collect();
    }
}
