//! Converts between the types of the HTTP interface and the types of the store.

use crate::blocked;
use crate::clock::millis;
use crate::settings::Settings;
use crate::work::{
    self, BLOCKED, CALLBACK, LONGEST_CALLBACK, LONGEST_CLAIM, PULL, REQUEST_ID, StoredCallback, StoredPull,
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use core::fmt;
use core::time::Duration;
use std::io;
use tourbillon_api::{self as api, Moment, Problem, ProblemKind};
use tourbillon_callback::{Callback, Refusal};
use tourbillon_durable::policy::{Backoff, Misfire, Policy};
use tourbillon_durable::state::{DeathReason, State};
use tourbillon_durable::store::{IfPresent, StoreError, StoreErrorKind};
use tourbillon_durable::timer::Timer;
use tourbillon_durable::{Due, Rejection, Spec, UtcMillis};

/// A new timer for the store: the name of the handler that delivers it, and its specification.
pub(crate) type Creation = (&'static str, Spec<Vec<u8>>);

/// The callback or the queue entry of a timer, in its stored form.
pub(crate) struct Work {
    pub(crate) kind: &'static str,
    pub(crate) payload: Vec<u8>,
    pub(crate) policy: Policy,
    /// The parsed callback. `None` for a timer that receivers fetch from a queue.
    pub(crate) callback: Option<Callback>,
}

/// Converts a timer of a request into a new timer for the store. Also returns the timer's callback, if the timer has
/// one. `head` has facts about the request that are stored with the timer. `pointer` is the JSON pointer to the timer
/// within the request, for error messages.
pub(crate) fn creation(
    timer: &api::NewTimer,
    settings: &Settings,
    head: work::Head<'_>,
    pointer: &str,
) -> Result<(Creation, Option<Callback>), Problem> {
    admit_labels(&timer.labels, pointer)?;
    let Work { kind, payload, policy, callback } = work(timer, settings, head, pointer)?;
    let mut spec = Spec::new(payload).policy(policy).if_present(if_present(timer.if_present));
    spec = match due(timer.due, timer.delay_ms, pointer)? {
        Some(Due::After(delay)) => spec.after(delay),
        Some(Due::At(moment)) => spec.at(moment),
        None => spec,
    };
    for label in &timer.labels {
        spec = spec.label(label.as_str());
    }
    Ok(((kind, spec), callback))
}

/// Fails if a label has a zero byte. `pointer` is the JSON pointer to the object with the field `labels`.
pub(crate) fn admit_labels(labels: &[String], pointer: &str) -> Result<(), Problem> {
    match labels.iter().position(|label| label.contains('\0')) {
        Some(index) => Err(Problem::field(format!("{pointer}/labels/{index}"), "the label has a zero byte")),
        None => Ok(()),
    }
}

/// The JSON pointer to a field of a request, in two parts: the pointer to the field's parent, and the field's name. The
/// parts are joined only for an error message.
#[derive(Clone, Copy)]
struct At<'a>(&'a str, &'static str);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

/// Converts the callback or the queue entry of a request's timer into its stored form. The parameters are those of
/// [`creation`].
pub(crate) fn work(
    timer: &api::NewTimer,
    settings: &Settings,
    head: work::Head<'_>,
    pointer: &str,
) -> Result<Work, Problem> {
    let at = |field: &'static str| At(pointer, field);
    let time_for = |longest| timeout(&timer.policy, longest, at("policy"));
    let (kind, payload, most, callback) = match (&timer.callback, &timer.pull) {
        (Some(callback), None) => {
            let timeout_ms = time_for(LONGEST_CALLBACK)?;
            let (stored, callback) = stored_callback(callback, settings, at("callback"))?;
            let work = StoredCallback { timeout_ms, ..stored };
            let most = Duration::from_millis(timeout_ms.into());
            (CALLBACK, work::write(&work, head), most, Some(callback))
        }
        (None, Some(pull)) => {
            let timeout_ms = time_for(LONGEST_CLAIM)?;
            let work = StoredPull { timeout_ms, ..stored_pull(pull, settings, at("pull"))? };
            // A receiver may renew its claim up to the longest claim, so the handler's timeout does not depend on
            // `timeout_ms`.
            (PULL, work::write(&work, head), LONGEST_CLAIM, None)
        }
        _ => return Err(Problem::field(pointer, "a timer has one of `callback` and `pull`")),
    };
    let policy = policy(&timer.policy, most + BEYOND, at("policy"))?;
    Ok(Work { kind, payload, policy, callback })
}

/// Returns the due moment of a request's timer, which the request gives as a moment or as a delay. Fails if the request
/// gives both.
pub(crate) fn due(due: Option<Moment>, delay_ms: Option<u64>, pointer: &str) -> Result<Option<Due>, Problem> {
    match (due, delay_ms) {
        (Some(_), Some(_)) => Err(Problem::field(pointer, "at most one of `due` and `delay_ms`")),
        (Some(due), None) => Ok(Some(Due::At(due.into()))),
        (None, Some(delay)) => Ok(Some(Due::After(Duration::from_millis(delay)))),
        (None, None) => Ok(None),
    }
}

fn stored_callback(
    callback: &api::Callback,
    settings: &Settings,
    at: At<'_>,
) -> Result<(StoredCallback, Callback), Problem> {
    let api::Callback { url, method, headers, json, body, body_base64 } = callback;
    let is_json = json.is_some();
    let body = bytes(json.as_ref(), body.as_deref(), body_base64.as_deref(), at)?;
    let method = method.as_deref().unwrap_or("POST");
    let mut headers: Vec<(Box<str>, Box<str>)> =
        headers.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into())).collect();
    if is_json && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        headers.push(("content-type".into(), "application/json".into()));
    }
    // The service sets this header itself. `Callback::new` knows only the headers that its own crate sets.
    if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(REQUEST_ID)) {
        return Err(refused(&Refusal::Header(REQUEST_ID.into()), url, at));
    }
    let pairs = headers.iter().map(|(name, value)| (&**name, &**value));
    let callback = Callback::new(url, method, pairs, body.clone(), &settings.rules)
        .map_err(|refusal| refused(&refusal, url, at))?;
    // The timeout is a part of the policy. The caller adds the timeout.
    let stored =
        StoredCallback { url: url.as_str().into(), method: method.into(), headers, body, timeout_ms: 0 };
    Ok((stored, callback))
}

