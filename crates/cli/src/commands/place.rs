//! Runs the command that makes a timer.

use crate::exit::{Code, Failure};
use crate::output::{Output, word};
use crate::parse;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use clap::{Args, ValueEnum};
use std::io::Read as _;
use tourbillon_client::Namespace;
use tourbillon_client::api::{
    Backoff, Callback, Guarantee, IfPresent, Moment, NewTimer, PlaceOutcome, Placed, Policy, ProblemKind,
    Pull, RawJson,
};

/// Makes a timer with either a callback or a queue. By default it is due at once.
#[derive(Debug, Args)]
#[command(after_help = "The file of --file has the timer in JSON, as the service's interface describes it:

  {\"delay_ms\": 60000, \"callback\": {\"url\": \"https://shop.example/hook\", \"json\": {\"order\": 17}}}

Further flags override the file. Secrets, in headers for example, belong into a file: other users see the
command line.")]
pub(crate) struct Put {
    /// The timer's key, by which other commands show, move, cancel or replace it
    key: Option<String>,
    /// Become due after this time
    #[arg(long = "in", value_name = "DURATION", value_parser = parse::millis, conflicts_with = "at")]
    delay: Option<u64>,
    /// Become due at this moment
    #[arg(long, value_name = "MOMENT")]
    at: Option<Moment>,
    /// Read the timer from a file, or from the standard input if it is `-`
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["callback", "queue"])]
    file: Option<String>,
    /// Send an HTTP request to this URL
    #[arg(long, value_name = "URL", conflicts_with = "queue", help_heading = "What happens")]
    callback: Option<String>,
    /// Let a receiver fetch the timer from this queue
    #[arg(long, value_name = "NAME", help_heading = "What happens")]
    queue: Option<String>,
    /// The HTTP method of the callback. POST by default
    #[arg(long, value_name = "METHOD", requires = "callback", help_heading = "What happens")]
    method: Option<String>,
    /// A header of the callback, in the form `name: value`
    #[arg(long, value_name = "HEADER", value_parser = parse::header, requires = "callback", help_heading = "What happens")]
    header: Vec<(String, String)>,
    /// The body as text
    #[arg(long, value_name = "TEXT", group = "content", help_heading = "What happens")]
    body: Option<String>,
    /// The body as JSON
    #[arg(long, value_name = "JSON", group = "content", help_heading = "What happens")]
    body_json: Option<RawJson>,
    /// A file with the body, or `-` for the standard input
    #[arg(long, value_name = "FILE", group = "content", help_heading = "What happens")]
    body_file: Option<String>,
    /// A label, by which timers are listed and cancelled together
    #[arg(short, long, value_name = "LABEL")]
    label: Vec<String>,
    /// What happens if another timer already has the key
    #[arg(long, value_enum, value_name = "WHAT")]
    if_present: Option<Present>,
    /// The idempotency key. If the command is repeated with the same key, it makes only one timer. By default each run
    /// has a fresh key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The W3C trace context (`traceparent`) that each delivery carries
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
    /// The number of failed attempts after which the service gives up on the timer
    #[arg(long, value_name = "NUMBER", help_heading = "Policy")]
    attempts: Option<u32>,
    /// The greatest age of the timer, counted from the due moment. No delivery is planned after this age
    #[arg(long, value_name = "DURATION", value_parser = parse::millis, help_heading = "Policy")]
    max_age: Option<u64>,
    /// The timeout of one attempt
    #[arg(long, value_name = "DURATION", value_parser = parse::millis, help_heading = "Policy")]
    attempt_timeout: Option<u64>,
    /// The pause after a failed attempt: standard (growing from 5s to 24h), fixed:5s, exponential:1s..1h or
    /// ladder:1s,5s,1m
    #[arg(long, value_name = "BACKOFF", value_parser = parse::backoff, help_heading = "Policy")]
    backoff: Option<Backoff>,
    /// The greatest lateness of a delivery. A delivery that would be later is skipped
    #[arg(long, value_name = "DURATION", value_parser = parse::millis, help_heading = "Policy")]
    misfire_within: Option<u64>,
    /// The length of a window that begins at the due moment. The timer becomes due at a moment in this window
    #[arg(long, value_name = "DURATION", value_parser = parse::millis, help_heading = "Policy")]
    jitter: Option<u64>,
    /// Deliver at most once, instead of at least once
    #[arg(long, help_heading = "Policy")]
    at_most_once: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Present {
    /// The new timer is refused
    Reject,
    /// The old timer stays, even if its delivery has begun, and the new timer is discarded. The command prints the old
    /// timer's phase
    Keep,
    /// The new timer replaces the old timer
    Replace,
    /// The new timer replaces the old timer, but keeps the old timer's due moment
    ReplaceKeepDue,
}

