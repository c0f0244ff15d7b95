//! The runtime: a store, handlers, and a loop between them.

mod alarm;
mod batch;
mod catch_up;
mod event;
mod keeper;
mod report;
mod settings;
mod steps;
mod times;
mod under_way;

pub use batch::{Change, Effect};
pub use event::{Attempt, Ending, Event, Incident};
pub(crate) use keeper::Keeper;
pub use report::{Health, Stats};
pub use times::Times;

use crate::delivery::Delivery;
use crate::executor::{Executor, Threads, block_on};
use crate::handler::{Asynchronous, Blocking, Bytes, Handler, Verdict};
use crate::plan::PlanError;
use crate::spec::{Kind, Limits, Rejection, ScheduleError, Spec};
use crate::state::{LONGEST_LEASE, Phase, Refusal};
use crate::store::{
    Counts, Cursor, Durability, Fault, Filter, Horizon, Op, Outcome, Page, StoreError, StoreErrorKind,
    TimerStore,
};
use crate::timer::{Address, Timer, TimerId};
use crate::utc::UtcMillis;
use alarm::Alarms;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::time::Duration;
use settings::Settings;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use tourbillon::{Clock, SystemClock};

/// The time by which a due timer may be late before [`Health`] says so.
const OVERDUE: Duration = Duration::from_secs(10);

/// The settings of a runtime, with defaults. Made by [`Durable::builder`].
#[must_use = "a builder starts nothing by itself"]
pub struct Builder {
    store: Arc<dyn TimerStore>,
    handlers: HashMap<&'static str, Arc<dyn Handler>>,
    duplicate: Option<&'static str>,
    clock: Arc<dyn Clock>,
    /// The clock beside which a step of the store's clock shows.
    steady: Arc<dyn Clock>,
    workers: usize,
    concurrency: Option<usize>,
    settings: Settings,
}

/// The reason why a runtime was not started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Two handlers were given for one kind.
    DuplicateKind(&'static str),
    /// The name of a kind is longer than 64 bytes.
    LongKind(&'static str),
    /// The system did not start a thread.
    Thread(std::io::Error),
    /// The engine was not started.
    Engine(tourbillon::BuildError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateKind(kind) => write!(f, "two handlers were given for the kind {kind:?}"),
            Self::LongKind(kind) => write!(f, "the name of the kind {kind:?} is longer than 64 bytes"),
            Self::Thread(error) => write!(f, "a thread was not started: {error}"),
            Self::Engine(error) => write!(f, "the engine was not started: {error}"),
        }
    }
}

impl core::error::Error for StartError {}

