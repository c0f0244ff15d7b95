//! Applies the operations of one call.

use super::apply::{Apply, ended_by, is_plain};
use super::creations::Creations;
use super::late::LateEnds;
use super::transaction::{Act, Done, Transactions, Turn, Work};
use super::unpark::unpark;
use crate::layout::admit_texts;
use crate::link::Session;
use std::sync::Arc;
use tourbillon_durable::store::dry_run::admit;
use tourbillon_durable::store::{Durability, Op, Outcome, StoreError};
use tourbillon_durable::timer::TimerId;

/// Applies batches of operations, each as one transaction.
pub(crate) struct Batches {
    pub(crate) transactions: Transactions,
    pub(crate) creations: Arc<Creations>,
    pub(crate) late: Arc<LateEnds>,
}

/// Returns whether an operation is the end of a delivery.
fn is_end(op: &Op) -> bool {
    ended_by(op) != TimerId::from_u128(0)
}

impl Batches {
    /// Applies operations in one transaction, in order.
    pub(crate) async fn apply(
        &self,
        ops: Vec<Op>,
        durability: Durability,
    ) -> Result<Vec<Outcome>, StoreError> {
        ops.iter().try_for_each(admit)?;
        ops.iter().try_for_each(admit_texts)?;
        let is_synced = durability == Durability::PowerLoss;
        match &ops[..] {
            [] if is_synced => return self.flush().await.map(|()| Vec::new()),
            [] => return Ok(Vec::new()),
            [Op::Unpark(reason, limit)] => {
                let count = unpark(&self.transactions, durability, reason, *limit).await?;
                return Ok(vec![Outcome::Unparked(count)]);
            }
            [op] => {
                if let Some(timer) = is_plain(op) {
                    let id = timer.id;
                    if self.creations.create(Box::new(timer.clone()), is_synced).await? {
                        return Ok(vec![Outcome::Created(id)]);
                    }
                }
            }
            _ => {}
        }
        // An end that must be on the disk is answered only once it is.
        let is_brief = !is_synced && ops.iter().all(is_end);
        let work = Apply { ops, is_brief };
        let ((outcomes, late), _) = self.transactions.transact(durability, &work).await?;
        self.late.keep(late);
        Ok(outcomes)
    }

    /// Makes earlier changes durable that were made without that promise. The row adds nothing to a count.
    async fn flush(&self) -> Result<(), StoreError> {
        self.late.try_all().await?;
        self.transactions.transact(Durability::PowerLoss, &Flush).await.map(|_| ())
    }
}

/// A work without an effect on timers.
struct Flush;

impl Work for Flush {
    type Result = ();

    fn is_brief(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, session: &'a mut Session, _: &'a mut Act, _: &'a mut Turn) -> Done<'a, ()> {
        Box::pin(session.run("INSERT INTO tourbillon.tally VALUES ('', 'p', 0)"))
    }
}
