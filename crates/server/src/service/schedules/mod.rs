//! Serves the requests that create, change, show and remove schedules.

mod words;

use super::creations::{Candidate, CreationLimits, Earlier, Naming};
use super::operations::{BackfillWork, Operations, Work};
use super::recorder::ChangeRecorder;
use crate::convert::{self, admit_labels, work};
use crate::settings::Settings;
use crate::state::Namespaces;
use crate::task;
use crate::work::Head;
use std::sync::Arc;
use tourbillon_api::{self as api, NewSchedule, NewTimer, Operation, Problem, ProblemKind};
use tourbillon_durable::schedule::{
    Schedule, ScheduleFault, ScheduleKey, ScheduleView, Schedules, SchedulesPage, Template,
};
use tourbillon_durable::store::Cursor;
use tourbillon_durable::timer::Payload;
use tourbillon_durable::{Timers, UtcMillis};
use words::{SHOWN, plan_problem, refused, request, rule, shown_occurrence, shown_view, with_upcoming};

/// The default limit of a backfill, which creates a schedule's timers for past instants. If there are more instants
/// than the limit, the request is refused. A request may set another limit.
const BACKFILLED: u32 = 1_000;
/// The greatest limit that a request for a backfill may set.
const MOST_BACKFILLED: u32 = 10_000;
const MOST_LABELS: usize = 8;
const LONGEST_LABEL: usize = 64;
/// The greatest number of attempts to patch a schedule. An attempt fails if another request changes the schedule after
/// it was read.
const TURNS: usize = 64;

/// A function that reads or changes a stored schedule, and returns it. An example is [`Schedules::pause`].
pub(crate) type ScheduleCall = fn(&Schedules, &ScheduleKey) -> Result<ScheduleView, ScheduleFault>;

/// Serves the requests about the schedules of all namespaces.
pub(crate) struct ScheduleAdmin {
    pub(super) settings: Arc<Settings>,
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) schedules: Schedules,
    pub(super) limits: Arc<CreationLimits>,
    pub(super) operations: Arc<Operations>,
    pub(super) recorder: ChangeRecorder,
}

