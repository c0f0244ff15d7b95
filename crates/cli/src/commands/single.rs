//! Runs the commands that show or change a single timer.

use crate::exit::{Code, Failure};
use crate::output::{Output, or_none, plain, table, word};
use crate::parse;
use clap::Args;
use core::time::Duration;
use tourbillon_client::api::{CancelResult, Changed, Moment, Past, Policy, Timer};
use tourbillon_client::{Namespace, TimerAt};

/// A timer, given by its key or its id.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The timer's key
    #[arg(required_unless_present = "id")]
    key: Option<String>,
    /// The timer's id, for a timer that has no key or is dead
    #[arg(long, value_name = "ID", conflicts_with = "key")]
    id: Option<String>,
}

impl Which {
    fn at<'n>(&self, timers: &'n Namespace) -> TimerAt<'n> {
        match (&self.id, &self.key) {
            (Some(id), _) => timers.id(id),
            (None, key) => timers.key(key.as_deref().unwrap_or_default()),
        }
    }
}

/// A timer, with its new due moment.
#[derive(Debug, Args)]
pub(crate) struct Move {
    #[command(flatten)]
    which: Which,
    /// Become due after this time
    #[arg(long = "in", value_name = "DURATION", value_parser = parse::duration, conflicts_with = "at", required_unless_present = "at")]
    delay: Option<Duration>,
    /// Become due at this moment
    #[arg(long, value_name = "MOMENT")]
    at: Option<Moment>,
}

/// Prints a timer, with a line for each field.
pub(crate) async fn get(which: Which, timers: &Namespace, output: Output) -> Result<(), Failure> {
    Ok(output.fields(&which.at(timers).get().await?, fields)?)
}

/// Returns a timer's fields for people: the name and the text of each field.
fn fields(timer: &Timer) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("id", timer.id.clone()),
        ("namespace", timer.namespace.clone()),
        ("key", or_none(timer.key.as_ref())),
        ("labels", timer.labels.join(", ")),
        ("phase", word(&timer.phase)),
        ("created", timer.created.to_string()),
        ("scheduled", timer.scheduled.to_string()),
        ("due", timer.due.to_string()),
        ("deliveries", timer.deliveries.to_string()),
        ("failures", timer.failures.to_string()),
        ("last error", or_none(timer.last_error.as_ref())),
        ("reason", or_none(timer.reason.as_ref())),
        ("dead since", or_none(timer.dead_since)),
    ];
    let mut body = None;
    if let Some(callback) = &timer.callback {
        let method = callback.method.as_deref().unwrap_or("POST");
        fields.push(("callback", format!("{method} {}", callback.url)));
        fields.extend(callback.headers.iter().map(|(name, value)| ("header", format!("{name}: {value}"))));
        body = Some((&callback.json, &callback.body, &callback.body_base64));
    }
    if let Some(pull) = &timer.pull {
        fields.push(("queue", pull.queue.clone()));
        body = Some((&pull.json, &pull.body, &pull.body_base64));
    }
    if let Some((json, text, base64)) = body {
        let base64 = base64.as_ref().map(|base64| format!("{base64} (base 64)"));
        fields.push(("body", or_none(json.as_ref().map(ToString::to_string).or(text.clone()).or(base64))));
    }
    fields.extend(policy(&timer.policy));
    fields
}

