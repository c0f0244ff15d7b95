//! A timer that is due and sends an HTTP request.

use crate::service::{Events, Namespaces};
use crate::work::{StoredCallback, read};
use core::time::Duration;
use std::sync::Arc;
use tourbillon_api::Moment;
use tourbillon_callback::{Attempt, Callback, Caller, Outcome, Rules, Secret};
use tourbillon_durable::{Delivery, UtcMillis, Verdict};

/// Sends callbacks.
pub(crate) struct Callbacks {
    caller: Caller,
    namespaces: Arc<Namespaces>,
    #[expect(dead_code, reason = "the events of deliveries follow")]
    events: Events,
    rules: Rules,
}

impl Callbacks {
    pub(crate) fn new(caller: Caller, namespaces: Arc<Namespaces>, events: Events, rules: Rules) -> Self {
        Self { caller, namespaces, events, rules }
    }

    /// Makes one attempt.
    pub(crate) async fn deliver(&self, work: &[u8], delivery: &Delivery) -> Verdict {
        let callback = match self.callback(work) {
            Ok(callback) => callback,
            Err(reason) => return Verdict::Dead(reason),
        };
        let secrets = self.secrets(&delivery.namespace);
        let id = delivery.id.to_string();
        let scheduled = Moment::from_millis(delivery.scheduled.as_millis()).to_string();
        let attempt = Attempt {
            id: &id,
            number: delivery.attempt,
            scheduled_for: &scheduled,
            trace: delivery.trace.as_deref(),
            secrets: &secrets,
            timeout: Duration::from_secs(15),
        };
        match self.caller.send(&callback, attempt).await {
            Outcome::Delivered(_) => Verdict::Done,
            Outcome::Failed { failure, retry_after } => {
                Verdict::Retry { error: failure.to_string().into(), after: retry_after }
            }
            Outcome::Gone(_) => Verdict::Dead("the receiver answered 410: it wants no more callbacks".into()),
            Outcome::Blocked(blocked) => Verdict::Dead(format!("blocked-destination: {blocked}").into()),
            Outcome::Parked { for_ } => Verdict::Snooze(now() + for_),
            other => Verdict::Retry { error: format!("{other:?}").into(), after: None },
        }
    }

    fn callback(&self, work: &[u8]) -> Result<Callback, Box<str>> {
        let StoredCallback { url, method, headers, body } = read(work)?;
        let headers = headers.iter().map(|(name, value)| (&**name, &**value));
        Callback::new(&url, &method, headers, body, &self.rules).map_err(|refusal| refusal.to_string().into())
    }

    fn secrets(&self, namespace: &str) -> Vec<Secret> {
        let Some(namespace) = self.namespaces.get(namespace) else { return Vec::new() };
        let now = Moment::from_millis(now().as_millis());
        let active = namespace.secrets.iter().filter(|secret| secret.until.is_none_or(|until| now < until));
        active.filter_map(|secret| secret.secret.parse().ok()).collect()
    }
}

fn now() -> UtcMillis {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    UtcMillis::from_millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
