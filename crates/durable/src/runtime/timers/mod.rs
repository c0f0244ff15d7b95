//! Offers the calls by which a program stores, changes and reads timers.

mod answers;
mod batch;
mod changes;
mod reads;

pub use self::answers::{Cancelled, Changed, Placed, Progress};
pub use self::batch::{Change, Effect};

use self::answers::placed;
use super::report::{Health, Stats};
use super::shared::{Load, Runtime};
use crate::executor::block_on;
use crate::spec::{Kind, Rejection, ScheduleError, Spec};
use crate::store::{Durability, Op, Outcome, StoreError, StoreErrorKind, TimerStore};
use crate::timer::Timer;
use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use tourbillon_words::UtcMillis;

/// The lateness beyond which a timer counts as overdue in [`Health`].
const OVERDUE: Duration = Duration::from_secs(10);

/// The handle of a runtime: stores, changes and lists timers, from any thread. The handle can be cloned. A handle does
/// not keep the runtime alive.
///
/// Calls that reach the store are futures for any executor. The most frequent calls also have a form that waits on the
/// calling thread: its name ends with `_blocking`.
#[derive(Clone)]
pub struct Timers {
    pub(super) runtime: Arc<Runtime>,
}

impl Timers {
    fn store(&self) -> &Arc<dyn TimerStore> {
        &self.runtime.store
    }

    async fn apply_one(&self, op: Op, durability: Durability) -> Result<Outcome, StoreError> {
        let mut outcomes = self.store().apply(vec![op], durability).await?;
        outcomes.pop().ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "the store gave no outcome"))
    }

    /// Stores a timer. The call returns once the timer has the durability that its [`Spec`] demands.
    ///
    /// # Errors
    ///
    /// Fails if another timer has the key, if a part of the timer exceeds a limit, or if the store fails. The error
    /// contains the payload.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the timer may have been stored. If the caller has chosen the timer's id, it can safely
    /// store the timer again.
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

    /// Stores a timer as [`schedule`](Self::schedule) does, and waits on the calling thread.
    ///
    /// # Errors
    ///
    /// Fails as [`schedule`](Self::schedule) does.
    pub fn schedule_blocking<K: Kind>(&self, spec: Spec<K>) -> Result<Placed, ScheduleError<K>> {
        block_on(self.schedule(spec))
    }

    /// Stores a timer whose payload is bytes. `kind` is the name of its kind.
    ///
    /// # Errors
    ///
    /// Fails as [`schedule`](Self::schedule) does.
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
        // An error returns the payload to the caller, so the timer gets a copy.
        let placed = self.place(&spec, kind, spec.payload.clone()).await;
        placed.map_err(|reason| ScheduleError { reason, payload: spec.payload })
    }

    /// Stores a timer as [`schedule_bytes`](Self::schedule_bytes) does, and waits on the calling thread.
    ///
    /// # Errors
    ///
    /// Fails as [`schedule`](Self::schedule) does.
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

    /// Checks that the runtime accepts the timer that `spec` describes, and returns the timer, which the caller must
    /// store. Fails if the runtime has no handler for the kind or is stopping, or if `spec` is not valid or exceeds a
    /// limit.
    fn admit<P>(
        &self,
        spec: &Spec<P>,
        kind: &str,
        payload: Vec<u8>,
        now: UtcMillis,
    ) -> Result<Timer, Rejection> {
        if !self.runtime.has_handler(kind) {
            return Err(Rejection::UnknownKind(kind.into()));
        }
        if self.runtime.is_stopping() {
            return Err(Rejection::ShutDown);
        }
        let fresh = |namespace: &str, key: Option<&str>| self.store().fresh_id(namespace, key);
        spec.to_timer(kind, payload, now, &self.runtime.settings.limits, fresh)
    }

    /// Returns the store of the runtime.
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
    /// // After this call, all earlier changes survive a loss of power, even changes with a lower durability. On Redis,
    /// // the call confirms only changes that the present servers have. An earlier failover may have lost others.
    /// block_on(timers.timer_store().apply(Vec::new(), Durability::PowerLoss))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn timer_store(&self) -> Arc<dyn TimerStore> {
        Arc::clone(self.store())
    }

    /// Returns the runtime's metrics: counters since its start, and present values.
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
        let Load { running, overrun, lost, next_due, .. } = self.runtime.load();
        Stats { running, overrun, lost, next_due, ..self.runtime.reporter.stats() }
    }

    /// Returns the present fault of the runtime. If the runtime has several faults, returns the fault that [`Health`]
    /// lists first.
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
        if let Some((since, error)) = self.runtime.reporter.failing() {
            return Health::StoreFails { since, error };
        }
        // While no timer is due, the runtime makes no call that could fail, and only the callers get the error. A full
        // disk refuses new timers alone, so it is no failure of the store.
        if let Some(error) = self.store().refuses_new().filter(|error| error.kind() != StoreErrorKind::Full) {
            return Health::StoreFails { since: Duration::ZERO, error };
        }
        let now = self.runtime.load();
        let overdue = now.next_due.map_or(Duration::ZERO, |due| self.store().now() - due);
        match now.stuck_for {
            Some(time) if time > OVERDUE => Health::StoreHangs(time),
            _ if overdue > OVERDUE => Health::Overdue(overdue),
            _ if now.overrun > 0 => Health::Overrun(now.overrun),
            _ => Health::Healthy,
        }
    }

    /// Waits until no stored timer is due, no handler runs, and the store has confirmed the ends of all deliveries. The
    /// call waits for at most `patience`, by the system's monotonic clock. Returns true if the runtime became idle.
    ///
    /// The call is for tests, after a test has advanced a manual clock. The call waits only for timers that are already
    /// due. A timer without a delay becomes due up to a millisecond after it was stored. So with a clock that runs by
    /// itself, the call may return before such a timer is delivered. A timer whose moment
    /// ([`Spec::at`](crate::Spec::at)) has passed is due at once.
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
        self.runtime.await_idle(patience)
    }

    /// Makes the runtime claim due timers at once. An external scheduler calls this method: see
    /// [`external`](crate::external).
    pub fn look(&self) {
        self.runtime.look();
    }

    /// Notices if the store's clock was set to another time, by a comparison with a clock that cannot be set. If so,
    /// claims due timers. The method is for systems whose kernel does not tell programs that the clock was set. On such
    /// a system, a program calls the method every few seconds. A call costs about 100 ns.
    pub fn look_at_clock(&self) {
        self.runtime.look_at_clock();
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("stats", &self.stats()).finish()
    }
}
