//! Collects the settings of a runtime, and starts it.

use super::alarm::{Alarms, Signal};
use super::delivery_loop::DeliveryLoop;
use super::durable::Durable;
use super::event::{Event, Incident};
use super::settings::Settings;
use super::shared::{Clocks, Runtime};
use super::timers::Timers;
use crate::delivery::Delivery;
use crate::executor::{Executor, Workers};
use crate::handler::{Asynchronous, Blocking, Bytes, Deciding, Handler, Place};
use crate::spec::{Kind, Limits};
use crate::state::LONGEST_LEASE;
use crate::store::{Durability, StoreError, TimerStore};
use crate::texts::has_zero_byte;
use crate::timer::TimerId;
use crate::verdict::Verdict;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread;
use tourbillon::{Clock, SystemClock};

/// The settings of a runtime, with defaults. [`Durable::builder`] makes this value.
#[must_use = "a builder starts nothing by itself"]
pub struct Builder {
    store: Arc<dyn TimerStore>,
    handlers: HashMap<&'static str, Arc<dyn Handler>>,
    duplicate: Option<&'static str>,
    clock: Arc<dyn Clock>,
    /// The clock that never steps. The runtime finds a step of the store's clock by a comparison with this clock.
    steady: Arc<dyn Clock>,
    workers: usize,
    concurrency: Option<usize>,
    /// The random number by which the store recognizes the leases of the runtime.
    incarnation: u64,
    settings: Settings,
}

