//! A long poll: a receiver that waits for timers of a queue.

use super::PullQueues;
use super::state::{Got, ON_THE_WAY};
use crate::delivery::reason::Reason;
use core::time::Duration;
use tokio::sync::mpsc;
use tourbillon_api::Claim;
use tourbillon_durable::UtcMillis;

/// The time for which a receiver that has got a timer and wants more waits for them.
const GATHERING: Duration = Duration::from_millis(20);

/// A receiver that waits, and its claims.
pub(super) struct Poll<'d> {
    pub(super) queues: &'d PullQueues,
    pub(super) namespace: &'d str,
    pub(super) reason: &'d Reason,
    pub(super) number: u64,
    pub(super) claims: mpsc::UnboundedReceiver<Got>,
    /// The claims, with the due moments of their timers.
    pub(super) got: Vec<(UtcMillis, Claim)>,
}

impl Poll<'_> {
    /// Waits for the first timer, and shortly for more: for the span `first`, or only for `wait` once it is known that
    /// nothing is parked.
    pub(super) async fn gather(&mut self, max: usize, wait: Duration, first: Duration) {
        let begun = tokio::time::Instant::now();
        let mut until = begun + first;
        while self.got.len() < max {
            match tokio::time::timeout_at(until, self.claims.recv()).await {
                Ok(Some(Got::Claim(claim, due))) => {
                    if self.got.is_empty() {
                        until = tokio::time::Instant::now() + GATHERING;
                    }
                    self.got.push((due, claim));
                }
                Ok(Some(Got::Nothing)) => until = until.min(begun + wait.max(GATHERING)),
                // The timers that were unparked for this receiver would come to the next receiver after later timers.
                Err(_)
                    if !self.got.is_empty()
                        && begun.elapsed() < ON_THE_WAY
                        && self.queues.awaits(self.reason) =>
                {
                    until = tokio::time::Instant::now() + GATHERING;
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// The claims, which the receiver has from now on: in the order of the due moments, since handlers are not.
    pub(super) fn leave(mut self) -> Vec<Claim> {
        self.close();
        let mut got = core::mem::take(&mut self.got);
        got.sort_by(|(due, claim), (other_due, other)| (due, &claim.id).cmp(&(other_due, &other.id)));
        got.into_iter().map(|(_, claim)| claim).collect()
    }

    /// Takes the claims that came at the last moment, and no more.
    fn close(&mut self) {
        self.claims.close();
        while let Ok(got) = self.claims.try_recv() {
            if let Got::Claim(claim, due) = got {
                self.got.push((due, claim));
            }
        }
    }
}

/// A receiver that has gone leaves the queue, and its claims are given back.
impl Drop for Poll<'_> {
    fn drop(&mut self) {
        self.close();
        let mut state = self.queues.lock();
        state.waiting -= 1;
        state.change(self.namespace, |tenant| tenant.waiting = tenant.waiting.saturating_sub(1));
        if let Some(queue) = state.by_reason.get_mut(self.reason) {
            queue.receivers.retain(|receiver| receiver.number != self.number);
            if queue.receivers.is_empty() {
                state.by_reason.remove(self.reason);
            }
        }
        for (_, claim) in &self.got {
            state.remove(&claim.claim);
        }
    }
}