impl Builder {
    /// Delivers timers of the kind `K` to an asynchronous function. Its answer is a [`Verdict`], or `()`, or a `Result`
    /// whose error is a reason to try again.
    ///
    /// The future runs on the [`executor`](Self::executor), or else on one of the runtime's
    /// [`workers`](Self::workers), which it occupies until its end.
    ///
    /// ```
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Delivery, Durable};
    ///
    /// # #[derive(Debug, serde::Serialize, serde::Deserialize)]
    /// # struct Remind {
    /// #     order: u64,
    /// # }
    /// # impl tourbillon_durable::Kind for Remind {
    /// #     const NAME: &'static str = "remind";
    /// # }
    /// let durable = Durable::builder(MemoryStore::default())
    ///     .handler(async |remind: Remind, delivery: Delivery| {
    ///         if remind.order == 0 { Err(format!("attempt {}: no such order", delivery.attempt)) } else { Ok(()) }
    ///     })
    ///     .start()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn handler<K, F, R>(self, handler: F) -> Self
    where
        K: Kind,
        F: Fn(K, Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: Into<Verdict>> + Send + 'static,
    {
        self.add(K::NAME, Arc::new(Asynchronous(handler, PhantomData::<fn(K)>)))
    }

    /// Delivers timers of the kind `K` to a function that may block. It runs on one of the runtime's
    /// [`workers`](Self::workers).
    ///
    /// ```
    /// use tourbillon_durable::Durable;
    /// use tourbillon_durable::store::MemoryStore;
    ///
    /// # #[derive(Debug, serde::Serialize, serde::Deserialize)]
    /// # struct Remind {
    /// #     order: u64,
    /// # }
    /// # impl tourbillon_durable::Kind for Remind {
    /// #     const NAME: &'static str = "remind";
    /// # }
    /// let durable = Durable::builder(MemoryStore::default())
    ///     .blocking_handler(|remind: Remind, _| println!("order {} is not paid", remind.order))
    ///     .start()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking_handler<K, F, V>(self, handler: F) -> Self
    where
        K: Kind,
        F: Fn(K, Delivery) -> V + Send + Sync + 'static,
        V: Into<Verdict> + 'static,
    {
        self.add(K::NAME, Arc::new(Blocking(Arc::new(handler), PhantomData::<fn(K)>)))
    }

    /// Delivers timers of this kind to an asynchronous function that gets the payload as it is stored. For kinds whose
    /// payload is no JSON: see [`Timers::schedule_bytes`].
    ///
    /// ```
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Spec};
    ///
    /// let durable = Durable::builder(MemoryStore::default())
    ///     .bytes_handler("mail", async |text, _| println!("{}", String::from_utf8_lossy(&text)))
    ///     .start()?;
    /// durable.handle().schedule_bytes_blocking("mail", Spec::new(b"hello".to_vec()))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bytes_handler<F, R>(self, kind: &'static str, handler: F) -> Self
    where
        F: Fn(Box<[u8]>, Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: Into<Verdict>> + Send + 'static,
    {
        self.add(kind, Arc::new(Bytes(handler)))
    }

    fn add(mut self, kind: &'static str, handler: Arc<dyn Handler>) -> Self {
        if self.handlers.insert(kind, handler).is_some() {
            self.duplicate = Some(kind);
        }
        self
    }

    /// Runs the futures of handlers on this executor, for example `move |work| drop(tokio_handle.spawn(work))`.
    ///
    /// ```
    /// use tourbillon_durable::Durable;
    /// use tourbillon_durable::store::MemoryStore;
    ///
    /// // Each on a thread of its own.
    /// let spawn = |work| drop(std::thread::spawn(|| pollster::block_on(work)));
    /// let builder = Durable::builder(MemoryStore::default()).executor(spawn);
    /// let durable = builder.bytes_handler("mail", async |_, _| {}).start()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.settings.executor = Some(Arc::new(executor));
        self
    }

    /// Sets the number of threads for handlers that do not run on an executor. 8 by default; 0 counts as 1.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Sets the greatest number of handlers that run at a time. By default the number of
    /// [`workers`](Self::workers), or 1,024 with an executor. No more timers are claimed than can begin at once.
    pub fn concurrency(self, handlers: usize) -> Self {
        Self { concurrency: Some(handlers.max(1)), ..self }
    }

    /// Has the namespaces share the handlers: one that has many timers due at once holds up no other. A namespace alone
    /// has three quarters of the [`concurrency`](Self::concurrency), a second one three quarters of the rest, and so
    /// on; its further timers wait in the store, and those of others are claimed that are due later. Each namespace has
    /// the [`catch_up_rate`](Self::catch_up_rate) for itself. A store that has no claims in turn delivers by the due
    /// moments alone, as without this; those of this project have them.
    pub fn in_turn(mut self) -> Self {
        self.settings.in_turn = true;
        self
    }

    /// Sets the length of a lease. 30 s by default, at least 1 s and at most a day. Leases are renewed while handlers
    /// run. If the process dies, another one delivers its timers after that time at most; a store that only one process
    /// can open does so at once.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.clamp(Duration::from_secs(1), LONGEST_LEASE);
        self
    }

    /// Sets the limits for payloads and delays.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets the rate, in deliveries a second, at which timers are delivered that are late by more than 5 s: after a
    /// downtime they may be millions. 10,000 by default; `None` for no limit. With [`in_turn`](Self::in_turn) it is the
    /// rate of each namespace.
    pub fn catch_up_rate(mut self, rate: Option<u32>) -> Self {
        self.settings.catch_up_rate = rate;
        self
    }

    /// Sets what the end of a delivery survives before the handler's place is given to the next delivery.
    /// [`Durability::Volatile`] by default: a process that dies within some 20 ms after an end delivers the timer
    /// again, under the same id. A longer wait makes such deliveries rarer, and never impossible. On a store in parts
    /// ([`TimerStore::parts`]) other timers are delivered meanwhile.
    pub fn end_durability(mut self, durability: Durability) -> Self {
        self.settings.end_durability = durability;
        self
    }

    /// Sets the function that is called for each [`Incident`], on a thread of the runtime. It must not block.
    pub fn on_incident(mut self, on_incident: impl Fn(&Incident) + Send + Sync + 'static) -> Self {
        self.settings.on_incident = Some(Arc::new(on_incident));
        self
    }

    /// Sets the function that is called for each [`Event`]: for each delivery that begins and ends, and for each
    /// [`Incident`]. All calls come from one thread of the runtime, outside of its locks, a timer's in their order. The
    /// thread claims and delivers nothing meanwhile, so the function must not block: it passes the event to a channel,
    /// for example. A panic in it is caught. Without such a function no event is made.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::state::Phase;
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Event, Spec};
    ///
    /// let (sender, events) = std::sync::mpsc::channel();
    /// let durable = Durable::builder(MemoryStore::default())
    ///     .bytes_handler("mail", async |_, _| {})
    ///     .observe(move |event| drop(sender.send(event.clone())))
    ///     .start()?;
    /// durable.handle().schedule_bytes_blocking("mail", Spec::new(b"hello".to_vec()).key("a"))?;
    /// let mut next = || events.recv_timeout(Duration::from_secs(20));
    /// assert!(matches!(next()?, Event::Began { of, .. } if of.key.as_deref() == Some("a")));
    /// assert!(matches!(next()?, Event::Ended { phase: Phase::Done, .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe(mut self, observe: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.settings.observe = Some(Arc::new(observe));
        self
    }

    /// Sets the clock by which the runtime sleeps until a timer is due, and counts timeouts and leases. It must not
    /// step back: the system's monotonic clock by default. On a store with a manual clock it is that clock.
    ///
    /// A step of the store's clock shows beside this clock ([`Incident::ClockStepped`]); by default, beside the
    /// system's clock that goes on while the machine is suspended, where there is one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Clock as _, ManualClock};
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Spec};
    ///
    /// let clock = ManualClock::new();
    /// let builder = Durable::builder(MemoryStore::new(clock.clone())).bytes_handler("mail", async |_, _| {});
    /// let durable = builder.clock(clock.clone()).start()?;
    /// let timers = durable.handle();
    /// let year = Duration::from_secs(365 * 86_400);
    /// timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()).after(year))?;
    /// clock.advance(year + Duration::from_millis(1));
    /// assert!(timers.await_idle(Duration::from_secs(20)));
    /// assert_eq!(timers.stats().done, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        Self { steady: Arc::clone(&clock), clock, ..self }
    }

    /// Sets the function that computes plans anew by the store's present clock: at the start, and after each step back.
    /// It runs on a worker.
    pub(crate) fn follow_clock(
        mut self,
        follow: impl Fn() -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> Self {
        self.settings.follow_clock = Some(Arc::new(follow));
        self
    }

    /// Starts the runtime. Timers that became due in the meantime are delivered, the longest due first.
    ///
    /// # Errors
    ///
    /// Fails if two handlers are of one kind, or if the system starts no more threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, StartError};
    ///
    /// let builder = Durable::builder(MemoryStore::default());
    /// let twice = builder.bytes_handler("mail", async |_, _| {}).bytes_handler("mail", async |_, _| {});
    /// assert!(matches!(twice.start(), Err(StartError::DuplicateKind("mail"))));
    /// ```
    pub fn start(self) -> Result<Durable, StartError> {
        let Self { store, handlers, duplicate, clock, steady, workers, concurrency, mut settings } = self;
        if let Some(kind) = duplicate {
            return Err(StartError::DuplicateKind(kind));
        }
        if let Some(kind) = handlers.keys().find(|kind| kind.len() > 64) {
            return Err(StartError::LongKind(kind));
        }
        let default = if settings.executor.is_some() { 1_024 } else { workers.max(1) };
        settings.concurrency = concurrency.unwrap_or(default);
        #[expect(clippy::cast_possible_truncation, reason = "half of the random bits")]
        let incarnation = TimerId::random().as_u128() as u64;
        let clocks = (Arc::clone(&clock), steady);
        let keeper = Arc::new(Keeper::new(Arc::clone(&store), clocks, settings, handlers, incarnation));
        let threads = Threads::start(workers).map_err(StartError::Thread)?;
        let weak = Arc::downgrade(&keeper);
        let on_signal = move |signal| drop(weak.upgrade().inspect(|keeper| keeper.signal(signal)));
        keeper.set_alarms(Alarms::start(clock, on_signal).map_err(StartError::Engine)?);
        let weak = Arc::downgrade(&keeper);
        store.subscribe(Box::new(move || drop(weak.upgrade().inspect(|keeper| keeper.look()))));
        let serving = Arc::clone(&keeper);
        let serve = move || {
            serving.serve(&threads);
            if !serving.is_occupied() {
                threads.join();
            }
        };
        let thread = thread::Builder::new().name("tb-durable".to_owned()).spawn(serve);
        let thread = Some(thread.map_err(StartError::Thread)?);
        Ok(Durable { timers: Timers { keeper }, thread })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("kinds", &self.handlers.keys()).finish_non_exhaustive()
    }
}

