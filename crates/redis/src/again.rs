//! The return of a timer that is delivered at most once. [`returned`](crate::returned) has the protocol.

use crate::returned::{Batch, Returned};
use crate::shared::Core;
use crate::transact::Start;
use std::sync::Arc;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::dry_run::Changes;
use tourbillon_durable::store::{Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::Timer;

impl Core {
    /// Notes the returns of a batch, before any of them is sent.
    pub(crate) fn begin_returns(&self, ops: &[Op]) -> Batch {
        self.returning.begin(ops, self.time.now())
    }

    /// Notes what the caller of a batch of so many operations knows of its returns.
    pub(crate) fn end_returns(&self, batch: Batch, count: usize, error: Option<&StoreError>) {
        // Of a batch that failed, a part may have had its effect, and the caller repeats all.
        let has_no_effect = |error: &StoreError| {
            count == 1 && !matches!(error.kind(), StoreErrorKind::Unknown | StoreErrorKind::Corrupt)
        };
        if error.is_none_or(has_no_effect) {
            self.returning.end(batch, error.is_some());
        }
    }

    /// Stores a timer again that was claimed under this token, once.
    pub(crate) async fn store_again(&self, timer: &Timer, token: Token) -> Result<Outcome, StoreError> {
        let (id, layout) = (timer.id, &self.layout);
        // It comes back without its series. The shard is the same with a key and without it.
        let shard = match &timer.key {
            Some(key) => layout.shard_of_key(&timer.namespace, key),
            None => layout.shard_of_id(id),
        };
        let since = self.returning.since((id, token)).unwrap_or_else(|| self.time.now());
        let returned = Arc::new(Returned::new(id, token, shard, since));
        let op = Op::Return(Box::new(timer.clone()), token);
        self.transact(Start::Again(Arc::clone(&returned)), |draft| match returned.refused() {
            Some(outcome) => Ok((outcome, Changes::default())),
            None => draft.apply(op.clone()),
        })
        .await
    }
}