fn refused(refusal: &Refusal, url: &str, at: At<'_>) -> Problem {
    let field = match refusal {
        Refusal::Destination(reason) => {
            let words = blocked::words(*reason, url, false);
            return Problem::new(ProblemKind::BlockedDestination, words.clone())
                .with_field(format!("{at}/url"), words);
        }
        Refusal::Url(_) => "url",
        Refusal::Method(_) => "method",
        Refusal::Header(_) => "headers",
        Refusal::TooLong(part) => {
            return Problem::new(ProblemKind::TooLarge, refusal.to_string())
                .with_field(at.to_string(), format!("too long: {part}"));
        }
        _ => "",
    };
    Problem::field(format!("{at}/{field}"), refusal.to_string())
}

fn stored_pull(pull: &api::Pull, settings: &Settings, at: At<'_>) -> Result<StoredPull, Problem> {
    let api::Pull { queue, json, body, body_base64 } = pull;
    if !is_name(queue) {
        return Err(Problem::field(
            format!("{at}/queue"),
            "a name has 1 to 64 letters, digits, `-`, `_` or `.`",
        ));
    }
    let body = bytes(json.as_ref(), body.as_deref(), body_base64.as_deref(), at)?;
    if body.len() > settings.rules.body {
        return Err(Problem::new(ProblemKind::TooLarge, "too long: the body")
            .with_field(at.to_string(), "too long: the body"));
    }
    Ok(StoredPull { queue: queue.as_str().into(), body, timeout_ms: 0 })
}

