//! Describes a timer that a program wants to store, and checks the description.

use crate::plan::{MissedInstants, Plan, PlanError, Series};
use crate::policy::{Backoff, Guarantee, Misfire, Policy};
use crate::state::State;
use crate::store::{Durability, IfPresent, Op, StoreError};
use crate::timer::{Payload, Timer, TimerId};
use core::fmt;
use core::time::Duration;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tourbillon_words::UtcMillis;

/// A kind of work: a name, and the type of the payload. The name must stay the same while timers of the kind are
/// stored. The payload is stored as JSON. If the type changes, it should still parse its older forms, for example by
/// `#[serde(default)]`. The program can then read timers that an older version of the program has stored.
///
/// ```
/// use tourbillon_durable::Kind;
///
/// #[derive(Debug, serde::Serialize, serde::Deserialize)]
/// struct Remind {
///     order: u64,
///     /// Timers that were stored before this field was there have the default.
///     #[serde(default)]
///     language: String,
/// }
///
/// impl Kind for Remind {
///     const NAME: &'static str = "remind";
/// }
/// ```
pub trait Kind: Serialize + DeserializeOwned + Send + 'static {
    /// The name of the kind, of at most 64 bytes.
    const NAME: &'static str;
}

/// The moment at which a timer is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The timer is due this time after the store accepts the timer, by the store's clock.
    After(Duration),
    /// The timer is due at this moment, or at once if the moment has passed.
    At(UtcMillis),
}

/// The description of a timer that a program wants to store.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::Spec;
/// use tourbillon_durable::policy::Backoff;
/// use tourbillon_durable::store::IfPresent;
///
/// let thirty_days = Duration::from_secs(30 * 86_400);
/// let reminder = Spec::new(b"pay order 17".to_vec())
///     .namespace("shop")
///     .key("order 17")
///     .if_present(IfPresent::Replace)
///     .label("customer 4")
///     .after(thirty_days)
///     .attempts(3)
///     .backoff(Backoff::Fixed(Duration::from_secs(60)));
/// # let _ = reminder;
/// ```
#[derive(Clone, Debug)]
#[must_use = "a timer is stored by `schedule`"]
pub struct Spec<P> {
    pub(crate) payload: P,
    /// The moment at which the timer is due. `None` means the default: a single timer is due at once, and a series is
    /// due at the first instant of its plan.
    pub(crate) due: Option<Due>,
    pub(crate) id: Option<TimerId>,
    pub(crate) namespace: Box<str>,
    pub(crate) key: Option<Box<str>>,
    pub(crate) if_present: IfPresent,
    pub(crate) labels: Vec<Box<str>>,
    pub(crate) policy: Policy,
    pub(crate) repeat: Option<Repeat>,
    pub(crate) trace: Option<Box<str>>,
    pub(crate) durability: Durability,
}

/// The plan of a series whose first occurrence is the described timer.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    plan: Plan,
    missed: MissedInstants,
    /// The moment after which no occurrence comes. `None` if the series does not end.
    end: Option<UtcMillis>,
}

impl<P> Spec<P> {
    /// Describes a timer that has this payload and is due at once. If the caller also calls [`repeat`](Self::repeat),
    /// the timer is due at the first instant of its plan instead.
    pub fn new(payload: P) -> Self {
        Self {
            payload,
            due: None,
            id: None,
            namespace: "".into(),
            key: None,
            if_present: IfPresent::default(),
            labels: Vec::new(),
            policy: Policy::default(),
            repeat: None,
            trace: None,
            durability: Durability::default(),
        }
    }

    /// Makes the timer due `delay` after the store accepts it, by the store's clock.
    pub fn after(self, delay: Duration) -> Self {
        Self { due: Some(Due::After(delay)), ..self }
    }