/// A runtime of durable timers, which ends when this value is dropped. Its [`Timers`] are made by
/// [`handle`](Self::handle).
#[derive(Debug)]
#[must_use = "the runtime ends when it is dropped"]
pub struct Durable {
    timers: Timers,
    /// The loop. `None` once the runtime has ended.
    thread: Option<thread::JoinHandle<()>>,
}

impl Durable {
    /// The settings of a runtime on this store.
    pub fn builder(store: impl TimerStore) -> Builder {
        Self::builder_on(Arc::new(store))
    }

    /// The settings of a runtime on a store that is shared.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tourbillon_durable::Durable;
    /// use tourbillon_durable::store::{MemoryStore, TimerStore};
    ///
    /// let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
    /// let durable = Durable::builder_on(Arc::clone(&store)).start()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder_on(store: Arc<dyn TimerStore>) -> Builder {
        Builder {
            store,
            handlers: HashMap::new(),
            duplicate: None,
            clock: Arc::new(SystemClock::new()),
            #[cfg(target_os = "linux")]
            steady: Arc::new(tourbillon::BootClock::new()),
            #[cfg(not(target_os = "linux"))]
            steady: Arc::new(SystemClock::new()),
            workers: 8,
            concurrency: None,
            settings: Settings {
                concurrency: 0,
                in_turn: false,
                lease: Duration::from_secs(30),
                limits: Limits::default(),
                catch_up_rate: Some(10_000),
                end_durability: Durability::Volatile,
                executor: None,
                on_incident: None,
                observe: None,
                follow_clock: None,
            },
        }
    }

    /// The handle by which timers are stored, cancelled and looked at, from any thread.
    ///
    /// ```
    /// use tourbillon_durable::Durable;
    /// use tourbillon_durable::store::MemoryStore;
    ///
    /// let durable = Durable::builder(MemoryStore::default()).start()?;
    /// let timers = durable.handle().clone();
    /// std::thread::spawn(move || timers.health()).join().map_err(|_| "a panic")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn handle(&self) -> &Timers {
        &self.timers
    }

    /// Ends the runtime: no further delivery begins. Waits for the handlers that run, for at most `patience`. The
    /// timers of handlers that have not returned by then are given back: no attempt and no delivery is counted, and the
    /// next start delivers them again. The ends of all other deliveries are on the disk when the call returns, whatever
    /// [`end_durability`](Builder::end_durability) is.
    ///
    /// The store is released with the last of its [`Timers`] and of the handlers that have not returned: once there are
    /// none, a store in a file can be opened again.
    ///
    /// Returns the numbers up to the end.
    ///
    /// The calling thread waits. An asynchronous program makes the call on a thread that may wait, for example by
    /// `tokio::task::spawn_blocking(move || durable.shutdown(patience)).await`: on a thread of the executor that runs
    /// the handlers, the call could wait for handlers that need the thread. Claims stop as soon as the call begins, and
    /// [`Timers`] accept no further timers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Rejection, Spec};
    ///
    /// let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// let timers = durable.handle().clone();
    /// let stats = durable.shutdown(Duration::from_secs(5));
    /// assert_eq!(stats.released, 0);
    /// let refused = timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()));
    /// assert!(refused.is_err_and(|error| matches!(error.reason, Rejection::ShutDown)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the numbers show what was given back"]
    pub fn shutdown(mut self, patience: Duration) -> Stats {
        self.end(patience);
        self.timers.stats()
    }

    fn end(&mut self, patience: Duration) {
        self.timers.keeper.stop(patience);
        let Some(thread) = self.thread.take() else { return };
        // The function for incidents may drop the runtime on the loop's thread, which must not wait for itself.
        if thread.thread().id() != thread::current().id() {
            self.timers.keeper.await_end();
            // The thread has the store until it ends.
            let _panic = thread.join();
        }
    }
}

