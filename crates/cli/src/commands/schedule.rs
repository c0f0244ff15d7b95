//! Runs the commands about schedules.

use super::operation;
use super::place::read;
use crate::exit::{Code, Failure};
use crate::output::{Output, or_none, plain, word};
use crate::parse;
use clap::{Args, Subcommand, ValueEnum};
use tourbillon_client::Namespace;
use tourbillon_client::api::{
    self, Backfill, Backoff, Callback, Moment, Monthly, NewSchedule, Occurrence, Policy, Pull, RawJson,
    ScheduleView,
};

/// A command that shows or changes schedules. An instant of a schedule is a moment that its plan names. The schedule
/// makes a timer for each instant.
#[derive(Debug, Subcommand)]
pub(crate) enum Schedule {
    /// Make a schedule, or replace an existing schedule, and show the next moments at which it makes timers
    Put(Box<Put>),
    /// Show a schedule, with the next moments at which it makes timers
    Get(Key),
    /// List schedules
    List {
        /// Only schedules whose keys begin with this text
        #[arg(long, value_name = "TEXT")]
        key_prefix: Option<String>,
    },
    /// Remove a schedule. The timers that it has made stay
    Delete(Key),
    /// Pause a schedule, so that it makes no timers
    Pause(Key),
    /// End the pause of a schedule
    Resume(Key),
    /// Make a timer of a schedule now
    Trigger(Key),
    /// Make a timer for each past instant in a range of time. Instants are the moments that a schedule's plan names
    Backfill {
        /// The schedule's key
        key: String,
        /// The first moment of the range
        #[arg(long, value_name = "MOMENT")]
        from: Moment,
        /// The last moment of the range. The present by default
        #[arg(long, value_name = "MOMENT")]
        until: Option<Moment>,
        /// The greatest number of instants in the range. A range with more instants is refused
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
        /// Do not wait until all timers are made
        #[arg(long)]
        no_wait: bool,
    },
    /// Show the next moments at which a schedule would make timers, without making the schedule
    Preview(Box<Rule>),
}

/// The key of a schedule.
#[derive(Debug, Args)]
pub(crate) struct Key {
    /// The schedule's key
    key: String,
}

/// The plan of a schedule: the rule for the instants at which it makes timers.
#[derive(Debug, Args)]
pub(crate) struct Rule {
    /// A cron expression, such as `0 9 * * MON-FRI`
    #[arg(long, value_name = "EXPRESSION", help_heading = "When")]
    cron: Option<String>,
    /// A day of each month, or `last`. Shorter months use their last day
    #[arg(long, value_name = "DAY", value_parser = parse::day, conflicts_with = "cron", help_heading = "When")]
    day: Option<i8>,
    /// The time of day for --day, such as `09:00`. Midnight by default
    #[arg(long, value_name = "TIME", requires = "day", help_heading = "When")]
    time: Option<String>,
    /// Skip months that are too short for --day
    #[arg(long, requires = "day", help_heading = "When")]
    skip_short: bool,
    /// The fixed period from each instant to the next. It is counted from --start, or else from the schedule's creation
    #[arg(long, value_name = "DURATION", value_parser = parse::millis, conflicts_with_all = ["cron", "day"], help_heading = "When")]
    every: Option<u64>,
    /// The time zone, such as `Europe/Zurich`. UTC by default
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    zone: Option<String>,
    /// Skip local times that a clock change leaves out, instead of moving them behind the gap
    #[arg(long, help_heading = "When")]
    skip_gaps: bool,
    /// The moment at which the schedule's plan begins
    #[arg(long, value_name = "MOMENT", help_heading = "When")]
    start: Option<Moment>,
    /// The moment at which the schedule's plan ends
    #[arg(long, value_name = "MOMENT", help_heading = "When")]
    end: Option<Moment>,
}