    /// Makes the timer due at `moment`. If the moment has passed, the timer is due at once, and
    /// [`scheduled`](Timer::scheduled) keeps the passed moment. The exception is a timer with
    /// [`Misfire::Within`](crate::policy::Misfire::Within). Such a timer stays due at the passed moment, so that its
    /// policy decides whether the delivery is too late.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// let past = UtcMillis::from_millis(1_000_000_000_000);
    /// timers.schedule_bytes_blocking("mail", mail("new year").at(past + Duration::from_secs(1_000_000_000)))?;
    /// let timer = block_on(timers.get("new year"))?.ok_or("it is stored")?;
    /// assert_eq!(timer.scheduled.to_string(), "2033-05-18T03:33:20.000Z");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at(self, moment: UtcMillis) -> Self {
        Self { due: Some(Due::At(moment)), ..self }
    }

    /// Gives the timer an id that the caller chooses. If the answer to a creation is lost, the caller can safely repeat
    /// the creation with the same id, because the store creates a single timer with this id. The store remembers the id
    /// until an hour after the timer's end. The id of a timer that was created without such a choice must not be
    /// chosen: the store may not find that timer, and create a second one.
    ///
    /// ```
    /// use tourbillon_durable::Placed;
    /// use tourbillon_durable::timer::TimerId;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// let id = TimerId::fresh();
    /// assert_eq!(timers.schedule_bytes_blocking("mail", mail("a").id(id))?, Placed::Created(id));
    /// assert_eq!(timers.schedule_bytes_blocking("mail", mail("a").id(id))?, Placed::Repeated(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(self, id: TimerId) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Sets the namespace in which the key and the labels are valid.
    pub fn namespace(self, namespace: impl Into<Box<str>>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// Gives the timer a key, by which callers find, move and cancel it. If another timer has the key, the new timer is
    /// refused. [`if_present`](Self::if_present) can set another rule.
    ///
    /// ```
    /// use tourbillon_durable::Rejection;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// let second = timers.schedule_bytes_blocking("mail", mail("order 17"));
    /// assert!(second.is_err_and(|error| matches!(error.reason, Rejection::KeyExists(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(self, key: impl Into<Box<str>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Sets which timer stays if another timer already has the key of this timer.
    ///
    /// ```
    /// use tourbillon_durable::Placed;
    /// use tourbillon_durable::store::IfPresent;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// let first = timers.schedule_bytes_blocking("mail", mail("order 17"))?.id();
    /// let second = timers.schedule_bytes_blocking("mail", mail("order 17").if_present(IfPresent::Replace))?;
    /// assert!(matches!(second, Placed::Replaced { old, .. } if old == first));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn if_present(self, if_present: IfPresent) -> Self {
        Self { if_present, ..self }
    }

    /// Adds a label. Callers can list or cancel all timers that have a given label.
    pub fn label(mut self, label: impl Into<Box<str>>) -> Self {
        self.labels.push(label.into());
        self
    }

    /// Sets the policy for failed and late deliveries.
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets the number of failures after which the timer is dead: it stays stored, but is not delivered again.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.policy.attempts = attempts;
        self
    }

    /// Sets the lengths of the pauses that follow the timer's failures.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Sets the time in which the handler must answer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.policy.timeout = timeout;
        self
    }

    /// Sets the rule that decides whether a late delivery is made or skipped.
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.policy.misfire = misfire;
        self
    }

    /// Delivers the timer at most once. By default a timer is delivered at least once.
    ///
    /// ```
    /// use tourbillon_durable::policy::Guarantee;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("joke").at_most_once())?;
    /// let timer = block_on(timers.get("joke"))?.ok_or("it is stored")?;
    /// assert_eq!(timer.policy.guarantee, Guarantee::AtMostOnce);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at_most_once(mut self) -> Self {
        self.policy.guarantee = Guarantee::AtMostOnce;
        self
    }

    /// Makes the timer the first occurrence of a series. This occurrence is due at the plan's first instant after the
    /// store accepts the timer, by the store's clock. With a fixed period, this is one period after the acceptance.
    /// [`after`](Self::after) and [`at`](Self::at) set another moment for the first occurrence, which need not be an
    /// instant of the plan. Every further occurrence follows from the plan.
    ///
    /// # Errors
    ///
    /// `schedule` fails with [`Rejection::Plan`] if the plan is not valid, and with [`Rejection::NoInstant`] if the
    /// plan has no further instant.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::plan::{MissedInstants, Plan};
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Spec};
    ///
    /// let durable = Durable::builder(MemoryStore::default()).bytes_handler("bill", async |_, _| {}).start()?;
    /// let timers = durable.handle();
    /// let monthly = Plan::cron("0 9 1 * *", "Europe/Zurich")?;
    /// let bill = Spec::new(Vec::new()).key("bill").repeat(monthly.clone(), MissedInstants::Skip);
    /// timers.schedule_bytes_blocking("bill", bill)?;
    /// let first = pollster::block_on(timers.get("bill"))?.ok_or("the first of a month is to come")?;
    /// assert_eq!(Some(first.due), monthly.next_after(first.created));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn repeat(self, plan: Plan, missed: MissedInstants) -> Self {
        Self { repeat: Some(Repeat { plan, missed, end: None }), ..self }
    }

    /// Makes the timer the first occurrence of a series as [`repeat`](Self::repeat) does. No occurrence comes after
    /// `end`. If the caller has set the moment of the first occurrence, `end` does not apply to this occurrence.
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
    /// let now = timers.timer_store().now();
    /// let end = now + Duration::from_secs(150);
    /// let bill = Spec::new(Vec::new()).key("bill");
    /// let bill = bill.repeat_until(Plan::every(Duration::from_secs(60)), MissedInstants::Skip, end);
    /// timers.schedule_bytes_blocking("mail", bill)?;
    /// assert_eq!(block_on(timers.preview("bill", 10))?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn repeat_until(self, plan: Plan, missed: MissedInstants, end: UtcMillis) -> Self {
        Self { repeat: Some(Repeat { plan, missed, end: Some(end) }), ..self }
    }

    /// Sets the trace context, in the form of the header `traceparent`. The handler gets the context with each
    /// delivery.
    pub fn trace(self, trace: impl Into<Box<str>>) -> Self {
        Self { trace: Some(trace.into()), ..self }
    }

    /// Sets the durability of the timer's creation. The call that stores the timer returns only once the timer has this
    /// durability.
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }
}

