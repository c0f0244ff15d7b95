//! Serves the long polls with which receivers wait for timers of a queue.

use super::coming::ON_THE_WAY;
use super::endings::AGAIN_MS;
use super::queues::PullQueues;
use super::receivers::Got;
use crate::delivery::reason::Reason;
use core::time::Duration;
use std::collections::HashSet;
use std::time::Instant;
use tokio::sync::mpsc;
use tourbillon_api::{Claim, Problem, ProblemKind};
use tourbillon_durable::UtcMillis;

/// The time for which a receiver waits for further timers after its first timer.
const GATHERING: Duration = Duration::from_millis(20);
/// The least time for which a receiver waits while timers of the queue are parked, even if the receiver asks not to
/// wait. Parked timers need some time to become due again.
const PARKED_WAIT: Duration = Duration::from_millis(500);

/// The longest time for which a receiver waits until the store has removed timers that are delivered at most once.
const REMOVING: Duration = Duration::from_secs(5);

/// Makes the problem for a receiver that has got no timer because the store does not answer, as `fault` describes.
pub(crate) fn unanswered(fault: &str) -> Problem {
    let detail = format!("the queue may have timers, and the store cannot be asked: {fault}");
    Problem::new(ProblemKind::StoreUnavailable, detail).with_retry_after_ms(AGAIN_MS)
}

impl PullQueues {
    /// Fetches at most `max` timers of a queue for a receiver. Waits for the first timer for at most `wait`. If timers
    /// of the queue are parked (in the store, without a receiver) or on their way to this node's handler, the call may
    /// wait up to half a second, even if `wait` is shorter. A timer that is delivered at most once, and that the store
    /// does not remove for the receiver, does not end the wait. Fails if the receiver gets no timer, and the store has
    /// not said whether the queue is empty.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the timers that the receiver has got are parked again: they stay in the store until
    /// another receiver comes. This does not count as an attempt. Only a timer that is delivered at most once, and that
    /// the store has just removed for the receiver, is lost.
    pub(crate) async fn fetch(
        &self,
        namespace: &str,
        queue: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Claim>, Problem> {
        let until = tokio::time::Instant::now() + wait;
        let mut rest = wait;
        loop {
            let (claims, has_failed) = self.fetch_once(namespace, queue, max, rest).await?;
            rest = until.saturating_duration_since(tokio::time::Instant::now());
            if !claims.is_empty() || !has_failed || rest.is_zero() {
                return Ok(claims);
            }
        }
    }

    /// Fetches timers once for a receiver. Also returns whether the receiver has got a claim whose timer the store did
    /// not remove for it.
    async fn fetch_once(
        &self,
        namespace: &str,
        queue: &str,
        max: usize,
        wait: Duration,
    ) -> Result<(Vec<Claim>, bool), Problem> {
        let reason = Reason::Queue(namespace.into(), queue.into());
        let has_parked = !self.has_others && self.parked.count(&reason) > 0;
        let (sender, claims) = mpsc::unbounded_channel();
        let (number, has_parked) = {
            let mut state = self.lock();
            let full = |detail: &str| {
                let problem = Problem::new(ProblemKind::LimitReached, detail);
                Err(problem.with_retry_after_ms(AGAIN_MS))
            };
            if state.is_closed {
                return Err(Problem::new(ProblemKind::Stopping, ""));
            }
            if state.claims.free(namespace) == 0 {
                return full(
                    "as many claims are open as the service permits, or as the namespace's share of them",
                );
            }
            let Some(number) = state.receivers.enter(&reason, namespace, max, sender) else {
                return full(
                    "as many receivers wait as the service permits, or as the namespace's share of them",
                );
            };
            // The timers in the buffer can be handed over at once.
            let woken = state.hand_out(&reason);
            let is_coming = state.buffers.coming(&reason).at(Instant::now()) > 0;
            (number, has_parked || woken > 0 || is_coming)
        };
        // Only the drop of `poll` removes the receiver from its queue. So no `await` may stand between the call of
        // `enter` and this line.
        let mut poll = Poll {
            queues: self,
            namespace,
            reason: &reason,
            number,
            claims,
            got: Vec::new(),
            removed: HashSet::new(),
        };
        // The unparker makes timers due only for receivers that it finds in the queue, so the receiver enters the queue
        // first.
        // The index is asked after the receiver has entered its queue. If a report of a parked timer comes before that,
        // the report finds no receiver that wants the timer, and this call is the first to learn of the timer.
        let has_parked = has_parked || self.has_others && self.parked.may_have(&reason);
        match self.has_others {
            true if has_parked => self.parked.want(&reason),
            // A fetch in the last second has found no parked timer at any node, so another fetch is not worth its cost.
            true => {}
            false => self.parked.look_at(&reason),
        }
        let first_wait = if has_parked { wait.max(PARKED_WAIT) } else { wait };
        poll.gather(max, wait, first_wait).await;
        let has_failed = poll.remove_timers().await > 0;
        let claims = poll.leave();
        match self.parked.fault(&reason) {
            // Without an answer of the store, nobody knows whether timers of the queue are parked.
            Some(fault) if claims.is_empty() && !self.lock().is_closed => Err(unanswered(&fault)),
            _ => Ok((claims, has_failed)),
        }
    }
}

/// A waiting receiver, with the claims that it has got. Dropping this value closes these claims, so that their timers
/// are parked again.
pub(super) struct Poll<'d> {
    pub(super) queues: &'d PullQueues,
    pub(super) namespace: &'d str,
    pub(super) reason: &'d Reason,
    pub(super) number: u64,
    pub(super) claims: mpsc::UnboundedReceiver<Got>,
    /// The claims that the receiver has got, each with the due moment of its timer.
    pub(super) got: Vec<(UtcMillis, Claim)>,
    /// The names of the claims whose timers the store has removed for this receiver, since they are delivered at most
    /// once.
    pub(super) removed: HashSet<String>,
}

