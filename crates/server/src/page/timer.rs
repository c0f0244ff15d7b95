//! Shows a single timer: its destination, its state, the reason for the state, and its history.

use super::conditions::{Done, Search};
use super::fault::{Fault, UNSEEN};
use super::rows::{address, id_of, labels, whole_list};
use super::text::{number, span};
use super::view::{Frame, When, done_words, now, phase_name, show};
use super::visitor::Visitor;
use crate::convert::shown;
use crate::delivery::Reason;
use crate::service::Service;
use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use tourbillon_api::{
    AttemptOutcome, Backoff, EndKind, Guarantee, Moment, Past, PastAttempt, Phase, Policy, Problem,
    ProblemKind, RepeatCause, Timer,
};

/// An event in a timer's past or future, in the form in which the timer's page shows it.
struct Step {
    /// The style class of the dot beside the event: `past`, `good`, `bad`, `now` or `ahead`.
    class: &'static str,
    title: String,
    when: Option<When>,
    lines: Vec<String>,
}

impl Step {
    fn new(class: &'static str, title: impl Into<String>, at: Option<Moment>, now: Moment) -> Self {
        Self { class, title: title.into(), when: at.map(|at| When::new(at, now)), lines: Vec::new() }
    }

    fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }
}

#[derive(Template)]
#[template(path = "timer.html")]
struct TimerPage<'a> {
    frame: Frame<'a>,
    address: String,
    namespace: &'a str,
    id: String,
    key: Option<&'a str>,
    phase: &'static str,
    /// A sentence that explains the timer's present state.
    why: String,
    steps: Vec<Step>,
    timer: Option<&'a Timer>,
    /// Whether the page shows the headers and the body of the timer's callback. Only visitors who may change the timer
    /// see them.
    has_payload: bool,
    actions: Vec<Action>,
    done: Option<&'static str>,
}

/// A button on a timer's page that changes the timer.
pub(super) struct Action {
    verb: &'static str,
    name: &'static str,
    effect: &'static str,
    /// The word that the visitor must type to confirm the change. `None` if the change needs no confirmation.
    word: Option<&'static str>,
}

const FIRE: Action =
    Action { verb: "fire", name: "Fire now", effect: "Makes the timer due at once.", word: None };
const PAUSE: Action =
    Action { verb: "pause", name: "Pause", effect: "Puts the timer aside until it is resumed.", word: None };
const RESUME: Action = Action { verb: "resume", name: "Resume", effect: "Puts the timer back.", word: None };
const REPLAY: Action = Action {
    verb: "replay",
    name: "Replay",
    effect: "Delivers the timer again, as if it were new.",
    word: None,
};
const CANCEL: Action = Action {
    verb: "cancel",
    name: "Cancel",
    effect: "No delivery begins any more. The timer is gone, and cannot be brought back.",
    word: Some("cancel"),
};
const DROP: Action = Action {
    verb: "cancel",
    name: "Drop",
    effect: "The dead timer is gone, and cannot be brought back.",
    word: Some("cancel"),
};

fn actions(timer: &Timer) -> Vec<Action> {
    match timer.phase {
        Phase::Pending => vec![FIRE, PAUSE, CANCEL],
        Phase::Parked if timer.reason.as_deref().is_some_and(is_pause) => vec![RESUME, FIRE, CANCEL],
        Phase::Parked => vec![FIRE, CANCEL],
        Phase::Leased => vec![CANCEL],
        Phase::Dead => vec![REPLAY, DROP],
        Phase::Done | Phase::Withdrawn => Vec::new(),
    }
}

/// Returns whether `reason`, the reason why a timer is parked (set aside, even if due), is a pause of this timer. A
/// timer that is parked by the pause of its namespace cannot be resumed alone, so the result is then false.
fn is_pause(reason: &str) -> bool {
    Reason::parse(reason) == Some(Reason::TimerPaused)
}

