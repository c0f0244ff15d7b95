//! The start of a service: its files, its store, and its parts in the order in which they need each other.

use super::backup::Backups;
use super::changes::Changes;
use super::creations::{CreationLimits, Creations, Idempotency};
use super::deployment::{RESTORING, checked, open_store};
use super::namespace_admin::NamespaceAdmin;
use super::open_error::{OpenError, file_error};
use super::operations::{OperationRecords, Operations};
use super::recorder::ChangeRecorder;
use super::renewal::Renewal;
use super::reports::{Condition, Liveness, MetricsPage, Reports, Sampler};
use super::restore::is_half_restored;
use super::schedules::ScheduleAdmin;
use super::stored_timers::StoredTimers;
use super::{Inner, Service, incidents};
use crate::audit::Audit;
use crate::bodies::Bodies;
use crate::delivery::{Deliveries, Environment, MOST_WAITING};
use crate::record::{Endpoints, History, InFlight, Metrics, Refusals, StoreTimes, TimedStore};
use crate::settings::{RedisSettings, Settings};
use crate::state::{Counters, Events, Map, NamespaceStorage, Namespaces, Stop, Tokens, files, schedules_of};
use crate::telemetry::Telemetry;
use crate::work;
use pollster::block_on;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tourbillon_callback::{Caller, Rules};
use tourbillon_durable::store::{RedbStore, StoreError, StoreErrorKind, TimerStore};
use tourbillon_durable::{Durable, Limits};
use tourbillon_redis::Grade;

/// The results of the checks before a start, beside the store.
#[derive(Default)]
struct Checked {
    notices: Vec<Box<str>>,
    folder: Option<File>,
}

/// The greatest number of handlers that run: callbacks, open claims, and deliveries that wait for a permit in memory.
/// Each of the three has its own limit, so none takes the room of the others.
fn capacity(settings: &Settings) -> usize {
    let limits = settings.concurrency.saturating_add(settings.open_claims).saturating_add(MOST_WAITING);
    // A namespace alone gets three quarters of the capacity, which must be all of these limits.
    limits.saturating_add(limits.div_ceil(3))
}

/// The greatest number of bytes of forms under way by which visitors sign in.
const MOST_FORMS: usize = 256 << 10;

/// The greatest number of bytes of bodies under way. One client has room for the largest body.
fn most_bodies(rules: &Rules) -> usize {
    (64 << 20).max(4 * (rules.body + rules.url + rules.headers))
}

/// Takes the folder for this process, for as long as the file is open.
fn lock(data: &Path) -> Result<File, OpenError> {
    let path = data.join("lock");
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(file_error(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(data.to_owned())),
        Err(TryLockError::Error(error)) => Err(file_error(&path)(error)),
    }
}