impl Poll<'_> {
    /// Waits for the receiver's first timer, for at most `first_wait`. After this timer, waits briefly for more timers.
    ///
    /// `wait` is the time for which the receiver has asked to wait. `first_wait` may be longer, because timers of the
    /// queue may be parked: they are in the store, without a receiver, and need some time to become due again. If the
    /// receiver gets the message [`Got::Nothing`], no timer of the queue is parked, so `wait` takes the place of
    /// `first_wait`.
    pub(super) async fn gather(&mut self, max: usize, wait: Duration, first_wait: Duration) {
        let begun = tokio::time::Instant::now();
        let mut until = begun + first_wait;
        while self.got.len() < max {
            match tokio::time::timeout_at(until, self.claims.recv()).await {
                Ok(Some(Got::Claim(claim, due))) => {
                    if self.got.is_empty() {
                        until = tokio::time::Instant::now() + GATHERING;
                    }
                    self.got.push((due, claim));
                }
                Ok(Some(Got::Nothing)) => until = until.min(begun + wait.max(GATHERING)),
                // Timers that were unparked for this receiver have not arrived. If the receiver left now, the next
                // receiver would get these timers, although they may be due before the timers of this receiver.
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

    /// Has the timers removed from the store that are delivered at most once: their deliveries begin when the receiver
    /// gets them. The receiver does not get the claims of timers that are not removed within [`REMOVING`]. Returns the
    /// number of these claims.
    async fn remove_timers(&mut self) -> usize {
        // Further claims would come without a removal.
        self.close();
        let removals: Vec<_> = {
            let state = self.queues.lock();
            let removal = |(_, claim): &(UtcMillis, Claim)| {
                state.claims.remove_timer(&claim.claim).map(|removed| (claim.claim.clone(), removed))
            };
            self.got.iter().filter_map(removal).collect()
        };
        let until = tokio::time::Instant::now() + REMOVING;
        let mut failed = 0;
        for (name, removed) in removals {
            if matches!(tokio::time::timeout_at(until, removed).await, Ok(Ok(()))) {
                self.removed.insert(name);
            } else {
                failed += 1;
                self.got.retain(|(_, claim)| claim.claim != name);
                self.queues.lock().claims.remove(&name);
            }
        }
        failed
    }

    /// Returns the claims that the receiver has got, sorted by their timers' due moments. From then on the receiver
    /// owns the claims, and their times run. Leaves out claims that are no longer open: if the service stops, their
    /// timers are parked. A timer that the store has removed cannot be parked. So the receiver gets it even if its
    /// claim is no longer open, and can then neither end nor renew this claim.
    pub(super) fn leave(mut self) -> Vec<Claim> {
        let mut got = core::mem::take(&mut self.got);
        {
            let mut state = self.queues.lock();
            got.retain_mut(|(_, claim)| state.claims.hand_over(claim) || self.removed.contains(&claim.claim));
        }
        got.sort_by(|(due, claim), (other_due, other)| (due, &claim.id).cmp(&(other_due, &other.id)));
        got.into_iter().map(|(_, claim)| claim).collect()
    }

    /// Closes the receiver's channel of claims, and takes the claims that are still in the channel.
    fn close(&mut self) {
        self.claims.close();
        while let Ok(got) = self.claims.try_recv() {
            if let Got::Claim(claim, due) = got {
                self.got.push((due, claim));
            }
        }
    }
}

/// Removes the receiver from its queue. Closes the claims that [`leave`](Poll::leave) has not returned, so that their
/// timers are parked again.
impl Drop for Poll<'_> {
    fn drop(&mut self) {
        let queues = self.queues;
        // A hand-over sends its claim under this lock. So no claim comes after the channel was emptied.
        let mut state = queues.lock();
        // The channel may have claims that nobody has read. If these claims stayed open, their timers would wait until
        // the claims expire.
        self.close();
        state.receivers.leave(self.reason, self.namespace, self.number);
        for (_, claim) in &self.got {
            state.claims.remove(&claim.claim);
        }
    }
}