/// Explains in a sentence why a timer is parked (set aside, even if due). `reason` is the stored reason.
fn parked_words(reason: &str) -> String {
    match Reason::parse(reason) {
        Some(Reason::Paused(name)) => {
            format!("The namespace {name} is paused. It goes on once the namespace is resumed.")
        }
        Some(Reason::Share(_)) => {
            "The namespace's share of the service's places is taken. It goes on by itself.".to_owned()
        }
        Some(Reason::Slow(_)) => {
            "The places for hosts that are slow, or not known yet, are taken. It goes on by itself."
                .to_owned()
        }
        Some(Reason::Concurrency(name)) => {
            format!("The namespace {name} has as many deliveries under way as it may. It goes on by itself.")
        }
        Some(Reason::Rate(name)) => {
            format!("The namespace {name} has reached its rate. It goes on by itself.")
        }
        // The host and the queue are those of the timer's own namespace, which the page shows already.
        Some(Reason::Host(_, host)) => {
            format!("The host {host} is busy, or fails and is left alone for a time. It goes on by itself.")
        }
        // The number is a hash of the path, which tells a reader nothing.
        Some(Reason::Path(_, host, _number)) => {
            format!("The path fails at the host {host}, and is left alone for a time. It goes on by itself.")
        }
        Some(Reason::Queue(_, queue)) => {
            format!("No receiver fetches from the queue {queue}. The timer waits for a receiver.")
        }
        Some(Reason::TimerPaused) => "It was paused. Resume it to let it go on.".to_owned(),
        None => format!("It was put aside: {reason}."),
    }
}

/// Explains in a sentence why a timer is dead.
fn dead_words(timer: &Timer) -> String {
    match timer.reason.as_deref().unwrap_or("") {
        "attempts" if timer.failures == 1 => "Its only attempt failed.".to_owned(),
        "attempts" => format!("All {} attempts failed.", timer.failures),
        "deliveries" => {
            "Deliveries were begun as often as they may be, and had no end: the process died, or lost its lease.".to_owned()
        }
        "age" => "The next attempt would have been later than the policy permits.".to_owned(),
        "blocked-destination" => "Its destination is blocked.".to_owned(),
        "refused" => "The receiver refused it for good.".to_owned(),
        "plan" => "Its plan cannot be followed any more.".to_owned(),
        other => format!("Deliveries were given up: {other}."),
    }
}

/// Explains in a sentence why a timer is in its present state.
fn why(timer: &Timer, now: Moment) -> String {
    let distance = timer.due.as_millis().abs_diff(now.as_millis());
    match timer.phase {
        Phase::Pending if timer.due > now && timer.failures > 0 => format!(
            "It waits for the next attempt, in {}, after {} of at most {}.",
            span(distance),
            plural(timer.failures, "failure"),
            timer.policy.attempts.unwrap_or(0),
        ),
        Phase::Pending if timer.due > now => format!("It waits for its due moment, in {}.", span(distance)),
        Phase::Pending => format!("It has been due for {} and is about to be delivered.", span(distance)),
        Phase::Leased => "A delivery is under way.".to_owned(),
        Phase::Parked => parked_words(timer.reason.as_deref().unwrap_or("")),
        Phase::Dead => dead_words(timer),
        Phase::Done => "It was delivered.".to_owned(),
        Phase::Withdrawn => "It was cancelled or replaced.".to_owned(),
    }
}

fn plural(count: u32, noun: &str) -> String {
    format!("{} {noun}{}", number(count.into()), if count == 1 { "" } else { "s" })
}

fn ended(past: &Past) -> String {
    match past.end.as_ref().map(|end| end.how) {
        Some(EndKind::Delivered) => "It was delivered, and is not stored any more.".to_owned(),
        Some(EndKind::Failed) => "Its only delivery failed, and it is not stored any more.".to_owned(),
        Some(EndKind::Skipped) => "Its delivery was left out, since it was too late.".to_owned(),
        Some(EndKind::Cancelled) => "It was cancelled, and is not stored any more.".to_owned(),
        Some(EndKind::Replaced) => "Another timer took its place.".to_owned(),
        _ => "It has ended, and is not stored any more.".to_owned(),
    }
}

