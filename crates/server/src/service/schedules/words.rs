//! Converts schedules between the types of the HTTP interface and the types of the store.

use crate::clock::millis;
use crate::convert::{moment, shown, unavailable};
use core::time::Duration;
use tourbillon_api::{self as api, NewSchedule, Problem, ProblemKind};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{Plan, PlanError};
use tourbillon_durable::schedule::{ClockChange, Occurrence, Schedule, ScheduleFault, ScheduleView};
use tourbillon_durable::state::State;
use tourbillon_durable::timer::{Timer, TimerId};

/// The number of next instants (moments at which a schedule makes a timer) that an answer shows for a schedule.
pub(super) const SHOWN: usize = 10;
/// The shortest period of a schedule, in milliseconds.
const SHORTEST_PERIOD_MS: u64 = 100;

/// Converts the error of a call on schedules into the problem that the client gets.
pub(super) fn refused(fault: &ScheduleFault) -> Problem {
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

pub(super) fn plan_problem(error: &PlanError) -> Problem {
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

/// Parses a time of day, such as `09:00` or `09:00:30`, into seconds after midnight.
fn second_of_day(text: &str) -> Option<u32> {
    let mut parts = text.split(':').map(|part| {
        let is_two_digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        // `parse` alone would also accept a sign, as in `+1`.
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

/// Makes the schedule that a request describes: its plan and its rules, without the template of its timers.
pub(super) fn rule(new: &NewSchedule) -> Result<Schedule, Problem> {
    let mut schedule = Schedule::new(plan(new)?);
    (schedule.missed, schedule.overlap) = (new.missed.unwrap_or_default(), new.overlap.unwrap_or_default());
    if let Some(grace) = new.grace_ms {
        schedule.grace = Duration::from_millis(grace);
    }
    schedule.jitter = Duration::from_millis(new.jitter_ms.unwrap_or(0));
    (schedule.start, schedule.end) = (new.start.map(Into::into), new.end.map(Into::into));
    Ok(schedule)
}

pub(super) fn shown_occurrence(occurrence: &Occurrence) -> api::Occurrence {
    api::Occurrence {
        at: occurrence.instant.map(moment),
        planned: occurrence.planned.to_string(),
        local: occurrence.local.as_deref().map(str::to_owned),
        clock_change: match occurrence.change {
            Some(ClockChange::Moved) => Some(api::ClockChange::Moved),
            Some(ClockChange::Skipped) => Some(api::ClockChange::Skipped),
            Some(ClockChange::Doubled) => Some(api::ClockChange::Doubled),
            _ => None,
        },
    }
}

/// Makes the request that would create the stored schedule. `with_payload` adds the headers and bodies of callbacks.
pub(super) fn request(view: &ScheduleView, with_payload: bool) -> NewSchedule {
    let ScheduleView { schedule, template, .. } = view;
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
    (request.missed, request.overlap) = (Some(schedule.missed), Some(schedule.overlap));
    (request.grace_ms, request.jitter_ms) = (Some(millis(schedule.grace)), Some(millis(schedule.jitter)));
    (request.start, request.end) = (schedule.start.map(moment), schedule.end.map(moment));
    // `shown` converts the work of timers, so the template becomes a timer. Its id, state and due moment are not used.
    let timer = Timer {
        payload: template.payload.clone(),
        policy: template.policy.clone(),
        state: State::Pending,
        ..Timer::new(TimerId::from_u128(0), template.kind.clone(), UtcMillis::ZERO)
    };
    let timer = shown(&timer, with_payload);
    (request.callback, request.pull, request.policy) = (timer.callback, timer.pull, timer.policy);
    // A patch passes this request on to `ScheduleAdmin::work_of`, which refuses these two fields.
    (request.policy.misfire_within_ms, request.policy.jitter_ms) = (None, None);
    request.labels = template.labels.iter().map(|label| label.to_string()).collect();
    request
}

/// Converts a stored schedule into the form for clients, without its next instants (the moments at which it makes
/// timers). `with_payload` adds the headers and bodies of callbacks.
pub(super) fn shown_view(view: &ScheduleView, with_payload: bool) -> api::ScheduleView {
    let progress = &view.progress;
    // A timer is still created for a waiting instant, so the schedule has not ended even if no later instant follows.
    let goes_on = progress.next.is_some() || progress.has_waiting();
    let state = match (&progress.fault, progress.paused.is_some(), goes_on) {
        (Some(_), ..) => api::ScheduleState::Parked,
        (None, true, _) => api::ScheduleState::Paused,
        (None, false, false) => api::ScheduleState::Ended,
        (None, false, true) => api::ScheduleState::Active,
    };
    api::ScheduleView {
        key: view.at.key.to_string(),
        namespace: view.at.namespace.to_string(),
        schedule: request(view, with_payload),
        state,
        reason: progress.fault.as_deref().or(view.failure.as_deref()).map(str::to_owned),
        created: moment(progress.created),
        next: view.due.map(moment),
        last_scheduled: progress.last_scheduled.map(moment),
        last_fired: progress.last_fired.map(moment),
        overdue_ms: millis(view.overdue),
        fired: progress.fired,
        missed: progress.missed,
        skipped: progress.skipped,
        asked: progress.asked,
        upcoming: Vec::new(),
    }
}

/// Converts a stored schedule into the form for clients, with its next instants (the moments at which it makes timers).
/// `with_payload` adds the headers and bodies of callbacks.
pub(super) fn with_upcoming(view: &ScheduleView, now: UtcMillis, with_payload: bool) -> api::ScheduleView {
    // The plan may have become invalid since it was stored, and such a schedule must still be shown.
    let upcoming = view.upcoming(now, SHOWN).unwrap_or_default();
    api::ScheduleView {
        upcoming: upcoming.iter().map(shown_occurrence).collect(),
        ..shown_view(view, with_payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_durable::schedule::{Missed, Overlap};

    #[test]
    fn each_word_of_a_policy_is_the_policy_of_its_name() {
        let rule_with = |fields: serde_json::Value| {
            let mut new = serde_json::json!({ "cron": "30 2 * * *", "zone": "Europe/Zurich" });
            new.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            rule(&serde_json::from_value(new).unwrap()).unwrap()
        };
        let words = [("skip", Missed::Skip), ("once", Missed::Once), ("all", Missed::All)];
        for (word, expected) in words {
            assert_eq!(rule_with(serde_json::json!({ "missed": word })).missed, expected, "{word}");
        }
        let words = [("skip", Overlap::Skip), ("allow", Overlap::Allow), ("queue-one", Overlap::QueueOne)];
        for (word, expected) in words {
            assert_eq!(rule_with(serde_json::json!({ "overlap": word })).overlap, expected, "{word}");
        }
        for (word, expected) in [("skip", true), ("move", false)] {
            let plan = rule_with(serde_json::json!({ "gap": word })).plan;
            assert!(matches!(plan, Plan::Cron { skip_gaps, .. } if skip_gaps == expected), "{word}");
        }
        for (word, expected) in [("skip", false), ("last-day", true)] {
            let monthly = serde_json::json!({ "monthly": { "day": 31, "if_short": word }, "cron": null });
            let plan = rule_with(monthly).plan;
            assert!(
                matches!(plan, Plan::Monthly { last_if_short, .. } if last_if_short == expected),
                "{word}"
            );
        }
        let times = rule_with(serde_json::json!({ "grace_ms": 7, "jitter_ms": 9 }));
        assert_eq!((times.grace, times.jitter), (Duration::from_millis(7), Duration::from_millis(9)));
        let default = rule_with(serde_json::json!({}));
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
