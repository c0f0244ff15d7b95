//! A timer that is due and that a receiver fetches.

use super::desk::{Desk, OpenClaim, Order, Ticket};
use super::elsewhere::Elsewhere;
use super::gates::Gates;
use super::pause::Patience;
use super::reason::Reason;
use super::watch::Watch;
use crate::convert::shown_body;
use crate::telemetry::{Span, Telemetry};
use crate::work::{LONGEST_CLAIM, StoredPull, head, read};
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
    telemetry: Telemetry,
    patience: Patience,
    /// The claims of all nodes, if there are others.
    elsewhere: Option<Elsewhere>,
}

impl Pulls {
    pub(crate) fn new(
        gates: Arc<Gates>,
        desk: Arc<Desk>,
        (watch, patience, telemetry): (Arc<Watch>, Patience, Telemetry),
        elsewhere: Option<Elsewhere>,
    ) -> Self {
        Self { gates, desk, watch, telemetry, patience, elsewhere }
    }

    /// Hands the timer to a receiver that waits, and waits for the end of its claim.
    pub(crate) async fn deliver(&self, work: &[u8], delivery: &Delivery) -> Verdict {
        let StoredPull { queue, body, timeout_ms } = match read(work) {
            Ok(work) => work,
            Err(reason) => return Verdict::Dead(reason),
        };
        let park = |reason: &Reason| Verdict::Park(reason.to_string().into());
        let name = &*delivery.namespace;
        let reason = Reason::Queue(name.into(), queue.clone());
        if let Err(held_back) = self.gates.namespace(name) {
            return park(&held_back);
        }
        let mut arrival = self.desk.arrive(&reason, name, delivery.due);
        let timeout = Duration::from_millis(timeout_ms.into());
        let (_place, mut span, open, claim) = loop {
            if !arrival.is_awaited().await {
                return park(&reason);
            }
            let place = match self.gates.enter(name, &[]).await {
                Ok((place, _)) => place,
                Err(held_back) => return park(&held_back),
            };
            let mut span = self.telemetry.claim(delivery, &queue);
            let work = (body.clone(), head(work).request);
            let Some(claim) = claim(delivery, &span, work, timeout, self.elsewhere.as_ref()) else {
                span.discard();
                return Verdict::Retry { error: "the system gave no random number".into(), after: None };
            };
            match arrival.hand_over(&claim) {
                Some(open) => break (place, span, open, claim),
                // Another timer was quicker, or the receiver has gone.
                None => span.discard(),
            }
        };
        self.watch.started(delivery);
        let ended = attend(open, timeout, self.elsewhere.as_ref().map(|all| (all, &*claim.claim))).await;
        span.ended(ended.as_ref().map(|(verdict, _)| verdict));
        drop(span);
        let Some((verdict, ticket)) = ended else { return park(&reason) };
        let verdict = self.patience.with(verdict, delivery.pause);
        if let Some(ticket) = ticket {
            self.watch.expect_end(delivery, &verdict, ticket);
        }
        verdict
    }
}

/// Waits for the end of a claim. Returns the end, with the ticket of the receiver that waits until the store has it.
/// `None` if the timer goes back.
async fn attend(
    mut open: OpenClaim,
    timeout: Duration,
    elsewhere: Option<(&Elsewhere, &str)>,
) -> Option<(Verdict, Option<Ticket>)> {
    let begin = Instant::now();
    let mut until = begin + timeout;
    loop {
        match tokio::time::timeout_at(until, open.order()).await {
            Err(_) => {
                let rest = match elsewhere {
                    Some((all, claim)) if until < begin + LONGEST_CLAIM => all.rest(claim).await,
                    _ => None,
                };
                if let Some(rest) = rest {
                    until = (Instant::now() + rest).min(begin + LONGEST_CLAIM);
                    continue;
                }
                let error = "the receiver did not end its claim in time".into();
                return Some((Verdict::Retry { error, after: None }, None));
            }
            Ok(None) => return None,
            Ok(Some(Order::End(verdict, ticket))) => return Some((verdict, Some(ticket))),
            Ok(Some(Order::Renew(sender))) => {
                until = (Instant::now() + timeout).min(begin + LONGEST_CLAIM);
                let _receiver_has_gone =
                    sender.send(moment_in(until.saturating_duration_since(Instant::now())));
            }
        }
    }
}

fn claim(
    delivery: &Delivery,
    span: &Span,
    (body, request): (Vec<u8>, Option<&str>),
    timeout: Duration,
    elsewhere: Option<&Elsewhere>,
) -> Option<Claim> {
    let mut name = [0; 16];
    getrandom::fill(&mut name).ok()?;
    let name = u128::from_ne_bytes(name);
    let long = elsewhere.and_then(|all| all.name(name, delivery));
    let (body, body_base64) = shown_body(body);
    Some(Claim {
        claim: long.unwrap_or_else(|| format!("{name:032x}")),
        id: delivery.id.to_string(),
        key: delivery.key.as_deref().map(str::to_owned),
        labels: delivery.labels.iter().map(|label| label.to_string()).collect(),
        scheduled: Moment::from_millis(delivery.scheduled.as_millis()),
        attempt: delivery.attempt,
        until: moment_in(timeout),
        trace: span.trace().map(|trace| trace.to_string()),
        request_id: request.map(str::to_owned),
        body,
        body_base64,
    })
}

/// The moment so long from now on.
fn moment_in(span: Duration) -> Moment {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment::from_millis(u64::try_from((now + span).as_millis()).unwrap_or(u64::MAX))
}