/// Methods for stores that create timers in the program's own transactions. The methods read the description, or make
/// an operation from it.
impl<P> Spec<P> {
    /// Makes the operation that stores a timer of this description, with the given kind and payload. `now` is the
    /// present time of the store's clock. If the description has no id, each call makes a fresh id.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::store::{MemoryStore, Op, TimerStore as _};
    /// use tourbillon_durable::{Limits, Spec};
    ///
    /// let spec = Spec::new(b"hello".to_vec()).key("order 17").after(Duration::from_secs(60));
    /// let now = MemoryStore::default().now();
    /// let op = spec.operation("mail", spec.payload().clone(), now, &Limits::default())?;
    /// let Op::Place(timer, _) = op else { panic!("a creation") };
    /// assert!(timer.due >= now + Duration::from_secs(60) && *timer.kind == *"mail");
    /// # Ok::<(), tourbillon_durable::Rejection>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the description is not valid, or exceeds a limit.
    pub fn operation(
        &self,
        kind: &str,
        payload: Vec<u8>,
        now: UtcMillis,
        limits: &Limits,
    ) -> Result<Op, Rejection> {
        let timer = self.to_timer(kind, payload, now, limits, |_, _| TimerId::fresh())?;
        Ok(Op::Place(Box::new(timer), self.if_present))
    }

    /// Returns the moment at which the timer is due. `None` means the default: a single timer is due at once, and a
    /// series is due at the first instant of its plan.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{Due, Spec};
    ///
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(Spec::new(()).after(minute).due(), Some(Due::After(minute)));
    /// assert_eq!(Spec::new(()).due(), None);
    /// ```
    pub fn due(&self) -> Option<Due> {
        self.due
    }

    /// Returns the payload.
    pub fn payload(&self) -> &P {
        &self.payload
    }

    /// Returns the payload, and drops the rest of the description.
    pub fn into_payload(self) -> P {
        self.payload
    }
}

impl<K: Kind> Spec<K> {
    /// Makes the operation that stores a timer of this description, as [`operation`](Self::operation) does. The payload
    /// becomes JSON.
    ///
    /// # Errors
    ///
    /// Fails if the description is not valid, exceeds a limit, or cannot be written as JSON.
    pub fn operation_of_kind(&self, now: UtcMillis, limits: &Limits) -> Result<Op, Rejection> {
        let payload = serde_json::to_vec(&self.payload);
        let payload = payload.map_err(|error| Rejection::Payload(error.to_string().into()))?;
        self.operation(K::NAME, payload, now, limits)
    }
}

