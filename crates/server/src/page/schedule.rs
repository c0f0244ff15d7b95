//! Shows a schedule: its next occurrences, its state, and its settings. The occurrences are shown in the schedule's own
//! zone and in UTC.

use super::conditions::{Done, Search};
use super::fault::{Fault, UNCHANGED, UNSEEN};
use super::posted::Posted;
use super::rows::{list_address, whole_list};
use super::text::{number, segment, span, with_query};
use super::timer::policy;
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::audit::Deed;
use crate::service::Service;
use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use tourbillon_api::{
    AuditAction, ClockChange, Gap, Missed, Moment, NewSchedule, Overlap, Problem, ProblemKind, ScheduleState,
    ScheduleView, ShortMonth,
};
use tourbillon_durable::schedule::{ScheduleKey, Schedules};

/// Describes in words the moments at which a schedule makes its timers, such as "every 5 min".
pub(super) fn plan(schedule: &NewSchedule) -> String {
    match schedule {
        NewSchedule { cron: Some(cron), .. } => cron.clone(),
        NewSchedule { monthly: Some(monthly), .. } => {
            let time = monthly.time.as_deref().unwrap_or("00:00");
            let is_last = monthly.day == 31 && monthly.if_short.unwrap_or_default() == ShortMonth::LastDay;
            if is_last {
                return format!("the last day of the month at {time}");
            }
            let short = match monthly.if_short.unwrap_or_default() {
                ShortMonth::LastDay => "or the last day",
                ShortMonth::Skip => "if the month has it",
            };
            // Each month has at least 28 days, so only a later day can be missing.
            let short = if monthly.day > 28 { format!(", {short}") } else { String::new() };
            format!("day {} of the month at {time}{short}", monthly.day)
        }
        NewSchedule { every_ms: Some(every), .. } => format!("every {}", span(*every)),
        _ => String::new(),
    }
}

/// Returns the name of a schedule's state, and the style class that colours the name.
pub(super) fn state(state: ScheduleState) -> (&'static str, &'static str) {
    match state {
        ScheduleState::Active => ("active", "good"),
        ScheduleState::Paused => ("paused", "parked"),
        ScheduleState::Parked => ("parked", "bad"),
        ScheduleState::Ended => ("ended", "done"),
        _ => ("unknown", "parked"),
    }
}

pub(super) fn address(namespace: &str, key: &str) -> String {
    format!("/ui/schedules/{}/{}", segment(namespace), segment(key))
}

/// Writes a local time for people. If the text has an offset from UTC, a space separates the time from the offset.
fn local(text: &str) -> String {
    let text = text.replacen('T', " ", 1);
    // The hyphens of the date match, too. An offset is recognized by the colons in the time before it.
    match text.rsplit_once(['+', '-']) {
        Some((time, _)) if time.contains(':') => {
            format!("{time} {}", text.get(time.len()..).unwrap_or_default())
        }
        _ => text,
    }
}

/// Explains how a change of the clocks, such as the start of summer time, affects a moment at which a schedule makes a
/// timer.
fn clock_words(change: ClockChange) -> &'static str {
    match change {
        ClockChange::Moved => "clocks skip this time: it comes right after",
        ClockChange::Skipped => "clocks skip this time: it is left out",
        ClockChange::Doubled => "clocks show this time twice",
        _ => "clocks change",
    }
}

#[derive(Template)]
#[template(path = "schedule.html")]
struct SchedulePage<'a> {
    frame: Frame<'a>,
    address: String,
    namespace: &'a str,
    key: &'a str,
    view: &'a ScheduleView,
    now: Moment,
    may_change: bool,
    is_waiting: bool,
    occurrences: String,
    done: Option<&'static str>,
}

/// Explains in a sentence why a schedule is in its present state.
fn why(view: &ScheduleView, now: Moment) -> String {
    match view.state {
        ScheduleState::Active => match view.next {
            Some(next) if next > now => {
                format!("The next occurrence is due in {}.", span(next.as_millis() - now.as_millis()))
            }
            _ if view.overdue_ms > 0 => {
                let reason =
                    view.reason.as_ref().map(|reason| format!(" The last attempt failed: {reason}."));
                let due = format!("The next occurrence has been due for {}.", span(view.overdue_ms));
                due + &reason.unwrap_or_default()
            }
            _ => "The next occurrence is due now.".to_owned(),
        },
        ScheduleState::Paused => "It is paused: its instants pass by. Resume it to let it go on.".to_owned(),
        ScheduleState::Parked => format!(
            "Its plan cannot be followed: {}. Change the schedule, or resume it once the reason is gone.",
            view.reason.as_deref().unwrap_or("the reason is not known")
        ),
        _ => "No instant is left.".to_owned(),
    }
}

