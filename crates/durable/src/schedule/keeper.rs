//! Schedules in a store.

use super::decide::SLACK;
use super::{Progress, Schedule};
use crate::delivery::Delivery;
use crate::executor::block_on;
use crate::handler::Verdict;
use crate::id::TimerId;
use crate::plan::PlanError;
use crate::policy::{Backoff, Guarantee, Misfire, Policy};
use crate::runtime::Builder;
use crate::spec::Kind;
use crate::state::{Phase, State};
use crate::store::{
    Cursor, Durability, Filter, IfPresent, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use crate::timer::{Address, KeyOf, Payload, Timer};
use crate::utc::UtcMillis;
use core::cell::Cell;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::hash::DefaultHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use uuid::Uuid;

/// The names of the jitters.
const JITTERS: Uuid = Uuid::from_u128(0x2f6a_0c39_5d1e_4b8a_9a57_31c6_e0f4_7d22);
/// Between the namespace and the key in the name from which a jitter follows.
const BETWEEN: char = '\u{1f}';
const LONGEST_NAMESPACE: usize = 64;
const LONGEST_KEY: usize = 128;
/// The number of locks. Changes of one schedule by this process come one after the other.
const LOCKS: usize = 64;
const PAUSE: Duration = Duration::from_secs(1);
/// Attempts of a change while other processes change the same schedule.
const TURNS: usize = 64;
/// The longest wait for the end of a decision that another process has begun, and the pause between two looks for it.
const SETTLING: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// The schedules that are read at once where all are.
const LIST: u32 = 200;

const PAUSED: &str = "schedule paused";
const ENDED: &str = "schedule ended";
/// The beginning of the reason for which a schedule is parked whose plan cannot be followed.
const FAULT: &str = "schedule: ";

/// The name of a schedule.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::schedule::ScheduleKey;
///
/// let at = ScheduleKey::new("shop", "daily report");
/// assert_eq!(*at.label(), *"schedule:daily report");
/// assert!(at.jitter(Duration::from_secs(60)) < Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleKey {
    /// The namespace, in which the occurrences are, of at most 64 bytes.
    pub namespace: Box<str>,
    /// The key, of 1 to 128 bytes other than 1F. The occurrences have the label `schedule:` with the key.
    pub key: Box<str>,
}

impl ScheduleKey {
    /// A key in a namespace.
    ///
    /// ```
    /// use tourbillon_durable::schedule::ScheduleKey;
    ///
    /// let at = ScheduleKey::new("shop", "daily report");
    /// assert_eq!((&*at.namespace, &*at.key), ("shop", "daily report"));
    /// ```
    pub fn new(namespace: impl Into<Box<str>>, key: impl Into<Box<str>>) -> Self {
        Self { namespace: namespace.into(), key: key.into() }
    }

    /// The label of the occurrences.
    ///
    /// ```
    /// use tourbillon_durable::schedule::ScheduleKey;
    ///
    /// assert_eq!(*ScheduleKey::new("shop", "daily report").label(), *"schedule:daily report");
    /// ```
    #[must_use]
    pub fn label(&self) -> Box<str> {
        format!("schedule:{}", self.key).into()
    }

    fn admit(&self) -> Result<(), ScheduleFault> {
        let is_name = !self.key.is_empty() && self.key.len() <= LONGEST_KEY && !self.key.contains(BETWEEN);
        if is_name && self.namespace.len() <= LONGEST_NAMESPACE && !self.namespace.contains(BETWEEN) {
            return Ok(());
        }
        Err(ScheduleFault::Key)
    }

    fn address(&self) -> Address {
        Address::Key(KeyOf { namespace: Schedules::namespace_of(&self.namespace), key: self.key.clone() })
    }

    /// The time by which the occurrences become due after their instants: the same whenever it is computed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::schedule::ScheduleKey;
    ///
    /// let hour = Duration::from_secs(3_600);
    /// let jitter = |key| ScheduleKey::new("shop", key).jitter(hour);
    /// assert!(jitter("a") < hour && jitter("a") == jitter("a") && jitter("a") != jitter("b"));
    /// ```
    #[must_use]
    pub fn jitter(&self, window: Duration) -> Duration {
        let name = format!("{}{BETWEEN}{}", self.namespace, self.key);
        let name = TimerId::from_u128(Uuid::new_v5(&JITTERS, name.as_bytes()).as_u128());
        Policy { jitter: window, ..Policy::default() }.jitter_of(name)
    }
}