/// Limits for a timer's payload and delay.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::store::MemoryStore;
/// use tourbillon_durable::{Durable, Limits, Rejection, Spec};
///
/// let mut limits = Limits::default();
/// limits.delay = Duration::from_secs(60);
/// let builder = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {});
/// let durable = builder.limits(limits).start()?;
/// let after = |seconds| Spec::new(Vec::new()).after(Duration::from_secs(seconds));
/// assert!(durable.handle().schedule_bytes_blocking("mail", after(60)).is_ok());
/// let refused = durable.handle().schedule_bytes_blocking("mail", after(61));
/// assert!(refused.is_err_and(|error| matches!(error.reason, Rejection::DueTooFar)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The greatest length of a payload, in bytes. 64 KiB by default.
    pub payload: usize,
    /// The longest time from the acceptance of a timer to its due moment. A hundred years by default.
    pub delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // A hundred calendar years have fewer days, so a date in a hundred years is within the limit.
        Self { payload: 64 << 10, delay: Duration::from_secs(100 * 366 * 86_400) }
    }
}

const LONGEST_KEY: usize = 255;
const LONGEST_NAME: usize = 64;
const MOST_LABELS: usize = 8;

/// The reason why a timer was not stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Rejection {
    /// The timer with this id already has the key of the new timer.
    KeyExists(TimerId),
    /// The new timer may only replace a stored timer
    /// ([`IfPresent::ReplaceOnly`](crate::store::IfPresent::ReplaceOnly)), but no stored timer has the key.
    NotFound,
    /// The payload exceeds the limit. The value is the payload's length in bytes.
    PayloadTooLong(usize),
    /// The payload could not be written as JSON, for the reason in this text.
    Payload(Box<str>),
    /// The named part of the description exceeds its limit, for example the key, a label, or the number of labels.
    TooLong(&'static str),
    /// The named part of the description has a zero byte, for example the key or a label. No text of a timer may have a
    /// zero byte, because not every store can keep it.
    ZeroByte(&'static str),
    /// The due moment is later than the limit permits, or after the year 9999.
    DueTooFar,
    /// The plan of the series is not valid.
    Plan(PlanError),
    /// The plan has no instant between now and the end of the series.
    NoInstant,
    /// The runtime has no handler for this kind.
    UnknownKind(Box<str>),
    /// The store failed. If the error's kind is [`Unknown`](crate::store::StoreErrorKind::Unknown), the timer may have
    /// been stored: the caller should repeat the call with the same id.
    Store(StoreError),
    /// The runtime is shut down, and accepts no new timers.
    ShutDown,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyExists(holder) => write!(f, "the timer {holder} has the key"),
            Self::NotFound => f.write_str("no timer has the key"),
            Self::PayloadTooLong(bytes) => write!(f, "the payload is too long: {bytes} bytes"),
            Self::Payload(error) => write!(f, "the payload cannot be written as JSON: {error}"),
            Self::TooLong(part) => write!(f, "too long: {part}"),
            Self::ZeroByte(part) => write!(f, "{part} has a zero byte"),
            Self::DueTooFar => f.write_str("the due moment is too far away"),
            Self::Plan(error) => write!(f, "the plan cannot be followed: {error}"),
            Self::NoInstant => f.write_str("the plan has no instant any more"),
            Self::UnknownKind(kind) => write!(f, "no handler was registered for the kind {kind:?}"),
            Self::Store(error) => error.fmt(f),
            Self::ShutDown => f.write_str("the runtime was shut down"),
        }
    }
}

/// The error of a call that did not store its timer. The error contains the reason and the payload.
///
/// ```
/// use tourbillon_durable::Rejection;
///
/// # use pollster::block_on;
/// # use std::time::Duration;
/// # use tourbillon_durable::store::MemoryStore;
/// # use tourbillon_durable::{Durable, Spec};
/// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
/// # let timers = durable.handle();
/// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
/// let refused = timers.schedule_bytes_blocking("letter", Spec::new(b"hello".to_vec()));
/// let error = refused.expect_err("no handler is of this kind");
/// assert!(matches!(error.reason, Rejection::UnknownKind(kind) if *kind == *"letter"));
/// assert_eq!(error.payload, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ScheduleError<P> {
    /// The reason why the timer was not stored.
    pub reason: Rejection,
    /// The payload of the timer, so that the caller can use it again.
    pub payload: P,
}

impl<P> fmt::Display for ScheduleError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<P: fmt::Debug> core::error::Error for ScheduleError<P> {}

