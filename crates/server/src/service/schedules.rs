//! Schedules: between the words of the HTTP interface and those of the store.

use super::Service;
use super::operations::{BackfillWork, Unfinished, Work};
use super::place::Naming;
use crate::convert::{self, moment, shown, unavailable, work};
use crate::work::Head;
use core::time::Duration;
use tourbillon_api::{self as api, NewSchedule, NewTimer, Operation, Problem, ProblemKind};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{Plan, PlanError};
use tourbillon_durable::schedule::{
    ClockChange, Missed, Occurrence, Overlap, Schedule, ScheduleFault, ScheduleKey, ScheduleView, Schedules,
    SchedulesPage, Template,
};
use tourbillon_durable::state::State;
use tourbillon_durable::store::{Cursor, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Payload, Timer, TimerId};

/// The number of instants that are shown.
const SHOWN: usize = 10;
/// The number of instants of a backfill by default, and the greatest one.
const BACKFILLED: u32 = 1_000;
const MOST_BACKFILLED: u32 = 10_000;
/// The number of occurrences that a backfill makes in one transaction.
const AT_ONCE: usize = 100;
const MOST_LABELS: usize = 8;
const LONGEST_LABEL: usize = 64;
/// The shortest fixed period, in milliseconds.
const SHORTEST_PERIOD_MS: u64 = 100;

/// The problem of a call that failed.
fn refused(fault: &ScheduleFault) -> Problem {
    match fault {
        ScheduleFault::NotFound => Problem::new(ProblemKind::NotFound, fault.to_string()),
        ScheduleFault::Plan(error) => plan_problem(error),
        ScheduleFault::EndBeforeStart => Problem::field("/end", fault.to_string()),
        ScheduleFault::Full(_) => {
            let detail = format!("{fault}: remove a schedule, or set `max_schedules` of the namespace");
            Problem::new(ProblemKind::LimitReached, detail)
        }
        ScheduleFault::Store(error) => unavailable(error),
        _ => Problem::new(ProblemKind::BadRequest, fault.to_string()),
    }
}

fn plan_problem(error: &PlanError) -> Problem {
    let detail = error.to_string();
    if error.is_about_zone() {
        return Problem::new(ProblemKind::ZoneUnknown, detail.clone()).with_field("/zone", detail);
    }
    let pointer = match error {
        _ if error.is_about_expression() => "/cron",
        PlanError::Second(_) => "/monthly/time",
        _ => "/monthly/day",
    };
    Problem::field(pointer, detail)
}

/// The second of the day of a text such as `09:00` or `09:00:30`.
fn second_of_day(text: &str) -> Option<u32> {
    let mut parts = text.split(':').map(|part| {
        let is_two_digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u32>().ok().filter(|_| is_two_digits)
    });
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    let is_time = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    is_time.then_some(hour * 3_600 + minute * 60 + second)
}

fn plan(new: &NewSchedule) -> Result<Plan, Problem> {
    let zone: Box<str> = new.zone.as_deref().unwrap_or("UTC").into();
    let skip_gaps = new.gap == Some(api::Gap::Skip);
    match (&new.cron, &new.monthly, new.every_ms) {
        (Some(expression), None, None) => {
            Ok(Plan::Cron { expression: expression.as_str().into(), zone, skip_gaps })
        }
        (None, Some(api::Monthly { day, time, if_short }), None) => {
            let second = second_of_day(time.as_deref().unwrap_or("00:00"));
            let fault = || Problem::field("/monthly/time", "a time of the day is `09:00` or `09:00:30`");
            let last_if_short = *if_short != Some(api::ShortMonth::Skip);
            Ok(Plan::Monthly { day: *day, second: second.ok_or_else(fault)?, zone, last_if_short, skip_gaps })
        }
        (None, None, Some(_)) if new.zone.is_some() || new.gap.is_some() => {
            Err(Problem::field("/zone", "a fixed period has neither a zone nor gaps"))
        }
        (None, None, Some(period)) if period < SHORTEST_PERIOD_MS => {
            Err(Problem::field("/every_ms", format!("at least {SHORTEST_PERIOD_MS} ms")))
        }
        (None, None, Some(period)) => Ok(Plan::Every(period)),
        _ => Err(Problem::field("", "a schedule has one of `cron`, `monthly` and `every_ms`")),
    }
}