fn repeat_words(cause: RepeatCause) -> &'static str {
    match cause {
        RepeatCause::NoAnswer => {
            "The receiver may have acted on it: there was no answer. It may get the timer twice."
        }
        RepeatCause::LeaseLost => {
            "The lease was lost before the answer: the receiver may get the timer twice."
        }
        RepeatCause::EndLost => "The end could not be stored: the receiver may get the timer twice.",
        RepeatCause::GivenBack => {
            "The service stopped before the answer: the receiver may get the timer twice."
        }
        RepeatCause::ProcessDied => {
            "The process died before the answer: the receiver may get the timer twice."
        }
        _ => "The receiver may get the timer twice.",
    }
}

/// Describes a delivery attempt as an event in a timer's past. `replays` is the number of replays before the attempt.
fn attempt(past: &PastAttempt, replays: usize, now: Moment) -> Step {
    let (class, word) = match past.outcome {
        None => ("now", "is under way"),
        Some(AttemptOutcome::Delivered) => ("good", "succeeded"),
        Some(AttemptOutcome::Failed) => ("bad", "failed"),
        Some(AttemptOutcome::Dead) => ("bad", "failed for good"),
        Some(AttemptOutcome::Parked) => ("past", "was put off"),
        Some(AttemptOutcome::GivenBack) => ("past", "was given back"),
        Some(_) => ("bad", "was lost"),
    };
    let status = past.status.map(|status| format!(", status {status}")).unwrap_or_default();
    // Attempts are numbered anew after each replay.
    let after = match replays {
        0 => String::new(),
        1 => " after the replay".to_owned(),
        replays => format!(" after replay {replays}"),
    };
    let title = format!("Attempt {}{after} {word}{status}", past.attempt);
    let mut step = Step::new(class, title, Some(past.started), now);
    let claimed = past.claimed.as_millis().saturating_sub(past.due.as_millis());
    let took = past.took_ms.map(|took| format!(", took {}", span(took))).unwrap_or_default();
    step = step.line(format!(
        "Claimed {} after it was due, sent {} after it was due{took}.",
        span(claimed),
        span(past.late_ms)
    ));
    if past.delivery != past.attempt {
        step = step.line(format!("Delivery {}: some deliveries did not become attempts.", past.delivery));
    }
    if let Some(error) = &past.error {
        step = step.line(error.clone());
    }
    if let Some(cause) = past.may_repeat {
        step = step.line(repeat_words(cause));
    }
    step
}