/// The timer that each instant makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Template {
    /// The name of the handler's kind.
    pub kind: Box<str>,
    /// The handler's argument.
    pub payload: Payload,
    /// Labels of the occurrences.
    #[serde(default)]
    pub labels: Vec<Box<str>>,
    /// What is done if a delivery fails. Its misfire and jitter do not count: the schedule has its own.
    #[serde(default)]
    pub policy: Policy,
}

/// A schedule as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Stored {
    schedule: Schedule,
    template: Template,
    progress: Progress,
}

impl Kind for Stored {
    const NAME: &'static str = Schedules::KIND;
}

/// A schedule as it is shown.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScheduleView {
    /// The name.
    pub at: ScheduleKey,
    /// The rule.
    pub schedule: Schedule,
    /// What each instant makes.
    pub template: Template,
    /// How far the schedule is.
    pub progress: Progress,
    /// The moment at which the next occurrence is due: the next instant and the jitter. `None` if the schedule is
    /// paused or parked, or has ended.
    pub due: Option<UtcMillis>,
    /// The time by which the schedule's next decision is late.
    pub overdue: Duration,
}

/// A part of the list of schedules.
#[derive(Clone, Debug, Default)]
pub struct SchedulesPage {
    /// The schedules, in the order of their keys.
    pub schedules: Vec<ScheduleView>,
    /// The place after them; `None` at the end of the list.
    pub next: Option<Cursor>,
}

/// What a part of a backfill has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackfillStep {
    /// The number of occurrences that were stored.
    pub stored: u64,
    /// The number of instants that had their occurrences already.
    pub repeated: u64,
    /// The instant after which the backfill goes on; `None` if it is done.
    pub reached: Option<UtcMillis>,
}

/// The reason why a call about a schedule failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ScheduleFault {
    /// There is no such schedule.
    NotFound,
    /// The key or the namespace is empty, too long, or has the control character U+001F.
    Key,
    /// The end of the schedule is before its start.
    EndBeforeStart,
    /// The plan cannot be followed.
    Plan(PlanError),
    /// The namespace has so many schedules, as many as the call permits.
    Full(u64),
    /// The store failed.
    Store(StoreError),
}