/// The rule that a request describes.
fn rule(new: &NewSchedule) -> Result<Schedule, Problem> {
    let at = |moment: api::Moment| UtcMillis::from_millis(moment.as_millis());
    let mut schedule = Schedule::new(plan(new)?);
    schedule.missed = match new.missed.unwrap_or_default() {
        api::Missed::Skip => Missed::Skip,
        api::Missed::Once => Missed::Once,
        api::Missed::All => Missed::All,
    };
    schedule.overlap = match new.overlap.unwrap_or_default() {
        api::Overlap::Skip => Overlap::Skip,
        api::Overlap::Allow => Overlap::Allow,
        api::Overlap::QueueOne => Overlap::QueueOne,
    };
    if let Some(grace) = new.grace_ms {
        schedule.grace = Duration::from_millis(grace);
    }
    schedule.jitter = Duration::from_millis(new.jitter_ms.unwrap_or(0));
    (schedule.start, schedule.end) = (new.start.map(at), new.end.map(at));
    Ok(schedule)
}

fn shown_occasion(occasion: &Occurrence) -> api::Occasion {
    api::Occasion {
        at: occasion.instant.map(moment),
        planned: occasion.planned.to_string(),
        local: occasion.local.as_deref().map(str::to_owned),
        clock_change: match occasion.change {
            Some(ClockChange::Moved) => Some(api::ClockChange::Moved),
            Some(ClockChange::Skipped) => Some(api::ClockChange::Skipped),
            Some(ClockChange::Doubled) => Some(api::ClockChange::Doubled),
            _ => None,
        },
    }
}

/// The request that makes a stored schedule.
fn request(view: &ScheduleView, with_payload: bool) -> NewSchedule {
    let ScheduleView { schedule, template, .. } = view;
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let gap = |skip: bool| Some(if skip { api::Gap::Skip } else { api::Gap::Move });
    let mut request = NewSchedule::default();
    match &schedule.plan {
        Plan::Every(period) => request.every_ms = Some(*period),
        Plan::Cron { expression, zone, skip_gaps } => {
            request.cron = Some(expression.to_string());
            (request.zone, request.gap) = (Some(zone.to_string()), gap(*skip_gaps));
        }
        Plan::Monthly { day, second, zone, last_if_short, skip_gaps } => {
            let (hour, minute) = (second / 3_600, second / 60 % 60);
            let short = if *last_if_short { api::ShortMonth::LastDay } else { api::ShortMonth::Skip };
            let time = format!("{hour:02}:{minute:02}:{:02}", second % 60);
            request.monthly = Some(api::Monthly { day: *day, time: Some(time), if_short: Some(short) });
            (request.zone, request.gap) = (Some(zone.to_string()), gap(*skip_gaps));
        }
        _ => {}
    }
    request.missed = Some(match schedule.missed {
        Missed::Skip => api::Missed::Skip,
        Missed::Once => api::Missed::Once,
        Missed::All => api::Missed::All,
    });
    request.overlap = Some(match schedule.overlap {
        Overlap::Skip => api::Overlap::Skip,
        Overlap::Allow => api::Overlap::Allow,
        Overlap::QueueOne => api::Overlap::QueueOne,
    });
    (request.grace_ms, request.jitter_ms) = (Some(millis(schedule.grace)), Some(millis(schedule.jitter)));
    (request.start, request.end) = (schedule.start.map(moment), schedule.end.map(moment));
    let timer = Timer {
        payload: template.payload.clone(),
        policy: template.policy.clone(),
        state: State::Pending,
        ..Timer::new(TimerId::from_u128(0), template.kind.clone(), UtcMillis::ZERO)
    };
    let timer = shown(&timer, with_payload);
    (request.callback, request.pull, request.policy) = (timer.callback, timer.pull, timer.policy);
    (request.policy.misfire_within_ms, request.policy.jitter_ms) = (None, None);
    request.labels = template.labels.iter().map(|label| label.to_string()).collect();
    request
}

