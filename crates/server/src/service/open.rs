//! Starts a service: opens its files and its store, and builds its parts in the order of their dependencies.

use super::backup::Backups;
use super::changes::Changes;
use super::creations::{CreationLimits, Creations};
use super::deployment::{self, open_postgres, open_store, refuse_note};
use super::missing::{add_missing, refuse_lost, still_missing};
use super::namespace_admin::NamespaceAdmin;
use super::open_error::{OpenError, file_error};
use super::operations::{OperationRecords, Operations};
use super::recorder::ChangeRecorder;
use super::renewal::Renewal;
use super::reports::{Condition, DiskReads, Liveness, MetricsPage, Reports, Sampler};
use super::restore::is_half_restored;
use super::schedules::ScheduleAdmin;
use super::stored_timers::StoredTimers;
use super::{Inner, Service, incidents};
use crate::audit::Audit;
use crate::bodies::Bodies;
use crate::delivery::{Deliveries, Environment, MOST_WAITING};
use crate::record::{
    Endpoints, History, Idempotency, InFlight, Metrics, Refusals, StoreTimes, TimedStore, Timing,
};
use crate::settings::{PostgresSettings, RedisSettings, Settings, StorePlace};
use crate::share::with_reserve;
use crate::state::{
    ClusterStore, Counters, Events, NamespaceStorage, Namespaces, STALE, Stop, Tokens, files, is_lost,
    names_with_timers, schedules_of,
};
use crate::task::Tasks;
use crate::telemetry::Telemetry;
use crate::work;
use pollster::block_on;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::Notify;
use tourbillon_callback::{Caller, Rules};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::store::{RedbStore, StoreError, StoreErrorKind, TimerStore};
use tourbillon_durable::{Builder, Durable, Limits, Timers};
use tourbillon_redis::Grade;
use tourbillon_sqlite::SqliteStore;

/// The results of the checks before the start: notices for the administrator, and the lock of the data folder. Only
/// tests have no lock.
#[derive(Default)]
struct Checked {
    notices: Vec<Box<str>>,
    folder: Option<File>,
}

impl Checked {
    /// Locks the data folder for this process. Fails if another process has the lock.
    fn lock(settings: &Settings) -> Result<Self, OpenError> {
        let data = &settings.data;
        files::make_folder(data).map_err(file_error(data))?;
        let locked = files::lock_folder(data, settings.without_locks);
        match locked.map_err(file_error(&data.join("lock")))? {
            Some(folder) => Ok(Self { notices: Vec::new(), folder: Some(folder) }),
            None => Err(OpenError::InUse(data.clone())),
        }
    }
}

/// Returns the greatest number of timers that the runtime handles at the same time: callbacks, fetched timers, and
/// deliveries that wait for a permit. Each of these three has its own limit.
fn capacity(settings: &Settings) -> usize {
    let (callbacks, claims) = (with_reserve(settings.concurrency), with_reserve(settings.open_claims));
    let limits = callbacks.saturating_add(claims).saturating_add(MOST_WAITING);
    // A single namespace may use three quarters of the capacity, and this part must suffice for all three limits. So at
    // least a quarter is always free, and no namespace finds the capacity used up.
    limits.saturating_add(limits.div_ceil(3))
}

/// The greatest number of bytes in memory for all sign-in forms together.
const MOST_FORMS: usize = 256 << 10;

/// Returns the greatest number of bytes in memory for all request bodies together, without the
/// reserve ([`share`](crate::share)). A single client may use at most three quarters of these bytes, and three quarters
/// suffice for the largest body.
fn most_bodies(rules: &Rules) -> usize {
    (64 << 20).max(4 * (rules.body + rules.url + rules.headers))
}

/// Fails if a restore into this data folder has begun and not ended.
fn refuse_half_restored(data: &Path) -> Result<(), OpenError> {
    if is_half_restored(data) { Err(OpenError::HalfRestored(data.to_owned())) } else { Ok(()) }
}