/// Returns the events of a timer's past and future, the earliest first. `timer` is set if the store has the timer, and
/// `past` is set if the service remembers the timer's past. At least one of them is set.
fn steps(timer: Option<&Timer>, past: Option<&Past>, now: Moment) -> Vec<Step> {
    let mut dated = Vec::new();
    let known = past
        .map(|past| (past.created, past.scheduled))
        .or(timer.map(|timer| (Some(timer.created), Some(timer.scheduled))));
    let (created, scheduled) = known.unwrap_or_default();
    if let Some(created) = created {
        dated.push((created, Step::new("past", "Created", Some(created), now)));
    }
    if let Some(scheduled) = scheduled {
        let class = if scheduled <= now { "past" } else { "ahead" };
        dated.push((scheduled, Step::new(class, "Scheduled for", Some(scheduled), now)));
    }
    let (attempts, replayed) =
        past.map_or((&[][..], &[][..]), |past| (&past.attempts[..], &past.replayed[..]));
    let replays = |until: Moment| replayed.iter().filter(|at| **at <= until).count();
    // The store counts only the deliveries since the last replay.
    let is_counted = |past: &&PastAttempt| replays(past.started) == replayed.len();
    let known = u32::try_from(attempts.iter().filter(is_counted).count()).unwrap_or(u32::MAX);
    // A delivery that waits for its permits, or that another node has begun, is not among the attempts. It gets its own
    // step below.
    let is_begun =
        |timer: &Timer| timer.phase == Phase::Leased && attempts.iter().all(|past| past.outcome.is_some());
    let unknown = timer
        .map_or(0, |timer| timer.deliveries.saturating_sub(known).saturating_sub(u32::from(is_begun(timer))));
    if let Some(timer) = timer
        && unknown > 0
    {
        let step = Step::new("past", format!("{} without details", plural(unknown, "attempt")), None, now);
        let step = step.line(
            "They were before the start of this process, or on another node, or too many came after them.",
        );
        // A known attempt shows its own error.
        let error = timer.last_error.as_deref().filter(|_| attempts.is_empty());
        let step = match error {
            Some(error) => step.line(format!("The last error: {error}")),
            None => step,
        };
        // This step stands for all attempts whose details the history lacks. It comes before the other attempts.
        dated.push((attempts.first().map_or(now, |past| past.started), step));
    }
    for at in replayed {
        let step = Step::new("past", "Replayed", Some(*at), now);
        dated.push((*at, step.line("It was dead, and is delivered again as if it were new.")));
    }
    dated.extend(attempts.iter().map(|past| (past.started, attempt(past, replays(past.started), now))));
    // The sort is stable, so events of the same millisecond keep the sequence from above: a replay comes before its
    // attempt.
    dated.sort_by_key(|(at, _)| *at);
    let mut steps: Vec<_> = dated.into_iter().map(|(_, step)| step).collect();
    if let Some(end) = past.and_then(|past| past.end.as_ref()) {
        let (class, title) = match end.how {
            EndKind::Delivered => ("good", "Delivered"),
            EndKind::Skipped => ("bad", "Skipped"),
            EndKind::Cancelled => ("past", "Cancelled"),
            EndKind::Replaced => ("past", "Replaced"),
            EndKind::Dead => ("bad", "Dead"),
            EndKind::Failed => ("bad", "Failed"),
            _ => ("past", "Ended"),
        };
        let step = Step::new(class, title, Some(end.at), now);
        steps.push(match &end.detail {
            Some(detail) => step.line(detail.clone()),
            None => step,
        });
        return steps;
    }
    let Some(timer) = timer else { return steps };
    match timer.phase {
        // Usually a dead timer has its end in `past`. `past` is missing if the timer was removed between the two reads.
        Phase::Dead => steps.push(Step::new("bad", "Dead", timer.dead_since, now).line(dead_words(timer))),
        Phase::Parked => {
            let words = parked_words(timer.reason.as_deref().unwrap_or(""));
            steps.push(Step::new("now", "Parked", None, now).line(words));
        }
        // A delivery that this process has started is already among the attempts, without an outcome.
        Phase::Leased if is_begun(timer) => {
            steps.push(Step::new("now", "A delivery is under way", None, now));
        }
        Phase::Pending if timer.failures > 0 || timer.due != timer.scheduled => {
            let title = if timer.failures > 0 { "Next attempt" } else { "Due" };
            let class = if timer.due > now { "ahead" } else { "now" };
            steps.push(Step::new(class, title, Some(timer.due), now));
        }
        _ => {}
    }
    steps
}

/// Describes the policy of a timer or of a schedule in rows. Each row has a name and a text.
pub(super) fn policy(policy: &Policy) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let mut row = |name, text: Option<String>| rows.extend(text.map(|text| (name, text)));
    row("Attempts", policy.attempts.map(|attempts| number(attempts.into())));
    row(
        "Pause after a failure",
        policy.backoff.as_ref().map(|backoff| match backoff {
            Backoff::Standard {} => "5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h".to_owned(),
            Backoff::Fixed { pause_ms } => span(*pause_ms),
            Backoff::Exponential { first_ms, max_ms } => {
                format!("up to {}, doubled each time, at most {}", span(*first_ms), span(*max_ms))
            }
            Backoff::Ladder { pauses_ms } => {
                pauses_ms.iter().map(|pause| span(*pause)).collect::<Vec<_>>().join(", ")
            }
            _ => "another".to_owned(),
        }),
    );
    row("Time for an attempt", policy.timeout_ms.map(span));
    row("Greatest age", policy.max_age_ms.map(span));
    row("Skipped if later than", policy.misfire_within_ms.map(span));
    row("Jitter", policy.jitter_ms.filter(|jitter| *jitter > 0).map(span));
    row(
        "Guarantee",
        policy.guarantee.map(|guarantee| {
            match guarantee {
                Guarantee::AtLeastOnce => "at least once",
                Guarantee::AtMostOnce => "at most once",
            }
            .to_owned()
        }),
    );
    rows
}