fn policy(policy: &Policy) -> [(&'static str, String); 7] {
    let millis = |millis: Option<u64>| or_none(millis.map(parse::short));
    let backoff = policy.backoff.as_ref().map(word);
    [
        ("attempts", or_none(policy.attempts)),
        ("max age", millis(policy.max_age_ms)),
        ("attempt timeout", millis(policy.timeout_ms)),
        ("back-off", or_none(backoff)),
        ("misfire within", millis(policy.misfire_within_ms)),
        ("jitter", millis(policy.jitter_ms)),
        ("guarantee", or_none(policy.guarantee.as_ref().map(word))),
    ]
}

/// Prints the past of a timer: its delivery attempts, and how it ended.
pub(crate) async fn history(which: Which, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let past = which.at(timers).past().await?;
    Ok(output.value(&past, |past| {
        let facts = [
            ("id", past.id.clone()),
            ("key", or_none(past.key.as_ref())),
            ("phase", word(&past.phase)),
            ("parked for", or_none(past.parked_for.as_ref())),
        ];
        let facts = facts.into_iter().filter(|(_, text)| !text.is_empty());
        let facts = table(None, facts.map(|(name, text)| [name.to_owned(), text]));
        format!(
            "{facts}\n\n{}",
            table(Some(["WHEN", "WHAT", "LATE", "TOOK", "DETAIL"]), happenings(past).into_iter())
        )
    })?)
}

/// Returns the rows of a table that shows the events of a timer's past, the earliest event first.
fn happenings(past: &Past) -> Vec<[String; 5]> {
    let mut all: Vec<(Moment, [String; 4])> = Vec::new();
    let mut note = |at: Option<Moment>, event: String, [late, took, detail]: [String; 3]| {
        all.extend(at.map(|at| (at, [event, late, took, detail])));
    };
    note(past.created, "created".to_owned(), Default::default());
    note(past.scheduled, "scheduled".to_owned(), Default::default());
    for at in &past.replayed {
        let again = "the numbers of attempts begin again".to_owned();
        note(Some(*at), "replayed".to_owned(), [String::new(), String::new(), again]);
    }
    for at in &past.interrupted {
        let died = "the process had died that delivered it".to_owned();
        note(Some(*at), "interrupted".to_owned(), [String::new(), String::new(), died]);
    }
    for attempt in &past.attempts {
        let outcome = attempt.outcome.as_ref().map_or_else(|| "under way".to_owned(), word);
        let status = attempt.status.map(|status| format!("status {status}"));
        let repeat = attempt.may_repeat.as_ref().map(|cause| format!("may be repeated: {}", word(cause)));
        // The column of the error already has the status.
        let status = status.filter(|_| attempt.error.is_none());
        let parts = [status, attempt.error.clone(), attempt.answer.clone(), repeat];
        let detail = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let took = or_none(attempt.took_ms.map(parse::short));
        let event = format!("attempt {} {outcome}", attempt.attempt);
        note(Some(attempt.started), event, [parse::short(attempt.late_ms), took, detail]);
    }
    if let Some(end) = &past.end {
        let detail = or_none(end.detail.as_ref());
        note(Some(end.at), word(&end.how), [String::new(), String::new(), detail]);
    } else {
        note(past.due, "due".to_owned(), Default::default());
    }
    all.sort_by_key(|(at, _)| *at);
    let row = |(at, [event, late, took, detail]): (Moment, [String; 4])| {
        [at.to_string(), event, late, took, detail]
    };
    all.into_iter().map(row).collect()
}

/// Cancels a timer. The program's exit code says whether the timer existed, and whether its delivery had begun.
pub(crate) async fn cancel(which: Which, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let cancelled = which.at(timers).cancel().await?;
    output.value(&cancelled, |cancelled| word(&cancelled.result))?;
    match cancelled.result {
        CancelResult::Cancelled => Ok(()),
        CancelResult::InFlight => Err(Failure::shown(Code::NotFulfilled)),
        CancelResult::NotFound => Err(Failure::shown(Code::NotFound)),
    }
}

fn changed(changed: &Changed, verb: &str, output: Output) -> Result<(), Failure> {
    Ok(output.value(changed, |changed| format!("{verb} {}", plain(&changed.id)))?)
}

/// Moves a timer's due moment.
pub(crate) async fn move_to(to: Move, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let at = to.which.at(timers);
    let moved = match (to.at, to.delay) {
        (Some(moment), _) => at.move_to(moment).await?,
        (None, delay) => at.move_after(delay.unwrap_or_default()).await?,
    };
    changed(&moved, "moved", output)
}

/// Makes a timer due at once, even if its due moment is far away.
pub(crate) async fn fire(which: Which, timers: &Namespace, output: Output) -> Result<(), Failure> {
    changed(&which.at(timers).fire().await?, "fired", output)
}

/// Pauses a timer. The service delivers it only after `resume`.
pub(crate) async fn pause(which: Which, timers: &Namespace, output: Output) -> Result<(), Failure> {
    changed(&which.at(timers).pause().await?, "paused", output)
}

/// Ends the pause of a timer. The service then delivers the timer when it is due.
pub(crate) async fn resume(which: Which, timers: &Namespace, output: Output) -> Result<(), Failure> {
    changed(&which.at(timers).resume().await?, "resumed", output)
}
