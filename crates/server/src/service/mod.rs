//! The service: the stored timers, the namespaces that they belong to, and all that the HTTP interface asks for.

mod alive;
mod audit;
mod backup;
mod census;
mod change;
mod counters;
mod creations;
mod dead;
mod deed;
mod deployment;
mod disk;
mod events;
mod files;
mod group;
mod hosts;
mod idempotency;
mod incidents;
mod limits;
mod metrics;
mod namespaces;
mod nodes;
mod open_error;
mod operations;
mod place;
mod principal;
mod queues;
mod redis;
mod report;
mod restore;
mod sampling;
mod schedules;
mod shelf;
mod stop;
mod takeovers;
mod tenancy;
mod token_file;
mod tokens;
mod trace;
mod trail;
mod view;
mod walk;

pub(crate) use audit::Note;
pub(crate) use backup::Backup;
pub(crate) use change::{Named, Verb, id};
pub(crate) use counters::{Counter, Counters};
pub(crate) use deed::{Deed, End};
pub(crate) use deployment::{checked, mend, open_store};
pub(crate) use disk::Disk;
pub(crate) use events::{Events, Subscription, event};
pub(crate) use group::{DeadGroup, DeadWork};
pub(crate) use idempotency::Idempotency;
pub(crate) use namespaces::{Namespace, Namespaces, allows_host};
pub use open_error::OpenError;
pub(crate) use operations::{Operations, Work};
pub(crate) use place::Naming;
pub use principal::Principal;
pub(crate) use restore::{is_half_restored, restore, restore_shared};
pub(crate) use stop::Stop;
pub(crate) use token_file::{NewToken, TokenFile, TokenHash, hash, id_of_token, role_name};
pub(crate) use tokens::Tokens;
pub(crate) use trace::Trace;
pub(crate) use trail::{Trail, Wanted};

use crate::bodies::Bodies;
use crate::delivery::{Deliveries, MOST_WAITING};
use crate::record::{Endpoints, Flights, History, Refusals, Tally, Timed, Times, Timing, Totals};
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::work;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use open_error::of;
use pollster::block_on;
use shelf::Shelf;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tourbillon_callback::{Caller, Rules};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::store::{RedbStore, TimerStore};
use tourbillon_durable::{Durable, Limits, Stats, Timers};

/// A running service. It can be cloned; the clones are the same service.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    settings: Settings,
    timers: Timers,
    durable: Mutex<Option<Durable>>,
    namespaces: Arc<Namespaces>,
    tokens: Tokens,
    events: Events,
    bodies: Arc<Bodies<Option<TokenHash>>>,
    forms: Arc<Bodies<Option<IpAddr>>>,
    caller: Caller,
    deliveries: Deliveries,
    census: census::Census,
    creations: creations::Creations,
    counters: Arc<Counters>,
    schedules: Schedules,
    telemetry: Telemetry,
    flights: Arc<Flights>,
    endpoints: Arc<Endpoints>,
    times: Arc<Times>,
    refusals: Arc<Refusals>,
    history: History,
    sampled: Mutex<Totals>,
    idempotency: Idempotency,
    operations: Operations,
    backups: backup::Backups,
    stop: Stop,
    /// What an administrator is to know of the start.
    notices: Vec<Box<str>>,
    /// Keeps the folder for this process, if no store in it does.
    _folder: Option<File>,
    polls: Mutex<alive::Polls>,
    begun: Instant,
}

/// What a start has found, beside the store.
#[derive(Default)]
struct Start {
    notices: Vec<Box<str>>,
    folder: Option<File>,
}

/// The greatest number of handlers that run: callbacks, open claims, and deliveries that wait for a place in memory.
/// Each of the three has its own limit, so none takes the room of the others.
fn capacity(settings: &Settings) -> usize {
    let limits = settings.concurrency.saturating_add(settings.open_claims).saturating_add(MOST_WAITING);
    // Three quarters of it are one namespace's.
    limits.saturating_add(limits.div_ceil(3))
}

/// The greatest number of bytes of forms under way by which visitors sign in.
const MOST_FORMS: usize = 256 << 10;

