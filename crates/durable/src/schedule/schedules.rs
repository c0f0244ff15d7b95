//! Offers the calls by which a program makes, changes and lists schedules.

use super::key::{NAMESPACES, ScheduleKey, namespace_of};
use super::runner::ScheduleRunner;
use super::store::{Observe, ScheduleStore};
use super::stored::{KIND, Stored, failure_of, wake_of};
use super::words::{ScheduleEvent, ScheduleFault, ScheduleView, SchedulesPage, Template};
use super::{Progress, Schedule};
use crate::id::TimerId;
use crate::runtime::Builder;
use crate::spec::admit_names;
use crate::store::dry_run::admit;
use crate::store::{Cursor, IfPresent, Op, StoreError, StoreErrorKind, TimerStore};
use core::cell::Cell;
use core::fmt;
use std::sync::{Arc, PoisonError};

/// Makes, changes and lists the schedules of a store. Clones share their state. All calls that reach the store wait on
/// the calling thread.
///
/// # Several processes
///
/// Several processes that share a store may change and run the same schedules. A change is stored only if no other
/// thread or process has changed the schedule since it was read. So no change is lost, and a removed schedule does not
/// come back.
///
/// While a call removes, pauses or changes a schedule, another process may be about to store occurrences by the
/// schedule's former rule. In a store that processes share ([`TimerStore::is_shared`]), the call waits for that
/// process, for at most ten seconds, and fails if the wait was in vain; the change is stored all the same. So once such
/// a call has returned, no decision stores occurrences by the former rule, unless its process has stood still for
/// longer than a lease, or the store's clock has been set ahead by more than the rest of a lease. A call of
/// [`trigger`](Self::trigger) or [`backfill`](Self::backfill) that has begun before may still store its occurrences.
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
pub struct Schedules(pub(super) Arc<ScheduleStore>);

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").finish_non_exhaustive()
    }
}

impl Schedules {
    /// The prefix of the namespaces in which schedules are stored, each as a timer. After the prefix comes the
    /// namespace of the schedule's occurrences. Programs must not store other timers in the namespaces with this
    /// prefix.
    pub const NAMESPACES: &'static str = NAMESPACES;
    /// The kind of the timers that store schedules.
    pub const KIND: &'static str = KIND;

    /// Gives access to the schedules in this store. A process makes one such value for a store, and clones it. The
    /// locks of a schedule belong to the value. If a process makes two values for a store that no other process shares,
    /// a change by one of them does not wait for a decision by the other.
    #[must_use]
    pub fn new(store: Arc<dyn TimerStore>) -> Self {
        Self::with(store, None)
    }

    /// Gives access to the schedules as [`new`](Self::new) does, and calls `observe` for each event after it is stored.
    /// The function is called under a lock of the schedule, so it must not block, and must not call methods of this
    /// value.
    #[must_use]
    pub fn observed(
        store: Arc<dyn TimerStore>,
        observe: impl Fn(&ScheduleKey, &ScheduleEvent) + Send + Sync + 'static,
    ) -> Self {
        Self::with(store, Some(Box::new(observe)))
    }

    fn with(store: Arc<dyn TimerStore>, observe: Option<Box<Observe>>) -> Self {
        Self(Arc::new(ScheduleStore::new(store, observe)))
    }

    /// Returns the namespace of the timers that store the schedules of `namespace`.
    ///
    /// ```
    /// use tourbillon_durable::schedule::Schedules;
    ///
    /// assert_eq!(*Schedules::namespace_of("shop"), *"/schedules/shop");
    /// ```
    #[must_use]
    pub fn namespace_of(namespace: &str) -> Box<str> {
        namespace_of(namespace)
    }

    /// Adds the handler of schedules to a runtime on the same store. The handler runs on the runtime's
    /// [`workers`](crate::Builder::workers). If the runtime has an executor and blocking handlers, it runs on as many
    /// threads of its own, so a decision of a schedule does not wait behind blocking handlers. A decision takes one of
    /// the runtime's places ([`concurrency`](crate::Builder::concurrency)), as each delivery does. So while handlers
    /// hold all places, schedules decide late.
    pub fn add_to(&self, builder: Builder) -> Builder {
        let runner = ScheduleRunner(Arc::clone(&self.0));
        let schedules = self.clone();
        self.0.add_runtime(builder.incarnation());
        builder
            // The handler reads the schedule from the store, because it may have changed since the claim. A payload
            // that cannot be read must not make the timer dead.
            .decide_by(KIND, move |delivery| runner.deliver(&delivery))
            .follow_clock(move || schedules.follow_clock().map(drop))
    }