impl fmt::Display for ScheduleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such schedule"),
            Self::Key => {
                write!(f, "the key of a schedule has 1 to {LONGEST_KEY} bytes, and none of them is 1F")
            }
            Self::EndBeforeStart => f.write_str("the end of the schedule is before its start"),
            Self::Plan(error) => error.fmt(f),
            Self::Full(most) => write!(f, "the namespace has {most} schedules, as many as it may have"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ScheduleFault {}

impl From<PlanError> for ScheduleFault {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

impl From<StoreError> for ScheduleFault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What happens to a schedule, for an observer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleEvent {
    /// An instant got its occurrence.
    Fired {
        /// The occurrence.
        id: TimerId,
        /// The instant.
        instant: UtcMillis,
    },
    /// So many instants passed unnoticed and got no occurrences.
    Missed(u64),
    /// So many instants were skipped because of an overlap.
    Skipped(u64),
    /// The plan cannot be followed any more. The schedule waits until it is changed or resumed.
    Parked(Box<str>),
    /// No instant is left.
    Ended,
    /// The next instant was computed anew, since a clock that was ahead had brought the schedule further.
    Followed {
        /// The next instant before; `None` if the schedule had ended.
        from: Option<UtcMillis>,
        /// The next instant.
        to: UtcMillis,
    },
}

type Observe = dyn Fn(&ScheduleKey, &ScheduleEvent) + Send + Sync;

/// The schedules of a store. It can be cloned; the clones are the same. All calls that reach the store wait for it on
/// the calling thread.
///
/// # Several processes
///
/// In a store that several processes share, each may change and follow the same schedules. A change is stored only in
/// the place of the timer that it was computed from, so none is lost, and none brings back a schedule that was removed.
/// Once a removal, a pause or a change has returned, no process makes occurrences by what was before: the call waits
/// for the end of a decision that is under way, for at most ten seconds.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use std::time::Duration;
/// use tourbillon_durable::Durable;
/// use tourbillon_durable::plan::Plan;
/// use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
/// use tourbillon_durable::store::MemoryStore;
///
/// let store = Arc::new(MemoryStore::default());
/// let schedules = Schedules::new(store.clone());
/// let (sender, received) = mpsc::channel();
/// let builder = Durable::builder_on(store).bytes_handler("mail", move |body, _| {
///     let sender = sender.clone();
///     async move { drop(sender.send(body)) }
/// });
/// let _durable = schedules.add_to(builder).start()?;
/// let template = Template {
///     kind: "mail".into(),
///     payload: tourbillon_durable::timer::Payload((*b"hello").into()),
///     labels: vec![],
///     policy: Default::default(),
/// };
/// let each = Schedule::new(Plan::Every(20));
/// schedules.put(&ScheduleKey::new("", "greeting"), each, template)?;
/// assert_eq!(&*received.recv_timeout(Duration::from_secs(20))?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Schedules(Arc<Inner>);

struct Inner {
    store: Arc<dyn TimerStore>,
    locks: [Mutex<()>; LOCKS],
    /// Held while a schedule is made that must find room. It comes before the schedule's lock.
    room: Mutex<()>,
    observe: Option<Box<Observe>>,
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").finish_non_exhaustive()
    }
}

impl Schedules {
    /// The beginning of the namespaces of the timers that are schedules; the rest is the namespace of their
    /// occurrences. Programs keep their own timers out of them.
    pub const NAMESPACES: &'static str = "/schedules/";
    /// The kind of the timers that are schedules.
    pub const KIND: &'static str = "tourbillon/schedule";

    /// The schedules of this store.
    #[must_use]
    pub fn new(store: Arc<dyn TimerStore>) -> Self {
        Self::with(store, None)
    }

    /// As [`new`](Self::new), with a function that is called for each event, after it is stored. It is called within a
    /// lock of the schedule, must not block, and must not call these schedules.
    #[must_use]
    pub fn observed(
        store: Arc<dyn TimerStore>,
        observe: impl Fn(&ScheduleKey, &ScheduleEvent) + Send + Sync + 'static,
    ) -> Self {
        Self::with(store, Some(Box::new(observe)))
    }

    fn with(store: Arc<dyn TimerStore>, observe: Option<Box<Observe>>) -> Self {
        let room = Mutex::new(());
        Self(Arc::new(Inner { store, locks: [const { Mutex::new(()) }; LOCKS], room, observe }))
    }

    /// The namespace of the timers that are the schedules of this namespace.
    ///
    /// ```
    /// use tourbillon_durable::schedule::Schedules;
    ///
    /// assert_eq!(*Schedules::namespace_of("shop"), *"/schedules/shop");
    /// ```
    #[must_use]
    pub fn namespace_of(namespace: &str) -> Box<str> {
        format!("{}{namespace}", Self::NAMESPACES).into()
    }

    /// Adds the handler of schedules to a runtime on the same store. It runs on the runtime's
    /// [`workers`](Builder::workers).
    pub fn add_to(&self, builder: Builder) -> Builder {
        let (schedules, following) = (self.clone(), self.clone());
        builder
            .blocking_handler(move |_: Stored, delivery| schedules.deliver(&delivery))
            .follow_clock(move || following.follow_clock().map(drop))
    }

    /// Computes the next instants anew of schedules that a clock which was ahead has brought further than the present
    /// one. Returns the number of these schedules. A runtime with these schedules makes the call at its start and after
    /// each step back. Reads all schedules.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. The call may be repeated.
    pub fn follow_clock(&self) -> Result<u64, StoreError> {
        let counts = block_on(self.0.store.counts())?;
        let mut namespaces: Vec<&str> =
            counts.by_namespace.keys().filter_map(|(name, _)| name.strip_prefix(Self::NAMESPACES)).collect();
        namespaces.dedup();
        let mut followed = 0;
        for namespace in namespaces {
            let mut cursor = None;
            loop {
                let page = self.list(namespace, "", cursor, LIST)?;
                for view in page.schedules {
                    match self.follow_clock_of(&view.at) {
                        Ok(true) => followed += 1,
                        Err(ScheduleFault::Store(error)) => return Err(error),
                        // A plan that cannot be followed parks its schedule at its next decision.
                        Ok(false) | Err(_) => {}
                    }
                }
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(followed)
    }

    /// Computes the next instant of a schedule anew, if a clock that was ahead has brought it further.
    fn follow_clock_of(&self, at: &ScheduleKey) -> Result<bool, ScheduleFault> {
        let is_ahead = |stored: &Stored, now| match stored.progress {
            // A resume computes it anew.
            Progress { paused: true, .. } | Progress { fault: Some(_), .. } => Ok(None),
            _ => stored.progress.followed(&stored.schedule, now),
        };
        let (_, stored) = self.load(at)?;
        if is_ahead(&stored, self.0.store.now())?.is_none() {
            return Ok(false);
        }
        let from = Cell::new(None);
        let changed = self.change(at, |now| {
            let (timer, stored) = self.load(at)?;
            from.set(stored.progress.next);
            let progress = is_ahead(&stored, now)?.ok_or(ScheduleFault::NotFound)?;
            Ok((Stored { progress, ..stored }, IfPresent::ReplaceOnly(timer.id)))
        });
        let view = match changed {
            // Another process was quicker.
            Err(ScheduleFault::NotFound) => return Ok(false),
            changed => changed?,
        };
        if let Some(to) = view.progress.next {
            self.tell(at, &ScheduleEvent::Followed { from: from.get(), to });
        }
        Ok(true)
    }

    fn lock(&self, at: &ScheduleKey) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        at.hash(&mut hasher);
        #[expect(clippy::cast_possible_truncation, reason = "the rest of a division by a small number")]
        let lock = (hasher.finish() % LOCKS as u64) as usize;
        self.0.locks[lock].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, at: &ScheduleKey, event: &ScheduleEvent) {
        if let Some(observe) = &self.0.observe {
            observe(at, event);
        }
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> Result<Vec<Outcome>, StoreError> {
        block_on(self.0.store.apply(ops, durability))
    }

    /// The timer of a schedule, and what it has stored.
    fn load(&self, at: &ScheduleKey) -> Result<(Timer, Stored), ScheduleFault> {
        at.admit()?;
        let timer = block_on(self.0.store.get(at.address()))?.ok_or(ScheduleFault::NotFound)?;
        let stored = read(&timer)?;
        Ok((timer, stored))
    }

    /// The operation that stores a schedule, in place of the timer that `mode` permits.
    fn store(at: &ScheduleKey, stored: &Stored, wake: Option<UtcMillis>, mode: IfPresent) -> Op {
        let Progress { paused, fault, .. } = &stored.progress;
        let state = match (fault, wake) {
            (Some(fault), _) => State::Parked(parked(fault)),
            _ if *paused => State::Parked(PAUSED.into()),
            (None, None) => State::Parked(ENDED.into()),
            (None, Some(_)) => State::Pending,
        };
        let payload = serde_json::to_vec(stored).unwrap_or_default();
        let timer = Timer {
            namespace: Self::namespace_of(&at.namespace),
            key: Some(at.key.clone()),
            payload: Payload(payload.into()),
            policy: Policy {
                attempts: u32::MAX,
                deliveries: u32::MAX,
                backoff: Backoff::Fixed(PAUSE),
                ..Policy::default()
            },
            state,
            ..Timer::new(TimerId::fresh(), Self::KIND, wake.unwrap_or(UtcMillis::ZERO))
        };
        Op::Place(Box::new(timer), mode)
    }

    /// Waits until a delivery of a schedule's former timer has ended, which another process may have begun. The caller
    /// has no lock: the delivery may be this process's own.
    fn await_end(&self, former: TimerId) -> Result<(), StoreError> {
        let begun = Instant::now();
        while block_on(self.0.store.get(former.into()))?.is_some() {
            if begun.elapsed() > SETTLING {
                let message = "another process has begun a decision of the schedule, and has not ended it";
                return Err(StoreError::new(StoreErrorKind::Unknown, message));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Stores what `change` computes, with the moment of the next decision. Computes it again while other processes
    /// change the schedule.
    fn change(
        &self,
        at: &ScheduleKey,
        change: impl Fn(UtcMillis) -> Result<(Stored, IfPresent), ScheduleFault>,
    ) -> Result<ScheduleView, ScheduleFault> {
        let lock = self.lock(at);
        for _ in 0..TURNS {
            let now = self.0.store.now();
            let (stored, mode) = change(now)?;
            let wake = wake(at, &stored, now);
            let outcomes = self.apply(vec![Self::store(at, &stored, wake, mode)], Durability::PowerLoss)?;
            let former = match outcomes.first() {
                Some(Outcome::Created(_)) => None,
                Some(Outcome::Replaced { old, was, .. }) => Some((*old, *was)),
                _ => continue,
            };
            drop(lock);
            if let Some((former, Phase::Leased)) = former
                && !self.0.store.is_transactional()
            {
                self.await_end(former)?;
            }
            return Ok(view(at.clone(), stored, wake, now));
        }
        Err(contended().into())
    }

    /// Makes a schedule, or changes its rule and its template. Returns whether it is new, and the schedule. The numbers
    /// of a schedule that is changed stay, and so does a pause.
    ///
    /// # Errors
    ///
    /// Fails if the key or the plan is not valid, or if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// assert!(schedules.put(&at, daily.clone(), report())?.0, "it is new");
    /// assert!(!schedules.put(&at, daily, report())?.0, "it was there");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put(
        &self,
        at: &ScheduleKey,
        schedule: Schedule,
        template: Template,
    ) -> Result<(bool, ScheduleView), ScheduleFault> {
        self.put_within(at, schedule, template, u64::MAX)
    }

    /// As [`put`](Self::put), if the namespace has fewer than `most` schedules or has this one already. Concurrent
    /// calls with the same `most` do not exceed it together, unless they are of several processes.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put), and [`ScheduleFault::Full`] if there is no room.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::schedule::ScheduleFault;
    ///
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// assert!(schedules.put_within(&at, daily.clone(), report(), 1).is_ok());
    /// let second = schedules.put_within(&ScheduleKey::new("shop", "other"), daily, report(), 1);
    /// assert!(matches!(second, Err(ScheduleFault::Full(1))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_within(
        &self,
        at: &ScheduleKey,
        schedule: Schedule,
        template: Template,
        most: u64,
    ) -> Result<(bool, ScheduleView), ScheduleFault> {
        at.admit()?;
        if let (Some(start), Some(end)) = (schedule.start, schedule.end)
            && end < start
        {
            return Err(ScheduleFault::EndBeforeStart);
        }
        let _room = (most < u64::MAX).then(|| self.0.room.lock().unwrap_or_else(PoisonError::into_inner));
        let is_new = Cell::new(false);
        let view = self.change(at, |now| {
            let (progress, mode) = match self.load(at) {
                Ok((timer, before)) => {
                    let progress = before.progress.changed(&before.schedule, &schedule, now)?;
                    (progress, IfPresent::ReplaceOnly(timer.id))
                }
                Err(ScheduleFault::NotFound) => {
                    if most < u64::MAX && self.number_in(&at.namespace)? >= most {
                        return Err(ScheduleFault::Full(most));
                    }
                    (Progress::new(TimerId::fresh(), &schedule, now)?, IfPresent::Reject)
                }
                // A record that cannot be read is replaced.
                Err(ScheduleFault::Store(error)) if error.kind() == StoreErrorKind::Corrupt => {
                    (Progress::new(TimerId::fresh(), &schedule, now)?, IfPresent::Replace)
                }
                Err(fault) => return Err(fault),
            };
            is_new.set(mode == IfPresent::Reject);
            let stored = Stored { schedule: schedule.clone(), template: template.clone(), progress };
            Ok((stored, mode))
        })?;
        Ok((is_new.get(), view))
    }

    /// The number of schedules of a namespace, by the store's counts.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// assert_eq!((schedules.number_in("shop")?, schedules.number_in("mail")?), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn number_in(&self, namespace: &str) -> Result<u64, StoreError> {
        let counts = block_on(self.0.store.counts())?;
        let of = Self::namespace_of(namespace);
        let count = |phase| counts.by_namespace.get(&(of.clone(), phase)).copied().unwrap_or(0);
        Ok([Phase::Pending, Phase::Leased, Phase::Parked].map(count).iter().sum())
    }

    /// A schedule.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// assert_eq!(schedules.get(&at)?.progress.fired, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self, at: &ScheduleKey) -> Result<ScheduleView, ScheduleFault> {
        let (timer, stored) = self.load(at)?;
        Ok(view(at.clone(), stored, due(&timer), self.0.store.now()))
    }

    /// Schedules of a namespace whose keys begin so, in the order of their keys. Those that cannot be read are left
    /// out.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// let page = schedules.list("shop", "daily", None, 100)?;
    /// assert_eq!((page.schedules.len(), page.next), (1, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(
        &self,
        namespace: &str,
        key_prefix: &str,
        cursor: Option<Cursor>,
        limit: u32,
    ) -> Result<SchedulesPage, StoreError> {
        let filter = Filter {
            namespace: Some(Self::namespace_of(namespace)),
            key_prefix: Some(key_prefix.into()),
            ..Filter::default()
        };
        let page = block_on(self.0.store.list(filter, cursor, limit))?;
        let now = self.0.store.now();
        let schedules = page.timers.iter().filter_map(|timer| {
            Some(view(ScheduleKey::new(namespace, timer.key.clone()?), read(timer).ok()?, due(timer), now))
        });
        Ok(SchedulesPage { schedules: schedules.collect(), next: page.next })
    }

    /// Removes a schedule. Its occurrences stay; they have the [label](ScheduleKey::label) by which they can be
    /// cancelled. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// assert!(schedules.remove(&at)?);
    /// assert!(!schedules.remove(&at)?, "it is gone");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&self, at: &ScheduleKey) -> Result<bool, ScheduleFault> {
        at.admit()?;
        let outcomes = {
            let _lock = self.lock(at);
            self.apply(vec![Op::Cancel(at.address(), None)], Durability::PowerLoss)?
        };
        if let Some(Outcome::InFlight(former)) = outcomes.first()
            && !self.0.store.is_transactional()
        {
            self.await_end(*former)?;
        }
        Ok(!matches!(outcomes.first(), Some(Outcome::NotFound)))
    }

    /// Pauses a schedule: its instants pass by, neither counted as missed nor as skipped. Occurrences that are stored
    /// go on.
    ///
    /// # Errors
    ///
    /// Fails if there is no such schedule, or if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// assert!(schedules.pause(&at)?.progress.paused);
    /// assert!(!schedules.resume(&at)?.progress.paused);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self, at: &ScheduleKey) -> Result<ScheduleView, ScheduleFault> {
        self.change(at, |_| {
            let (timer, mut stored) = self.load(at)?;
            stored.progress.paused = true;
            Ok((stored, IfPresent::ReplaceOnly(timer.id)))
        })
    }

    /// Ends a pause, or tries a plan again that could not be followed.
    ///
    /// # Errors
    ///
    /// Fails if there is no such schedule, if its plan cannot be followed, or if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// assert!(!schedules.resume(&at)?.progress.paused, "it was not paused, either");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self, at: &ScheduleKey) -> Result<ScheduleView, ScheduleFault> {
        self.change(at, |now| {
            let (timer, stored) = self.load(at)?;
            let progress = stored.progress.resumed(&stored.schedule, now)?;
            Ok((Stored { progress, ..stored }, IfPresent::ReplaceOnly(timer.id)))
        })
    }

    /// Makes an occurrence now, apart from the plan, whether or not the schedule is paused or another occurrence is
    /// under way. Returns its id.
    ///
    /// # Errors
    ///
    /// Fails if there is no such schedule, or if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// let id = schedules.trigger(&at)?;
    /// let view = schedules.get(&at)?;
    /// assert_eq!((view.progress.asked, view.progress.fired), (1, 0));
    /// # let _ = id;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trigger(&self, at: &ScheduleKey) -> Result<TimerId, ScheduleFault> {
        let _lock = self.lock(at);
        let id = TimerId::fresh();
        for _ in 0..TURNS {
            let (timer, mut stored) = self.load(at)?;
            let now = self.0.store.now();
            // At each turn under the same id, so it is made once.
            let occurrence = Timer { id, ..occurrence(at, &stored, now, now) };
            stored.progress.asked += 1;
            stored.progress.last_fired = Some(now);
            let mode = IfPresent::ReplaceOnly(timer.id);
            let place = Op::Place(Box::new(occurrence), IfPresent::Reject);
            let ops = vec![place, Self::store(at, &stored, due(&timer), mode)];
            let outcomes = self.apply(ops, Durability::PowerLoss)?;
            if has_replaced(&outcomes) {
                self.tell(at, &ScheduleEvent::Fired { id, instant: now });
                return Ok(id);
            }
        }
        Err(contended().into())
    }

    /// The number of instants after `after` and up to `until`, but not more than `limit`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such schedule, if its plan cannot be followed, or if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// let (june, july) = (UtcMillis::from_millis(1_780_272_000_000), UtcMillis::from_millis(1_782_864_000_000));
    /// assert_eq!(schedules.count(&at, june, july, 100)?, 30, "30 days in UTC");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count(
        &self,
        at: &ScheduleKey,
        after: UtcMillis,
        until: UtcMillis,
        limit: usize,
    ) -> Result<usize, ScheduleFault> {
        let (_, stored) = self.load(at)?;
        Ok(stored.progress.instants(&stored.schedule, after, until, limit)?.len())
    }

    /// Makes the occurrences of at most `limit` instants after `after` and up to `until`, or to now if that is earlier.
    /// They are due at once. Their ids follow from their instants: an instant whose occurrence is stored, or has ended
    /// within an hour, gets no second one.
    ///
    /// # Errors
    ///
    /// Fails if there is no such schedule, if its plan cannot be followed, or if the store fails. After a failure the
    /// step can be repeated.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// let from = UtcMillis::from_millis(1_577_836_800_000);
    /// let step = schedules.backfill(&at, from, from + Duration::from_secs(3 * 86_400), 100)?;
    /// assert_eq!((step.stored, step.repeated, step.reached), (3, 0, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backfill(
        &self,
        at: &ScheduleKey,
        after: UtcMillis,
        until: UtcMillis,
        limit: usize,
    ) -> Result<BackfillStep, ScheduleFault> {
        let _lock = self.lock(at);
        let (mut timer, mut stored) = self.load(at)?;
        let now = self.0.store.now();
        let instants = stored.progress.instants(&stored.schedule, after, until.min(now), limit)?;
        let reached = instants.last().copied().filter(|_| instants.len() == limit.max(1));
        if instants.is_empty() {
            return Ok(BackfillStep::default());
        }
        let place = |instant: &UtcMillis| {
            Op::Place(Box::new(occurrence(at, &stored, *instant, now)), IfPresent::Reject)
        };
        let outcomes = self.apply(instants.iter().map(place).collect(), Durability::PowerLoss)?;
        let mut step = BackfillStep { reached, ..BackfillStep::default() };
        for (outcome, instant) in outcomes.iter().zip(&instants) {
            match outcome {
                Outcome::Created(id) => {
                    step.stored += 1;
                    self.tell(at, &ScheduleEvent::Fired { id: *id, instant: *instant });
                }
                _ => step.repeated += 1,
            }
        }
        for _ in 0..TURNS {
            if step.stored == 0 {
                break;
            }
            stored.progress.asked += step.stored;
            stored.progress.last_fired = Some(now);
            let mode = IfPresent::ReplaceOnly(timer.id);
            let outcomes =
                self.apply(vec![Self::store(at, &stored, due(&timer), mode)], Durability::ProcessCrash)?;
            if has_replaced(&outcomes) {
                break;
            }
            (timer, stored) = match self.load(at) {
                // The occurrences are stored, and there is nothing left to count them in.
                Err(ScheduleFault::NotFound) => break,
                loaded => loaded?,
            };
        }
        Ok(step)
    }

    /// Decides on the instants of a schedule that have come.
    fn deliver(&self, delivery: &Delivery) -> Verdict {
        let of = delivery.namespace.strip_prefix(Self::NAMESPACES).zip(delivery.key.as_deref());
        let Some((namespace, key)) = of else { return Verdict::Dead("this is no schedule".into()) };
        let at = ScheduleKey::new(namespace, key);
        let _lock = self.lock(&at);
        match self.load(&at) {
            // A schedule that was changed in the meantime has another timer.
            Ok((timer, stored)) if timer.id == delivery.id => {
                self.act(&at, timer.id, stored).unwrap_or_else(|error| Verdict::Retry {
                    error: error.to_string().into(),
                    after: Some(PAUSE),
                })
            }
            Ok(_) | Err(ScheduleFault::NotFound) => Verdict::Done,
            Err(error) => Verdict::Retry { error: error.to_string().into(), after: Some(PAUSE) },
        }
    }

    /// Decides for a schedule whose timer is being delivered. Changes nothing if another process has changed the
    /// schedule meanwhile: the change has given it another timer.
    fn act(&self, at: &ScheduleKey, timer: TimerId, stored: Stored) -> Result<Verdict, StoreError> {
        let mode = IfPresent::ReplaceOnly(timer);
        let now = self.0.store.now();
        let is_under_way = match stored.progress.last_occurrence {
            Some(id) => {
                let last = block_on(self.0.store.get(id.into()))?;
                // An occurrence of a moment that has not come is of a clock that was ahead. It waits for its moment.
                let is_ahead = |last: &Timer| last.state == State::Pending && last.scheduled > now + SLACK;
                last.is_some_and(|last| !matches!(last.state, State::Dead(_)) && !is_ahead(&last))
            }
            None => false,
        };
        let offset = at.jitter(stored.schedule.jitter);
        let decision = match stored.progress.decide(&stored.schedule, offset, now, is_under_way) {
            Ok(decision) => decision,
            Err(error) => {
                let reason: Box<str> = error.to_string().into();
                let fault = Some(reason.clone());
                let stored = Stored { progress: Progress { fault, ..stored.progress }, ..stored };
                if has_replaced(
                    &self.apply(vec![Self::store(at, &stored, None, mode)], Durability::PowerLoss)?,
                ) {
                    self.tell(at, &ScheduleEvent::Parked(reason));
                }
                return Ok(Verdict::Done);
            }
        };
        if let (true, Some(wake)) = (decision.progress == stored.progress, decision.wake) {
            // The queued instant still waits.
            return Ok(Verdict::Snooze(wake));
        }
        let occurrences: Vec<_> = decision
            .fire
            .iter()
            .map(|instant| {
                let due = *instant + offset;
                Op::Place(Box::new(occurrence(at, &stored, *instant, due)), IfPresent::Reject)
            })
            .collect();
        // An occurrence at least once may be made again after a loss of power, under the same id.
        let durability = match stored.template.policy.guarantee {
            Guarantee::AtLeastOnce => Durability::ProcessCrash,
            Guarantee::AtMostOnce => Durability::PowerLoss,
        };
        let guarantee = stored.template.policy.guarantee;
        let stored = Stored { progress: decision.progress, ..stored };
        let keep = Self::store(at, &stored, decision.wake, mode);
        if !self.follow(occurrences, keep, durability, guarantee)? {
            return Ok(Verdict::Done);
        }
        for instant in decision.fire {
            let id = TimerId::of_occurrence(stored.progress.id, instant);
            self.tell(at, &ScheduleEvent::Fired { id, instant });
        }
        if decision.missed > 0 {
            self.tell(at, &ScheduleEvent::Missed(decision.missed));
        }
        if decision.skipped > 0 {
            self.tell(at, &ScheduleEvent::Skipped(decision.skipped));
        }
        if decision.wake.is_none() {
            self.tell(at, &ScheduleEvent::Ended);
        }
        Ok(Verdict::Done)
    }

    /// Stores the occurrences of a decision, and the schedule after it. Returns whether the schedule was stored:
    /// otherwise another process has changed it.
    ///
    /// In a store whose batches are no transactions, a process may end between the two. Occurrences at least once come
    /// first: a repeated decision finds them by their ids. Those at most once come last.
    fn follow(
        &self,
        occurrences: Vec<Op>,
        keep: Op,
        durability: Durability,
        guarantee: Guarantee,
    ) -> Result<bool, StoreError> {
        if occurrences.is_empty() || self.0.store.is_transactional() {
            let ops = occurrences.into_iter().chain([keep]).collect();
            return Ok(has_replaced(&self.apply(ops, durability)?));
        }
        match guarantee {
            Guarantee::AtLeastOnce => {
                self.apply(occurrences, durability)?;
                Ok(has_replaced(&self.apply(vec![keep], durability)?))
            }
            Guarantee::AtMostOnce => {
                let is_kept = has_replaced(&self.apply(vec![keep], durability)?);
                if is_kept {
                    self.apply(occurrences, durability)?;
                }
                Ok(is_kept)
            }
        }
    }
}