/// Makes a schedule with one of --cron, --day, --every and --file, and with either a callback or a queue.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The schedule's key
    key: String,
    #[command(flatten)]
    rule: Rule,
    /// What happens with missed instants: moments of the plan at which the service could not make a timer, for example
    /// because the service was down
    #[arg(long, value_enum, value_name = "WHAT")]
    missed: Option<Missed>,
    /// An instant of the plan counts as missed if the service handles it with a greater delay than this. 10s by default
    #[arg(long, value_name = "DURATION", value_parser = parse::millis)]
    grace: Option<u64>,
    /// What happens at an instant of the plan while the schedule's previous timer still waits or is being delivered
    #[arg(long, value_enum, value_name = "WHAT")]
    overlap: Option<Overlap>,
    /// The greatest delay from an instant of the plan until the timer for this instant is due
    #[arg(long, value_name = "DURATION", value_parser = parse::millis)]
    jitter: Option<u64>,
    /// Read the schedule from a file in JSON, or from the standard input if it is `-`
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["callback", "queue"])]
    file: Option<String>,
    /// Send an HTTP request to this URL
    #[arg(long, value_name = "URL", conflicts_with = "queue", help_heading = "What happens")]
    callback: Option<String>,
    /// Let a receiver fetch the schedule's timers from this queue
    #[arg(long, value_name = "NAME", help_heading = "What happens")]
    queue: Option<String>,
    /// The body as text
    #[arg(long, value_name = "TEXT", conflicts_with = "body_json", help_heading = "What happens")]
    body: Option<String>,
    /// The body as JSON
    #[arg(long, value_name = "JSON", help_heading = "What happens")]
    body_json: Option<RawJson>,
    /// A label of the timers that the schedule makes
    #[arg(short, long, value_name = "LABEL")]
    label: Vec<String>,
    /// The number of failed attempts after which the service gives up on a timer of the schedule
    #[arg(long, value_name = "NUMBER", help_heading = "Policy")]
    attempts: Option<u32>,
    /// The timeout of one attempt
    #[arg(long, value_name = "DURATION", value_parser = parse::millis, help_heading = "Policy")]
    attempt_timeout: Option<u64>,
    /// The pause after a failed attempt: standard (growing from 5s to 24h), fixed:5s, exponential:1s..1h or
    /// ladder:1s,5s,1m
    #[arg(long, value_name = "BACKOFF", value_parser = parse::backoff, help_heading = "Policy")]
    backoff: Option<Backoff>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Missed {
    /// The schedule makes no timers for missed instants
    Skip,
    /// The schedule makes a timer only for the last missed instant, and none if a later instant gets its timer on time
    Once,
    /// The schedule makes a timer for each missed instant, one after another unless overlaps are allowed
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Overlap {
    /// The schedule makes no timer for the instant
    Skip,
    /// The schedule makes the timer for the instant all the same
    Allow,
    /// The schedule makes the timer for the instant once the previous timer has ended. It skips all further instants
    /// until then
    QueueOne,
}

/// Replaces fields of a schedule with the values of the user's flags. `--cron`, `--day` or `--every` replaces the
/// whole plan. A field without a flag stays unchanged.
fn with_rule(mut schedule: NewSchedule, rule: &Rule) -> NewSchedule {
    if rule.cron.is_some() || rule.day.is_some() || rule.every.is_some() {
        let monthly = |day| Monthly {
            day,
            time: rule.time.clone(),
            if_short: rule.skip_short.then_some(api::ShortMonth::Skip),
        };
        schedule.cron = rule.cron.clone();
        schedule.monthly = rule.day.map(monthly);
        schedule.every_ms = rule.every;
    }
    schedule.zone = rule.zone.clone().or(schedule.zone);
    schedule.gap = rule.skip_gaps.then_some(api::Gap::Skip).or(schedule.gap);
    schedule.start = rule.start.or(schedule.start);
    schedule.end = rule.end.or(schedule.end);
    schedule
}

/// Builds a schedule from the flags and from the file that `--file` names. A flag overrides the same field in the
/// file.
fn described(put: &Put) -> Result<NewSchedule, Failure> {
    let schedule = match &put.file {
        None => NewSchedule::default(),
        Some(path) => serde_json::from_slice(&read(path)?)
            .map_err(|error| Failure::new(Code::Usage, format!("{path}: {error}")))?,
    };
    let mut schedule = with_rule(schedule, &put.rule);
    if let Some(url) = &put.callback {
        schedule.callback = Some(Callback::post(url));
    }
    if let Some(queue) = &put.queue {
        schedule.pull = Some(Pull { queue: queue.clone(), ..Pull::default() });
    }
    if put.body.is_some() || put.body_json.is_some() {
        let (json, text) = (put.body_json.clone(), put.body.clone());
        if let Some(callback) = &mut schedule.callback {
            (callback.json, callback.body, callback.body_base64) = (json, text, None);
        } else if let Some(pull) = &mut schedule.pull {
            (pull.json, pull.body, pull.body_base64) = (json, text, None);
        }
    }
    let missed = put.missed.map(|missed| match missed {
        Missed::Skip => api::Missed::Skip,
        Missed::Once => api::Missed::Once,
        Missed::All => api::Missed::All,
    });
    let overlap = put.overlap.map(|overlap| match overlap {
        Overlap::Skip => api::Overlap::Skip,
        Overlap::Allow => api::Overlap::Allow,
        Overlap::QueueOne => api::Overlap::QueueOne,
    });
    schedule.missed = missed.or(schedule.missed);
    schedule.overlap = overlap.or(schedule.overlap);
    schedule.grace_ms = put.grace.or(schedule.grace_ms);
    schedule.jitter_ms = put.jitter.or(schedule.jitter_ms);
    schedule.labels.extend_from_slice(&put.label);
    let policy = schedule.policy;
    schedule.policy = Policy {
        attempts: put.attempts.or(policy.attempts),
        timeout_ms: put.attempt_timeout.or(policy.timeout_ms),
        backoff: put.backoff.clone().or(policy.backoff),
        ..policy
    };
    Ok(schedule)
}

/// Runs a command of `schedule`, such as `put`, `list` or `pause`.
pub(crate) async fn schedule(command: Schedule, timers: &Namespace, output: Output) -> Result<(), Failure> {
    match command {
        Schedule::Put(put) => {
            let schedule = described(&put)?;
            Ok(output.fields(&timers.schedule(&put.key).put(&schedule).await?, fields)?)
        }
        Schedule::Get(Key { key }) => Ok(output.fields(&timers.schedule(&key).get().await?, fields)?),
        Schedule::List { key_prefix } => list(key_prefix, timers, output).await,
        Schedule::Delete(Key { key }) => {
            let removed = timers.schedule(&key).delete().await?;
            let word = if removed.removed { "deleted" } else { "not-found" };
            output.value(&removed, |_| format!("{word} {}", plain(&key)))?;
            if removed.removed { Ok(()) } else { Err(Failure::shown(Code::NotFound)) }
        }
        Schedule::Pause(Key { key }) => {
            Ok(output.value(&timers.schedule(&key).pause().await?, |_| format!("paused {}", plain(&key)))?)
        }
        Schedule::Resume(Key { key }) => Ok(output.fields(&timers.schedule(&key).resume().await?, fields)?),
        Schedule::Trigger(Key { key }) => {
            let triggered = timers.schedule(&key).trigger().await?;
            Ok(output.value(&triggered, |triggered| format!("made {}", plain(&triggered.id)))?)
        }
        Schedule::Backfill { key, from, until, limit, no_wait } => {
            let operation = timers.schedule(&key).backfill(&Backfill { from, until, limit }).await?;
            operation::show(operation, !no_wait, operation::Work::Backfill, timers, output).await
        }
        Schedule::Preview(rule) => {
            let preview = timers.preview(&with_rule(NewSchedule::default(), &rule)).await?;
            Ok(output.fields(&preview, |preview| upcoming(&preview.upcoming))?)
        }
    }
}

async fn list(key_prefix: Option<String>, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let mut pages = timers.schedules();
    if let Some(prefix) = key_prefix {
        pages = pages.key_prefix(prefix);
    }
    let mut all = Vec::new();
    while let Some(page) = pages.next_page().await? {
        all.extend(page);
    }
    output.list(
        &all,
        ["KEY", "STATE", "NEXT", "LAST FIRED", "FIRED", "MISSED", "SKIPPED", "RULE"],
        |view| {
            [
                view.key.clone(),
                word(&view.state),
                or_none(view.next),
                or_none(view.last_fired),
                view.fired.to_string(),
                view.missed.to_string(),
                view.skipped.to_string(),
                rule(&view.schedule),
            ]
        },
    )?;
    Ok(())
}

/// Describes the instants of a schedule in a line.
fn rule(schedule: &NewSchedule) -> String {
    let zone = schedule.zone.as_deref().unwrap_or("UTC");
    match (&schedule.cron, &schedule.monthly, schedule.every_ms) {
        (Some(expression), ..) => format!("{expression} in {zone}"),
        (None, Some(Monthly { day, time, if_short }), _) => {
            let day = match (day, if_short) {
                (_, Some(api::ShortMonth::Skip)) => format!("day {day}"),
                (31, _) => "the last day".to_owned(),
                (29.., _) => format!("day {day} or the last"),
                _ => format!("day {day}"),
            };
            format!("on {day} at {} in {zone}", time.as_deref().unwrap_or("00:00"))
        }
        (None, None, Some(period)) => format!("every {}", parse::short(period)),
        _ => String::new(),
    }
}

fn upcoming(occurrences: &[Occurrence]) -> Vec<(&'static str, String)> {
    let line = |occurrence: &Occurrence| {
        let change =
            occurrence.clock_change.map_or_else(String::new, |change| format!("  ({})", word(&change)));
        match (occurrence.at, &occurrence.local) {
            (Some(at), Some(local)) => format!("{at}  {local}{change}"),
            _ => format!("{:24}  {}{change}", "", occurrence.planned),
        }
    };
    occurrences.iter().map(|occurrence| ("next", line(occurrence))).collect()
}

fn fields(view: &ScheduleView) -> Vec<(&'static str, String)> {
    let schedule = &view.schedule;
    let target = match (&schedule.callback, &schedule.pull) {
        (Some(callback), _) => callback.url.clone(),
        (None, Some(pull)) => format!("queue {}", pull.queue),
        (None, None) => String::new(),
    };
    let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
    let millis = |span: Option<u64>| or_none(span.filter(|span| *span > 0).map(parse::short));
    let mut fields = vec![
        ("key", view.key.clone()),
        ("namespace", view.namespace.clone()),
        ("rule", rule(schedule)),
        ("target", target),
        ("state", word(&view.state)),
        ("reason", or_none(view.reason.as_ref())),
        ("missed instants", or_none(schedule.missed.as_ref().map(word))),
        ("grace", millis(schedule.grace_ms)),
        ("overlap", or_none(schedule.overlap.as_ref().map(word))),
        ("jitter", millis(schedule.jitter_ms)),
        ("start", or_none(schedule.start)),
        ("end", or_none(schedule.end)),
        ("labels", schedule.labels.join(", ")),
        ("last scheduled", or_none(view.last_scheduled)),
        ("last fired", or_none(view.last_fired)),
        ("fired", count(view.fired)),
        ("missed", count(view.missed)),
        ("skipped", count(view.skipped)),
        ("asked for", count(view.asked)),
        ("overdue", millis(Some(view.overdue_ms))),
        ("due", or_none(view.next)),
    ];
    fields.extend(upcoming(&view.upcoming));
    fields
}
