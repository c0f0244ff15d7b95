//! Handles due timers that send HTTP requests.

use super::admission::Admission;
use super::observer::Observer;
use super::reason::Reason;
use super::retry_pause::RetryPause;
use crate::blocked;
use crate::clock::millis;
use crate::record::{Answered, Endpoints, GONE, InFlight, Sent};
use crate::state::{Namespace, allows_host};
use crate::telemetry::{Span, Telemetry};
use crate::text::cut;
use crate::work::{BLOCKED, REQUEST_ID, StoredCallback, head, read};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tourbillon_callback::{
    Attempt, Callback, CallbackResponse, Caller, Failure, Outcome, Part, Refusal, Rules, Secret,
};
use tourbillon_durable::store::TimerStore;
use tourbillon_durable::{Delivery, UtcMillis, Verdict};
use tracing::warn;

/// The greatest number of bytes of a receiver's answer that a timer's history keeps.
const HEAD: usize = 256;

/// If a callback was not sent because this machine lacked a file descriptor, a port or memory, its namespace sends no
/// callbacks to the host for this time. Then one callback at a time is sent until the host answers.
const SHORTAGE: Duration = Duration::from_secs(1);

/// The number of bytes in a header line besides the name and the value: `: ` and the line break.
const BETWEEN: usize = 4;

/// Handles due callback timers: sends each callback to its receiver.
pub(crate) struct CallbackHandler {
    pub(super) caller: Caller,
    pub(super) admission: Arc<Admission>,
    pub(super) observer: Arc<Observer>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) rules: Rules,
    /// Whether callbacks may go to private addresses.
    pub(super) permits_private: bool,
    /// The store, whose clock decides which secrets still sign callbacks.
    pub(super) store: Arc<dyn TimerStore>,
    pub(super) retry_pause: RetryPause,
    pub(super) telemetry: Telemetry,
}

impl CallbackHandler {
    /// Makes one attempt to send a timer's callback. The returned verdict ends the timer, repeats its delivery later,
    /// or parks the timer (leaves it in the store without a delivery).
    pub(crate) async fn deliver(&self, work: &[u8], delivery: &Delivery) -> Verdict {
        let park = |reason: &Reason| Verdict::Park(reason.to_string().into());
        let DueCallback { callback, method, url, timeout } = match self.callback(work) {
            Ok(due) => due,
            Err(reason) => return Verdict::Dead(reason),
        };
        let host = callback.host();
        let to = [
            Reason::host(&delivery.namespace, &host),
            Reason::path(&delivery.namespace, &host, callback.path()),
        ];
        let mut place = match self.admission.enter(&delivery.namespace, &to).await {
            Ok(entered) => entered,
            Err(held_back) => return park(&held_back),
        };
        // The list of allowed hosts may have changed after the timer's creation.
        let namespace = Arc::clone(&place.namespace);
        if !allows_host(&namespace.limits, &host) {
            return Verdict::Dead(format!("{BLOCKED}: {}", blocked::host_words(&host)).into());
        }
        let admitted = match self.caller.admit(&callback, &delivery.namespace) {
            Ok(admitted) => admitted,
            Err((at, rest)) => {
                let [host, path] = &to;
                let shut = if at == Part::Path { path } else { host };
                // The permit is still held. If it were free, a waiting delivery could begin before the limiter is shut.
                self.admission.shut(shut, rest);
                return park(shut);
            }
        };
        // From here on, a timer that is delivered at most once is no longer stored, and can be parked no longer.
        if !self.observer.begin(delivery, work).await {
            return Verdict::Retry { error: "the delivery ended before it began".into(), after: None };
        }
        place.begun();
        let secrets = secrets(&namespace, self.store.now());
        let id = delivery.id.to_string();
        let scheduled = delivery.scheduled.to_string();
        let mut span = self.telemetry.callback(delivery, &method, &url);
        let trace = span.trace().map(|trace| trace.to_string());
        let attempt = Attempt {
            tenant: &delivery.namespace,
            id: &id,
            number: delivery.attempt,
            scheduled_for: &scheduled,
            trace: trace.as_deref(),
            secrets: &secrets,
            timeout,
            is_once: delivery.is_once(),
        };
        let begun = Instant::now();
        let outcome = admitted.send(attempt).await;
        let keeps_answers = namespace.limits.keep_answers;
        self.note(delivery, &host, &mut span, &outcome, begun.elapsed(), keeps_answers);
        // The drop ends the span, which covers only the attempt.
        drop(span);
        if let Some(works) = shows(&outcome) {
            place.permit.note(works);
        }
        match outcome {
            Outcome::Delivered(_) => Verdict::Done,
            Outcome::Failed { failure, retry_after } => {
                // The error does not quote the answer, because some people may see errors but not answers.
                self.retry_pause.with(
                    Verdict::Retry { error: failure.to_string().into(), after: retry_after },
                    delivery.pause,
                )
            }
            Outcome::Gone(_) => Verdict::Dead(format!("{GONE}: it wants no more callbacks").into()),
            Outcome::Blocked(reason) => Verdict::Dead(
                format!("{BLOCKED}: {}", blocked::words(reason, &url, self.permits_private)).into(),
            ),
            // The timer is no longer stored, so nothing can send it again.
            Outcome::Unsent { error } if delivery.is_removed() => Verdict::Dead(error),
            Outcome::Unsent { error } => {
                warn!(host, %error, "a callback was not sent and is tried again in a second");
                // The permit is still held, as above.
                self.admission.shut(&to[0], SHORTAGE);
                park(&to[0])
            }
            other => {
                let verdict = Verdict::Retry { error: format!("{other:?}").into(), after: None };
                self.retry_pause.with(verdict, delivery.pause)
            }
        }
    }