/// Returns a notice for each file in the data folder that the service no longer uses, because nodes now share the
/// timers and namespaces. `place` says where the timers and namespaces are.
fn unused_files(data: &Path, place: &str) -> Vec<Box<str>> {
    let files = [("namespaces.json", "the namespaces are"), ("timers.redb", "the timers are")];
    let unused = files.map(|(file, content)| (data.join(file), content)).into_iter();
    let unused = unused.filter(|(path, _)| path.exists());
    unused
        .map(|(path, content)| format!("{} is not used: {content} in {place}", path.display()).into())
        .collect()
}

impl Service {
    /// Opens the files of a service, and begins to deliver due timers on the calling runtime.
    ///
    /// If the settings place the timers in Redis or PostgreSQL, the namespaces are stored there, too. The call then
    /// waits for the answers of the servers.
    ///
    /// # Errors
    ///
    /// Fails if a file or the store cannot be opened, if another process has opened the store or uses the data folder,
    /// if a thread does not start, or if the collector of spans cannot be used.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn open(settings: Settings) -> Result<Self, OpenError> {
        let checked = Checked::lock(&settings)?;
        match settings.store.clone() {
            StorePlace::File => Self::open_in_file(settings, checked),
            StorePlace::Sqlite(path) => Self::open_on_sqlite(settings, checked, &path),
            StorePlace::Redis(redis) => Self::open_on_redis(settings, checked, &redis),
            StorePlace::Postgres(postgres) => Self::open_in_postgres(settings, checked, &postgres),
        }
    }

    /// Opens a service as [`open`](Self::open) does, but with the timers in `store`. The other files are in the data
    /// folder.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be opened, if another service uses the data folder, if the namespaces of stored timers
    /// are missing, if a thread does not start, or if the collector of spans cannot be used.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn open_on(settings: Settings, store: Arc<dyn TimerStore>) -> Result<Self, OpenError> {
        let checked = Checked::lock(&settings)?;
        Self::open_beside(settings, store, checked, false)
    }

    /// Opens a service with its timers and its other files in the data folder.
    fn open_in_file(settings: Settings, checked: Checked) -> Result<Self, OpenError> {
        // No restore can begin after this check, because a restore must lock the folder.
        refuse_half_restored(&settings.data)?;
        let builder = RedbStore::builder().cache(settings.cache).scrub(settings.scrub);
        let builder = builder.keep_free(settings.keep_free).without_locks(settings.without_locks);
        let store = builder.open(settings.data.join("timers.redb"));
        let store = store.map_err(OpenError::Store)?;
        Self::open_beside(settings, Arc::new(store), checked, true)
    }

    /// Opens a service with its timers in an SQLite database and its other files in the data folder.
    fn open_on_sqlite(settings: Settings, mut checked: Checked, path: &Path) -> Result<Self, OpenError> {
        refuse_half_restored(&settings.data)?;
        let unused = settings.data.join("timers.redb");
        if unused.exists() {
            let (unused, path) = (unused.display(), path.display());
            checked.notices.push(format!("{unused} is not used: the timers are in {path}").into());
        }
        // The store has two connections, and each of them keeps this number of bytes in memory.
        let builder = SqliteStore::builder().cache(settings.cache / 2).keep_free(settings.keep_free);
        let store = builder.open(path).map_err(OpenError::Store)?;
        Self::open_beside(settings, Arc::new(store), checked, false)
    }

    /// Opens a service whose timers and namespaces are in PostgreSQL.
    fn open_in_postgres(
        settings: Settings,
        mut checked: Checked,
        postgres: &PostgresSettings,
    ) -> Result<Self, OpenError> {
        let place = format!("the schema {} in PostgreSQL", postgres.schema);
        checked.notices.extend(unused_files(&settings.data, &place));
        let store = open_postgres(postgres, postgres.migrates).map_err(OpenError::Store)?;
        let store: Arc<dyn ClusterStore> = Arc::new(store);
        let failed = |error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Io, error));
        let namespaces = Namespaces::open(NamespaceStorage::Shared(Arc::clone(&store))).map_err(failed)?;
        // Clients can create timers in SQL from the first start of a service on, and this start makes the document. So
        // beside timers, an absent document is a loss.
        refuse_lost(&*store, &namespaces, &postgres.schema)?;
        // In SQL, the namespace of a timer need not exist.
        let counts = block_on(store.counts()).map_err(OpenError::Store)?;
        // Another node may have made a namespace and its timers before they were counted.
        block_on(namespaces.renew()).map_err(failed)?;
        let missing = still_missing(&namespaces, &counts, &*store).map_err(OpenError::Store)?;
        add_missing(&namespaces, &missing, "made", &mut checked.notices).map_err(failed)?;
        namespaces.make_document().map_err(failed)?;
        Self::begin_on(settings, store, namespaces, checked)
    }

    /// Opens a service with its timers in `store` and its namespaces in the data folder. `is_own` says whether only
    /// this service stores timers there.
    fn open_beside(
        settings: Settings,
        store: Arc<dyn TimerStore>,
        mut checked: Checked,
        is_own: bool,
    ) -> Result<Self, OpenError> {
        let path = settings.data.join("namespaces.json");
        let is_there = path.exists();
        let namespaces = Namespaces::open(NamespaceStorage::File(path.clone())).map_err(file_error(&path))?;
        let counts = block_on(store.counts()).map_err(OpenError::Store)?;
        let missing = namespaces.missing(&counts);
        if !is_there {
            // A first start makes the file. A missing file had limits and secrets, so the start fails. An administrator
            // who accepts their loss writes `{}` into the file, as the error says. So a file that lacks these
            // namespaces is accepted.
            let with_timers = names_with_timers(&counts);
            let is_used = is_own && !with_timers.is_empty();
            if is_used || !missing.is_empty() || is_lost(&path) {
                let names = with_timers.into_iter().map(Box::from).collect();
                return Err(OpenError::NoNamespaces { path, names });
            }
            if !with_timers.is_empty() {
                let path = path.display();
                let fault = "the namespace \"default\" has timers and no limits or secrets";
                checked.notices.push(format!("{fault}: {path} was not there").into());
            }
        }
        add_missing(&namespaces, &missing, "in namespaces.json", &mut checked.notices)
            .map_err(file_error(&path))?;
        namespaces.make_document().map_err(file_error(&path))?;
        Self::begin_on(settings, store, namespaces, checked)
    }

    /// Opens a service whose timers and namespaces are in Redis.
    fn open_on_redis(
        settings: Settings,
        mut checked: Checked,
        redis: &RedisSettings,
    ) -> Result<Self, OpenError> {
        // The servers are checked before the store is opened, because unsuitable servers need an error of their own:
        // after this error, systemd does not start the service again.
        let report = deployment::checked(redis)?;
        let warnings = report.lines().iter().filter(|line| line.grade() == Grade::Warning);
        checked.notices.extend(warnings.map(|line| format!("Redis: {line}").into()));
        let place = format!("the deployment {} in Redis", redis.deployment);
        checked.notices.extend(unused_files(&settings.data, &place));
        let store = Arc::new(open_store(redis).map_err(OpenError::Store)?);
        refuse_note(&*store, &redis.deployment)?;
        let shared: Arc<dyn ClusterStore> = Arc::clone(&store) as _;
        let failed = |error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Io, error));
        let namespaces = Namespaces::open(NamespaceStorage::Shared(shared)).map_err(failed)?;
        refuse_lost(&*store, &namespaces, &redis.deployment)?;
        if namespaces.are_absent() && !report.is_absent() {
            let notice = "the deployment was there without a document of its namespaces, and without timers. If it has \
                          had namespaces, their limits and secrets are lost, unless a node that runs puts them back";
            checked.notices.push(notice.into());
        }
        Self::begin_on(settings, store, namespaces, checked)
    }

    /// Checks the files of the service other than the store. For each file that exists but cannot be read, returns a
    /// text with the path and the reason. If nodes share the store (`is_shared`), the file of the namespaces is not
    /// checked, because the service does not read it. The service reads the file of the operations at each start.
    pub(crate) fn unreadable_files(data: &Path, tokens: &Path, is_shared: bool) -> Vec<String> {
        let namespaces = data.join("namespaces.json");
        let operations = data.join("operations.json");
        let mut read = vec![
            (operations.clone(), OperationRecords::open(&operations, None).map(drop)),
            (tokens.to_owned(), Tokens::open(tokens).map(drop)),
        ];
        if !is_shared {
            let opened = match is_lost(&namespaces) {
                true => {
                    Err(io::Error::new(io::ErrorKind::NotFound, "the file is missing, and has been there"))
                }
                false => Namespaces::open(NamespaceStorage::File(namespaces.clone())).map(drop),
            };
            read.push((namespaces, opened));
        }
        let fault =
            |(path, read): (PathBuf, io::Result<()>)| Some(format!("{}: {}", path.display(), read.err()?));
        read.into_iter().filter_map(fault).collect()
    }

    /// Checks the two documents in a store that nodes share: the document of the namespaces, and the document of the
    /// operations on many timers. For each document that exists but cannot be read, returns a text with the reason.
    /// `is_made` says whether the document of the namespaces must exist, because a service has started on the store.
    pub(crate) fn unreadable_documents(store: &Arc<dyn ClusterStore>, is_made: bool) -> Vec<String> {
        let namespaces = match Namespaces::open(NamespaceStorage::Shared(Arc::clone(store))) {
            Ok(namespaces) if is_made && namespaces.are_absent() => {
                Some("lost; by `tourbillond mend`, a node that runs puts its copy back".to_owned())
            }
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        let namespaces = namespaces.map(|fault| format!("the shared document of the namespaces: {fault}"));
        namespaces.into_iter().chain(OperationRecords::fault_of_document(&**store)).collect()
    }

    /// Opens a node of a deployment whose store is `store`, a test double.
    #[cfg(test)]
    pub(crate) fn open_on_double(
        settings: Settings,
        store: Arc<dyn ClusterStore>,
    ) -> Result<Self, OpenError> {
        let namespaces = Namespaces::open(NamespaceStorage::Shared(Arc::clone(&store))).unwrap();
        Self::begin_on(settings, store, namespaces, Checked::default())
    }

    /// Builds the parts of the service on an open store, and begins to deliver timers.
    fn begin_on(
        settings: Settings,
        store: Arc<dyn TimerStore>,
        namespaces: Namespaces,
        checked: Checked,
    ) -> Result<Self, OpenError> {
        let path = settings.data.join("operations.json");
        // The file is read before the deliveries begin, so a damaged file stops the start before a timer is delivered.
        let records = OperationRecords::open(&path, namespaces.shared()).map_err(file_error(&path))?;
        let (base, durable) = Base::begin(settings, store, namespaces)?;
        let operations = Arc::new(base.operations(records));
        let limits = Arc::new(CreationLimits::new(Arc::clone(&base.settings), base.timers.clone()));
        let creations = Arc::new(base.creations(Arc::clone(&limits)));
        let changes = base.changes(Arc::clone(&creations), Arc::clone(&limits));
        let schedules = base.schedule_admin(limits, Arc::clone(&operations));
        let condition = Arc::new(base.condition());
        let sampler = Arc::new(base.sampler(Arc::clone(&condition)));
        let renewal = Arc::new(base.renewal(Arc::clone(&operations)));
        let mut inner = Inner {
            durable: Mutex::new(Some(durable)),
            bodies: Bodies::new(most_bodies(&base.settings.rules)),
            forms: Bodies::new(MOST_FORMS),
            namespace_admin: base.namespace_admin(),
            reports: base.reports(),
            metrics: base.metrics(Arc::clone(&condition), Arc::clone(&operations)),
            creations,
            changes,
            operations,
            schedules,
            condition,
            sampler,
            renewal,
            settings: base.settings,
            timers: base.timers,
            namespaces: base.namespaces,
            tokens: base.tokens,
            audit: base.audit,
            events: base.events,
            counters: base.counters,
            telemetry: base.telemetry,
            deliveries: base.deliveries,
            stored: base.stored,
            backups: base.backups,
            stop: base.stop,
            tasks: base.tasks,
            notices: checked.notices,
            _folder: checked.folder,
        };
        if let Err(error) = inner.begin_on_redis() {
            // The tasks of the deliveries have begun, and hold references to the store until the deliveries are closed.
            inner.deliveries.close();
            return Err(error);
        }
        inner.operations.resume();
        inner.sampler.begin();
        inner.renewal.begin();
        Ok(Self(Arc::new(inner)))
    }
}