impl ScheduleAdmin {
    /// Passes the schedules of the store to the function `call`, which reads or changes them, on a thread that may
    /// block. Returns the result of `call`, with an error in the form for clients.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Schedules) -> Result<T, ScheduleFault> + Send + 'static,
    ) -> Result<T, Problem> {
        let schedules = self.schedules.clone();
        let called = task::blocking(move || call(&schedules)).await;
        let called = called.map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
        called.map_err(|fault| refused(&fault))
    }

    fn now(&self) -> UtcMillis {
        self.timers.timer_store().now()
    }

    /// Creates a schedule, or replaces all fields of an existing schedule. Returns whether the schedule is new.
    pub(crate) async fn put(
        &self,
        at: ScheduleKey,
        new: &NewSchedule,
        sees_payloads: bool,
    ) -> Result<(bool, api::ScheduleView), Problem> {
        let namespace = at.namespace.clone();
        let put = move |schedules: &Schedules, schedule, template, most| {
            schedules.put_within(&at, schedule, template, most)
        };
        let (is_new, view) = self.store(&namespace, new, put).await?;
        Ok((is_new, with_upcoming(&view, self.now(), sees_payloads)))
    }

    /// Checks a schedule of the namespace, and passes it to the function `put`, which stores it. `put` also gets the
    /// greatest number of schedules in the namespace.
    async fn store<T: Send + 'static>(
        &self,
        namespace: &str,
        new: &NewSchedule,
        put: impl FnOnce(&Schedules, Schedule, Template, u64) -> Result<T, ScheduleFault> + Send + 'static,
    ) -> Result<T, Problem> {
        let owner = self.namespaces.require_fresh(namespace).await?;
        let schedule = rule(new)?;
        let template = self.template(namespace, new).await?;
        let most = self.settings.max_schedules;
        self.call(move |schedules| {
            let most = owner.limits.max_schedules.unwrap_or(most);
            let stored = put(schedules, schedule, template, most);
            // The removal of the namespace waits until this value is dropped, which happens after the write even if the
            // client has gone.
            drop(owner);
            stored
        })
        .await
    }

    /// Makes the template of the timers that a schedule creates. Fails if the limits of the namespace forbid such a
    /// timer.
    async fn template(&self, namespace: &str, new: &NewSchedule) -> Result<Template, Problem> {
        let owner = self.namespaces.require(namespace)?;
        let (timer, convert::Work { kind, payload, policy, callback }) = self.work_of(new)?;
        let candidate = Candidate {
            namespace,
            limits: &owner.limits,
            naming: Naming::default(),
            timer: &timer,
            callback: callback.as_ref(),
            pointer: "",
        };
        self.limits.admit(candidate, &mut Earlier::default()).await?;
        let labels = new.labels.iter().map(|label| label.as_str().into()).collect();
        Ok(Template { kind: kind.into(), payload: Payload(payload.into()), labels, policy })
    }

    /// Converts a new schedule to the timer that the schedule creates for each instant. Also returns the timer's work
    /// in stored form: its callback, or the data that a receiver fetches from a queue. Checks only the rules that
    /// need no access to the store.
    fn work_of(&self, new: &NewSchedule) -> Result<(NewTimer, convert::Work), Problem> {
        if new.policy.misfire_within_ms.is_some() || new.policy.jitter_ms.is_some() {
            return Err(Problem::field("/policy", "`missed`, `grace_ms` and `jitter_ms` are the schedule's"));
        }
        if new.labels.len() > MOST_LABELS || new.labels.iter().any(|label| label.len() > LONGEST_LABEL) {
            let detail = format!("at most {MOST_LABELS} labels of at most {LONGEST_LABEL} bytes");
            return Err(Problem::new(ProblemKind::TooLarge, detail.clone()).with_field("/labels", detail));
        }
        admit_labels(&new.labels, "")?;
        let timer = NewTimer {
            callback: new.callback.clone(),
            pull: new.pull.clone(),
            policy: new.policy.clone(),
            labels: new.labels.clone(),
            ..NewTimer::default()
        };
        let work = work(&timer, &self.settings, Head::default(), "")?;
        Ok((timer, work))
    }

    /// Changes the fields of a schedule that the patch sets. If another request changes the schedule after it was read,
    /// applies the patch to the changed schedule.
    pub(crate) async fn patch(
        &self,
        at: ScheduleKey,
        patch: api::SchedulePatch,
        sees_payloads: bool,
    ) -> Result<api::ScheduleView, Problem> {
        self.namespaces.require(&at.namespace)?;
        for _ in 0..TURNS {
            let read = at.clone();
            let before = self.call(move |schedules| schedules.get(&read)).await?;
            // The payload is needed even if the client must not see it, because `change` replaces all fields.
            let new = patch.clone().apply(request(&before, true));
            let change = move |schedules: &Schedules, schedule, template, _| {
                let changed = schedules.change(&before, schedule, template);
                if let Err(ScheduleFault::Changed) = changed { Ok(None) } else { changed.map(Some) }
            };
            if let Some(view) = self.store(&at.namespace, &new, change).await? {
                return Ok(with_upcoming(&view, self.now(), sees_payloads));
            }
        }
        let detail = format!("others changed the schedule during {TURNS} attempts");
        Err(Problem::new(ProblemKind::StoreUnavailable, detail).with_retry_after_ms(1_000))
    }

    /// Returns the next instants of a schedule (the moments at which it would make timers) without storing the
    /// schedule.
    pub(crate) fn preview(&self, namespace: &str, new: &NewSchedule) -> Result<api::Preview, Problem> {
        self.namespaces.require(namespace)?;
        let mut whole = new.clone();
        // A preview needs neither a callback nor a queue. This queue replaces them, and does not affect the instants.
        if whole.callback.is_none() && whole.pull.is_none() {
            whole.pull = Some(api::Pull { queue: "preview".to_owned(), ..api::Pull::default() });
        }
        // The result is not needed. The call refuses wrong fields, as `put` would.
        self.work_of(&whole)?;
        let now = self.now();
        let schedule = rule(new)?;
        schedule.check().map_err(|fault| refused(&fault))?;
        // Fixed periods are counted from the creation, which would be now.
        let upcoming = schedule.preview(now, now, SHOWN).map_err(|error| plan_problem(&error))?;
        Ok(api::Preview { upcoming: upcoming.iter().map(shown_occurrence).collect() })
    }

    /// Reads or changes the schedule `at` with the function `call`, for example [`Schedules::get`]. Returns the
    /// schedule in the form for clients.
    pub(crate) async fn see(
        &self,
        at: ScheduleKey,
        sees_payloads: bool,
        call: ScheduleCall,
    ) -> Result<api::ScheduleView, Problem> {
        self.namespaces.require(&at.namespace)?;
        let view = self.call(move |schedules| call(schedules, &at)).await?;
        Ok(with_upcoming(&view, self.now(), sees_payloads))
    }

    /// Returns a page of a namespace's schedules.
    pub(crate) async fn list(
        &self,
        namespace: &str,
        key_prefix: &str,
        cursor: Option<Cursor>,
        limit: u32,
        sees_payloads: bool,
    ) -> Result<(Vec<api::ScheduleView>, Option<Cursor>), Problem> {
        self.namespaces.require(namespace)?;
        let (owner, prefix) = (namespace.to_owned(), key_prefix.to_owned());
        let page = self.call(move |schedules| Ok(schedules.list(&owner, &prefix, cursor, limit)?)).await?;
        let SchedulesPage { schedules, next } = page;
        Ok((schedules.iter().map(|view| shown_view(view, sees_payloads)).collect(), next))
    }

    /// Removes a schedule. The answer says whether the schedule existed.
    pub(crate) async fn remove(&self, at: ScheduleKey) -> Result<api::Removed, Problem> {
        self.namespaces.require(&at.namespace)?;
        let removed = self.call(move |schedules| schedules.remove(&at)).await?;
        Ok(api::Removed { removed })
    }

    /// Creates an additional timer of a schedule at once. The plan of the schedule continues as before.
    pub(crate) async fn trigger(&self, at: ScheduleKey) -> Result<api::Triggered, Problem> {
        let stays = self.namespaces.require_fresh(&at.namespace).await?;
        let namespace = at.namespace.clone();
        let triggered = self.call(move |schedules| {
            let id = schedules.trigger(&at);
            // The removal of the namespace waits until this value is dropped, which happens after the write even if the
            // client has gone.
            drop(stays);
            id
        });
        let id = triggered.await?;
        self.recorder.count_created(&namespace, 1);
        Ok(api::Triggered { id: id.to_string() })
    }

    /// Begins an operation that creates the timers of a schedule for a range of past instants.
    pub(crate) async fn backfill(
        &self,
        at: ScheduleKey,
        backfill: &api::Backfill,
    ) -> Result<Operation, Problem> {
        self.namespaces.require(&at.namespace)?;
        let limit = backfill.limit.unwrap_or(BACKFILLED);
        if !(1..=MOST_BACKFILLED).contains(&limit) {
            return Err(Problem::field("/limit", format!("1 to {MOST_BACKFILLED} instants")));
        }
        let now = self.now();
        if backfill.until.is_some_and(|until| until < backfill.from) {
            return Err(Problem::field("/until", "the end of the range is before its start"));
        }
        if UtcMillis::from(backfill.from) > now {
            return Err(Problem::field(
                "/from",
                "the range begins in the future, and a backfill has past instants",
            ));
        }
        // The steps of the operation leave out future instants, so the count must leave them out, too.
        let until = backfill.until.map_or(now, Into::into).min(now);
        let from = backfill.from.into();
        let (ScheduleKey { namespace, key }, most) = (at.clone(), limit as usize);
        // A single instant beyond the limit is enough to refuse the range, so the count ends there.
        let counted = self.call(move |schedules| {
            let schedule = schedules.get(&at)?.progress.id;
            Ok((schedule, schedules.count(&at, from, until, most + 1)?))
        });
        let (schedule, count) = counted.await?;
        if count > most {
            let detail = format!("the range has more than {limit} instants");
            return Err(Problem::field("/limit", detail));
        }
        let work = Work::Backfill(BackfillWork { key, schedule, left: most, from, until });
        self.operations.begin(&namespace, work).await
    }
}