    /// Recomputes the next instants of schedules. They differ after a time in which the store's clock was ahead of the
    /// true time, and after a change of the rules of a time zone. Returns the number of schedules that changed. A
    /// runtime with these schedules calls this method at its start, and whenever the store's clock was set back. The
    /// call reads all schedules.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. The call may be repeated.
    pub fn follow_clock(&self) -> Result<u64, StoreError> {
        ScheduleRunner(Arc::clone(&self.0)).follow_clock()
    }

    /// Creates a schedule, or changes the rule and the template of an existing schedule. Returns the schedule, and true
    /// if the schedule is new. A changed schedule keeps its counters. A paused schedule stays paused.
    ///
    /// # Errors
    ///
    /// Fails if the key or the plan is not valid, if the end is before the start, or if the store fails. Fails with an
    /// error of the kind [`StoreErrorKind::Limit`] if the template's kind or one of its labels has more than 64 bytes,
    /// if it has more than 8 different labels, or if a text has a zero byte. The limit of a runtime for payloads
    /// ([`Limits`](crate::Limits)) does not apply to templates.
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

    /// Creates or changes a schedule as [`put`](Self::put) does. A new schedule is created only if the namespace has
    /// fewer than `most` schedules. Concurrent calls in one process keep this limit. Calls in several processes may
    /// exceed it.
    ///
    /// # Errors
    ///
    /// Fails as [`put`](Self::put) does, and with [`ScheduleFault::Full`] if the namespace already has `most`
    /// schedules.
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
        self.put_over(None, at, schedule, template, most)
    }

    /// Changes the rule and the template of an existing schedule as [`put`](Self::put) does, if they are still those in
    /// `before`. So a program can read a schedule, change a part of it, and store the whole schedule, without undoing a
    /// change that another thread or process has made since the read. Other changes, such as a pause, do not count.
    ///
    /// # Errors
    ///
    /// Fails as [`put`](Self::put) does, with [`ScheduleFault::NotFound`] if the schedule was removed, and with
    /// [`ScheduleFault::Changed`] if its rule or its template differs from `before`.
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
    /// # schedules.put(&at, daily, report())?;
    /// let before = schedules.get(&at)?;
    /// let later = Schedule { jitter: Duration::from_secs(60), ..before.schedule.clone() };
    /// schedules.change(&before, later.clone(), before.template.clone())?;
    /// let again = schedules.change(&before, later, before.template.clone());
    /// assert!(matches!(again, Err(ScheduleFault::Changed)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn change(
        &self,
        before: &ScheduleView,
        schedule: Schedule,
        template: Template,
    ) -> Result<ScheduleView, ScheduleFault> {
        Ok(self.put_over(Some(before), &before.at, schedule, template, u64::MAX)?.1)
    }

    /// Creates or changes a schedule as [`put_within`](Self::put_within) does. With `before`, only changes a schedule,
    /// as [`change`](Self::change) does.
    fn put_over(
        &self,
        before: Option<&ScheduleView>,
        at: &ScheduleKey,
        schedule: Schedule,
        template: Template,
        most: u64,
    ) -> Result<(bool, ScheduleView), ScheduleFault> {
        at.is_valid().then_some(()).ok_or(ScheduleFault::Key)?;
        schedule.check()?;
        let mut labels = template.labels.clone();
        labels.sort();
        labels.dedup();
        admit_names(&template.kind, &labels)
            .map_err(|rejection| StoreError::new(StoreErrorKind::Limit, rejection.to_string()))?;
        let is_changed = |present: &Stored| {
            before.is_some_and(|before| {
                present.schedule != before.schedule || present.template != before.template
            })
        };
        // The lock is held until the schedule is stored, so that no other thread of this process counts in between.
        let room = (most < u64::MAX).then(|| self.0.room.lock().unwrap_or_else(PoisonError::into_inner));
        let is_new = Cell::new(false);
        // The numbers of missed and skipped instants before the change.
        let counted = Cell::new((0, 0));
        let (view, formers) = self.0.replace(at, |now| {
            counted.set((0, 0));
            let (mut formers, new) = (Vec::new(), || Progress::new(TimerId::fresh(), &schedule, now));
            let (progress, mode) = match self.0.load_to_change(at) {
                Ok((_, present)) if is_changed(&present) => return Err(ScheduleFault::Changed),
                Ok((timer, present)) => {
                    let before = (&present.schedule, at.jitter(present.schedule.jitter));
                    let after = (&schedule, at.jitter(schedule.jitter));
                    let mut progress = present.progress.changed(before, after, now)?;
                    self.0.forget_put_off(at, &timer, &present, &mut progress, now)?;
                    counted.set((present.progress.missed, present.progress.skipped));
                    formers = present.formers;
                    (progress, IfPresent::ReplaceOnly(timer.id))
                }
                Err(fault) if before.is_some() => return Err(fault),
                Err(ScheduleFault::NotFound) => {
                    if most < u64::MAX && self.0.has_number(&at.namespace, most)? {
                        return Err(ScheduleFault::Full(most));
                    }
                    (new()?, IfPresent::Reject)
                }
                // An unreadable record is replaced. Its timer's id is not known here, so `ReplaceOnly` is not possible.
                Err(ScheduleFault::Store(error)) if error.kind() == StoreErrorKind::Corrupt => {
                    (new()?, IfPresent::Replace)
                }
                Err(fault) => return Err(fault),
            };
            // Each attempt sets the value, so the last attempt, which is stored, decides.
            is_new.set(mode == IfPresent::Reject);
            let stored = Stored { schedule: schedule.clone(), template: template.clone(), progress, formers };
            // A template that the store refuses would let each decision of the schedule fail, and only much later.
            admit(&Op::Place(Box::new(stored.occurrence(at, now, now, now)), IfPresent::Reject))?;
            Ok((stored, mode))
        })?;
        drop(room);
        let awaited = self.0.await_decisions(&formers);
        // A decision that was under way may have given occurrences to instants that the change has left out.
        let present = if formers.is_empty() { None } else { self.get(at).ok() };
        let now = &present.as_ref().unwrap_or(&view).progress;
        let left_out = |before, at_change: u64, now: u64| at_change.min(now).saturating_sub(before);
        let (missed, skipped) = counted.get();
        self.0.tell_left_out(
            at,
            (
                left_out(missed, view.progress.missed, now.missed),
                left_out(skipped, view.progress.skipped, now.skipped),
            ),
        );
        awaited?;
        Ok((is_new.get(), present.unwrap_or(view)))
    }

    /// Returns the number of schedules in a namespace.
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
        self.0.number_in(namespace)
    }

    /// Returns the schedule with this name.
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
    /// assert_eq!(schedules.get(&at)?.progress.fired, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self, at: &ScheduleKey) -> Result<ScheduleView, ScheduleFault> {
        let (timer, stored) = self.0.load(at)?;
        Ok(stored.view(at.clone(), wake_of(&timer), failure_of(&timer), self.0.store.now()))
    }

    /// Returns a page of the schedules in a namespace whose keys begin with `key_prefix`. The schedules are in the
    /// order of their keys. Unreadable schedules are left out.
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
        self.0.list(namespace, key_prefix, cursor, limit)
    }

    /// Removes a schedule. The schedule's occurrences stay, and can be cancelled by their [label](ScheduleKey::label).
    /// Returns false if there was no such schedule.
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
        at.is_valid().then_some(()).ok_or(ScheduleFault::Key)?;
        let Some(formers) = self.0.remove(at)? else { return Ok(false) };
        self.0.await_decisions(&formers)?;
        Ok(true)
    }

    /// Pauses a schedule. Instants during the pause get no occurrences, and count neither as missed nor as skipped.
    /// Instants that have come before the pause wait for the resume, if they have no occurrences yet. Stored
    /// occurrences are still delivered.
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
    /// assert!(schedules.pause(&at)?.progress.paused.is_some());
    /// assert!(schedules.resume(&at)?.progress.paused.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self, at: &ScheduleKey) -> Result<ScheduleView, ScheduleFault> {
        self.0.change(at, |now| {
            let (timer, mut stored) = self.0.load_to_change(at)?;
            stored.progress.paused = stored.progress.paused.or(Some(now));
            Ok((stored, IfPresent::ReplaceOnly(timer.id)))
        })
    }

    /// Ends the pause of a schedule. The call also checks the plan again. A schedule whose plan was not valid makes
    /// occurrences again if the plan is valid now.
    ///
    /// # Errors
    ///
    /// Fails if there is no such schedule, if its plan is not valid, or if the store fails.
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
    /// assert!(schedules.resume(&at)?.progress.paused.is_none(), "it was not paused, either");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self, at: &ScheduleKey) -> Result<ScheduleView, ScheduleFault> {
        // The number of missed instants before the call, which counts a span of instants that has no room.
        let before = Cell::new(0);
        let (view, formers) = self.0.replace(at, |now| {
            let (timer, stored) = self.0.load_to_change(at)?;
            before.set(stored.progress.missed);
            let offset = at.jitter(stored.schedule.jitter);
            let mut progress = stored.progress.resumed(&stored.schedule, offset, now)?;
            self.0.forget_put_off(at, &timer, &stored, &mut progress, now)?;
            Ok((Stored { progress, ..stored }, IfPresent::ReplaceOnly(timer.id)))
        })?;
        self.0.tell_left_out(at, (view.progress.missed.saturating_sub(before.get()), 0));
        self.0.await_decisions(&formers)?;
        Ok(view)
    }
}
