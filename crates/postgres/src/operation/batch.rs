//! Applies the operations of one call.

use super::apply::{Apply, ApplyEnds, PutBack, is_end, is_plain};
use super::creations::Creations;
use super::transaction::{Act, Transactions, Work};
use super::unpark::unpark;
use crate::link::{Failure, Session};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use tourbillon_durable::store::dry_run::admit;
use tourbillon_durable::store::{Durability, Op, Outcome, StoreError};

/// The greatest number of [`Op::Return`] operations of one call that run at the same time. Each takes a connection, and
/// other calls need connections, too.
const AT_ONCE: usize = 3;

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
    /// - Several transactions apply the operations if each operation ends a delivery or stores a timer again
    ///   ([`Op::Return`]). See [`apply_apart`](Self::apply_apart).
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
        let is_of_runtime = |op: &Op| is_end(op) || matches!(op, Op::Return(..));
        if ops.iter().all(is_of_runtime) {
            return self.apply_apart(ops, durability).await;
        }
        self.transactions.transact(durability, &Apply(ops)).await.map(|(outcomes, _)| outcomes)
    }

    /// Unparks timers: at most `limit` timers that are parked (set aside) for `reason` become pending again. Takes only
    /// timers in the shards of the node `owner`. Returns the number of these timers.
    pub(crate) async fn put_back(&self, reason: &str, limit: u32, owner: i64) -> Result<u32, StoreError> {
        unpark(&self.transactions, Durability::Volatile, reason, limit, Some(owner)).await
    }

    /// Applies operations of a runtime that end deliveries, or that store a timer again ([`Op::Return`]). None of them
    /// waits long for transactions of callers: an operation whose timer or key is held has the outcome
    /// [`Outcome::Held`]. All operations that end deliveries share one transaction. Each [`Op::Return`] has a separate
    /// transaction, and locks no timer of another delivery while it waits.
    async fn apply_apart(&self, ops: Vec<Op>, durability: Durability) -> Result<Vec<Outcome>, StoreError> {
        let are_ends: Vec<bool> = ops.iter().map(is_end).collect();
        let (ends, others): (Vec<Op>, Vec<Op>) = ops.into_iter().partition(is_end);
        let ended = match ends.is_empty() {
            true => Vec::new(),
            false => self.transactions.transact(durability, &ApplyEnds(ends)).await?.0,
        };
        let store = |op| async move {
            self.transactions.transact(durability, &PutBack(op)).await.map(|(outcome, _)| outcome)
        };
        let stored: Vec<_> = stream::iter(others).map(store).buffered(AT_ONCE).try_collect().await?;
        let (mut ended, mut stored) = (ended.into_iter(), stored.into_iter());
        let outcomes =
            are_ends.into_iter().filter_map(|is_end| if is_end { ended.next() } else { stored.next() });
        Ok(outcomes.collect())
    }

    /// Waits until the server's disk has all changes that the store has confirmed. The store confirms some changes
    /// before they are on the disk.
    async fn flush(&self) -> Result<(), StoreError> {
        self.transactions.transact(Durability::PowerLoss, &Flush).await.map(|_| ())
    }
}

/// The transaction of [`Batches::flush`]. It changes no timer, but its commit brings all earlier commits to the disk.
/// The row that it inserts adds 0 to a count.
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
