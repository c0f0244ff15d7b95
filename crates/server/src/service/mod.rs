//! Defines the service: the stored timers with their namespaces, and the parts that answer requests.
//!
//! [`Service`] is a handle that gives access to the parts. Each part has only the values that it needs:
//!
//! | part | it serves |
//! |---|---|
//! | `creations` | the creation of a timer: limits, idempotency keys, the store |
//! | `changes` | changes of a timer, or of many in one transaction |
//! | `operations` | changes of many timers that go on after the answer |
//! | `schedules` | the requests about schedules |
//! | `namespace_admin` | the requests about namespaces |
//! | `reports` | the condition of the service, its numbers, the past and the future of its timers |
//! | `backup`, `restore` | copies of all timers |
//!
//! `open` builds the parts. `recorder` records changes of timers for several parts.

mod backup;
mod changes;
mod creations;
mod deployment;
mod incidents;
mod missing;
mod names;
mod namespace_admin;
mod open;
mod open_error;
mod operations;
mod recorder;
mod renewal;
mod reports;
mod restore;
mod schedules;
mod stored_timers;

pub(crate) use backup::Backup;
pub(crate) use changes::Verb;
pub(crate) use creations::Naming;
pub(crate) use deployment::{
    MendedNamespaces, checked, inspect_postgres, mend, mend_namespaces, mend_namespaces_in_postgres,
    open_store,
};
pub(crate) use names::{Named, id};
pub use open_error::OpenError;
pub(crate) use operations::{DeadGroup, DeadWork, Work};
pub(crate) use reports::{Disk, GroupReport};
pub(crate) use restore::{is_half_restored, restore, restore_in_postgres, restore_on_sqlite, restore_shared};
pub(crate) use schedules::ScheduleCall;

use crate::audit::Audit;
use crate::bodies::Bodies;
use crate::delivery::Deliveries;
use crate::settings::Settings;
use crate::state::{Counters, Events, Namespaces, Stop, TokenHash, Tokens};
use crate::task::Tasks;
use crate::telemetry::Telemetry;
use backup::{Attached, Backups};
use changes::Changes;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use creations::Creations;
use namespace_admin::NamespaceAdmin;
use operations::Operations;
use renewal::Renewal;
use reports::{Condition, MetricsPage, Reports, Sampler};
use schedules::ScheduleAdmin;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use stored_timers::StoredTimers;
use tourbillon_durable::{Durable, Stats, Timers};

/// A running service that stores and delivers timers. Clones are handles of the same service.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    settings: Arc<Settings>,
    timers: Timers,
    /// The runtime that delivers the timers. `None` once the service is closed.
    durable: Mutex<Option<Durable>>,
    namespaces: Arc<Namespaces>,
    tokens: Tokens,
    audit: Audit,
    events: Events,
    counters: Arc<Counters>,
    bodies: Arc<Bodies<Option<TokenHash>>>,
    forms: Arc<Bodies<Option<IpAddr>>>,
    telemetry: Telemetry,
    deliveries: Arc<Deliveries>,
    stored: StoredTimers,
    creations: Arc<Creations>,
    changes: Changes,
    operations: Arc<Operations>,
    schedules: ScheduleAdmin,
    namespace_admin: NamespaceAdmin,
    condition: Arc<Condition>,
    reports: Reports,
    metrics: MetricsPage,
    sampler: Arc<Sampler>,
    /// Reads the changes that other nodes make, in tasks that end when this value is dropped.
    renewal: Arc<Renewal>,
    backups: Arc<Backups>,
    stop: Stop,
    /// Counts the tasks of operations on many timers and of removals of namespaces, whose end the stop awaits.
    tasks: Tasks,
    notices: Vec<Box<str>>,
    /// The lock file of the data folder, which keeps other processes out of the folder until the service is dropped.
    /// `None` in tests.
    _folder: Option<File>,
}

impl Service {
    /// Begins to stop the service. Streams of events end. Operations on many timers stop, and continue at the next
    /// start. Other requests are still answered. A server calls this method before it waits for its last answers.
    pub fn begin_stop(&self) {
        self.0.stop.begin();
    }

    /// Stops the service, and blocks the calling thread. Operations on many timers and removals of namespaces have half
    /// of the time `patience` to end. Once they have ended, or this time is over, the service claims no further timers.
    /// Deliveries have the rest of the time to end. The timers of the deliveries that do not end in time are given back
    /// to the store.
    ///
    /// If the settings name a collector, sends the last spans to it. This may take the rest of `patience`. The time
    /// limit for this step is at least half a second and at most five seconds.
    ///
    /// Returns the statistics of the service. A second call returns `None` at once.
    pub fn close(&self, patience: Duration) -> Option<Stats> {
        let begun = Instant::now();
        self.begin_stop();
        // The claims of receivers end first. Otherwise the shutdown below would wait for the receivers.
        self.0.deliveries.close();
        // Operations that have not ended continue at the next start. The deliveries need the rest of the time.
        let _have_ended = self.0.tasks.await_end(patience / 2);
        // The lock is released before the shutdown, so a second call does not wait for the shutdown.
        let durable = self.0.durable.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stats = durable.map(|durable| durable.shutdown(patience.saturating_sub(begun.elapsed())));
        self.0.sampler.end();
        // Deliveries end during the shutdown, and their spans must also reach the collector.
        self.0.telemetry.close(patience.saturating_sub(begun.elapsed()));
        stats
    }

