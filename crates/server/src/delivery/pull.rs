//! A timer that is due and that a receiver fetches.

use super::callback::span;
use super::desk::{Desk, OpenClaim, Order};
use super::gates::Gates;
use super::reason::Reason;
use super::watch::Watch;
use crate::convert::shown_body;
use crate::work::{LONGEST_CLAIM, StoredPull, read};
use core::time::Duration;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::time::Instant;
use tourbillon_api::{Claim, Moment};
use tourbillon_durable::{Delivery, Verdict};

/// Hands timers to receivers.
#[derive(Debug)]
pub(crate) struct Pulls {
    gates: Arc<Gates>,
    desk: Arc<Desk>,
    watch: Arc<Watch>,
}

impl Pulls {
    pub(crate) fn new(gates: Arc<Gates>, desk: Arc<Desk>, watch: Arc<Watch>) -> Self {
        Self { gates, desk, watch }
    }

    /// Hands the timer to a receiver that waits, and waits for the end of its claim.
    pub(crate) async fn deliver(&self, work: &[u8], delivery: &Delivery) -> Verdict {
        let StoredPull { queue, body, timeout_ms } = match read(work) {
            Ok(work) => work,
            Err(reason) => return Verdict::Dead(reason),
        };
        let park = |reason: &Reason| Verdict::Park(reason.to_string().into());
        let name = &*delivery.namespace;
        let reason = Reason::Queue(name.into(), queue);
        if let Err(held_back) = self.gates.namespace(name) {
            return park(&held_back);
        }
        if !self.desk.is_awaited(&reason, name) {
            return park(&reason);
        }
        let _place = match self.gates.enter(name, None).await {
            Ok((place, _)) => place,
            Err(held_back) => return park(&held_back),
        };
        let timeout = Duration::from_millis(timeout_ms.into());
        let Some(claim) = claim(delivery, body, timeout) else {
            return Verdict::Retry { error: "the system gave no random number".into(), after: None };
        };
        let Some(open) = self.desk.hand_over(&reason, name, &claim) else { return park(&reason) };
        self.watch.started(delivery);
        attend(open, timeout).await.unwrap_or_else(|| park(&reason))
    }
}

/// Waits for the end of a claim. Returns `None` if the timer is to be given back.
async fn attend(mut open: OpenClaim, timeout: Duration) -> Option<Verdict> {
    let begin = Instant::now();
    let mut until = begin + timeout;
    loop {
        match tokio::time::timeout_at(until, open.order()).await {
            Err(_) => {
                let error = "the receiver did not end its claim in time".into();
                return Some(Verdict::Retry { error, after: None });
            }
            Ok(None) => return None,
            Ok(Some(Order::End(verdict, taken))) => {
                let _receiver_has_gone = taken.send(());
                return Some(verdict);
            }
            Ok(Some(Order::Renew(sender))) => {
                until = (Instant::now() + timeout).min(begin + LONGEST_CLAIM);
                let _receiver_has_gone =
                    sender.send(moment_in(until.saturating_duration_since(Instant::now())));
            }
        }
    }
}

fn claim(delivery: &Delivery, body: Vec<u8>, timeout: Duration) -> Option<Claim> {
    let mut name = [0; 16];
    getrandom::fill(&mut name).ok()?;
    let (body, body_base64) = shown_body(body);
    Some(Claim {
        claim: format!("{:032x}", u128::from_ne_bytes(name)),
        id: delivery.id.to_string(),
        key: delivery.key.as_deref().map(str::to_owned),
        labels: delivery.labels.iter().map(|label| label.to_string()).collect(),
        scheduled: Moment::from_millis(delivery.scheduled.as_millis()),
        attempt: delivery.attempt,
        until: moment_in(timeout),
        trace: span(delivery),
        body,
        body_base64,
    })
}

/// The moment so long from now on.
fn moment_in(span: Duration) -> Moment {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment::from_millis(u64::try_from((now + span).as_millis()).unwrap_or(u64::MAX))
}