pub(super) async fn show_timer(
    State(service): State<Service>,
    visitor: Visitor,
    Path((namespace, id)): Path<(String, String)>,
    asked: Result<Search<Done>, Fault>,
) -> Result<Response, Fault> {
    // The query only chooses a message, so a query that cannot be read does not hide the page.
    let asked = asked.map(|Search(asked)| asked).unwrap_or_default();
    Fault::unless(visitor.reads(&namespace), UNSEEN)?;
    let id = id_of(&id)?;
    let is_missing = |problem: &Problem| problem.kind == ProblemKind::NotFound;
    // The store is read before the history. So a timer that ends between the two reads is found in the history.
    let stored = match service.stored_timers().get(&namespace, id.into()).await {
        Ok(timer) => Some(timer),
        Err(problem) if is_missing(&problem) => None,
        Err(problem) => return Err(problem.into()),
    };
    let past = match service.reports().past(&namespace, id).await {
        Ok(past) => Some(past),
        Err(problem) if is_missing(&problem) => None,
        Err(problem) => return Err(problem.into()),
    };
    if stored.is_none() && past.is_none() {
        let detail = "There is no such timer. A timer that has ended is remembered for a while only.";
        return Err(Problem::new(ProblemKind::NotFound, detail).into());
    }
    let has_payload = visitor.writes(&namespace);
    let timer = stored.map(|timer| shown(&timer, has_payload));
    let (timer, past) = (timer.as_ref(), past.as_ref());
    let now = now(&service);
    let id = id.to_string();
    let page = TimerPage {
        frame: Frame::new(&visitor, "timers"),
        address: address(&namespace, &id),
        namespace: &namespace,
        key: timer.and_then(|timer| timer.key.as_deref()).or(past.and_then(|past| past.key.as_deref())),
        phase: timer.map(|timer| timer.phase).or(past.map(|past| past.phase)).map_or("", phase_name),
        why: match (timer, past) {
            (Some(timer), _) => why(timer, now),
            (None, Some(past)) => ended(past),
            (None, None) => String::new(),
        },
        steps: steps(timer, past, now),
        has_payload,
        actions: timer.filter(|_| has_payload).map(actions).unwrap_or_default(),
        done: done_words(&asked.done),
        id,
        timer,
    };
    Ok(show(&page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns the titles of the steps of a timer that is under way, with the fields `more`, and without a known past.
    fn titles(more: &Value) -> Vec<String> {
        let at = "2026-01-01T00:00:00Z";
        let mut timer = json!({
            "id": "1", "namespace": "n", "phase": "leased", "due": at, "scheduled": at, "created": at,
            "policy": {}, "labels": [], "failures": 0, "deliveries": 1,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            timer[name] = value.clone();
        }
        let timer: Timer = serde_json::from_value(timer).unwrap();
        steps(Some(&timer), None, timer.due).into_iter().map(|step| step.title).collect()
    }

    #[test]
    fn a_delivery_that_waits_for_its_permit_is_not_an_attempt_without_details() {
        let under_way = ["Created", "Scheduled for", "A delivery is under way"];
        assert_eq!(titles(&json!({})), under_way);
        let second = titles(&json!({ "deliveries": 2, "failures": 1 }));
        assert!(second.iter().any(|title| title == "1 attempt without details"), "{second:?}");
    }

    #[test]
    fn a_reason_names_the_host_and_the_queue_without_their_namespace() {
        for (reason, part) in [
            (Reason::host("shop", "a.example:443"), "The host a.example:443 is busy"),
            (Reason::path("shop", "a.example:443", "/x"), "at the host a.example:443, and"),
            (Reason::Queue("shop".into(), "mails".into()), "from the queue mails."),
            (Reason::Paused("shop".into()), "The namespace shop is paused"),
        ] {
            let words = parked_words(&reason.to_string());
            assert!(words.contains(part), "{words}");
        }
        assert!(parked_words("paused").starts_with("It was paused."));
        assert_eq!(parked_words("no handler: mail"), "It was put aside: no handler: mail.");
    }
}