fn rows(view: &ScheduleView) -> Vec<(&'static str, String)> {
    let schedule = &view.schedule;
    let mut rows = vec![("Instants", plan(schedule))];
    let mut row = |name, text: Option<String>| rows.extend(text.map(|text| (name, text)));
    row("Zone", schedule.zone.clone());
    row(
        "A time that clocks skip",
        schedule.gap.map(|gap| match gap {
            Gap::Move => "comes right after the gap".to_owned(),
            Gap::Skip => "is left out".to_owned(),
        }),
    );
    row(
        "Instants that passed unnoticed",
        schedule.missed.map(|missed| match missed {
            Missed::Skip => "are left out".to_owned(),
            Missed::Once => "the last of them comes once".to_owned(),
            Missed::All => "all come".to_owned(),
        }),
    );
    row("Missed if later than", schedule.grace_ms.map(span));
    row(
        "While a delivery is under way",
        schedule.overlap.map(|overlap| match overlap {
            Overlap::Skip => "the next is skipped".to_owned(),
            Overlap::Allow => "the next comes nevertheless".to_owned(),
            Overlap::QueueOne => "one waits".to_owned(),
        }),
    );
    row("Jitter", schedule.jitter_ms.filter(|jitter| *jitter > 0).map(span));
    row("From, UTC", schedule.start.map(super::text::plain));
    row("Until, UTC", schedule.end.map(super::text::plain));
    row(
        "Callback",
        schedule
            .callback
            .as_ref()
            .map(|callback| format!("{} {}", callback.method.as_deref().unwrap_or("POST"), callback.url)),
    );
    row("Queue", schedule.pull.as_ref().map(|pull| pull.queue.clone()));
    row("Labels", Some(schedule.labels.join(", ")).filter(|labels| !labels.is_empty()));
    row(
        "Occurrences",
        Some(format!(
            "{} came, {} missed, {} skipped, {} asked for",
            number(view.fired),
            number(view.missed),
            number(view.skipped),
            number(view.asked)
        )),
    );
    rows.extend(policy(&schedule.policy));
    rows
}

pub(super) async fn show_schedule(
    State(service): State<Service>,
    visitor: Visitor,
    Path((namespace, key)): Path<(String, String)>,
    asked: Result<Search<Done>, Fault>,
) -> Result<Response, Fault> {
    // The query only chooses a message, so a query that cannot be read does not hide the page.
    let done = asked.map(|Search(asked)| asked.done).unwrap_or_default();
    Fault::unless(visitor.reads(&namespace), UNSEEN)?;
    let view = service.schedules().see(ScheduleKey::new(&*namespace, &*key), false, Schedules::get).await?;
    let now = now(&service);
    let label = format!("schedule:{key}");
    let page = SchedulePage {
        frame: Frame::new(&visitor, "schedules"),
        address: address(&namespace, &key),
        view: &view,
        now,
        may_change: visitor.writes(&namespace),
        is_waiting: matches!(view.state, ScheduleState::Paused | ScheduleState::Parked),
        occurrences: list_address("/ui/timers", &namespace, ("label", &label)),
        done: done_words(&done),
        namespace: &namespace,
        key: &key,
    };
    Ok(show(&page))
}

/// Returns the message that a page shows after a change. `done` is the word for the change, such as `pause`. Returns
/// `None` for an unknown word.
pub(super) fn done_words(done: &str) -> Option<&'static str> {
    Some(match done {
        "pause" => "The schedule is paused.",
        "resume" => "The schedule goes on.",
        "trigger" => "An occurrence was made.",
        "delete" => "The schedule was removed. Its occurrences that are stored stay.",
        _ => return None,
    })
}

/// Pauses, resumes, triggers or deletes a schedule. `verb` is the last part of the address, and names the change.
/// Redirects to the schedule's page, or to the list after a deletion.
pub(super) async fn change(
    State(service): State<Service>,
    Path((namespace, key, verb)): Path<(String, String, String)>,
    form: Posted,
) -> Result<Response, Fault> {
    Fault::unless(form.visitor.writes(&namespace), UNCHANGED)?;
    if verb == "delete" {
        form.fields.confirm("remove")?;
    }
    let deed = Deed::new(AuditAction::ChangeSchedule).namespace(&namespace).target(&*key).detail(&*verb);
    let entry = service.audit().begin(deed);
    let (schedules, at) = (service.schedules(), ScheduleKey::new(&*namespace, &*key));
    let done = match &*verb {
        "pause" => schedules.see(at, false, Schedules::pause).await.map(drop),
        "resume" => schedules.see(at, false, Schedules::resume).await.map(drop),
        "trigger" => schedules.trigger(at).await.map(drop),
        "delete" => schedules.remove(at).await.map(drop),
        _ => Err(Problem::new(ProblemKind::NotFound, "There is no such page.")),
    };
    entry.end(&done).await;
    done?;
    let to = match &*verb {
        "delete" => list_address("/ui/schedules", &namespace, ("done", "delete")),
        done => with_query(&address(&namespace, &key), &[("done", done)]),
    };
    Ok(Redirect::to(&to).into_response())
}

#[cfg(test)]
mod tests {
    #[test]
    fn local_times_are_shown_with_their_distance_from_utc() {
        for (text, shown) in [
            ("2031-03-30T02:30:00", "2031-03-30 02:30:00"),
            ("2031-03-30T03:00:00+02:00", "2031-03-30 03:00:00 +02:00"),
            ("2031-03-09T01:15:00.500-05:00", "2031-03-09 01:15:00.500 -05:00"),
            ("", ""),
        ] {
            assert_eq!(super::local(text), shown);
        }
    }
}