/// Returns whether a text is valid as the name of a namespace or a queue.
pub(crate) fn is_name(text: &str) -> bool {
    let is_permitted = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    // Names are segments of URL paths, from which clients remove `.` and `..`.
    (1..=64).contains(&text.len()) && text.bytes().all(is_permitted) && !matches!(text, "." | "..")
}

fn bytes(
    json: Option<&api::RawJson>,
    text: Option<&str>,
    base64: Option<&str>,
    at: At<'_>,
) -> Result<Vec<u8>, Problem> {
    match (json, text, base64) {
        (None, None, None) => Ok(Vec::new()),
        // The JSON text is stored byte for byte, because its keys and numbers are the receiver's matter.
        (Some(json), None, None) => Ok(json.text().as_bytes().to_vec()),
        (None, Some(text), None) => Ok(text.as_bytes().to_vec()),
        (None, None, Some(base64)) => BASE64_STANDARD
            .decode(base64)
            .map_err(|error| Problem::field(format!("{at}/body_base64"), error.to_string())),
        _ => Err(Problem::field(at.to_string(), "at most one of `json`, `body` and `body_base64`")),
    }
}

const MOST_PAUSES: usize = 32;
const MOST_ATTEMPTS: u32 = 1_000;
const DEFAULT_TIMEOUT_MS: u64 = 15_000;
const LEAST_TIMEOUT_MS: u64 = 100;
/// The time by which the runtime's timeout for a handler exceeds the longest callback, or the longest claim (a
/// receiver's lease on a fetched timer). So even a handler that has waited for a permit first can end before its
/// timeout.
const BEYOND: Duration = Duration::from_secs(15);

/// Returns the longest time for one delivery attempt, in milliseconds. Fails if the request's timeout is too short, or
/// longer than `longest`.
fn timeout(policy: &api::Policy, longest: Duration, at: At<'_>) -> Result<u32, Problem> {
    let (timeout, most) = (policy.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS), longest.as_millis());
    let is_permitted = timeout >= LEAST_TIMEOUT_MS && u128::from(timeout) <= most;
    let detail = format!("a timeout is {LEAST_TIMEOUT_MS} to {most} ms");
    let refused = || Problem::field(format!("{at}/timeout_ms"), detail);
    u32::try_from(timeout).ok().filter(|_| is_permitted).ok_or_else(refused)
}

/// Converts the retry policy of a request into its stored form. `timeout` is the longest time for which the runtime
/// waits for a handler.
fn policy(policy: &api::Policy, timeout: Duration, at: At<'_>) -> Result<Policy, Problem> {
    let millis = Duration::from_millis;
    let default = Policy::default();
    let backoff = match &policy.backoff {
        None | Some(api::Backoff::Standard {}) => Backoff::Standard,
        Some(api::Backoff::Fixed { pause_ms }) => Backoff::Fixed(millis(*pause_ms)),
        Some(api::Backoff::Exponential { first_ms, max_ms }) => {
            Backoff::Exponential { first: millis(*first_ms), max: millis(*max_ms) }
        }
        Some(api::Backoff::Ladder { pauses_ms }) if pauses_ms.len() <= MOST_PAUSES => {
            Backoff::Ladder(pauses_ms.iter().copied().map(millis).collect())
        }
        Some(_) => {
            return Err(Problem::field(
                format!("{at}/backoff/pauses_ms"),
                format!("at most {MOST_PAUSES} pauses"),
            ));
        }
    };
    if policy.attempts.is_some_and(|attempts| attempts > MOST_ATTEMPTS) {
        return Err(Problem::field(format!("{at}/attempts"), format!("at most {MOST_ATTEMPTS} attempts")));
    }
    Ok(Policy {
        attempts: policy.attempts.unwrap_or(default.attempts),
        deliveries: default.deliveries,
        max_age: policy.max_age_ms.map(millis),
        backoff,
        timeout,
        misfire: policy.misfire_within_ms.map_or(Misfire::Fire, |within| Misfire::Within(millis(within))),
        jitter: policy.jitter_ms.map_or(Duration::ZERO, millis),
        guarantee: policy.guarantee.unwrap_or_default(),
    })
}