/// A stored schedule as it is shown.
fn shown_view(view: &ScheduleView, with_payload: bool) -> api::ScheduleView {
    let progress = &view.progress;
    let state = match (&progress.fault, progress.paused, progress.next.or(progress.queued)) {
        (Some(_), ..) => api::ScheduleState::Parked,
        (None, true, _) => api::ScheduleState::Paused,
        (None, false, None) => api::ScheduleState::Ended,
        (None, false, Some(_)) => api::ScheduleState::Active,
    };
    api::ScheduleView {
        key: view.at.key.to_string(),
        namespace: view.at.namespace.to_string(),
        schedule: request(view, with_payload),
        state,
        reason: progress.fault.as_deref().map(str::to_owned),
        created: moment(progress.created),
        next: view.due.map(moment),
        last_scheduled: progress.last_scheduled.map(moment),
        last_fired: progress.last_fired.map(moment),
        overdue_ms: u64::try_from(view.overdue.as_millis()).unwrap_or(u64::MAX),
        fired: progress.fired,
        missed: progress.missed,
        skipped: progress.skipped,
        asked: progress.asked,
        upcoming: Vec::new(),
    }
}

/// A stored schedule with its next instants.
fn with_upcoming(view: &ScheduleView, now: UtcMillis, with_payload: bool) -> api::ScheduleView {
    let after = view.progress.last_scheduled.map_or(now, |last| last.max(now));
    let upcoming = view.schedule.preview(view.progress.created, after, SHOWN).unwrap_or_default();
    api::ScheduleView {
        upcoming: upcoming.iter().map(shown_occasion).collect(),
        ..shown_view(view, with_payload)
    }
}

