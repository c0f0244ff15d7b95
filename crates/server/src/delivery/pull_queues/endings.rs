//! Keeps the claims that receivers have asked to end, until the store has confirmed the ends.

use crate::delivery::retry_pause::RetryPause;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tourbillon_api::{Problem, ProblemKind};
use tourbillon_durable::{UtcMillis, Verdict};

/// The time, in milliseconds, after which a receiver should repeat a refused request.
pub(super) const AGAIN_MS: u64 = 1_000;

/// The end of a claim that its receiver asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClaimVerdict {
    /// The delivery has succeeded or failed.
    Ended(Verdict),
    /// The receiver puts the timer off for this time. Two requests with the same time ask for the same end, although
    /// the timer would be due at different moments.
    PutOff(Duration),
}

impl From<Verdict> for ClaimVerdict {
    fn from(verdict: Verdict) -> Self {
        Self::Ended(verdict)
    }
}

impl ClaimVerdict {
    /// Returns the verdict on the delivery. `now` is the present time of the store. A timer that is put off stays away
    /// for at least the least pause.
    pub(crate) fn verdict(self, now: UtcMillis, retry_pause: RetryPause) -> Verdict {
        match self {
            Self::Ended(verdict) => verdict,
            Self::PutOff(pause) => Verdict::Snooze(now + pause.max(retry_pause.least)),
        }
    }
}

/// The answer to a receiver's request to end its claim. `None` until the outcome is known.
pub(super) type EndAnswer = Option<Result<(), Problem>>;

/// The claims whose ends the store has not confirmed, by their names.
#[derive(Debug, Default)]
pub(super) struct Endings(Mutex<HashMap<Box<str>, Ending>>);

/// A claim whose end the store has not confirmed.
#[derive(Debug)]
struct Ending {
    namespace: Box<str>,
    verdict: ClaimVerdict,
    answer: watch::Receiver<EndAnswer>,
}

impl Endings {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Ending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the channel that gets the answer to an earlier request to end this claim. Fails if that request asked
    /// for another outcome or came from another namespace. Returns `None` if there was no earlier request.
    pub(super) fn again(
        &self,
        namespace: &str,
        claim: &str,
        verdict: &ClaimVerdict,
    ) -> Option<Result<watch::Receiver<EndAnswer>, Problem>> {
        let endings = self.lock();
        let ending = endings.get(claim)?;
        let is_the_same = *ending.namespace == *namespace && ending.verdict == *verdict;
        Some(if is_the_same { Ok(ending.answer.clone()) } else { Err(ended()) })
    }

    /// Notes that a request has asked to end a claim. Returns the ticket with which the timer's handler answers, and
    /// the channel that gets the answer.
    pub(super) fn begin(
        self: &Arc<Self>,
        namespace: &str,
        claim: &str,
        verdict: &ClaimVerdict,
    ) -> (EndTicket, watch::Receiver<EndAnswer>) {
        let (sender, answer) = watch::channel(None);
        let ending = Ending { namespace: namespace.into(), verdict: verdict.clone(), answer: answer.clone() };
        self.lock().insert(claim.into(), ending);
        (EndTicket { endings: Arc::clone(self), claim: claim.into(), answer: sender }, answer)
    }

    #[cfg(test)]
    pub(super) fn are_over(&self) -> bool {
        self.lock().is_empty()
    }
}

/// Answers a receiver that wants to end a claim. If the ticket is dropped without an answer, the claim counts as not
/// open at this node.
#[derive(Debug)]
pub(crate) struct EndTicket {
    endings: Arc<Endings>,
    claim: Box<str>,
    answer: watch::Sender<EndAnswer>,
}

impl EndTicket {
    /// Answers that the store has recorded the end of the claim.
    pub(crate) fn stored(self) {
        self.answer(Ok(()));
    }

    /// Answers that the delivery had ended before the receiver's request.
    pub(crate) fn came_late(self) {
        self.answer(Err(ended()));
    }

    /// Answers that the outcome is unknown, because the store did not answer. The store is not asked again.
    pub(crate) fn lost(self) {
        let detail =
            "the store did not say whether it has the end; if it has not, the timer is delivered again";
        self.answer(Err(unknown(detail)));
    }

    /// Answers the receiver, and removes the claim from [`Endings`]. Both happen under one lock, so that a request
    /// after the answer does not find the claim there.
    fn answer(self, answer: Result<(), Problem>) {
        // The drop of `self` takes the same lock. No deadlock follows, because a local variable is dropped before a
        // parameter.
        let mut endings = self.endings.lock();
        endings.remove(&self.claim);
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for EndTicket {
    fn drop(&mut self) {
        self.endings.lock().remove(&self.claim);
    }
}

/// Makes the problem for a request about a claim that is not open.
pub(crate) fn ended() -> Problem {
    Problem::new(ProblemKind::ClaimEnded, "it was acknowledged or refused, or its time is over")
}

pub(super) fn unknown(detail: &str) -> Problem {
    Problem::new(ProblemKind::StoreUnavailable, detail).with_unknown_outcome().with_retry_after_ms(AGAIN_MS)
}