fn shown_policy(policy: &Policy) -> api::Policy {
    api::Policy {
        attempts: Some(policy.attempts),
        max_age_ms: policy.max_age.map(millis),
        // The stored policy has a longer timeout (see `BEYOND`). `show_work` adds the timeout of the request.
        timeout_ms: None,
        backoff: match &policy.backoff {
            Backoff::Standard => Some(api::Backoff::Standard {}),
            Backoff::Fixed(pause) => Some(api::Backoff::Fixed { pause_ms: millis(*pause) }),
            Backoff::Exponential { first, max } => {
                Some(api::Backoff::Exponential { first_ms: millis(*first), max_ms: millis(*max) })
            }
            Backoff::Ladder(pauses) => {
                Some(api::Backoff::Ladder { pauses_ms: pauses.iter().copied().map(millis).collect() })
            }
            _ => None,
        },
        misfire_within_ms: match policy.misfire {
            Misfire::Fire => None,
            Misfire::Within(within) => Some(millis(within)),
        },
        jitter_ms: Some(millis(policy.jitter)),
        guarantee: Some(policy.guarantee),
    }
}

fn if_present(if_present: api::IfPresent) -> IfPresent {
    match if_present {
        api::IfPresent::Reject => IfPresent::Reject,
        api::IfPresent::Keep => IfPresent::Keep,
        api::IfPresent::Replace => IfPresent::Replace,
        api::IfPresent::ReplaceKeepDue => IfPresent::ReplaceKeepDue,
    }
}

pub(crate) fn moment(moment: UtcMillis) -> Moment {
    moment.into()
}

/// Converts a stored timer into the form for answers. `with_payload` adds the headers and the body, which clients with
/// read access only must not see.
pub(crate) fn shown(timer: &Timer, with_payload: bool) -> api::Timer {
    let mut shown = api::Timer {
        id: timer.id.to_string(),
        namespace: timer.namespace.to_string(),
        key: timer.key.as_deref().map(str::to_owned),
        labels: timer.labels.iter().map(|label| label.to_string()).collect(),
        phase: timer.state.phase(),
        created: moment(timer.created),
        scheduled: moment(timer.scheduled),
        due: moment(timer.due),
        deliveries: timer.deliveries,
        failures: timer.failures,
        last_error: timer.last_error.as_deref().map(str::to_owned),
        reason: match &timer.state {
            State::Parked(reason) => Some(reason.to_string()),
            State::Dead(death) => Some(shown_reason(death.reason, timer.last_error.as_deref()).to_owned()),
            _ => None,
        },
        dead_since: match &timer.state {
            State::Dead(death) => Some(moment(death.at)),
            _ => None,
        },
        callback: None,
        pull: None,
        policy: shown_policy(&timer.policy),
        request_id: work::head(&timer.payload.0).request.map(str::to_owned),
    };
    // Work that cannot be read is not shown.
    let _is_shown = show_work(&mut shown, timer, with_payload);
    shown
}

/// Returns the word by which answers name the reason why a timer is dead (why its deliveries were given up).
pub(crate) fn shown_reason(reason: DeathReason, last_error: Option<&str>) -> &'static str {
    match reason {
        DeathReason::Attempts => "attempts",
        DeathReason::Deliveries => "deliveries",
        DeathReason::Age => "age",
        // The store records no finer reason. Only the first word of the error shows that the destination was blocked.
        DeathReason::Refused if last_error.is_some_and(|error| error.starts_with(BLOCKED)) => BLOCKED,
        DeathReason::Refused => "refused",
        _ => "plan",
    }
}