/// The error of a change that others were always quicker with.
fn contended() -> StoreError {
    StoreError::new(StoreErrorKind::Io, format!("others changed the schedule during {TURNS} attempts"))
}

/// Whether the last operation has stored its schedule.
fn has_replaced(outcomes: &[Outcome]) -> bool {
    matches!(outcomes.last(), Some(Outcome::Created(_) | Outcome::Replaced { .. }))
}

/// The reason for which a schedule with this fault is parked.
fn parked(fault: &str) -> Box<str> {
    let mut reason = format!("{FAULT}{fault}");
    let most = (0..=Verdict::LONGEST_REASON).rev().find(|at| reason.is_char_boundary(*at));
    reason.truncate(most.unwrap_or(0));
    reason.into()
}

fn read(timer: &Timer) -> Result<Stored, StoreError> {
    serde_json::from_slice(&timer.payload.0)
        .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, format!("this is no schedule: {error}")))
}

/// The moment of the next decision of a stored schedule.
fn due(timer: &Timer) -> Option<UtcMillis> {
    match &timer.state {
        State::Parked(reason) if **reason == *ENDED => None,
        _ => Some(timer.due),
    }
}

fn wake(at: &ScheduleKey, stored: &Stored, now: UtcMillis) -> Option<UtcMillis> {
    let next = stored.progress.next.map(|next| next + at.jitter(stored.schedule.jitter));
    next.into_iter().chain(stored.progress.queued.map(|_| now)).min()
}

fn view(at: ScheduleKey, stored: Stored, wake: Option<UtcMillis>, now: UtcMillis) -> ScheduleView {
    let Stored { schedule, template, progress } = stored;
    let is_active = !progress.paused && progress.fault.is_none();
    let due = progress.next.filter(|_| is_active).map(|next| next + at.jitter(schedule.jitter));
    let overdue = wake.filter(|_| is_active).map_or(Duration::ZERO, |wake| now - wake);
    ScheduleView { at, schedule, template, progress, due, overdue }
}

/// The occurrence of an instant.
fn occurrence(at: &ScheduleKey, stored: &Stored, instant: UtcMillis, due: UtcMillis) -> Timer {
    let Template { kind, payload, labels, policy } = stored.template.clone();
    let mut labels = labels;
    labels.push(at.label());
    labels.sort();
    labels.dedup();
    Timer {
        namespace: at.namespace.clone(),
        payload,
        labels,
        policy: Policy { misfire: Misfire::Fire, jitter: Duration::ZERO, ..policy },
        scheduled: instant,
        due,
        has_chosen_id: true,
        ..Timer::new(TimerId::of_occurrence(stored.progress.id, instant), kind, due)
    }
}