/// Ends the runtime as [`shutdown`](Durable::shutdown) does, without patience.
impl Drop for Durable {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// A timer that was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placed {
    /// The timer is new.
    Created(TimerId),
    /// The timer was stored by an earlier call with the same id.
    Repeated(TimerId),
    /// The timer that has the key stays, by [`IfPresent::Keep`](crate::store::IfPresent::Keep), and the new one is not
    /// stored.
    Kept {
        /// The timer that stays.
        id: TimerId,
        /// Its phase. If it is [`Phase::Leased`], its delivery has begun, and may have looked already at what the new
        /// timer was made for. A caller who wants a delivery after this call makes the call again by
        /// [`IfPresent::Replace`](crate::store::IfPresent::Replace).
        was: Phase,
    },
    /// The timer took the place of another one.
    Replaced {
        /// The new timer.
        new: TimerId,
        /// The old timer.
        old: TimerId,
        /// The old timer's phase. If it is [`Phase::Leased`], a delivery of the old timer has begun and may still
        /// succeed.
        was: Phase,
    },
}

impl Placed {
    /// The id of the timer that is stored now.
    ///
    /// ```
    /// use tourbillon_durable::store::IfPresent;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// let first = timers.schedule_bytes_blocking("mail", mail("a"))?;
    /// let kept = timers.schedule_bytes_blocking("mail", mail("a").if_present(IfPresent::Keep))?;
    /// assert_eq!(kept.id(), first.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn id(self) -> TimerId {
        match self {
            Self::Created(id)
            | Self::Repeated(id)
            | Self::Kept { id, .. }
            | Self::Replaced { new: id, .. } => id,
        }
    }
}

/// The effect of a cancel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cancelled {
    /// No delivery of the timer begins any more. The record is handed back.
    Cancelled(Box<Timer>),
    /// A delivery has begun, and it is the last one: no other follows if it fails, or if its process has died.
    InFlight,
    /// No such timer is stored.
    NotFound,
}

/// The effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// The timer was changed.
    Changed,
    /// The timer is in a phase that does not permit the change.
    Refused(Phase),
    /// The key of the timer, which is dead, is another timer's by now.
    KeyExists(TimerId),
    /// No such timer is stored.
    NotFound,
}

/// The progress of a bulk cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of timers that were cancelled.
    pub cancelled: u64,
    /// Of these, the number of timers of which a delivery had begun.
    pub in_flight: u64,
}

/// The number of timers that a bulk cancel withdraws in one transaction.
const CANCELLED_AT_ONCE: u32 = 500;

/// The handle of a runtime: stores, changes and lists timers, from any thread. It can be cloned. It does not keep the
/// runtime alive.
///
/// Calls that reach the store are futures for any executor. The most frequent ones have twins for threads, with
/// `_blocking` at their names' ends.
#[derive(Clone)]
pub struct Timers {
    keeper: Arc<Keeper>,
}

impl Timers {
    fn store(&self) -> &Arc<dyn TimerStore> {
        &self.keeper.store
    }