    /// Reads the token file again if it has changed, if the last read failed, or if `always` is true. Returns whether
    /// the file was read. If the file is missing, no token is accepted. After any other error, the tokens stay as they
    /// were.
    ///
    /// # Errors
    ///
    /// Fails if the file is missing or cannot be read. Without `always`, an error that equals the last error is not
    /// returned.
    pub fn reload_tokens(&self, always: bool) -> io::Result<bool> {
        self.0.tokens.reload(always)
    }

    /// Returns the notices for an administrator that the start of the service has produced. Examples are the warnings
    /// of a check, and a notice about a file that is not used. Each notice is one line.
    #[must_use]
    pub fn notices(&self) -> &[Box<str>] {
        &self.0.notices
    }

    /// Returns whether the service has no token file. Such a service permits every request, so it must be reachable
    /// only from this machine.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.tokens.is_open()
    }

    /// Checks that the loop that delivers timers polls the store. If this check fails, only a restart of the process
    /// helps. A failure of the store does not fail this check: see the path `/readyz`.
    ///
    /// # Errors
    ///
    /// Fails with the reason, as text for people.
    pub fn alive(&self) -> Result<(), Box<str>> {
        self.0.condition.alive()
    }

    /// Checks that the service is [`alive`](Self::alive) and, if nodes share the store, that this node reaches the
    /// store. Once the store answers again, the service continues without a restart.
    ///
    /// # Errors
    ///
    /// Fails with the reason, as text for people.
    pub fn healthy(&self) -> Result<(), Box<str>> {
        self.0.condition.healthy()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.0.timers
    }

    pub(crate) fn stored_timers(&self) -> &StoredTimers {
        &self.0.stored
    }

    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.0.namespaces
    }

    pub(crate) fn namespace_admin(&self) -> &NamespaceAdmin {
        &self.0.namespace_admin
    }

    /// Begins a backup of the service's timers and namespaces. Returns `None` if too many backups are running.
    pub(crate) fn begin_backup(&self) -> Option<Backup> {
        // This includes the namespaces that are being removed. A removal may find timers, and then its namespace stays.
        // Also, the backup may have timers that a removal has not found yet.
        let namespaces = self.0.namespaces.stored().namespaces.into_iter();
        let namespaces = namespaces.map(|(name, namespace)| (name, namespace.without_changes())).collect();
        let attached = Attached { namespaces };
        self.0.backups.begin(self.0.timers.timer_store(), attached)
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.0.audit
    }

    pub(crate) fn events(&self) -> &Events {
        &self.0.events
    }

    /// Returns the limiter of the memory for request bodies, in total and for each client. A client is the sender of
    /// all requests with the same token. All requests without a token count as one client.
    pub(crate) fn bodies(&self) -> &Arc<Bodies<Option<TokenHash>>> {
        &self.0.bodies
    }

    /// Returns the limiter of the memory for sign-in forms, in total and for each client. A client is an IPv4 address,
    /// or an IPv6 network (the first 64 bits of the address).
    pub(crate) fn forms(&self) -> &Arc<Bodies<Option<IpAddr>>> {
        &self.0.forms
    }

    pub(crate) fn deliveries(&self) -> &Deliveries {
        &self.0.deliveries
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.0.telemetry
    }

    pub(crate) fn creations(&self) -> &Creations {
        &self.0.creations
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.0.changes
    }

    pub(crate) fn operations(&self) -> &Arc<Operations> {
        &self.0.operations
    }

    pub(crate) fn schedules(&self) -> &ScheduleAdmin {
        &self.0.schedules
    }

    pub(crate) fn condition(&self) -> &Condition {
        &self.0.condition
    }

    pub(crate) fn reports(&self) -> &Reports {
        &self.0.reports
    }

    pub(crate) fn metrics(&self) -> &MetricsPage {
        &self.0.metrics
    }

    #[cfg(test)]
    pub(crate) fn sampler(&self) -> &Sampler {
        &self.0.sampler
    }

    pub(crate) fn stop(&self) -> &Stop {
        &self.0.stop
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("data", &self.0.settings.data).finish_non_exhaustive()
    }
}
