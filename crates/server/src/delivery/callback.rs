//! A timer that is due and sends an HTTP request.

use super::gates::Gates;
use super::reason::Reason;
use super::watch::Watch;
use crate::service::{Namespace, allows_host};
use crate::work::{BLOCKED, StoredCallback, read};
use core::fmt::Write as _;
use core::time::Duration;
use std::sync::Arc;
use tourbillon_api::Moment;
use tourbillon_callback::{Attempt, Callback, Caller, Failure, Outcome, Refusal, Rules, Secret};
use tourbillon_durable::{Delivery, Verdict};

/// The number of bytes of an answer that are kept with an error.
const HEAD: usize = 256;

/// Sends callbacks.
#[derive(Debug)]
pub(crate) struct Callbacks {
    caller: Caller,
    gates: Arc<Gates>,
    watch: Arc<Watch>,
    rules: Rules,
}

impl Callbacks {
    pub(crate) fn new(caller: Caller, gates: Arc<Gates>, watch: Arc<Watch>, rules: Rules) -> Self {
        Self { caller, gates, watch, rules }
    }

    /// Makes one attempt.
    pub(crate) async fn deliver(&self, work: &[u8], delivery: &Delivery) -> Verdict {
        let park = |reason: &Reason| Verdict::Park(reason.to_string().into());
        let (callback, timeout) = match self.callback(work) {
            Ok(callback) => callback,
            Err(reason) => return Verdict::Dead(reason),
        };
        let host = callback.host();
        let lane = Reason::host(&host);
        let (mut place, namespace) = match self.gates.enter(&delivery.namespace, Some(&lane)).await {
            Ok(entered) => entered,
            Err(held_back) => return park(&held_back),
        };
        if !allows_host(&namespace.limits, &host) {
            return Verdict::Dead(format!("{BLOCKED}: the namespace does not allow the host {host}").into());
        }
        self.watch.started(delivery);
        let secrets = secrets(&namespace);
        let id = delivery.id.to_string();
        let scheduled = Moment::from_millis(delivery.scheduled.as_millis()).to_string();
        let attempt = Attempt {
            id: &id,
            number: delivery.attempt,
            scheduled_for: &scheduled,
            trace: delivery.trace.as_deref(),
            secrets: &secrets,
            timeout,
        };
        let outcome = self.caller.send(&callback, attempt).await;
        if let Some((works, has_answered)) = shows(&outcome) {
            place.note(works, has_answered);
        }
        match outcome {
            Outcome::Delivered(answer) => {
                self.watch.answered(delivery.id, answer.status.as_u16());
                Verdict::Done
            }
            Outcome::Failed { failure, retry_after } => {
                Verdict::Retry { error: shown(&failure).into(), after: retry_after }
            }
            Outcome::Gone(_) => Verdict::Dead("the receiver answered 410: it wants no more callbacks".into()),
            Outcome::Blocked(blocked) => Verdict::Dead(format!("{BLOCKED}: {blocked}").into()),
            Outcome::Parked { for_ } => {
                self.gates.shut(&lane, for_);
                park(&lane)
            }
            other => Verdict::Retry { error: format!("{other:?}").into(), after: None },
        }
    }

    fn callback(&self, work: &[u8]) -> Result<(Callback, Duration), Box<str>> {
        let StoredCallback { url, method, headers, body, timeout_ms } = read(work)?;
        let headers = headers.iter().map(|(name, value)| (&**name, &**value));
        let callback = Callback::new(&url, &method, headers, body, &self.rules);
        let callback = callback.map_err(|refusal| match refusal {
            Refusal::Destination(blocked) => format!("{BLOCKED}: {blocked}"),
            other => other.to_string(),
        })?;
        Ok((callback, Duration::from_millis(timeout_ms.into())))
    }
}

/// Whether the host answered as a host does that works, and whether it answered at all, if it was asked.
fn shows(outcome: &Outcome) -> Option<(bool, Option<bool>)> {
    match outcome {
        Outcome::Parked { .. } => None,
        // Nothing was dialled.
        Outcome::Blocked(_) => Some((true, None)),
        Outcome::Failed { failure: Failure::Status(answer), .. } => {
            Some((!answer.status.is_server_error() && answer.status.as_u16() != 429, Some(true)))
        }
        Outcome::Failed { .. } => Some((false, Some(false))),
        _ => Some((true, Some(true))),
    }
}

/// A failure, with the beginning of the answer as one line of text.
fn shown(failure: &Failure) -> String {
    let mut text = failure.to_string();
    if let Failure::Status(answer) = failure
        && !answer.head.is_empty()
    {
        let head = String::from_utf8_lossy(&answer.head[..answer.head.len().min(HEAD)]);
        let head: String = head.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _a_string_takes_it = write!(text, ": {}", head.trim_end());
    }
    text
}

/// The secrets that sign at this moment.
fn secrets(namespace: &Namespace) -> Vec<Secret> {
    namespace.active_secrets().filter_map(|secret| secret.secret.parse().ok()).collect()
}