    async fn apply_one(&self, op: Op, durability: Durability) -> Result<Outcome, StoreError> {
        let mut outcomes = self.store().apply(vec![op], durability).await?;
        outcomes.pop().ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "the store gave no outcome"))
    }

    /// Stores a timer. The call returns once the timer has the durability that it asks for.
    ///
    /// # Errors
    ///
    /// Fails if another timer has the key, if a part of the timer is beyond a limit, or if the store fails. The error
    /// hands the payload back.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the timer may have been stored. A timer with an id of the caller's choice can be
    /// stored again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Placed, Spec};
    ///
    /// # #[derive(Debug, serde::Serialize, serde::Deserialize)]
    /// # struct Remind {
    /// #     order: u64,
    /// # }
    /// # impl tourbillon_durable::Kind for Remind {
    /// #     const NAME: &'static str = "remind";
    /// # }
    /// # pollster::block_on(async {
    /// let durable = Durable::builder(MemoryStore::default()).handler(async |_: Remind, _| {}).start()?;
    /// let day = Duration::from_secs(86_400);
    /// let placed = durable.handle().schedule(Spec::new(Remind { order: 17 }).key("order 17").after(day)).await?;
    /// assert!(matches!(placed, Placed::Created(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn schedule<K: Kind>(&self, spec: Spec<K>) -> Result<Placed, ScheduleError<K>> {
        let bytes = match serde_json::to_vec(&spec.payload) {
            Ok(bytes) => bytes,
            Err(error) => {
                let reason = Rejection::Payload(error.to_string().into());
                return Err(ScheduleError { reason, payload: spec.payload });
            }
        };
        let placed = self.place(&spec, K::NAME, bytes).await;
        placed.map_err(|reason| ScheduleError { reason, payload: spec.payload })
    }

    /// As [`schedule`](Self::schedule), on a thread that waits.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    pub fn schedule_blocking<K: Kind>(&self, spec: Spec<K>) -> Result<Placed, ScheduleError<K>> {
        block_on(self.schedule(spec))
    }

    /// Stores a timer whose payload are bytes.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// # Examples
    ///
    /// ```
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// block_on(timers.schedule_bytes("mail", Spec::new(b"hello".to_vec())))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn schedule_bytes(
        &self,
        kind: &str,
        spec: Spec<Vec<u8>>,
    ) -> Result<Placed, ScheduleError<Vec<u8>>> {
        let placed = self.place(&spec, kind, spec.payload.clone()).await;
        placed.map_err(|reason| ScheduleError { reason, payload: spec.payload })
    }

    /// As [`schedule_bytes`](Self::schedule_bytes), on a thread that waits.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    pub fn schedule_bytes_blocking(
        &self,
        kind: &str,
        spec: Spec<Vec<u8>>,
    ) -> Result<Placed, ScheduleError<Vec<u8>>> {
        block_on(self.schedule_bytes(kind, spec))
    }

    async fn place<P>(&self, spec: &Spec<P>, kind: &str, payload: Vec<u8>) -> Result<Placed, Rejection> {
        let timer = self.admit(spec, kind, payload, self.store().now())?;
        let op = Op::Place(Box::new(timer), spec.if_present);
        placed(&self.apply_one(op, spec.durability).await.map_err(Rejection::Store)?)
    }

    /// The timer of a description, if it may be stored.
    fn admit<P>(
        &self,
        spec: &Spec<P>,
        kind: &str,
        payload: Vec<u8>,
        now: UtcMillis,
    ) -> Result<Timer, Rejection> {
        if !self.keeper.has_handler(kind) {
            return Err(Rejection::UnknownKind(kind.into()));
        }
        if self.keeper.is_stopping() {
            return Err(Rejection::ShutDown);
        }
        let fresh = |namespace: &str, key: Option<&str>| self.store().fresh_id(namespace, key);
        spec.to_timer(kind, payload, now, &self.keeper.settings.limits, fresh)
    }

    /// Cancels a timer, or a series with its present occurrence, by its key or id. After [`Cancelled::Cancelled`] no
    /// delivery of it begins. The call returns once that survives a loss of power.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Cancelled;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// let Cancelled::Cancelled(timer) = block_on(timers.cancel("order 17"))? else { panic!("it is not due") };
    /// assert_eq!(timer.key.as_deref(), Some("order 17"));
    /// assert_eq!(block_on(timers.cancel(timer.id))?, Cancelled::NotFound);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn cancel(&self, at: impl Into<Address>) -> Result<Cancelled, StoreError> {
        cancelled(self.apply_one(Op::Cancel(at.into(), None), Durability::PowerLoss).await?)
    }

    /// As [`cancel`](Self::cancel), on a thread that waits.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub fn cancel_blocking(&self, at: impl Into<Address>) -> Result<Cancelled, StoreError> {
        block_on(self.cancel(at))
    }

    /// Cancels all timers of a namespace that have the label, in batches between which other callers have their turn.
    /// Calls `progress` after each batch; if it returns false, the rest stays.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. The batches before are cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// for key in ["a", "b"] {
    ///     timers.schedule_bytes_blocking("mail", mail(key).label("customer 4"))?;
    /// }
    /// let progress = block_on(timers.cancel_labelled("", "customer 4", |_| true))?;
    /// assert_eq!((progress.cancelled, progress.in_flight), (2, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn cancel_labelled(
        &self,
        namespace: &str,
        label: &str,
        mut progress: impl FnMut(Progress) -> bool,
    ) -> Result<Progress, StoreError> {
        let mut done = Progress::default();
        loop {
            let (namespace, label) = (namespace.into(), label.into());
            let op = Op::CancelLabelled { namespace, label, limit: CANCELLED_AT_ONCE };
            match self.apply_one(op, Durability::PowerLoss).await? {
                Outcome::CancelledMany { cancelled, in_flight, more } => {
                    done.cancelled += u64::from(cancelled);
                    done.in_flight += u64::from(in_flight);
                    if !progress(done) || !more {
                        return Ok(done);
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Moves the due moment of a timer. A timer that is being delivered is not moved.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Changed;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// let tomorrow = timers.timer_store().now() + Duration::from_secs(86_400);
    /// assert_eq!(block_on(timers.move_to("order 17", tomorrow))?, Changed::Changed);
    /// assert_eq!(block_on(timers.get("order 17"))?.map(|timer| timer.due), Some(tomorrow));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn move_to(&self, at: impl Into<Address>, due: UtcMillis) -> Result<Changed, StoreError> {
        self.change(Op::Move(at.into(), due)).await
    }

    /// Delivers a timer now: one that is pending, paused, or dead.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Changed;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// assert_eq!(block_on(timers.fire("order 17"))?, Changed::Changed);
    /// assert!(timers.await_idle(Duration::from_secs(20)));
    /// assert_eq!(block_on(timers.get("order 17"))?, None, "it was delivered");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn fire(&self, at: impl Into<Address>) -> Result<Changed, StoreError> {
        self.change(Op::Fire(at.into())).await
    }

    /// Pauses a timer or a series. A delivery that has begun goes on.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::state::Phase;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// block_on(timers.pause("order 17"))?;
    /// assert_eq!(block_on(timers.get("order 17"))?.map(|timer| timer.state.phase()), Some(Phase::Parked));
    /// block_on(timers.resume("order 17"))?;
    /// assert_eq!(block_on(timers.get("order 17"))?.map(|timer| timer.state.phase()), Some(Phase::Pending));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn pause(&self, at: impl Into<Address>) -> Result<Changed, StoreError> {
        self.change(Op::Pause(at.into())).await
    }

    /// Resumes a timer or a series that was paused. Its policy for misfires decides about moments that have passed.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Changed;
    /// use tourbillon_durable::state::Phase;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// assert_eq!(block_on(timers.resume("order 17"))?, Changed::Refused(Phase::Pending), "it is not paused");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn resume(&self, at: impl Into<Address>) -> Result<Changed, StoreError> {
        self.change(Op::Resume(at.into())).await
    }

    /// Delivers a dead timer again, as if it were new.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{Changed, Verdict};
    ///
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # use std::time::Duration;
    /// let builder = Durable::builder(MemoryStore::default());
    /// let durable = builder.bytes_handler("mail", async |_, _| Verdict::Dead("no such address".into())).start()?;
    /// let timers = durable.handle();
    /// let id = timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()).at(tourbillon_durable::UtcMillis::ZERO))?.id();
    /// assert!(timers.await_idle(Duration::from_secs(20)));
    /// assert_eq!(pollster::block_on(timers.replay(id))?, Changed::Changed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn replay(&self, id: TimerId) -> Result<Changed, StoreError> {
        self.change(Op::Replay(id)).await
    }

    /// The greatest number of timers that one [`unpark`](Self::unpark) puts back.
    pub const MOST_UNPARKED: u32 = 1_000;

    /// Puts timers back that were put aside for this reason ([`Verdict::Park`]), the longest due first, in one
    /// transaction: at most `limit`, and at most [`MOST_UNPARKED`](Self::MOST_UNPARKED). They are claimed like other
    /// timers: what is late by more than 5 s comes at the [`catch_up_rate`](Builder::catch_up_rate).
    ///
    /// Returns the number of timers that are pending again. An occurrence of a series that was paused meanwhile is
    /// paused then, and counts neither for the limit nor for the result. A caller that puts all timers of a reason back
    /// repeats the call until it returns zero, as long as the reason stays lifted. Meanwhile a handler that still sees
    /// the reason parks its timer again. To unpark what is [`PAUSED`](crate::store::PAUSED) is to resume it.
    ///
    /// A timer whose handler has decided to park it, and whose park is not stored yet, is not put back:
    /// see [`Verdict::Park`].
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if the reason is longer than [`Verdict::LONGEST_REASON`]
    /// ([`StoreErrorKind::Limit`]).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Spec, Verdict};
    ///
    /// let builder = Durable::builder(MemoryStore::default());
    /// let durable = builder.bytes_handler("print", async |_, _| Verdict::Park("no paper".into())).start()?;
    /// let timers = durable.handle();
    /// timers.schedule_bytes_blocking("print", Spec::new(Vec::new()).at(tourbillon_durable::UtcMillis::ZERO))?;
    /// assert!(timers.await_idle(Duration::from_secs(20)));
    /// assert_eq!(timers.unpark_blocking("no paper", 100)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn unpark(&self, reason: &str, limit: u32) -> Result<u32, StoreError> {
        admit_reason(reason)?;
        let op = Op::Unpark(reason.into(), limit.min(Self::MOST_UNPARKED));
        match self.apply_one(op, Durability::PowerLoss).await? {
            Outcome::Unparked(count) => Ok(count),
            other => Err(unexpected(&other)),
        }
    }

    /// As [`unpark`](Self::unpark), on a thread that waits.
    ///
    /// # Errors
    ///
    /// As [`unpark`](Self::unpark).
    pub fn unpark_blocking(&self, reason: &str, limit: u32) -> Result<u32, StoreError> {
        block_on(self.unpark(reason, limit))
    }

    /// Delivers timers here that are parked for this reason and whose due moments have come, the longest due first: on
    /// a store that several processes share, wherever they are. `wanted` of them, if there are as many; others, up to
    /// `most`, only if as many are left for other processes. Returns the number of timers that were claimed, or put
    /// back on a store of one process. Fewer are claimed if fewer handlers can begin at once
    /// ([`concurrency`](Builder::concurrency)).
    ///
    /// The call waits until a handler can begin. A handler that still sees the reason parks its timer again.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, with [`StoreErrorKind::Closed`] if the runtime stops, and with
    /// [`StoreErrorKind::Limit`] if the reason is longer than [`Verdict::LONGEST_REASON`].
    ///
    /// # Races
    ///
    /// A timer whose handler has decided to park it, and whose park is not stored yet, is not found: see
    /// [`Verdict::Park`].
    pub async fn fetch(&self, reason: &str, wanted: u32, most: u32) -> Result<u32, StoreError> {
        admit_reason(reason)?;
        let (wanted, most) = (wanted.min(Self::MOST_UNPARKED), most.min(Self::MOST_UNPARKED));
        let answer = self.keeper.fetch(reason.into(), wanted, most.max(wanted)).await;
        let stopped = |_| Err(StoreError::new(StoreErrorKind::Closed, "the runtime stops"));
        match answer.unwrap_or_else(stopped)? {
            Some(claimed) => Ok(claimed),
            None => self.store().put_back(reason.into(), wanted).await,
        }
    }

    async fn change(&self, op: Op) -> Result<Changed, StoreError> {
        changed(&self.apply_one(op, Durability::PowerLoss).await?)
    }

    /// A stored timer.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// let id = timers.schedule_bytes_blocking("mail", mail("order 17"))?.id();
    /// assert_eq!(block_on(timers.get("order 17"))?.map(|timer| timer.id), Some(id));
    /// assert_eq!(block_on(timers.get("order 18"))?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get(&self, at: impl Into<Address>) -> Result<Option<Timer>, StoreError> {
        self.store().get(at.into()).await
    }

    /// A page of stored timers. A timer that is stored from the first page to the last is on exactly one of them,
    /// unless it moves in the order of the list.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::store::Filter;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// for key in ["order 1", "order 2", "bill 1"] {
    ///     timers.schedule_bytes_blocking("mail", mail(key))?;
    /// }
    /// let orders = Filter { key_prefix: Some("order ".into()), ..Filter::default() };
    /// let (mut cursor, mut keys) = (None, Vec::new());
    /// loop {
    ///     let page = block_on(timers.list(orders.clone(), cursor, 1))?;
    ///     keys.extend(page.timers.into_iter().filter_map(|timer| timer.key));
    ///     cursor = page.next;
    ///     if cursor.is_none() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(keys, ["order 1".into(), "order 2".into()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Result<Page, StoreError> {
        self.store().list(filter, cursor, limit).await
    }

    /// The next `count` instants of a stored series, the present occurrence's first. Empty for a timer that is no
    /// series.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::plan::{MissedInstants, Plan};
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// let monthly = Plan::cron("0 9 1 * *", "Europe/Zurich")?;
    /// timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()).key("bill").repeat(monthly, MissedInstants::Skip))?;
    /// assert_eq!(block_on(timers.preview("bill", 12))?.len(), 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn preview(&self, at: impl Into<Address>, count: usize) -> Result<Vec<UtcMillis>, StoreError> {
        let Some(timer) = self.get(at).await? else { return Ok(Vec::new()) };
        let Some(series) = &timer.series else { return Ok(Vec::new()) };
        let rest = series.plan.preview(timer.scheduled, count.saturating_sub(1));
        let rest =
            rest.map_err(|error: PlanError| StoreError::new(StoreErrorKind::Corrupt, error.to_string()))?;
        let is_within = |instant: &UtcMillis| series.end.is_none_or(|end| *instant <= end);
        Ok(core::iter::once(timer.scheduled).chain(rest).filter(is_within).take(count).collect())
    }

    /// The numbers of stored timers, by namespace and phase. O(namespaces).
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::state::Phase;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("a").namespace("shop"))?;
    /// let counts = block_on(timers.counts())?;
    /// assert_eq!(counts.of(Phase::Pending), 1);
    /// assert_eq!(counts.by_namespace.get(&("shop".into(), Phase::Pending)), Some(&1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        self.store().counts().await
    }

    /// The numbers of pending timers by the time until they are due, on a logarithmic axis: what is due, what is due
    /// within a minute, and so on up to ten years and later. The stores of this crate keep a number for each hour, and
    /// look at the first 50,000 timers of this hour and the next one for the spans up to an hour: a few milliseconds
    /// with ten million timers. Of more timers in these two hours, the spans after the last one looked at say that they
    /// are not exact.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Spec};
    ///
    /// let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// let timers = durable.handle();
    /// timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()).after(Duration::from_secs(5 * 86_400)))?;
    /// let horizon = pollster::block_on(timers.horizon())?;
    /// let within_a_week = horizon.spans.iter().find(|span| span.within == Some(Duration::from_secs(7 * 86_400)));
    /// assert_eq!(within_a_week.map(|span| (span.count, span.is_exact)), Some((1, true)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn horizon(&self) -> Result<Horizon, StoreError> {
        self.store().horizon().await
    }

    /// The faults of the store's structure; none if all is well. Reads the whole store.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("a"))?;
    /// assert_eq!(block_on(timers.check())?, []);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn check(&self) -> Result<Vec<Fault>, StoreError> {
        self.store().check().await
    }

    /// The store.
    ///
    /// ```
    /// use tourbillon_durable::store::Durability;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// // Makes durable all that was acknowledged with less.
    /// block_on(timers.timer_store().apply(Vec::new(), Durability::PowerLoss))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn timer_store(&self) -> Arc<dyn TimerStore> {
        Arc::clone(self.store())
    }

    /// The numbers of the runtime since its start.
    ///
    /// ```
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()).at(tourbillon_durable::UtcMillis::ZERO))?;
    /// assert!(timers.await_idle(Duration::from_secs(20)));
    /// let stats = timers.stats();
    /// assert_eq!((stats.delivered, stats.done, stats.dead), (1, 1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let now = self.keeper.progress();
        let (running, overrun, next_due) = (now.running, now.overrun, now.next_due);
        Stats { running, overrun, next_due, ..self.keeper.reporter.stats() }
    }

    /// The present fault of the runtime, the worst first.
    ///
    /// ```
    /// use tourbillon_durable::Health;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// assert!(matches!(timers.health(), Health::Healthy));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        if let Some((since, error)) = self.keeper.reporter.failing() {
            return Health::StoreFails { since, error };
        }
        let now = self.keeper.progress();
        let overdue = now.next_due.map_or(Duration::ZERO, |due| self.store().now() - due);
        match now.stuck_for {
            Some(time) if time > OVERDUE => Health::StoreHangs(time),
            _ if overdue > OVERDUE => Health::Overdue(overdue),
            _ if now.overrun > 0 => Health::Overrun(now.overrun),
            _ => Health::Healthy,
        }
    }

    /// Waits until no stored timer is due, no handler runs, and the store knows of all ends; for at most `patience`, by
    /// the system's monotonic clock. Returns whether that came about. For tests: after a step of a manual clock.
    ///
    /// ```
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("later"))?;
    /// assert!(timers.await_idle(Duration::from_secs(20)), "nothing is due");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn await_idle(&self, patience: Duration) -> bool {
        self.keeper.await_idle(patience)
    }

    /// Makes the runtime look for timers that are due, at once: for an external scheduler, see
    /// [`external`](crate::external).
    pub fn look(&self) {
        self.keeper.look();
    }

    /// Makes the runtime look, at once, if the store's clock has stepped since it last looked. For programs that call
    /// it every few seconds, where no kernel announces steps. A comparison costs some 100 ns.
    pub fn look_at_clock(&self) {
        self.keeper.look_at_clock();
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("stats", &self.stats()).finish()
    }
}