impl From<Present> for IfPresent {
    fn from(present: Present) -> Self {
        match present {
            Present::Reject => Self::Reject,
            Present::Keep => Self::Keep,
            Present::Replace => Self::Replace,
            Present::ReplaceKeepDue => Self::ReplaceKeepDue,
        }
    }
}

/// The size of the largest file that a command reads, in bytes. The service accepts only smaller timers.
const LARGEST: u64 = 16 << 20;

/// Reads the file at `path`, or the standard input if `path` is `-`. Fails if the content is larger than [`LARGEST`].
pub(super) fn read(path: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if path == "-" {
        std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
    };
    match read {
        Ok(_) if bytes.len() as u64 > LARGEST => {
            Err(Failure::new(Code::Usage, format!("{path}: more than {LARGEST} bytes")))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(Failure::new(Code::Usage, format!("{path}: {error}"))),
    }
}

/// Builds a timer from the flags and from the file that `--file` names. A flag overrides the same field in the file.
fn timer(put: &Put) -> Result<NewTimer, Failure> {
    let mut timer = match &put.file {
        None => NewTimer::default(),
        Some(path) => serde_json::from_slice(&read(path)?)
            .map_err(|error| Failure::new(Code::Usage, format!("{path}: {error}")))?,
    };
    if let Some(url) = &put.callback {
        let headers = put.header.iter().cloned().collect();
        timer.callback = Some(Callback { method: put.method.clone(), headers, ..Callback::post(url) });
    }
    if let Some(queue) = &put.queue {
        timer.pull = Some(Pull { queue: queue.clone(), ..Pull::default() });
    }
    if timer.callback.is_none() && timer.pull.is_none() {
        return Err(Failure::new(Code::Usage, "a timer needs one of --callback, --queue and --file"));
    }
    let (mut json, mut text, mut base64) = (put.body_json.clone(), put.body.clone(), None);
    if let Some(path) = &put.body_file {
        match String::from_utf8(read(path)?) {
            Ok(body) => text = Some(body),
            Err(error) => base64 = Some(BASE64_STANDARD.encode(error.as_bytes())),
        }
    }
    if json.is_some() || text.is_some() || base64.is_some() {
        if let Some(callback) = &mut timer.callback {
            (callback.json, callback.body, callback.body_base64) = (json.take(), text.take(), base64.take());
        } else if let Some(pull) = &mut timer.pull {
            (pull.json, pull.body, pull.body_base64) = (json.take(), text.take(), base64.take());
        }
    }
    if let Some(due) = put.at {
        timer = timer.at(due);
    }
    if let Some(delay) = put.delay {
        timer = timer.after_ms(delay);
    }
    timer.labels.extend_from_slice(&put.label);
    if let Some(present) = put.if_present {
        timer.if_present = present.into();
    }
    let policy = timer.policy;
    timer.policy = Policy {
        attempts: put.attempts.or(policy.attempts),
        max_age_ms: put.max_age.or(policy.max_age_ms),
        timeout_ms: put.attempt_timeout.or(policy.timeout_ms),
        backoff: put.backoff.clone().or(policy.backoff),
        misfire_within_ms: put.misfire_within.or(policy.misfire_within_ms),
        jitter_ms: put.jitter.or(policy.jitter_ms),
        guarantee: put.at_most_once.then_some(Guarantee::AtMostOnce).or(policy.guarantee),
    };
    Ok(timer)
}

/// Creates a timer on the service. Prints whether the timer is new, whether it replaced an old timer, or whether the
/// old timer was kept.
pub(crate) async fn put(put: Put, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let timer = timer(&put)?;
    let mut place = timers.place(&timer);
    if let Some(key) = &put.key {
        place = place.key(key);
    }
    if let Some(key) = &put.idempotency_key {
        place = place.idempotency_key(key);
    }
    if let Some(trace) = &put.trace {
        place = place.trace(trace);
    }
    let placed = place.await.map_err(|error| {
        let is_taken = error.problem() == Some(ProblemKind::KeyExists);
        let failure = Failure::from(error);
        if is_taken { failure.and("the flag for it is --if-present") } else { failure }
    })?;
    Ok(output.value(&placed, line)?)
}

fn line(placed: &Placed) -> String {
    let outcome = word(&placed.outcome);
    match (&placed.replaced, placed.outcome) {
        (Some(replaced), PlaceOutcome::Replaced) => {
            format!(
                "{outcome} {} (in place of {}, which was {})",
                placed.id,
                replaced.id,
                word(&replaced.was)
            )
        }
        (None, PlaceOutcome::Kept) => match &placed.kept {
            Some(kept) => format!("{outcome} {} (which is {})", placed.id, word(&kept.was)),
            None => format!("{outcome} {}", placed.id),
        },
        _ => format!("{outcome} {}", placed.id),
    }
}