/// Adds the callback or the queue entry of a stored timer to its form for answers. Fails if the stored bytes cannot be
/// read.
fn show_work(shown: &mut api::Timer, timer: &Timer, with_payload: bool) -> Result<(), Box<str>> {
    match &*timer.kind {
        CALLBACK => {
            let StoredCallback { url, method, headers, body, timeout_ms } = work::read(&timer.payload.0)?;
            let mut callback =
                api::Callback { url: url.into(), method: Some(method.into()), ..api::Callback::default() };
            if with_payload {
                callback.headers =
                    headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
                (callback.body, callback.body_base64) = shown_body(body);
            }
            (shown.callback, shown.policy.timeout_ms) = (Some(callback), Some(timeout_ms.into()));
        }
        PULL => {
            let StoredPull { queue, body, timeout_ms } = work::read(&timer.payload.0)?;
            let mut pull = api::Pull { queue: queue.into(), ..api::Pull::default() };
            if with_payload {
                (pull.body, pull.body_base64) = shown_body(body);
            }
            (shown.pull, shown.policy.timeout_ms) = (Some(pull), Some(timeout_ms.into()));
        }
        _ => {}
    }
    Ok(())
}

/// Returns a body for an answer: as text in the first value if it is valid UTF-8, and otherwise as base 64 in the
/// second value.
pub(crate) fn shown_body(body: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(body) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
    }
}

/// Converts the store's rejection of a new timer into the problem for the client.
pub(crate) fn rejected(rejection: &Rejection) -> Problem {
    let detail = rejection.to_string();
    match rejection {
        Rejection::KeyExists(_) => {
            let remedy = "`if_present` may be `keep`, `replace` or `replace-keep-due`";
            Problem::new(ProblemKind::KeyExists, format!("{detail}: {remedy}"))
        }
        Rejection::PayloadTooLong(_) | Rejection::TooLong(_) => Problem::new(ProblemKind::TooLarge, detail),
        Rejection::DueTooFar => Problem::new(ProblemKind::DueTooFar, detail),
        Rejection::Store(error) => unavailable(error),
        Rejection::ShutDown => Problem::new(ProblemKind::Stopping, detail),
        _ => Problem::new(ProblemKind::BadRequest, detail),
    }
}

/// Converts the error of a failed write, to a file or to the shared store, into the problem for the client. The
/// problem's text begins with `failure`.
pub(crate) fn not_stored(failure: &str, error: &io::Error) -> Problem {
    let detail = format!("{failure}: {error}");
    let of_store = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>());
    match of_store {
        Some(of_store) => Problem { detail, ..unavailable(of_store) },
        // The new file may be in place all the same, because a file is replaced before its folder is synced.
        None => Problem::new(ProblemKind::StoreUnavailable, detail)
            .with_unknown_outcome()
            .with_retry_after_ms(1_000),
    }
}

/// Converts an error of the store into the problem for the client.
pub(crate) fn unavailable(error: &StoreError) -> Problem {
    let detail = error.to_string();
    match error.kind() {
        StoreErrorKind::ReadOnly => Problem::new(ProblemKind::ReadOnly, detail),
        StoreErrorKind::Limit => Problem::new(ProblemKind::BadRequest, detail),
        StoreErrorKind::Full => Problem::new(ProblemKind::StorageFull, detail).with_retry_after_ms(10_000),
        StoreErrorKind::Unknown => Problem::new(ProblemKind::StoreUnavailable, detail)
            .with_unknown_outcome()
            .with_retry_after_ms(1_000),
        _ => Problem::new(ProblemKind::StoreUnavailable, detail).with_retry_after_ms(1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_has_no_room_has_surely_not_stored_a_document() {
        let of_store = |kind| not_stored("x", &io::Error::other(StoreError::new(kind, "why")));
        let full = of_store(StoreErrorKind::Full);
        assert_eq!((full.kind, full.outcome), (ProblemKind::StorageFull, None));
        assert!(full.detail.starts_with("x: ") && full.detail.contains("why"), "{}", full.detail);
        // The answer of the store may be lost, and a file is replaced before its folder is synced.
        for unknown in [of_store(StoreErrorKind::Unknown), not_stored("x", &io::Error::other("why"))] {
            assert_eq!(unknown.kind, ProblemKind::StoreUnavailable);
            assert_eq!(unknown.outcome.as_deref(), Some("unknown"));
        }
    }
}
