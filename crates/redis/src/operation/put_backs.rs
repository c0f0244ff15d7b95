//! Puts back timers that are delivered at most once. [`put_back`](super::put_back) has the protocol.

use super::put_back::{Attempts, Batch, PutBack};
use super::transact::{Start, Transactions};
use crate::deployment::Deployment;
use std::sync::Arc;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::dry_run::Changes;
use tourbillon_durable::store::{Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::Timer;

/// Stores at-most-once timers again after their claims ([put-backs](super::put_back)). Keeps the moment of the first
/// attempt of each put-back.
pub(crate) struct PutBacks {
    deployment: Arc<Deployment>,
    transactions: Arc<Transactions>,
    pub(crate) attempts: Attempts,
}

impl PutBacks {
    pub(super) fn new(transactions: &Arc<Transactions>) -> Self {
        let deployment = Arc::clone(&transactions.deployment);
        Self { deployment, transactions: Arc::clone(transactions), attempts: Attempts::default() }
    }

    /// Records the put-backs of a batch before the batch is sent. A [put-back](super::put_back) stores an at-most-once
    /// timer again after its claim.
    pub(crate) fn begin(&self, ops: &[Op]) -> Batch {
        self.attempts.begin(ops, self.deployment.time.now())
    }

    /// Records that a batch of `count` operations has ended. Forgets the batch's [put-backs](super::put_back) whose
    /// outcomes are known. `error` is the error of a failed batch.
    pub(crate) fn end(&self, batch: Batch, count: usize, error: Option<&StoreError>) {
        // Some operations of a failed batch may have taken effect. The caller repeats the whole batch. An answer that
        // cannot be read (`Corrupt`) comes from a script that may have run.
        let has_no_effect = |error: &StoreError| {
            count == 1 && !matches!(error.kind(), StoreErrorKind::Unknown | StoreErrorKind::Corrupt)
        };
        if error.is_none_or(has_no_effect) {
            self.attempts.end(batch, error.is_some());
        }
    }

    /// Stores an at-most-once timer again that was claimed under the token `token`. A repeated call has no further
    /// effect.
    pub(crate) async fn store(&self, timer: &Timer, token: Token) -> Result<Outcome, StoreError> {
        let (id, layout) = (timer.id, &self.deployment.layout);
        // The timer comes back without its series. `Layout::home_of` would choose the shard of the series for a timer
        // without a key.
        let shard = match &timer.key {
            Some(key) => layout.shard_of_key(&timer.namespace, key),
            None => layout.shard_of_id(id),
        };
        let since = self.attempts.since((id, token)).unwrap_or_else(|| self.deployment.time.now());
        let put_back = Arc::new(PutBack::new(id, token, shard, since));
        let op = Op::Return(Box::new(timer.clone()), token);
        self.transactions
            // After a refused commit, `put_back` has the reason, and this closure runs again. Its empty changes end the
            // transaction without another commit.
            .transact(Start::PutBack(Arc::clone(&put_back)), |draft| match put_back.refused() {
                Some(outcome) => Ok((outcome, Changes::default())),
                None => draft.apply(op.clone()),
            })
            .await
    }
}
