//! Applies the operations of one call.

use super::apply::{Apply, ApplyEnds, is_end, is_plain};
use super::creations::Creations;
use super::transaction::{Act, Transactions, Work};
use super::unpark::unpark;
use crate::link::{Failure, Session};
use std::sync::Arc;
use tourbillon_durable::state::{Phase, Refusal};
use tourbillon_durable::store::dry_run::admit;
use tourbillon_durable::store::{Durability, Op, Outcome, StoreError};

/// Applies batches of operations.
pub(crate) struct Batches {
    pub(crate) transactions: Transactions,
    pub(crate) creations: Arc<Creations>,
}

impl Batches {
    /// Applies operations in order. Normally one transaction applies them all. The exceptions:
    ///
    /// - A single creation is stored by the queue of creations, together with the creations of other calls.
    /// - A single [`Op::Unpark`] is repeated while transactions of callers have locked timers that it must unpark.
    /// - If each operation ends a delivery, the transaction does not wait long for transactions of callers. An
    ///   operation whose timer is held has the outcome [`Outcome::Held`].
    /// - Removals of timers before their deliveries at most once are refused while the server does not confirm commits.
    ///   Their timers stay leased.
    pub(crate) async fn apply(
        &self,
        ops: Vec<Op>,
        durability: Durability,
    ) -> Result<Vec<Outcome>, StoreError> {
        ops.iter().try_for_each(admit)?;
        let is_synced = durability == Durability::PowerLoss;
        match &ops[..] {
            [] if is_synced => return self.flush().await.map(|()| Vec::new()),
            [] => return Ok(Vec::new()),
            [Op::Unpark(reason, limit)] => {
                let count = unpark(&self.transactions, durability, reason, *limit, None).await?;
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
        if is_synced && ops.iter().all(is_removal) && !self.transactions.are_confirmed().await? {
            return Ok(vec![Outcome::Refused(Refusal::State(Phase::Leased)); ops.len()]);
        }
        match ops.iter().all(is_end) {
            true => self.transactions.transact(durability, &ApplyEnds(ops)).await,
            false => self.transactions.transact(durability, &Apply(ops)).await,
        }
    }

    /// Unparks timers: at most `limit` timers that are parked (set aside) for `reason` become pending again. Takes only
    /// timers in the shards of the node `owner`. Returns the number of these timers.
    pub(crate) async fn put_back(&self, reason: &str, limit: u32, owner: i64) -> Result<u32, StoreError> {
        unpark(&self.transactions, Durability::Volatile, reason, limit, Some(owner)).await
    }

    /// Waits until the server's disk has all changes that the store has confirmed. The store confirms some changes
    /// before they are on the disk.
    async fn flush(&self) -> Result<(), StoreError> {
        self.transactions.transact(Durability::PowerLoss, &Flush).await
    }
}

/// Returns whether an operation removes a timer before its delivery, if the timer is delivered at most once. A runtime
/// sends such operations in calls of their own.
fn is_removal(op: &Op) -> bool {
    matches!(op, Op::Skip(..))
}

/// The transaction of [`Batches::flush`]. Its commit brings all earlier commits to the disk. A transaction without a
/// write would not do this, so it inserts a row that adds 0 to a count.
struct Flush;

impl Work for Flush {
    type Result = ();

    fn is_brief(&self) -> bool {
        true
    }

    async fn run(&self, session: &mut Session, _: &mut Act) -> Result<(), Failure> {
        session.run("INSERT INTO tourbillon.tally VALUES ('', 'p', 0)").await
    }
}