/// The reason why a runtime was not started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Two handlers were given for the same kind of timers.
    DuplicateKind(&'static str),
    /// The name of a kind is longer than 64 bytes.
    LongKind(&'static str),
    /// The name of a kind has a zero byte.
    ZeroByteInKind(&'static str),
    /// The builder says that the handler of this kind begins deliveries by itself, and has no handler of this kind.
    NoHandler(&'static str),
    /// The operating system did not start a thread of the runtime.
    Thread(std::io::Error),
    /// The engine for the runtime's alarms was not started.
    Engine(tourbillon::BuildError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateKind(kind) => write!(f, "two handlers were given for the kind {kind:?}"),
            Self::LongKind(kind) => write!(f, "the name of the kind {kind:?} is longer than 64 bytes"),
            Self::ZeroByteInKind(kind) => write!(f, "the name of the kind {kind:?} has a zero byte"),
            Self::NoHandler(kind) => {
                write!(f, "no handler was given for the kind {kind:?}, which begins itself")
            }
            Self::Thread(error) => write!(f, "a thread was not started: {error}"),
            Self::Engine(error) => write!(f, "the engine was not started: {error}"),
        }
    }
}

impl core::error::Error for StartError {}

impl Durable {
    /// Returns the default settings of a runtime on this store.
    pub fn builder(store: impl TimerStore) -> Builder {
        Self::builder_on(Arc::new(store))
    }

    /// Returns the default settings of a runtime on a store that the program also uses elsewhere.
    ///
    /// Several runtimes may use one store, in one process or in several if the store permits it
    /// ([`TimerStore::is_shared`]). Any of them may claim any due timer. A runtime that has no handler for the kind of
    /// a claimed timer parks the timer ([`Verdict::NO_HANDLER`]). So all runtimes of a store should have handlers for
    /// all kinds. Each runtime unparks the timers of its kinds at its start. On a store that several processes may
    /// share, it does so again each minute. So while a new version of a program replaces the old version step by step,
    /// timers of a new kind may be parked for about a minute, again and again until the last old process has ended.
    /// Otherwise a program must call [`Timers::unpark`].
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
        Builder::new(store)
    }
}

impl Builder {
    /// Makes the default settings of a runtime on `store`.
    pub(super) fn new(store: Arc<dyn TimerStore>) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "half of the random bits")]
        let incarnation = TimerId::random().as_u128() as u64;
        Self {
            store,
            incarnation,
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
                // The default depends on the executor and the workers, so `start` sets this number.
                concurrency: 0,
                in_turn: false,
                lease: Duration::from_secs(30),
                limits: Limits::default(),
                catch_up_rate: Some(10_000),
                end_durability: Durability::Volatile,
                begin_themselves: HashSet::new(),
                executor: None,
                on_incident: None,
                observe: None,
                follow_clock: None,
            },
        }
    }

    /// Makes an asynchronous function the handler of the timers of kind `K`. The function returns a [`Verdict`], or
    /// `()`, or a `Result`. An error means that the delivery is tried again.
    ///
    /// The future runs on the [`executor`](Self::executor). Without an executor, the future runs on one of the
    /// runtime's [`workers`](Self::workers), and occupies this worker until the future ends.
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

    /// Makes a blocking function the handler of the timers of kind `K`. The function runs on one of the runtime's
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

    /// Makes an asynchronous function the handler of the timers of this kind. The function gets the payload as stored
    /// bytes. This is for kinds whose payload is not JSON: see [`Timers::schedule_bytes`].
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

    /// Makes the handler of this kind begin the deliveries of timers that are delivered at most once by itself, by
    /// [`Delivery::begin`]. Until then, such a timer stays stored, and each [`Verdict`] has the effect that it has for
    /// a timer that is delivered at least once. Without this setting, the store removes such a timer before the
    /// handler is called.
    ///
    /// A handler needs this setting if it may find that it cannot act now, for example because a rate is used up.
    /// [`Delivery::begin`] has an example.
    pub fn begins_itself(mut self, kind: &'static str) -> Self {
        self.settings.begin_themselves.insert(kind);
        self
    }

    fn add(mut self, kind: &'static str, handler: Arc<dyn Handler>) -> Self {
        // The methods of a builder return no error, so `start` reports the second handler.
        if self.handlers.insert(kind, handler).is_some() {
            self.duplicate = Some(kind);
        }
        self
    }

    /// Makes a blocking function the handler by which schedules decide. `kind` is the kind of their timers.
    pub(crate) fn decide_by<F>(self, kind: &'static str, decide: F) -> Self
    where
        F: Fn(Delivery) -> Verdict + Send + Sync + 'static,
    {
        self.add(kind, Arc::new(Deciding(Arc::new(decide))))
    }

    /// Runs the futures of handlers on this executor, for example `move |work| drop(tokio_handle.spawn(work))`.
    ///
    /// ```
    /// use tourbillon_durable::Durable;
    /// use tourbillon_durable::store::MemoryStore;
    ///
    /// // Each future runs on a thread of its own.
    /// let spawn = |work| drop(std::thread::spawn(|| pollster::block_on(work)));
    /// let builder = Durable::builder(MemoryStore::default()).executor(spawn);
    /// let durable = builder.bytes_handler("mail", async |_, _| {}).start()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.settings.executor = Some(Arc::new(executor));
        self
    }

    /// Sets the number of threads for handlers that do not run on an executor. The default is 8; 0 counts as 1.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Sets the number of places, which is the greatest number of handlers that run at a time. A claim takes only as
    /// many timers as there are free places.
    ///
    /// Without an executor, each handler occupies one of the [`workers`](Self::workers), so there are never more places
    /// than workers, and this is also the default. With an [`executor`](Self::executor) the default is 1,024, or the
    /// number of workers if all handlers of the program block.
    ///
    /// With an executor, a claim does not distinguish blocking handlers from others. So there may be more timers of
    /// blocking handlers than workers. These timers wait for a worker. They stay claimed and their leases are renewed,
    /// so no other process delivers them in the meantime. The [`timeout`](crate::policy::Policy::timeout) of each
    /// begins when its handler is called. If several processes share the store, a smaller number leaves more timers to
    /// the other processes.
    pub fn concurrency(self, handlers: usize) -> Self {
        Self { concurrency: Some(handlers.max(1)), ..self }
    }

    /// Makes the namespaces share the handlers, so that a namespace with many due timers does not delay the timers of
    /// other namespaces. While a single namespace has due timers, it gets three quarters of the
    /// [`concurrency`](Self::concurrency). A second namespace gets three quarters of the remaining handlers, and so on.
    /// A few namespaces whose handlers do not end use up all handlers, so set a time limit for them
    /// ([`timeout`](crate::policy::Policy::timeout)).
    /// Once a namespace uses its whole share, its other due timers stay in the store. Timers of other namespaces are
    /// then claimed first, even if they are due later. The [`catch_up_rate`](Self::catch_up_rate) applies to each
    /// namespace separately. The stores of this project support this setting. Another store may ignore it, and deliver
    /// in the order of the due moments.
    pub fn in_turn(mut self) -> Self {
        self.settings.in_turn = true;
        self
    }

    /// Sets the length of a [`Lease`](crate::state::Lease), the right of a process to deliver a claimed timer. The
    /// default is 30 s. The range is from 1 s to a day. Leases are renewed while handlers run. If a process dies,
    /// another process delivers its timers after at most the length of a lease. If only one process at a time can open
    /// the store, the next process that opens it delivers the timers at once.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.clamp(Duration::from_secs(1), LONGEST_LEASE);
        self
    }

    /// Sets the limits for payloads and delays.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets the rate at which late timers are delivered, in deliveries per second. A timer is late if its due moment
    /// passed more than 5 s ago. After a downtime there may be millions of late timers. The default is 10,000; `None`
    /// means no limit. With [`in_turn`](Self::in_turn), each namespace has this rate for itself.
    pub fn catch_up_rate(mut self, rate: Option<u32>) -> Self {
        self.settings.catch_up_rate = rate;
        self
    }

    /// Sets the durability of the results of deliveries: the store confirms a result only once it has this durability.
    /// The default is [`Durability::Volatile`]. With this default, if the process dies within some 20 ms after the end
    /// of a delivery, the timer is delivered again, under the same id. A higher durability makes a repeated delivery
    /// rarer, but not impossible. It also delays the confirmation, and the runtime claims no further timers until the
    /// store has confirmed the results of all deliveries that have ended. The exception is a store that has parts
    /// ([`TimerStore::parts`]): other timers are claimed while results wait for their confirmation.
    pub fn end_durability(mut self, durability: Durability) -> Self {
        self.settings.end_durability = durability;
        self
    }

    /// Sets the function that is called for each [`Incident`]. The function is called on a thread of the runtime, and
    /// must not block.
    pub fn on_incident(mut self, on_incident: impl Fn(&Incident) + Send + Sync + 'static) -> Self {
        self.settings.on_incident = Some(Arc::new(on_incident));
        self
    }

    /// Sets the function that is called for each [`Event`]: when a delivery begins, when it ends, and at each
    /// [`Incident`]. All calls come from one thread of the runtime, which holds no lock of the runtime during the call.
    /// The events of a timer come in their order. During a call of the function, this thread claims no timers and
    /// begins no deliveries. So the function must not block. It can pass the event to a channel, for example. A panic
    /// in the function is caught. Without such a function the runtime makes no events.
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
    /// assert!(matches!(next()?, Event::Began { attempt, .. } if attempt.key.as_deref() == Some("a")));
    /// assert!(matches!(next()?, Event::Ended { phase: Phase::Done, .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe(mut self, observe: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.settings.observe = Some(Arc::new(observe));
        self
    }

    /// Sets the clock by which the runtime waits: until a timer is due, until a handler's timeout, and until leases
    /// must be renewed. The clock must not step back. The default is the system's monotonic clock. If the store uses a
    /// manual clock, pass the same clock here.
    ///
    /// The runtime also compares this clock with the store's clock, to notice steps of the store's clock
    /// ([`Incident::ClockStepped`]). A program that sets no clock gets a different clock for this comparison: a
    /// monotonic clock of the system that advances while the machine is suspended, if there is such a clock.
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

    /// Returns the random number by which the store recognizes the leases of the runtime
    /// ([`Claimant::incarnation`](crate::store::Claimant::incarnation)).
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Sets the function that recomputes the next instants of all schedules by the store's present time. A worker
    /// thread calls the function at the start, and after each step back of the store's clock.
    pub(crate) fn follow_clock(
        mut self,
        follow: impl Fn() -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> Self {
        self.settings.follow_clock = Some(Arc::new(follow));
        self
    }

    /// Starts the runtime. The runtime also delivers timers that became due while no runtime ran. Timers with the
    /// earliest due moments come first.
    ///
    /// # Errors
    ///
    /// Fails if two handlers serve the same kind, if the name of a kind is too long or has a zero byte, or if the
    /// system cannot start the threads.
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
        let Self {
            store,
            handlers,
            duplicate,
            clock,
            steady,
            workers,
            concurrency,
            incarnation,
            mut settings,
        } = self;
        if let Some(kind) = duplicate {
            return Err(StartError::DuplicateKind(kind));
        }
        if let Some(kind) = handlers.keys().find(|kind| kind.len() > 64) {
            return Err(StartError::LongKind(kind));
        }
        if let Some(kind) = handlers.keys().find(|kind| has_zero_byte(kind)) {
            return Err(StartError::ZeroByteInKind(kind));
        }
        if let Some(kind) = settings.begin_themselves.iter().find(|kind| !handlers.contains_key(**kind)) {
            return Err(StartError::NoHandler(kind));
        }
        let (workers, has_executor) = (workers.max(1), settings.executor.is_some());
        let has = |place| handlers.values().any(|handler| handler.place() == place);
        settings.concurrency = match concurrency {
            Some(places) if has_executor => places,
            // Each handler occupies a worker, so timers beyond the workers would only wait for them.
            Some(places) => places.min(workers),
            None if has_executor && has(Place::Executor) => 1_024,
            None => workers,
        };
        // Only with an executor, handlers may wait for a worker.
        let workers = Workers::start(workers, has_executor && has(Place::Workers) && has(Place::Decisions))
            .map_err(StartError::Thread)?;
        let clocks = Clocks { alarms: Arc::clone(&clock), steady };
        let runtime = Arc::new(Runtime::new(Arc::clone(&store), clocks, settings, handlers, incarnation));
        // The runtime owns the engine. A strong reference in the engine would keep both for ever.
        let (weak, signals) = (Arc::downgrade(&runtime), Arc::downgrade(&runtime.signals));
        let on_signal = move |signal| match signal {
            Signal::Look => drop(signals.upgrade().inspect(|signals| signals.look())),
            Signal::Renew => drop(signals.upgrade().inspect(|signals| signals.renew())),
            Signal::Timeout(time) => drop(weak.upgrade().inspect(|runtime| runtime.time_out(time))),
        };
        runtime.set_alarms(Alarms::start(clock, on_signal).map_err(StartError::Engine)?);
        // The runtime also owns the store, which keeps its subscribed functions. So this reference is weak, too. The
        // store calls the function on a thread of its own, where the last reference to the store must not be dropped.
        let signals = Arc::downgrade(&runtime.signals);
        store.subscribe(Box::new(move || drop(signals.upgrade().inspect(|signals| signals.look()))));
        let serving = Arc::clone(&runtime);
        let serve = move || {
            DeliveryLoop::run(&serving, &workers);
            // A worker that has just finished may still hold the runtime, and with it the store. After the join, a
            // store in a file can be opened again. A handler that still runs may never return, so a thread with such a
            // handler is not awaited.
            if !serving.is_occupied() {
                workers.join();
            }
        };
        let thread = thread::Builder::new().name("tb-durable".to_owned()).spawn(serve);
        let thread = Some(thread.map_err(StartError::Thread)?);
        Ok(Durable { timers: Timers { runtime }, thread })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("kinds", &self.handlers.keys()).finish_non_exhaustive()
    }
}