impl Service {
    /// Opens the files of a service and begins to deliver the timers that are due. Deliveries run on the calling
    /// runtime. With settings of Redis, the timers and namespaces are there; the call waits for the servers' answers.
    ///
    /// # Errors
    ///
    /// Fails if a file or the store cannot be opened, another process has the store open, a thread does not start, or
    /// the collector of spans cannot be used.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn open(settings: Settings) -> Result<Self, OpenError> {
        files::make_folder(&settings.data).map_err(file_error(&settings.data))?;
        if let Some(redis) = settings.redis.clone() {
            return Self::open_shared(settings, &redis);
        }
        let check = || match is_half_restored(&settings.data) {
            true => Err(OpenError::HalfRestored(settings.data.clone())),
            false => Ok(()),
        };
        check()?;
        let builder = RedbStore::builder().cache(settings.cache).scrub(settings.scrub);
        let builder = builder.keep_free(settings.keep_free).without_locks(settings.without_locks);
        let store = builder.open(settings.data.join("timers.redb"));
        let store = store.map_err(OpenError::Store)?;
        // A restore has the store open for as long as it lasts, so none begins from here on.
        check()?;
        Self::open_on(settings, Arc::new(store))
    }

    /// As [`open`](Self::open), with the timers in this store. The other files are in the folder.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be opened, the namespaces of stored timers are missing, a thread does not start, or the
    /// collector of spans cannot be used.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn open_on(settings: Settings, store: Arc<dyn TimerStore>) -> Result<Self, OpenError> {
        files::make_folder(&settings.data).map_err(file_error(&settings.data))?;
        let path = settings.data.join("namespaces.json");
        let is_there = path.exists();
        let namespaces = Namespaces::open(NamespaceStorage::File(path.clone())).map_err(file_error(&path))?;
        let counts = block_on(store.counts()).map_err(OpenError::Store)?;
        let missing = namespaces.missing(&counts);
        if !missing.is_empty() && !is_there {
            return Err(OpenError::NoNamespaces { path, names: missing });
        }
        let notice = |name: &str| {
            format!(
                "the namespace {name:?} has timers and is not in namespaces.json: it has no limits and no secrets"
            )
        };
        let notices = missing.iter().map(|name| notice(name).into()).collect();
        if !missing.is_empty() {
            let add = |map: &mut Map| {
                for name in &missing {
                    map.entry(name.clone()).or_default();
                }
            };
            namespaces.change(add).map_err(file_error(&path))?;
        }
        let checked = Checked { notices, ..Checked::default() };
        Self::begin_on(settings, store, namespaces, checked)
    }

    /// Opens a service on Redis.
    fn open_shared(settings: Settings, redis: &RedisSettings) -> Result<Self, OpenError> {
        let folder = Some(lock(&settings.data)?);
        let report = checked(redis)?;
        let warnings = report.lines().iter().filter(|line| line.grade() == Grade::Warning);
        let mut notices: Vec<Box<str>> = warnings.map(|line| format!("Redis: {line}").into()).collect();
        for (file, content) in [("namespaces.json", "the namespaces are"), ("timers.redb", "the timers are")]
        {
            let path = settings.data.join(file);
            if path.exists() {
                let path = path.display();
                let name = &redis.deployment;
                notices
                    .push(format!("{path} is not used: {content} in the deployment {name} in Redis").into());
            }
        }
        let store = Arc::new(open_store(redis).map_err(OpenError::Store)?);
        if block_on(store.note(RESTORING)).map_err(OpenError::Store)?.is_some() {
            return Err(OpenError::HalfRestoredDeployment(redis.deployment.as_str().into()));
        }
        let namespaces = Namespaces::open(NamespaceStorage::Shared(Arc::clone(&store)))
            .map_err(|error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Io, error)))?;
        Self::begin_on(settings, store, namespaces, Checked { notices, folder })
    }

    /// The files beside the store that cannot be read, each with the reason. Files that are missing are left out.
    pub(crate) fn unreadable_files(data: &Path, tokens: &Path) -> Vec<String> {
        let namespaces = data.join("namespaces.json");
        let operations = data.join("operations.json");
        let read = [
            (namespaces.clone(), Namespaces::open(NamespaceStorage::File(namespaces)).map(drop)),
            (operations.clone(), OperationRecords::open(&operations, None).map(drop)),
            (tokens.to_owned(), Tokens::open(tokens).map(drop)),
        ];
        let fault =
            |(path, read): (PathBuf, io::Result<()>)| Some(format!("{}: {}", path.display(), read.err()?));
        read.into_iter().filter_map(fault).collect()
    }

    /// Begins to deliver the timers of a store.
    fn begin_on(
        settings: Settings,
        store: Arc<dyn TimerStore>,
        namespaces: Namespaces,
        checked: Checked,
    ) -> Result<Self, OpenError> {
        let settings = Arc::new(settings);
        let namespaces = Arc::new(namespaces);
        let path = settings.tokens.clone().unwrap_or_else(|| settings.data.join("tokens.json"));
        let tokens = Tokens::open(&path).map_err(file_error(&path))?;
        let audit = Audit::new(&settings.data, tokens.clone());
        let caller = Caller::new(settings.caller.clone()).map_err(OpenError::Certificate)?;
        let path = settings.data.join("operations.json");
        let records = OperationRecords::open(&path, namespaces.shared()).map_err(file_error(&path))?;
        let backups = Arc::new(Backups::open(settings.data.join("backup.json")));
        let (events, stop) = (Events::new(), Stop::new());
        let (counters, endpoints) = (Arc::<Counters>::default(), Arc::<Endpoints>::default());
        let (times, refusals) = (Arc::<StoreTimes>::default(), Arc::<Refusals>::default());
        let store: Arc<dyn TimerStore> =
            Arc::new(TimedStore::new(store, Arc::clone(&times), Arc::clone(&refusals)));
        let in_flight = Arc::new(InFlight::new(Arc::clone(&store), Arc::<Metrics>::default()));
        let (history, history_error) = History::open(&settings.data.join("history.ring"));
        if history_error.is_some() {
            counters.history_errors.add(1);
        }
        let history = Arc::new(history);
        let telemetry = Telemetry::start(&settings.telemetry, &settings.caller.certificates);
        let telemetry = telemetry.map_err(OpenError::Telemetry)?;
        let schedules = schedules_of(Arc::clone(&store), &events);
        let deliveries = Arc::new(Deliveries::new(Environment {
            settings: &settings,
            caller: &caller,
            namespaces: &namespaces,
            events: &events,
            counters: &counters,
            in_flight: &in_flight,
            endpoints: &endpoints,
            telemetry: &telemetry,
        }));
        let mut limits = Limits::default();
        limits.payload = settings.rules.url + settings.rules.headers + settings.rules.body + work::OVERHEAD;
        limits.delay = settings.max_delay;
        let runtime = tokio::runtime::Handle::current();
        let builder = Durable::builder_on(store)
            .executor(move |work| drop(runtime.spawn(work)))
            .concurrency(capacity(&settings))
            .in_turn()
            .lease(settings.lease)
            .limits(limits)
            .catch_up_rate(settings.catch_up_rate)
            .on_incident(incidents::log);
        let durable = schedules.add_to(deliveries.add_to(builder)).start().map_err(OpenError::Start)?;
        let timers = durable.handle().clone();
        deliveries.begin(&timers, namespaces.shared().as_deref());

        let recorder = ChangeRecorder::new(events.clone(), Arc::clone(&counters), Arc::clone(&in_flight));
        let stored = StoredTimers::new(timers.clone(), Arc::clone(&namespaces));
        let creation_limits = Arc::new(CreationLimits::new(Arc::clone(&settings), timers.clone()));
        let idempotency = Idempotency::default();
        let creations = Arc::new(Creations {
            settings: Arc::clone(&settings),
            timers: timers.clone(),
            namespaces: Arc::clone(&namespaces),
            limits: Arc::clone(&creation_limits),
            idempotency: idempotency.clone(),
            telemetry: telemetry.clone(),
            recorder: recorder.clone(),
        });
        let changes = Changes {
            settings: Arc::clone(&settings),
            timers: timers.clone(),
            namespaces: Arc::clone(&namespaces),
            stored: stored.clone(),
            creations: Arc::clone(&creations),
            limits: Arc::clone(&creation_limits),
            audit: audit.clone(),
            telemetry: telemetry.clone(),
            recorder: recorder.clone(),
        };
        let operations = Arc::new(Operations {
            timers: timers.clone(),
            namespaces: Arc::clone(&namespaces),
            schedules: schedules.clone(),
            records,
            audit: audit.clone(),
            recorder: recorder.clone(),
            stop: stop.clone(),
        });
        let schedules = ScheduleAdmin {
            settings: Arc::clone(&settings),
            timers: timers.clone(),
            namespaces: Arc::clone(&namespaces),
            schedules,
            limits: creation_limits,
            operations: Arc::clone(&operations),
            recorder,
        };
        let namespace_admin = NamespaceAdmin {
            timers: timers.clone(),
            namespaces: Arc::clone(&namespaces),
            deliveries: Arc::clone(&deliveries),
            in_flight: Arc::clone(&in_flight),
            audit: audit.clone(),
        };
        let condition = Arc::new(Condition {
            timers: timers.clone(),
            namespaces: Arc::clone(&namespaces),
            tokens: tokens.clone(),
            caller: caller.clone(),
            counters: Arc::clone(&counters),
            in_flight: Arc::clone(&in_flight),
            refusals: Arc::clone(&refusals),
            stop: stop.clone(),
            capacity: capacity(&settings),
            liveness: Mutex::new(Liveness::new()),
            begun: Instant::now(),
        });
        let reports = Reports {
            settings: Arc::clone(&settings),
            timers: timers.clone(),
            namespaces: Arc::clone(&namespaces),
            stored: stored.clone(),
            caller: caller.clone(),
            deliveries: Arc::clone(&deliveries),
            in_flight: Arc::clone(&in_flight),
            endpoints,
            history: Arc::clone(&history),
        };
        let metrics = MetricsPage {
            settings: Arc::clone(&settings),
            timers: timers.clone(),
            namespaces: Arc::clone(&namespaces),
            condition: Arc::clone(&condition),
            deliveries: Arc::clone(&deliveries),
            operations: Arc::clone(&operations),
            idempotency,
            caller,
            events: events.clone(),
            counters: Arc::clone(&counters),
            in_flight: Arc::clone(&in_flight),
            times,
            refusals,
            telemetry: telemetry.clone(),
            backups: Arc::clone(&backups),
        };
        let sampler = Arc::new(Sampler {
            timers: timers.clone(),
            condition: Arc::clone(&condition),
            counters: Arc::clone(&counters),
            history,
            sampled: Mutex::default(),
            stop: stop.clone(),
        });
        let renewal = Arc::new(Renewal {
            timers: timers.clone(),
            namespaces: Arc::clone(&namespaces),
            operations: Arc::clone(&operations),
            deliveries: Arc::clone(&deliveries),
            in_flight,
            stop: stop.clone(),
        });
        operations.resume();
        sampler.begin();
        renewal.begin();
        let (bodies, forms) = (Bodies::new(most_bodies(&settings.rules)), Bodies::new(MOST_FORMS));
        Ok(Self(Arc::new(Inner {
            settings,
            timers,
            durable: Mutex::new(Some(durable)),
            namespaces,
            tokens,
            audit,
            events,
            counters,
            bodies,
            forms,
            telemetry,
            deliveries,
            stored,
            creations,
            changes,
            operations,
            schedules,
            namespace_admin,
            condition,
            reports,
            metrics,
            sampler,
            _renewal: renewal,
            backups,
            stop,
            notices: checked.notices,
            _folder: checked.folder,
        })))
    }
}