    /// Reports the outcome of a callback to metrics, traces and the timer's history.
    fn note(
        &self,
        delivery: &Delivery,
        host: &str,
        span: &mut Span,
        outcome: &Outcome,
        took: Duration,
        keeps_answers: bool,
    ) {
        let (answer, error) = match outcome {
            Outcome::Delivered(answer) => (Some(answer), None),
            Outcome::Gone(answer) => (Some(answer), Some("the receiver answered 410".to_owned())),
            Outcome::Failed { failure, .. } => match failure {
                Failure::Status(answer) => (Some(answer), Some(failure.to_string())),
                _ => (None, Some(failure.to_string())),
            },
            Outcome::Blocked(blocked) => (None, Some(blocked.to_string())),
            Outcome::Unsent { .. } => {
                self.in_flight.metrics().callbacks.of(class(outcome)).record(took);
                return span.discard();
            }
            // Nothing was sent.
            _ => return span.discard(),
        };
        self.in_flight.metrics().callbacks.of(class(outcome)).record(took);
        let took_ms = millis(took);
        let sent = Sent { at: self.in_flight.now(), took_ms, error: error.as_deref() };
        self.endpoints.note(host, sent);
        span.answered(answer.map(|answer| answer.status.as_u16()), class(outcome), error.as_deref());
        let head = answer.filter(|answer| keeps_answers && !answer.head.is_empty()).map(beginning);
        self.observer.answered(
            delivery.id,
            Answered {
                status: answer.map(|answer| answer.status.as_u16()),
                head: head.as_deref(),
                // A blocked callback is not sent, so the receiver owes no answer.
                is_missing: matches!(outcome, Outcome::Failed { .. }) && answer.is_none(),
            },
        );
    }

    fn callback(&self, work: &[u8]) -> Result<DueCallback, Box<str>> {
        let StoredCallback { url, method, headers, body, timeout_ms } = read(work)?;
        let headers = headers.iter().map(|(name, value)| (&**name, &**value));
        let id = head(work).request.map(|id| (REQUEST_ID, id));
        let mut rules = self.rules;
        // The check at the creation did not count this header, so it must not use up the limit for the other headers.
        rules.headers += id.map_or(0, |(name, id)| name.len() + id.len() + BETWEEN);
        let callback = Callback::new(&url, &method, headers.chain(id), body, &rules);
        let callback = callback.map_err(|refusal| match refusal {
            Refusal::Destination(reason) => {
                format!("{BLOCKED}: {}", blocked::words(reason, &url, self.permits_private))
            }
            other => other.to_string(),
        })?;
        Ok(DueCallback { callback, method, url, timeout: Duration::from_millis(timeout_ms.into()) })
    }
}

/// The callback of a due timer, decoded from its stored form.
struct DueCallback {
    callback: Callback,
    method: Box<str>,
    url: Box<str>,
    /// The longest time for one attempt to send the callback.
    timeout: Duration,
}

/// Returns the label, such as `2xx`, under which metrics and traces count the outcome of a callback.
fn class(outcome: &Outcome) -> &'static str {
    let of_status = |answer: &CallbackResponse| match answer.status.as_u16() / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    };
    match outcome {
        Outcome::Delivered(answer) | Outcome::Gone(answer) => of_status(answer),
        Outcome::Failed { failure: Failure::Status(answer), .. } => of_status(answer),
        Outcome::Failed { failure: Failure::Timeout, .. } => "timeout",
        Outcome::Failed { failure: Failure::Connection(_), .. } => "connection",
        Outcome::Blocked(_) => "blocked",
        Outcome::Unsent { .. } => "unsent",
        _ => "other",
    }
}

/// Returns `Some(Some(works))` if the host answered, `Some(None)` if the host gave no answer, and `None` if the host
/// was not called. `works` is false if the answer shows a fault of the host, such as a status 5xx.
fn shows(outcome: &Outcome) -> Option<Option<bool>> {
    match outcome {
        Outcome::Parked { .. } | Outcome::Blocked(_) | Outcome::Unsent { .. } => None,
        Outcome::Failed { failure: Failure::Status(answer), .. } => Some(Some(!answer.is_of_fault())),
        Outcome::Failed { .. } => Some(None),
        _ => Some(Some(true)),
    }
}

/// Returns the first bytes of a receiver's answer as one line of text.
fn beginning(answer: &CallbackResponse) -> String {
    let head = String::from_utf8_lossy(&answer.head[..answer.head.len().min(HEAD)]);
    cut(&head, head.len()).trim_end().to_owned()
}

/// Returns the secrets with which the namespace signs callbacks at the moment `now`.
fn secrets(namespace: &Namespace, now: UtcMillis) -> Vec<Secret> {
    namespace.active_secrets(now.into()).filter_map(|secret| secret.secret.parse().ok()).collect()
}
