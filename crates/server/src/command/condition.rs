//! Logs changes in the condition of a running service. The condition is checked about once a second.

use crate::clock::millis;
use crate::service::Service;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
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
    /// Whether the store's own work in the background has failed.
    has_upkeep_fault: bool,
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
        self.note_upkeep(service.timers().timer_store().upkeep_fault().as_ref());
        self.note_damage(service.timers().timer_store().scrub().unwrap_or_default().damaged);
        self.breakers.note(&service.reports().breakers(), Instant::now());
    }

    /// Logs that the loop that delivers timers has died, or is alive again, since the last check.
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

    /// Logs that the store's own work in the background has begun to fail, or works again, since the last check.
    fn note_upkeep(&mut self, fault: Option<&StoreError>) {
        match fault {
            Some(error) if !self.has_upkeep_fault => {
                warn!(target: "upkeep", "the store cannot add up the numbers of its timers: {error}");
            }
            None if self.has_upkeep_fault => info!(target: "upkeep", "the store adds up its numbers again"),
            _ => {}
        }
        self.has_upkeep_fault = fault.is_some();
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

/// Identifies a circuit breaker: its namespace, its host, and its path if the breaker covers only a path.
type BreakerKey = (Box<str>, Box<str>, Option<Box<str>>);

/// The least time between two log lines of a namespace about opened breakers, and between two about closed breakers.
/// The log drops all but a few lines of a kind in this time ([`crate::log`]). Without this pause, a single namespace
/// could use up these few lines, and the log would name no other namespace.
const PAUSE: Duration = Duration::from_secs(10);

/// The circuit breakers that the log has reported as open. While a breaker is open, its host or path gets no callbacks
/// of its namespace.
///
/// A namespace gets a log line for its first breaker that opens. All breakers that open in the [`PAUSE`] after this
/// line, and are still open at the end of the pause, share the next line. The same holds for breakers that close.
#[derive(Debug, Default)]
struct Breakers {
    open: BTreeSet<BreakerKey>,
    opened: Lines,
    closed: Lines,
}

impl Breakers {
    fn note(&mut self, reports: &[HostReport], now: Instant) {
        let key = |report: &HostReport| (report.tenant.clone(), report.host.clone(), report.path.clone());
        let open: BTreeMap<_, _> = reports
            .iter()
            .filter_map(|report| Some((key(report), (report.failures, millis(report.open_for?)))))
            .collect();
        let part = |path: &Option<Box<str>>| if path.is_some() { "path" } else { "host" };
        let opened = open.keys().filter(|breaker| !self.open.contains(*breaker)).collect();
        for group in self.opened.admit(opened, now) {
            let [first @ (namespace, host, path), rest @ ..] = &group[..] else { continue };
            let (failures, pause_ms) = open.get(first).copied().unwrap_or_default();
            // The path itself is not logged, because the path of a callback's URL may be its secret.
            let (part, more) = (part(path), number_of(rest));
            warn!(
                target: "breaker", %namespace, %host, part, failures, pause_ms, more,
                "a breaker has opened: the {part} gets no callbacks of the namespace"
            );
            self.open.extend(group);
        }
        let closed = self.open.iter().filter(|breaker| !open.contains_key(*breaker)).collect();
        for group in self.closed.admit(closed, now) {
            let [(namespace, host, path), rest @ ..] = &group[..] else { continue };
            let (part, more) = (part(path), number_of(rest));
            info!(
                target: "breaker", %namespace, %host, part, more,
                "a breaker has closed: the {part} gets callbacks of the namespace again"
            );
            group.iter().for_each(|breaker| _ = self.open.remove(breaker));
        }
    }
}

/// Returns the length of `further`, the breakers that a log line counts and does not name. `None` if it is empty.
fn number_of(further: &[BreakerKey]) -> Option<usize> {
    (!further.is_empty()).then_some(further.len())
}

/// The namespaces that had a log line within the last [`PAUSE`], with the moments of these lines.
#[derive(Debug, Default)]
struct Lines(BTreeMap<Box<str>, Instant>);

impl Lines {
    /// Groups breakers by their namespaces. Leaves out the namespaces that had a log line within the last [`PAUSE`]. In
    /// each group, the breakers that cover a whole host come first.
    fn admit(&mut self, breakers: Vec<&BreakerKey>, now: Instant) -> Vec<Vec<BreakerKey>> {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < PAUSE);
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for breaker in breakers.into_iter().filter(|(namespace, ..)| !self.0.contains_key(namespace)) {
            groups.entry(breaker.0.clone()).or_default().push(breaker.clone());
        }
        self.0.extend(groups.keys().map(|namespace| (namespace.clone(), now)));
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.iter_mut().for_each(|group| group.sort_by_key(|(_, _, path)| path.is_some()));
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};
    use tourbillon_callback::{Attempt, Callback, Caller, CallerSettings, Rules};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_breaker_of_a_namespace_a_host_and_a_path_is_noted_by_itself() {
        let refusing = TcpListener::bind("127.0.0.1:0").unwrap();
        let refuses = refusing.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for connection in refusing.incoming() {
                let mut connection = connection.unwrap();
                let _request = connection.read(&mut [0; 4_096]);
                let answer = "HTTP/1.1 503 \r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _answered = connection.write_all(answer.as_bytes());
            }
        });
        // Nobody listens at this address once the listener is dropped.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut settings = CallerSettings::default();
        settings.guard.allow_private = true;
        settings.hosts.failures = 2;
        let caller = Caller::new(settings).unwrap();
        let mut rules = Rules::default();
        rules.allow_http = true;
        let fail = async |tenant: &str, host: &str| {
            let callback = Callback::new(&format!("http://{host}/x"), "POST", [], "", &rules).unwrap();
            for _ in 0..2 {
                let attempt = Attempt {
                    tenant,
                    id: "1",
                    number: 1,
                    scheduled_for: "2026-01-01T00:00:00Z",
                    trace: None,
                    secrets: &[],
                    timeout: Duration::from_secs(60),
                    is_once: false,
                };
                let _refused = caller.send(&callback, attempt).await;
            }
        };
        for (tenant, host) in [("a", &refuses), ("b", &refuses), ("a", &silent), ("b", &silent)] {
            fail(tenant, host).await;
        }
        let begin = Instant::now();
        let mut breakers = Breakers::default();
        let opened = logged(|| breakers.note(&caller.hosts(), begin));
        let key =
            |tenant: &str, host: &str, path: Option<&str>| (tenant.into(), host.into(), path.map(Into::into));
        let expected = BTreeSet::from([
            key("a", &refuses, Some("/x")),
            key("b", &refuses, Some("/x")),
            key("a", &silent, None),
            key("b", &silent, None),
        ]);
        assert_eq!(breakers.open, expected);
        // Each namespace has a line, which names the breaker of a whole host.
        let names = |line: &str, namespace: &str, host: &str, more: &str| {
            [format!("namespace={namespace} "), format!("host={host} "), more.to_owned()]
                .iter()
                .all(|part| line.contains(part.as_str()))
        };
        assert_eq!(opened.len(), 2, "{opened:?}");
        assert!(names(&opened[0], "a", &silent, "more=1") && names(&opened[1], "b", &silent, "more=1"));

        caller.close_breakers(&refuses);
        let closed = logged(|| breakers.note(&caller.hosts(), begin));
        assert_eq!(breakers.open, BTreeSet::from([key("a", &silent, None), key("b", &silent, None)]));
        assert_eq!(closed.len(), 2, "{closed:?}");

        // A namespace waits for its next line, and another namespace has a line at once.
        fail("a", &refuses).await;
        fail("c", &refuses).await;
        let opened = logged(|| breakers.note(&caller.hosts(), begin + PAUSE / 2));
        assert!(opened.len() == 1 && names(&opened[0], "c", &refuses, "path"), "{opened:?}");
        let opened = logged(|| breakers.note(&caller.hosts(), begin + PAUSE));
        assert!(opened.len() == 1 && names(&opened[0], "a", &refuses, "path"), "{opened:?}");
        assert_eq!(logged(|| breakers.note(&caller.hosts(), begin + 3 * PAUSE)), Vec::<String>::new());
    }

    /// Returns the lines that `act` logs on this thread.
    fn logged(act: impl FnOnce()) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&lines);
        let log =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || Written(Arc::clone(&writer)));
        tracing::subscriber::with_default(log.finish(), act);
        let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        lines.lines().map(str::to_owned).collect()
    }

    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