/// The greatest number of bytes of bodies under way. One client has room for the largest body.
fn most_bodies(rules: &Rules) -> usize {
    (64 << 20).max(4 * (rules.body + rules.url + rules.headers))
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
        files::make_folder(&settings.data).map_err(of(&settings.data))?;
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
        files::make_folder(&settings.data).map_err(of(&settings.data))?;
        let path = settings.data.join("namespaces.json");
        let is_there = path.exists();
        let namespaces = Namespaces::open(Shelf::File(path.clone())).map_err(of(&path))?;
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
            let add = |map: &mut namespaces::Map| {
                for name in &missing {
                    map.entry(name.clone()).or_default();
                }
            };
            namespaces.change(add).map_err(of(&path))?;
        }
        let start = Start { notices, ..Start::default() };
        Self::begin_on(settings, store, namespaces, start)
    }

    /// The files beside the store that cannot be read, each with the reason. Files that are missing are left out.
    pub(crate) fn unreadable_files(data: &Path, tokens: &Path) -> Vec<String> {
        let namespaces = data.join("namespaces.json");
        let operations = data.join("operations.json");
        let read = [
            (namespaces.clone(), Namespaces::open(Shelf::File(namespaces)).map(drop)),
            (operations.clone(), Operations::open(&operations, None).map(drop)),
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
        start: Start,
    ) -> Result<Self, OpenError> {
        let namespaces = Arc::new(namespaces);
        let path = settings.tokens.clone().unwrap_or_else(|| settings.data.join("tokens.json"));
        let tokens = Tokens::open(&path).map_err(of(&path))?;
        let caller = Caller::new(settings.caller.clone()).map_err(OpenError::Certificate)?;
        let path = settings.data.join("operations.json");
        let operations = Operations::open(&path, namespaces.shared()).map_err(of(&path))?;
        let backups = backup::Backups::open(settings.data.join("backup.json"));
        let events = Events::new();
        let times = Arc::<Times>::default();
        let refusals = Arc::<Refusals>::default();
        let store: Arc<dyn TimerStore> =
            Arc::new(Timed::new(store, Timing::new(Arc::clone(&times), Arc::clone(&refusals))));
        let flights = Arc::new(Flights::new(Arc::clone(&store), Arc::<Tally>::default()));
        let endpoints = Arc::<Endpoints>::default();
        let (history, history_error) = History::open(&settings.data.join("history.ring"));
        let mut limits = Limits::default();
        limits.payload = settings.rules.url + settings.rules.headers + settings.rules.body + work::OVERHEAD;
        limits.delay = settings.max_delay;
        let runtime = tokio::runtime::Handle::current();
        let schedules = events::schedules_of(Arc::clone(&store), &events);
        let builder = Durable::builder_on(store)
            .executor(move |work| drop(runtime.spawn(work)))
            .concurrency(capacity(&settings))
            .in_turn()
            .lease(settings.lease)
            .limits(limits)
            .catch_up_rate(settings.catch_up_rate)
            .on_incident(incidents::log);
        let counters = Arc::new(Counters::default());
        let telemetry = Telemetry::start(&settings.telemetry, &settings.caller.certificates);
        let telemetry = telemetry.map_err(OpenError::Telemetry)?;
        let records = (&flights, &endpoints, &telemetry);
        let deliveries = Deliveries::new(&settings, &caller, &namespaces, &events, &counters, records);
        let durable = schedules.add_to(deliveries.add_to(builder)).start().map_err(OpenError::Start)?;
        let timers = durable.handle().clone();
        deliveries.begin(&timers, namespaces.shared().as_deref());
        let rules = settings.rules;
        let service = Self(Arc::new(Inner {
            settings,
            timers,
            durable: Mutex::new(Some(durable)),
            namespaces,
            tokens,
            events,
            bodies: Bodies::new(most_bodies(&rules)),
            forms: Bodies::new(MOST_FORMS),
            caller,
            deliveries,
            census: census::Census::default(),
            creations: creations::Creations::default(),
            counters,
            schedules,
            telemetry,
            flights,
            endpoints,
            times,
            refusals,
            history,
            sampled: Mutex::default(),
            idempotency: Idempotency::default(),
            operations,
            backups,
            stop: Stop::new(),
            notices: start.notices,
            _folder: start.folder,
            polls: Mutex::new(alive::Polls::new()),
            begun: Instant::now(),
        }));
        if history_error.is_some() {
            service.counters().history_errors.add(1);
        }
        service.resume_operations();
        service.begin_sampling();
        service.begin_renewing();
        Ok(service)
    }

    /// Ends the requests that last: streams of events end, and operations stop at their places and go on at the next
    /// start. The other requests are answered as before. For a server that waits for its last answers.
    pub fn begin_stop(&self) {
        self.stop().begin();
    }

    /// Stops claiming, waits at most so long for operations and deliveries under way, and gives the rest back. Sends
    /// the last spans to the collector, if there is one: for what is left of the time, but for at least half a second
    /// and at most five. A second call returns at once. Blocks the calling thread.
    pub fn close(&self, patience: Duration) -> Option<Stats> {
        let begun = Instant::now();
        self.begin_stop();
        self.0.deliveries.close();
        let _have_ended = self.operations().await_end(patience);
        let durable = self.0.durable.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stats = durable.map(|durable| durable.shutdown(patience.saturating_sub(begun.elapsed())));
        self.end_sampling();
        self.0.telemetry.close(patience.saturating_sub(begun.elapsed()));
        stats
    }

    /// Reads the file of the tokens again, if it has changed or `always`. Returns whether it was read. If it cannot be
    /// read, the tokens stay as they are.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn reload_tokens(&self, always: bool) -> io::Result<bool> {
        self.0.tokens.reload(always)
    }

    /// What an administrator is to know of the start, a line each: warnings of the checks, and files that are not used.
    #[must_use]
    pub fn notices(&self) -> &[Box<str>] {
        &self.0.notices
    }

    /// Whether the service has no tokens and permits everything. Such a service must be reachable from this machine
    /// only.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.tokens.is_open()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.0.timers
    }

    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.0.namespaces
    }

    /// Begins a backup, if there is room for one more.
    pub(crate) fn begin_backup(&self) -> Option<Backup> {
        self.0.backups.begin(self.0.timers.timer_store(), &self.0.namespaces.all())
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn events(&self) -> &Events {
        &self.0.events
    }

    /// The bodies of requests that have a right, by their tokens.
    pub(crate) fn bodies(&self) -> &Arc<Bodies<Option<TokenHash>>> {
        &self.0.bodies
    }

    /// The forms by which visitors sign in, by their addresses.
    pub(crate) fn forms(&self) -> &Arc<Bodies<Option<IpAddr>>> {
        &self.0.forms
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.0.caller
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

    pub(crate) fn flights(&self) -> &Flights {
        &self.0.flights
    }

    pub(crate) fn idempotency(&self) -> &Idempotency {
        &self.0.idempotency
    }

    pub(crate) fn schedules(&self) -> &Schedules {
        &self.0.schedules
    }

    pub(crate) fn operations(&self) -> &Operations {
        &self.0.operations
    }

    pub(crate) fn stop(&self) -> &Stop {
        &self.0.stop
    }

    pub(crate) fn up(&self) -> Duration {
        self.0.begun.elapsed()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("data", &self.0.settings.data).finish_non_exhaustive()
    }
}