impl Inner {
    /// Does nothing unless the timers are in Redis. Fails if a restore has begun beside this node. Then creates the
    /// document of the namespaces, and the namespaces that have timers but do not exist, since a slow creation may have
    /// stored a timer in a namespace that was just removed. A restore stores timers before their namespaces, so its
    /// check comes first.
    ///
    /// The deliveries have begun before this call. So a restore that begins later finds this node.
    fn begin_on_redis(&mut self) -> Result<(), OpenError> {
        let (StorePlace::Redis(redis), Some(store)) = (&self.settings.store, self.namespaces.shared()) else {
            return Ok(());
        };
        match refuse_note(&*store, &redis.deployment) {
            // The renewal looks for the note again. But a first start fails, because it would create the document of
            // namespaces.
            Err(OpenError::Store(error)) if error.is_transient() && !self.namespaces.are_absent() => {
                return Ok(());
            }
            checked => checked?,
        }
        let failed = |error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Io, error));
        // A server that does not answer now must not stop the start. The namespaces are read after the counts, because
        // another node may have made a namespace and its timers before they were counted.
        if let Ok(counts) = block_on(store.counts())
            && block_on(self.namespaces.renew()).is_ok()
        {
            let missing = still_missing(&self.namespaces, &counts, &*store).unwrap_or_default();
            add_missing(&self.namespaces, &missing, "made", &mut self.notices).map_err(failed)?;
        }
        self.namespaces.make_document().map_err(failed)
    }
}