/// Fails if the name of a timer's kind or a label is too long, or if there are too many labels. The caller removes
/// duplicate labels before.
pub(crate) fn admit_names(kind: &str, labels: &[Box<str>]) -> Result<(), Rejection> {
    too_long("the kind's name", kind, LONGEST_NAME)?;
    labels.iter().try_for_each(|label| too_long("a label", label, LONGEST_NAME))?;
    if labels.len() > MOST_LABELS { Err(Rejection::TooLong("the list of labels")) } else { Ok(()) }
}

fn too_long(part: &'static str, text: &str, most: usize) -> Result<(), Rejection> {
    if text.len() > most { Err(Rejection::TooLong(part)) } else { Ok(()) }
}

impl<P> Spec<P> {
    /// Makes the timer of this description. `now` is the moment at which the store accepts the timer, and `payload`
    /// holds the bytes of the payload. If the description has no id, `fresh` makes an id from the namespace and the
    /// key.
    pub(crate) fn to_timer(
        &self,
        kind: &str,
        payload: Vec<u8>,
        now: UtcMillis,
        limits: &Limits,
        fresh: impl FnOnce(&str, Option<&str>) -> TimerId,
    ) -> Result<Timer, Rejection> {
        // Equal labels count as one.
        let mut labels = self.labels.clone();
        labels.sort();
        labels.dedup();
        admit_names(kind, &labels)?;
        too_long("the namespace", &self.namespace, LONGEST_NAME)?;
        too_long("the key", self.key.as_deref().unwrap_or(""), LONGEST_KEY)?;
        too_long("the trace context", self.trace.as_deref().unwrap_or(""), LONGEST_KEY)?;
        if payload.len() > limits.payload {
            return Err(Rejection::PayloadTooLong(payload.len()));
        }
        let scheduled = match (self.due, &self.repeat) {
            (Some(Due::After(delay)), _) => now.after(delay),
            (Some(Due::At(moment)), _) => moment,
            (None, None) => now.after(Duration::ZERO),
            (None, Some(Repeat { plan, end, .. })) => {
                let instants = plan.instants().map_err(Rejection::Plan)?;
                // A period is a delay, so `after` keeps the timer from being early. The instants of a calendar are
                // fixed moments, and `after` would skip an instant in the next millisecond.
                let from = if let Plan::Every(_) = plan { now.after(Duration::ZERO) } else { now };
                let first = instants.next_after(from).ok_or(Rejection::NoInstant)?;
                if end.is_some_and(|end| end < first) {
                    return Err(Rejection::NoInstant);
                }
                first
            }
        };
        let id = self.id.unwrap_or_else(|| fresh(&self.namespace, self.key.as_deref()));
        // A timer whose moment has passed becomes due now. So it does not count as late, and timers that have waited
        // longer are delivered before it.
        let due = match self.policy.misfire {
            Misfire::Fire => (scheduled + self.policy.jitter_of(id)).max(now),
            Misfire::Within(_) => scheduled + self.policy.jitter_of(id),
        };
        // `Due::After` adds a millisecond. The limit adds it as well, so a delay of exactly the limit is permitted.
        // Sums stop at `MAX`, so a sum of `MAX` may stand for a later moment.
        if due > now.after(limits.delay) || due >= UtcMillis::MAX {
            return Err(Rejection::DueTooFar);
        }
        let series = match self.repeat.clone() {
            None => None,
            Some(Repeat { plan, missed, end }) => {
                // If the caller has chosen the due moment, the plan was not checked above.
                plan.validate().map_err(Rejection::Plan)?;
                Some(Series { id, plan, missed, end, paused: false })
            }
        };
        let timer = Timer {
            id,
            namespace: self.namespace.clone(),
            key: self.key.clone(),
            kind: kind.into(),
            payload: Payload(payload.into()),
            labels,
            policy: self.policy.clone(),
            series,
            // The store sets this moment again when it accepts the timer.
            created: now,
            scheduled,
            due,
            deliveries: 0,
            failures: 0,
            last_error: None,
            state: State::Pending,
            trace: self.trace.clone(),
            has_chosen_id: self.id.is_some(),
            age_from: None,
        };
        match timer.part_with_zero_byte() {
            Some(part) => Err(Rejection::ZeroByte(part)),
            None => Ok(timer),
        }
    }
}
