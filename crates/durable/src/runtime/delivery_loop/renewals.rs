//! Renews the leases of deliveries under way (R4). Each renewal is followed by a reap, which ends expired leases.
//!
//! | stage | begins with | ends with |
//! |---|---|---|
//! | `Idle` | the start; the end of a reap | a renewal is sent |
//! | `AtStore` | a renewal of all leases | the store's answer, an error, a panic |
//! | `Answered` | the answer | the loop takes it, and reaps |

use super::backoff::Backoff;
use super::call::Call;
use crate::state::Token;
use crate::store::{Claimant, Renewal, StoreError, TimerStore};
use crate::timer::TimerId;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tourbillon_words::UtcMillis;

/// A lease: the id of its timer, and the token of the claim.
pub(super) type Lease = (TimerId, Token);

/// A renewal of leases that the store has answered.
pub(super) struct Renewed {
    /// A lower bound of the store's time before the renewal was sent. Each renewed lease lasts for at least its full
    /// length from this moment.
    pub(super) begin: UtcMillis,
    /// The store's answer, or the error that the renewal returned.
    pub(super) answer: Result<Answer, StoreError>,
}

/// The store's answer to a renewal of leases. A lease may be in neither set, if its server has not answered.
pub(super) struct Answer {
    pub(super) renewed: HashSet<Lease>,
    pub(super) lost: HashSet<Lease>,
}

impl Answer {
    fn new(sent: Vec<Lease>, renewal: Renewal) -> Self {
        let lost: HashSet<_> = renewal.lost.into_iter().collect();
        let silent: HashSet<_> = renewal.silent.into_iter().collect();
        let is_renewed = |lease: &Lease| !lost.contains(lease) && !silent.contains(lease);
        Self { renewed: sent.into_iter().filter(is_renewed).collect(), lost }
    }

    /// Returns whether the store was asked for any lease and has answered for it.
    pub(super) fn has_any(&self) -> bool {
        !self.renewed.is_empty() || !self.lost.is_empty()
    }
}

#[derive(Default)]
enum RenewalStage {
    #[default]
    Idle,
    AtStore {
        sent: Vec<Lease>,
        begin: UtcMillis,
        since: Instant,
        call: Call<Renewal>,
    },
    Answered(Renewed),
}

pub(super) struct Renewals {
    store: Arc<dyn TimerStore>,
    claimant: Claimant,
    stage: RenewalStage,
    pub(super) backoff: Backoff,
}

impl Renewals {
    pub(super) fn new(store: Arc<dyn TimerStore>, claimant: Claimant) -> Self {
        Self { store, claimant, stage: RenewalStage::Idle, backoff: Backoff::new(claimant.lease) }
    }

    /// Returns true if a renewal of leases was sent, and the loop has not taken the store's answer yet.
    pub(super) fn is_in_progress(&self) -> bool {
        !matches!(self.stage, RenewalStage::Idle)
    }

    /// Returns the moment at which the present renewal of leases was sent, or `None` if no renewal waits for the
    /// store's answer.
    pub(super) fn since(&self) -> Option<Instant> {
        match self.stage {
            RenewalStage::AtStore { since, .. } => Some(since),
            RenewalStage::Idle | RenewalStage::Answered(_) => None,
        }
    }

    /// Prepares a renewal of leases. It reaches the store at the next [`poll`](Self::poll).
    pub(super) fn send(&mut self, leases: Vec<Lease>) {
        let (store, claimant, sent) = (Arc::clone(&self.store), self.claimant, leases.clone());
        let begin = self.store.least_now();
        let call = Call::new(async move {
            // A renewal without leases still gets an answer, because a reap follows each answer.
            match leases.is_empty() {
                true => Ok(Renewal::default()),
                false => store.renew(claimant, leases).await,
            }
        });
        self.stage = RenewalStage::AtStore { sent, begin, since: Instant::now(), call };
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        if let RenewalStage::AtStore { sent, begin, call, .. } = &mut self.stage
            && let Poll::Ready(renewal) = Pin::new(call).poll(context)
        {
            let answer = renewal.map(|renewal| Answer::new(core::mem::take(sent), renewal));
            self.stage = RenewalStage::Answered(Renewed { begin: *begin, answer });
        }
    }

    /// Takes the store's answer to the last renewal of leases, or returns `None` if there is no answer.
    pub(super) fn take_answered(&mut self) -> Option<Renewed> {
        match core::mem::take(&mut self.stage) {
            RenewalStage::Answered(renewed) => Some(renewed),
            other => {
                self.stage = other;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a lease which the store was not asked for counts neither as renewed nor as lost. Its timer may have
    /// been claimed while the renewal was under way, and its lease may end before the renewed leases.
    #[test]
    fn only_leases_that_were_sent_are_renewed() {
        let lease = |timer, claim| (TimerId::from_u128(timer), Token { incarnation: 1, claim });
        let (lost, silent) = (vec![lease(1, 1)], vec![lease(2, 1)]);
        let answer = Answer::new(vec![lease(1, 1), lease(1, 2), lease(2, 1)], Renewal { lost, silent });
        assert_eq!(answer.renewed, HashSet::from([lease(1, 2)]));
        assert_eq!(answer.lost, HashSet::from([lease(1, 1)]));
        assert!(answer.has_any() && !Answer::new(Vec::new(), Renewal::default()).has_any());
    }
}
