//! Renews the leases of deliveries under way (R4). Each renewal is followed by a reap, which ends expired leases.
//!
//! | stage | begins with | ends with |
//! |---|---|---|
//! | `Idle` | the start; the end of a reap | a renewal is sent |
//! | `AtStore` | a renewal of all leases | the store's answer, an error, a panic |
//! | `Answered` | the answer | the loop takes it, and reaps |

use super::backoff::Backoff;
use super::call::Call;
use crate::runtime::shared::UnderWay;
use crate::state::Token;
use crate::store::{Claimant, Renewal, StoreError, TimerStore};
use crate::timer::TimerId;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::Instant;
use tourbillon_words::UtcMillis;

/// The lease of a delivery that is under way in this runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    /// The number of the delivery, which is unique in this runtime.
    pub(super) delivery: u64,
    pub(super) id: TimerId,
    pub(super) token: Token,
}

impl Lease {
    pub(super) fn of_delivery(delivery: &UnderWay) -> Self {
        Self { delivery: delivery.number, id: delivery.id, token: delivery.token }
    }
}

/// A renewal of leases that the store has answered.
pub(super) struct Renewed {
    /// The leases of deliveries under way that the store was asked to renew. `renewal` tells which of these leases the
    /// store did not renew.
    pub(super) leases: Vec<Lease>,
    /// The time of the store's clock before the renewal was sent. Each renewed lease lasts for at least its full length
    /// from this moment.
    pub(super) begin: UtcMillis,
    /// The leases that were not renewed, or the error that the renewal returned.
    pub(super) renewal: Result<Renewal, StoreError>,
}

#[derive(Default)]
enum RenewalStage {
    #[default]
    Idle,
    AtStore {
        leases: Vec<Lease>,
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

    /// Prepares a renewal of leases. `leases` belong to deliveries under way. `others` belong to deliveries that have
    /// ended, and whose results the store has not confirmed yet, or to new deliveries that wait for these results. The
    /// renewal reaches the store at the next [`poll`](Self::poll).
    pub(super) fn send(&mut self, leases: Vec<Lease>, others: impl Iterator<Item = (TimerId, Token)>) {
        let tokens: Vec<_> = leases.iter().map(|lease| (lease.id, lease.token)).chain(others).collect();
        let (store, claimant) = (Arc::clone(&self.store), self.claimant);
        let begin = self.store.now();
        let call = Call::new(async move {
            // A renewal without leases still gets an answer, because a reap follows each answer.
            match tokens.is_empty() {
                true => Ok(Renewal::default()),
                false => store.renew(claimant, tokens).await,
            }
        });
        self.stage = RenewalStage::AtStore { leases, begin, since: Instant::now(), call };
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        if let RenewalStage::AtStore { leases, begin, call, .. } = &mut self.stage
            && let Poll::Ready(renewal) = Pin::new(call).poll(context)
        {
            let leases = core::mem::take(leases);
            self.stage = RenewalStage::Answered(Renewed { leases, begin: *begin, renewal });
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