impl Service {
    /// Calls the schedules on a thread that may block.
    async fn on_schedules<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Schedules) -> Result<T, ScheduleFault> + Send + 'static,
    ) -> Result<T, Problem> {
        let schedules = self.schedules().clone();
        let called = tokio::task::spawn_blocking(move || call(&schedules)).await;
        let called = called.map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
        called.map_err(|fault| refused(&fault))
    }

    fn now(&self) -> UtcMillis {
        self.timers().timer_store().now()
    }

    /// Makes a schedule, or changes it as a whole. Returns whether it is new.
    pub(crate) async fn put_schedule(
        &self,
        namespace: &str,
        key: &str,
        new: &NewSchedule,
        sees_payloads: bool,
    ) -> Result<(bool, api::ScheduleView), Problem> {
        let of = self.namespace_to_fill(namespace).await?;
        let schedule = rule(new)?;
        let template = self.template(namespace, new).await?;
        let at = ScheduleKey::new(namespace, key);
        let most = of.limits.max_schedules.unwrap_or(self.settings().max_schedules);
        let put =
            self.on_schedules(move |schedules| schedules.put_within(&at, schedule, template, most)).await;
        drop(of);
        let (is_new, view) = put?;
        Ok((is_new, with_upcoming(&view, self.now(), sees_payloads)))
    }

    /// What each instant of a schedule makes.
    async fn template(&self, namespace: &str, new: &NewSchedule) -> Result<Template, Problem> {
        let of = self.namespace(namespace)?;
        let (timer, convert::Work { kind, payload, policy, callback }) = self.work_of(new)?;
        let what = (&timer, callback.as_ref());
        self.admit(namespace, &of.limits, Naming::default(), what, "", 0).await?;
        let labels = new.labels.iter().map(|label| label.as_str().into()).collect();
        Ok(Template { kind: kind.into(), payload: Payload(payload.into()), labels, policy })
    }

    /// The timer of each instant of a schedule, and its work, as far as their texts are concerned.
    fn work_of(&self, new: &NewSchedule) -> Result<(NewTimer, convert::Work), Problem> {
        if new.policy.misfire_within_ms.is_some() || new.policy.jitter_ms.is_some() {
            return Err(Problem::field("/policy", "`missed`, `grace_ms` and `jitter_ms` are the schedule's"));
        }
        if new.labels.len() > MOST_LABELS || new.labels.iter().any(|label| label.len() > LONGEST_LABEL) {
            let detail = format!("at most {MOST_LABELS} labels of at most {LONGEST_LABEL} bytes");
            return Err(Problem::new(ProblemKind::TooLarge, detail.clone()).with_field("/labels", detail));
        }
        let timer = NewTimer {
            callback: new.callback.clone(),
            pull: new.pull.clone(),
            policy: new.policy.clone(),
            labels: new.labels.clone(),
            ..NewTimer::default()
        };
        let work = work(&timer, self.settings(), Head::default(), "")?;
        Ok((timer, work))
    }

    /// Changes some fields of a schedule.
    pub(crate) async fn patch_schedule(
        &self,
        namespace: &str,
        key: &str,
        patch: api::SchedulePatch,
        sees_payloads: bool,
    ) -> Result<api::ScheduleView, Problem> {
        self.namespace(namespace)?;
        let at = ScheduleKey::new(namespace, key);
        let before = self.on_schedules(move |schedules| schedules.get(&at)).await?;
        let new = patch.apply(request(&before, true));
        Ok(self.put_schedule(namespace, key, &new, sees_payloads).await?.1)
    }

    /// The next instants of a schedule that is not made.
    pub(crate) fn preview_schedule(
        &self,
        namespace: &str,
        new: &NewSchedule,
    ) -> Result<api::Preview, Problem> {
        self.namespace(namespace)?;
        let mut whole = new.clone();
        // A schedule may be looked at before it has something to do: the rest is the same for any queue.
        if whole.callback.is_none() && whole.pull.is_none() {
            whole.pull = Some(api::Pull { queue: "preview".to_owned(), ..api::Pull::default() });
        }
        self.work_of(&whole)?;
        let now = self.now();
        let upcoming = rule(new)?.preview(now, now, SHOWN).map_err(|error| plan_problem(&error))?;
        Ok(api::Preview { upcoming: upcoming.iter().map(shown_occasion).collect() })
    }

    /// A schedule after a call that returns it.
    pub(crate) async fn see_schedule(
        &self,
        namespace: &str,
        key: &str,
        sees_payloads: bool,
        call: impl FnOnce(&Schedules, &ScheduleKey) -> Result<ScheduleView, ScheduleFault> + Send + 'static,
    ) -> Result<api::ScheduleView, Problem> {
        self.namespace(namespace)?;
        let at = ScheduleKey::new(namespace, key);
        let view = self.on_schedules(move |schedules| call(schedules, &at)).await?;
        Ok(with_upcoming(&view, self.now(), sees_payloads))
    }

    /// A page of a namespace's schedules.
    pub(crate) async fn list_schedules(
        &self,
        namespace: &str,
        key_prefix: &str,
        cursor: Option<Cursor>,
        limit: u32,
        sees_payloads: bool,
    ) -> Result<(Vec<api::ScheduleView>, Option<Cursor>), Problem> {
        self.namespace(namespace)?;
        let (of, prefix) = (namespace.to_owned(), key_prefix.to_owned());
        let page =
            self.on_schedules(move |schedules| Ok(schedules.list(&of, &prefix, cursor, limit)?)).await?;
        let SchedulesPage { schedules, next } = page;
        Ok((schedules.iter().map(|view| shown_view(view, sees_payloads)).collect(), next))
    }

    /// Removes a schedule.
    pub(crate) async fn remove_schedule(&self, namespace: &str, key: &str) -> Result<api::Removed, Problem> {
        self.namespace(namespace)?;
        let at = ScheduleKey::new(namespace, key);
        let removed = self.on_schedules(move |schedules| schedules.remove(&at)).await?;
        Ok(api::Removed { removed })
    }

    /// Makes an occurrence now.
    pub(crate) async fn trigger_schedule(
        &self,
        namespace: &str,
        key: &str,
    ) -> Result<api::Triggered, Problem> {
        let stays = self.namespace_to_fill(namespace).await?;
        let at = ScheduleKey::new(namespace, key);
        let id = self.on_schedules(move |schedules| schedules.trigger(&at)).await?;
        self.count_created(namespace, 1);
        drop(stays);
        Ok(api::Triggered { id: id.to_string() })
    }

    /// Begins to make the occurrences of a range.
    pub(crate) async fn backfill(
        &self,
        namespace: &str,
        key: &str,
        backfill: &api::Backfill,
    ) -> Result<Operation, Problem> {
        self.namespace(namespace)?;
        let limit = backfill.limit.unwrap_or(BACKFILLED);
        if !(1..=MOST_BACKFILLED).contains(&limit) {
            return Err(Problem::field("/limit", format!("1 to {MOST_BACKFILLED} instants")));
        }
        let now = self.now();
        let until = backfill.until.map_or(now, |until| UtcMillis::from_millis(until.as_millis())).min(now);
        let after = UtcMillis::from_millis(backfill.from.as_millis().saturating_sub(1));
        let (at, most) = (ScheduleKey::new(namespace, key), limit as usize);
        let count = self.on_schedules(move |schedules| schedules.count(&at, after, until, most + 1)).await?;
        if count > most {
            let detail = format!("the range has more than {limit} instants");
            return Err(Problem::field("/limit", detail));
        }
        self.begin(namespace, Work::Backfill(BackfillWork { key: key.into(), after, until })).await
    }

    /// Makes some occurrences of a backfill.
    pub(super) async fn backfill_step(
        &self,
        unfinished: &mut Unfinished,
        work: BackfillWork,
    ) -> Result<(), StoreError> {
        let at = ScheduleKey::new(unfinished.namespace.clone(), work.key.clone());
        let schedules = self.schedules().clone();
        let step =
            tokio::task::spawn_blocking(move || schedules.backfill(&at, work.after, work.until, AT_ONCE));
        let step = match step.await {
            Ok(Ok(step)) => step,
            Ok(Err(ScheduleFault::Store(error))) => return Err(error),
            Ok(Err(fault)) => return Err(StoreError::new(StoreErrorKind::Limit, fault.to_string())),
            Err(error) => return Err(StoreError::new(StoreErrorKind::Corrupt, error.to_string())),
        };
        unfinished.changed += step.stored;
        unfinished.refused += step.repeated;
        self.count_created(&unfinished.namespace, step.stored);
        match (step.reached, &mut unfinished.work) {
            (Some(reached), Work::Backfill(work)) => work.after = reached,
            _ => unfinished.list += 1,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_a_policy_is_the_policy_of_its_name() {
        let of = |fields: serde_json::Value| {
            let mut new = serde_json::json!({ "cron": "30 2 * * *", "zone": "Europe/Zurich" });
            new.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            rule(&serde_json::from_value(new).unwrap()).unwrap()
        };
        let words = [("skip", Missed::Skip), ("once", Missed::Once), ("all", Missed::All)];
        for (word, expected) in words {
            assert_eq!(of(serde_json::json!({ "missed": word })).missed, expected, "{word}");
        }
        let words = [("skip", Overlap::Skip), ("allow", Overlap::Allow), ("queue-one", Overlap::QueueOne)];
        for (word, expected) in words {
            assert_eq!(of(serde_json::json!({ "overlap": word })).overlap, expected, "{word}");
        }
        for (word, expected) in [("skip", true), ("move", false)] {
            let plan = of(serde_json::json!({ "gap": word })).plan;
            assert!(matches!(plan, Plan::Cron { skip_gaps, .. } if skip_gaps == expected), "{word}");
        }
        for (word, expected) in [("skip", false), ("last-day", true)] {
            let monthly = serde_json::json!({ "monthly": { "day": 31, "if_short": word }, "cron": null });
            let plan = of(monthly).plan;
            assert!(
                matches!(plan, Plan::Monthly { last_if_short, .. } if last_if_short == expected),
                "{word}"
            );
        }
        let times = of(serde_json::json!({ "grace_ms": 7, "jitter_ms": 9 }));
        assert_eq!((times.grace, times.jitter), (Duration::from_millis(7), Duration::from_millis(9)));
        let default = of(serde_json::json!({}));
        assert_eq!((default.missed, default.overlap), (Missed::Once, Overlap::Skip));
    }

    #[test]
    fn a_time_of_the_day_has_two_or_three_parts_of_two_digits() {
        assert_eq!(second_of_day("09:30"), Some(34_200));
        assert_eq!(second_of_day("23:59:59"), Some(86_399));
        for wrong in ["", "9:30", "24:00", "12:60", "12:00:60", "12", "12:00:00:00", "+1:00", "12:0a"] {
            assert_eq!(second_of_day(wrong), None, "{wrong}");
        }
    }
}