/// The values that several parts of the service share. Each part takes clones of the values that it needs.
#[derive(Clone)]
struct Base {
    settings: Arc<Settings>,
    timers: Timers,
    schedules: Schedules,
    namespaces: Arc<Namespaces>,
    tokens: Tokens,
    audit: Audit,
    caller: Caller,
    events: Events,
    counters: Arc<Counters>,
    in_flight: Arc<InFlight>,
    endpoints: Arc<Endpoints>,
    history: Arc<History>,
    times: Arc<StoreTimes>,
    refusals: Arc<Refusals>,
    idempotency: Idempotency,
    telemetry: Telemetry,
    deliveries: Arc<Deliveries>,
    recorder: ChangeRecorder,
    stored: StoredTimers,
    backups: Arc<Backups>,
    disk_reads: DiskReads,
    stop: Stop,
    tasks: Tasks,
}

impl Base {
    /// Opens the service's files besides the store, and begins to deliver timers.
    fn begin(
        settings: Settings,
        store: Arc<dyn TimerStore>,
        namespaces: Namespaces,
    ) -> Result<(Self, Durable), OpenError> {
        let (settings, namespaces) = (Arc::new(settings), Arc::new(namespaces));
        let path = settings.tokens.clone().unwrap_or_else(|| settings.data.join("tokens.json"));
        let tokens = Tokens::open(&path).map_err(file_error(&path))?;
        let audit = Audit::new(&settings.data, tokens.clone());
        let caller = Caller::new(settings.caller.clone()).map_err(OpenError::Certificate)?;
        let backups = Arc::new(Backups::open(settings.data.join("backup.json")));
        let events = Events::new();
        let (counters, endpoints) = (Arc::<Counters>::default(), Arc::<Endpoints>::default());
        let (times, refusals) = (Arc::<StoreTimes>::default(), Arc::<Refusals>::default());
        let recount = Arc::<Notify>::default();
        let timing = Timing::new(Arc::clone(&times), Arc::clone(&refusals), Arc::clone(&recount));
        let store: Arc<dyn TimerStore> = Arc::new(TimedStore::new(store, timing));
        let in_flight = Arc::new(InFlight::new(Arc::clone(&store), Arc::<Metrics>::default()));
        let (history, history_error) = History::open(&settings.data.join("history.ring"));
        if history_error.is_some() {
            // The history is kept in memory only. An alarm on this counter reports the fault.
            counters.history_errors.add(1);
        }
        let telemetry = Telemetry::start(&settings.telemetry, &settings.caller.certificates);
        let telemetry = telemetry.map_err(OpenError::Telemetry)?;
        let schedules = schedules_of(Arc::clone(&store), &events);
        let deliveries = Arc::new(Deliveries::new(Environment {
            settings: &settings,
            store: &store,
            caller: &caller,
            namespaces: &namespaces,
            events: &events,
            counters: &counters,
            in_flight: &in_flight,
            endpoints: &endpoints,
            telemetry: &telemetry,
            recount: &recount,
        }));
        namespaces.on_change({
            let (in_flight, deliveries) = (Arc::clone(&in_flight), Arc::downgrade(&deliveries));
            move |new| {
                // An earlier namespace may have had the same name. A new namespace must not see its histories.
                new.iter().for_each(|name| in_flight.forget(name));
                // Timers may be parked because of a limit that was raised, or because of a pause that has ended.
                if let Some(deliveries) = deliveries.upgrade() {
                    deliveries.look_everywhere();
                }
            }
        });
        let builder = schedules.add_to(deliveries.add_to(builder(&settings, store)));
        let durable = builder.start().map_err(OpenError::Start)?;
        let timers = durable.handle().clone();
        deliveries.begin(&timers, namespaces.shared().as_ref());
        let base = Self {
            recorder: ChangeRecorder::new(events.clone(), Arc::clone(&counters), Arc::clone(&in_flight)),
            stored: StoredTimers::new(timers.clone(), Arc::clone(&namespaces)),
            idempotency: in_flight.idempotency().clone(),
            history: Arc::new(history),
            disk_reads: DiskReads::default(),
            stop: Stop::new(),
            tasks: Tasks::new(),
            settings,
            timers,
            schedules,
            namespaces,
            tokens,
            audit,
            caller,
            events,
            counters,
            in_flight,
            endpoints,
            times,
            refusals,
            telemetry,
            deliveries,
            backups,
        };
        Ok((base, durable))
    }