fn admit_reason(reason: &str) -> Result<(), StoreError> {
    if reason.len() <= Verdict::LONGEST_REASON {
        return Ok(());
    }
    let message = format!("the reason has {} bytes, the most are {}", reason.len(), Verdict::LONGEST_REASON);
    Err(StoreError::new(StoreErrorKind::Limit, message))
}

fn placed(outcome: &Outcome) -> Result<Placed, Rejection> {
    match *outcome {
        Outcome::Created(id) => Ok(Placed::Created(id)),
        Outcome::Repeated(id) => Ok(Placed::Repeated(id)),
        Outcome::Kept { id, was } => Ok(Placed::Kept { id, was }),
        Outcome::Replaced { new, old, was } => Ok(Placed::Replaced { new, old, was }),
        Outcome::KeyExists { holder, .. } => Err(Rejection::KeyExists(holder)),
        _ => Err(Rejection::Store(unexpected(outcome))),
    }
}

fn cancelled(outcome: Outcome) -> Result<Cancelled, StoreError> {
    match outcome {
        Outcome::Cancelled(timer) => Ok(Cancelled::Cancelled(timer)),
        Outcome::InFlight(_) => Ok(Cancelled::InFlight),
        Outcome::NotFound => Ok(Cancelled::NotFound),
        other => Err(unexpected(&other)),
    }
}

fn changed(outcome: &Outcome) -> Result<Changed, StoreError> {
    match *outcome {
        Outcome::Changed(_) => Ok(Changed::Changed),
        Outcome::NotFound => Ok(Changed::NotFound),
        Outcome::KeyExists { holder, .. } => Ok(Changed::KeyExists(holder)),
        Outcome::Refused(Refusal::State(phase)) => Ok(Changed::Refused(phase)),
        _ => Err(unexpected(outcome)),
    }
}

fn unexpected(outcome: &Outcome) -> StoreError {
    StoreError::new(
        StoreErrorKind::Corrupt,
        format!("the store gave an outcome of another operation: {outcome:?}"),
    )
}