    fn creations(&self, limits: Arc<CreationLimits>) -> Creations {
        let Self { settings, timers, namespaces, idempotency, telemetry, recorder, .. } = self.clone();
        Creations { settings, timers, namespaces, limits, idempotency, telemetry, recorder }
    }

    fn changes(&self, creations: Arc<Creations>, limits: Arc<CreationLimits>) -> Changes {
        let Self { settings, timers, namespaces, stored, audit, telemetry, recorder, .. } = self.clone();
        Changes { settings, timers, namespaces, stored, creations, limits, audit, telemetry, recorder }
    }

    fn operations(&self, records: OperationRecords) -> Operations {
        let Self { timers, namespaces, schedules, audit, recorder, stop, tasks, .. } = self.clone();
        Operations { timers, namespaces, schedules, records, audit, recorder, stop, tasks }
    }

    fn schedule_admin(&self, limits: Arc<CreationLimits>, operations: Arc<Operations>) -> ScheduleAdmin {
        let Self { settings, timers, namespaces, schedules, recorder, .. } = self.clone();
        ScheduleAdmin { settings, timers, namespaces, schedules, limits, operations, recorder }
    }

    fn namespace_admin(&self) -> NamespaceAdmin {
        let Self { timers, namespaces, deliveries, audit, stop, tasks, .. } = self.clone();
        NamespaceAdmin { timers, namespaces, deliveries, audit, stop, tasks }
    }

    fn condition(&self) -> Condition {
        Condition {
            timers: self.timers.clone(),
            namespaces: Arc::clone(&self.namespaces),
            tokens: self.tokens.clone(),
            caller: self.caller.clone(),
            counters: Arc::clone(&self.counters),
            in_flight: Arc::clone(&self.in_flight),
            refusals: Arc::clone(&self.refusals),
            stop: self.stop.clone(),
            capacity: capacity(&self.settings),
            liveness: Mutex::new(Liveness::new()),
            begun: Instant::now(),
        }
    }

    fn reports(&self) -> Reports {
        Reports {
            settings: Arc::clone(&self.settings),
            timers: self.timers.clone(),
            namespaces: Arc::clone(&self.namespaces),
            stored: self.stored.clone(),
            caller: self.caller.clone(),
            deliveries: Arc::clone(&self.deliveries),
            in_flight: Arc::clone(&self.in_flight),
            endpoints: Arc::clone(&self.endpoints),
            history: Arc::clone(&self.history),
            disk_reads: self.disk_reads.clone(),
        }
    }

    fn metrics(&self, condition: Arc<Condition>, operations: Arc<Operations>) -> MetricsPage {
        MetricsPage {
            settings: Arc::clone(&self.settings),
            timers: self.timers.clone(),
            namespaces: Arc::clone(&self.namespaces),
            condition,
            deliveries: Arc::clone(&self.deliveries),
            operations,
            idempotency: self.idempotency.clone(),
            caller: self.caller.clone(),
            events: self.events.clone(),
            counters: Arc::clone(&self.counters),
            in_flight: Arc::clone(&self.in_flight),
            times: Arc::clone(&self.times),
            refusals: Arc::clone(&self.refusals),
            telemetry: self.telemetry.clone(),
            backups: Arc::clone(&self.backups),
            disk_reads: self.disk_reads.clone(),
        }
    }

    fn sampler(&self, condition: Arc<Condition>) -> Sampler {
        let Self { timers, counters, history, stop, .. } = self.clone();
        Sampler { timers, condition, counters, history, sampled: Mutex::default(), stop }
    }

    fn renewal(&self, operations: Arc<Operations>) -> Renewal {
        let Self { timers, namespaces, stop, settings, .. } = self.clone();
        Renewal { timers, namespaces, operations, stop, settings, stale: STALE }
    }
}

/// Configures the runtime that delivers the timers of a store. The caller adds the handlers.
fn builder(settings: &Settings, store: Arc<dyn TimerStore>) -> Builder {
    let mut limits = Limits::default();
    limits.payload = settings.rules.url + settings.rules.headers + settings.rules.body + work::OVERHEAD;
    limits.delay = settings.max_delay;
    let runtime = tokio::runtime::Handle::current();
    Durable::builder_on(store)
        .executor(move |work| drop(runtime.spawn(work)))
        .concurrency(capacity(settings))
        .in_turn()
        .lease(settings.lease)
        .limits(limits)
        .catch_up_rate(settings.catch_up_rate)
        .on_incident(incidents::log)
}
