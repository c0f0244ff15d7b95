//! Applies batches of operations. Operations that share no timer and no key may run at the same time. If one of them
//! fails, the batch fails after the others have ended, so that none of them takes effect later.

use super::bulk::Bulk;
use super::creations::Creations;
use super::ends::Ends;
use super::transact::{Start, Transactions};
use crate::deployment::{join_or_fail, kept};
use crate::layout::Shard;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tourbillon_durable::policy::Guarantee;
use tourbillon_durable::state::{Phase, Refusal};
use tourbillon_durable::store::dry_run::admit;
use tourbillon_durable::store::{Durability, Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Address, KeyOf, TimerId};

/// The greatest number of changes of a batch that run at the same time in scripts of their own. Other changes of the
/// batch share scripts.
const OTHERS_AT_ONCE: usize = 64;

/// A timer id or a key that an operation names. Operations that are sent at the same time must not name the same id or
/// key.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Touched {
    Id(TimerId),
    Key(KeyOf),
}

/// Operations of a batch that run at the same time. They have the same kind and name different timers and keys, so
/// their order makes no difference.
#[derive(Default)]
struct Wave {
    kind: Option<Kind>,
    touched: HashSet<Touched>,
    ops: Vec<Op>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The operation creates a timer.
    Place,
    /// The operation ends a delivery of a timer that this process has claimed, and that belongs to no series. One
    /// script runs many operations of this kind.
    End,
    /// The operation changes a timer that it names by id. One script runs many operations of this kind.
    Change,
    /// The operation must not run at the same time as another operation of the batch.
    Alone,
}

/// Applies batches of operations.
pub(crate) struct Batches {
    transactions: Arc<Transactions>,
    creations: Arc<Creations>,
    ends: Ends,
    bulk: Arc<Bulk>,
}

impl Batches {
    pub(crate) fn new(transactions: Arc<Transactions>, bulk: Arc<Bulk>) -> Self {
        Self {
            creations: Arc::new(Creations::new(&transactions)),
            ends: Ends::new(&transactions),
            bulk,
            transactions,
        }
    }

    /// Applies the operations of a batch in order. Returns their outcomes in the order of `ops`.
    pub(crate) async fn apply(
        &self,
        ops: Vec<Op>,
        durability: Durability,
    ) -> Result<Vec<Outcome>, StoreError> {
        // All operations are checked before the first of them is sent, because a batch is not one transaction here.
        ops.iter().try_for_each(admit)?;
        let result = match durability {
            // An empty batch with this durability confirms earlier changes that were made with a lower durability.
            Durability::PowerLoss if ops.is_empty() => self.confirm_all().await.map(|()| Vec::new()),
            Durability::PowerLoss => self.apply_kept(ops).await,
            _ => self.apply_all(ops).await,
        };
        if result.as_ref().is_ok_and(|outcomes| outcomes.iter().any(is_of_before)) {
            self.transactions.node.wake_unless_polled();
        }
        self.transactions.node.wake_if_unknown(result)
    }

    /// Applies operations with [`Durability::PowerLoss`]. Refuses an operation that removes a timer which is delivered
    /// at most once, if its server does not confirm changes at present. The timer would be lost otherwise: nobody
    /// delivers it after a removal without a confirmation. The refused timer stays leased.
    async fn apply_kept(&self, ops: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
        let shards: Vec<Option<Shard>> = ops.iter().map(|op| self.shard_of_removal(op)).collect();
        let of_removals = shards.iter().copied().flatten().collect();
        let unconfirmed = self.transactions.deployment.unconfirmed(of_removals).await?;
        if unconfirmed.is_empty() {
            return kept(self.apply_all(ops)).await;
        }
        let is_refused = |shard: &Option<Shard>| shard.is_some_and(|shard| unconfirmed.contains(&shard));
        let others = ops.into_iter().zip(&shards).filter(|(_, shard)| !is_refused(shard));
        let mut made = kept(self.apply_all(others.map(|(op, _)| op).collect())).await?.into_iter();
        let refused = Outcome::Refused(Refusal::State(Phase::Leased));
        let outcome = |shard| if is_refused(shard) { Some(refused.clone()) } else { made.next() };
        Ok(shards.iter().filter_map(outcome).collect())
    }

    /// If `op` removes a timer before its only delivery ([`Op::Skip`]), returns the timer's shard. Also returns a
    /// shard if the timer's guarantee is unknown. An [`Op::Ack`] ends a delivery that has begun, perhaps at another
    /// node, so it is never refused: after an error, its caller sends it again.
    fn shard_of_removal(&self, op: &Op) -> Option<Shard> {
        let Op::Skip(id, _) = op else { return None };
        match self.transactions.held.guarantee_of(*id) {
            Some((shard, guarantee)) => (guarantee == Guarantee::AtMostOnce).then_some(shard),
            // Without a copy, the guarantee is not known. The shard of the id is usually that of the timer.
            None => Some(self.transactions.deployment.layout.shard_of_id(*id)),
        }
    }

    /// Waits until all changes of the deployment that the servers have made are durable. Fails if a part of the
    /// deployment's data is lost or its server cannot be reached, since nothing then confirms the changes there.
    async fn confirm_all(&self) -> Result<(), StoreError> {
        let deployment = &self.transactions.deployment;
        if !deployment.link.has_witnesses() {
            return Ok(());
        }
        // Scripts read each part of the deployment. The server that runs a script has the part now, and is its own
        // witness. By this process's map of the slots, the witness could be a server that has given the part away.
        kept(async {
            match deployment.losses().await?.first() {
                Some(loss) => Err(StoreError::new(StoreErrorKind::Io, loss.to_string())),
                None => Ok(()),
            }
        })
        .await
    }

    async fn apply_all(&self, ops: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
        let count = ops.len();
        let ops = match <[Op; 1]>::try_from(ops) {
            Ok([op]) => return Ok(vec![self.operate(op).await?]),
            Err(ops) => ops,
        };
        let mut outcomes = Vec::with_capacity(count);
        let mut ops = ops.into_iter().peekable();
        while ops.peek().is_some() {
            let mut wave = Wave::default();
            while let Some(op) = ops.next_if(|op| self.fits(op, &mut wave)) {
                wave.ops.push(op);
            }
            let results = match wave.kind {
                Some(Kind::End) if wave.ops.len() > 1 => self.end_wave(wave.ops).await,
                Some(Kind::Change) if wave.ops.len() > 1 => self.change_wave(wave.ops).await,
                _ => join_or_fail(wave.ops.into_iter().map(|op| self.operate(op))).await,
            };
            outcomes.extend(results.map_err(|error| partial(error, count))?);
        }
        Ok(outcomes)
    }

    /// Returns whether an operation may run at the same time as the operations of `wave`. If so, adds the operation's
    /// timer and key to `wave`.
    fn fits(&self, op: &Op, wave: &mut Wave) -> bool {
        let (kind, names) = match op {
            Op::Place(timer, _) => {
                (Kind::Place, [Some(Touched::Id(timer.id)), timer.key_of().map(Touched::Key)])
            }
            _ => match (op.ended_delivery(), changed_by_id(op)) {
                // Ending an occurrence of a series stores the next occurrence, which may conflict with other
                // operations. So this end runs alone. So does the end of a timer without a kept copy, which may belong
                // to a series.
                (Some((id, _)), _) if self.transactions.held.has_single(id) => {
                    (Kind::End, [Some(Touched::Id(id)), None])
                }
                (_, Some(id)) => (Kind::Change, [Some(Touched::Id(id)), None]),
                _ => (Kind::Alone, [None, None]),
            },
        };
        let names = names.into_iter().flatten();
        let fits = wave.kind.is_none_or(|of_wave| of_wave == kind && kind != Kind::Alone)
            && names.clone().all(|name| !wave.touched.contains(&name));
        if fits {
            wave.kind = Some(kind);
            wave.touched.extend(names);
        }
        fits
    }

    /// Ends the deliveries of different timers, all of which this process has claimed. One script runs many operations
    /// that only remove their timers. Any other operation runs in a script of its own.
    async fn end_wave(&self, wave: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
        // All operations of this wave are ends. So none is filtered out, and the indices in `ends` are those in `wave`.
        let ends = wave.iter().filter_map(|op| Some((op.ended_delivery()?.0, op))).collect::<Vec<_>>();
        let made = self.ends.end_many(&ends).await?;
        join_or_fail(self.rest_of(wave, made)).await
    }

    /// Applies operations that change different timers and name them by id. Two of these operations may replay two dead
    /// timers with the same key. The operation that is committed first takes the key, and the outcome of the other
    /// operation is [`Outcome::KeyExists`].
    async fn change_wave(&self, wave: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
        // All operations of this wave have an id. So none is filtered out, and the indices in `changes` are those in
        // `wave`.
        let changes = wave.iter().filter_map(|op| Some((changed_by_id(op)?, op))).collect::<Vec<_>>();
        let made = self.bulk.change_by_ids(&changes).await?;
        let (mut all, mut outcomes) = (Vec::with_capacity(wave.len()), self.rest_of(wave, made).peekable());
        while outcomes.peek().is_some() {
            all.extend(join_or_fail(outcomes.by_ref().take(OTHERS_AT_ONCE)).await?);
        }
        Ok(all)
    }

    /// Applies the operations of a wave that have no outcome in `made`, each in a script of its own. The keys of `made`
    /// are indices in `wave`. Returns a future for the outcome of each operation.
    fn rest_of(
        &self,
        wave: Vec<Op>,
        mut made: BTreeMap<usize, Outcome>,
    ) -> impl Iterator<Item = impl Future<Output = Result<Outcome, StoreError>>> {
        wave.into_iter().enumerate().map(move |(place, op)| {
            let made = made.remove(&place);
            async move {
                match made {
                    Some(outcome) => Ok(outcome),
                    None => self.operate(op).await,
                }
            }
        })
    }

    async fn operate(&self, op: Op) -> Result<Outcome, StoreError> {
        let start = match &op {
            Op::Place(..) => return self.creations.create(op).await,
            Op::CancelLabelled { namespace, label, limit } => {
                // This operation and `Unpark` run several scripts. If one of them fails, others may have changed
                // timers, as in a batch.
                return self
                    .bulk
                    .cancel_labelled(namespace, label, *limit)
                    .await
                    .map_err(|error| partial(error, 2));
            }
            Op::Unpark(reason, limit) => {
                let all = self.transactions.deployment.layout.shards().collect();
                return self.bulk.unpark(reason, *limit, all).await.map_err(|error| partial(error, 2));
            }
            Op::Replay(id) => Start::At(Address::Id(*id)),
            Op::Cancel(at, _) | Op::Move(at, _) | Op::Pause(at) | Op::Resume(at) | Op::Fire(at) => {
                Start::At(at.clone())
            }
            op => match op.ended_delivery() {
                Some((id, _)) => Start::Held(id),
                None => {
                    let message = format!("this store does not know the operation {op:?} yet");
                    return Err(StoreError::new(StoreErrorKind::Limit, message));
                }
            },
        };
        self.transactions.transact(start, |draft| draft.apply(op.clone())).await
    }
}

/// Returns the timer of an operation that names a timer by id and stores no other timer, or `None` for other
/// operations.
fn changed_by_id(op: &Op) -> Option<TimerId> {
    match op {
        Op::Replay(id) | Op::Cancel(Address::Id(id), _) | Op::Move(Address::Id(id), _) => Some(*id),
        _ => None,
    }
}

/// Returns whether the outcome may come from an earlier attempt of the same operation, whose answer was lost.
fn is_of_before(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Repeated(_) | Outcome::Refused(Refusal::Stale))
}

/// Turns a transient error of a batch into `Unknown` if the batch has more than one operation, because some of its
/// operations may have taken effect. `count` is the number of operations.
pub(crate) fn partial(error: StoreError, count: usize) -> StoreError {
    if count > 1 && error.is_transient() {
        let message = format!("an operation of {count} failed, and others had their effect perhaps: {error}");
        return StoreError::new(StoreErrorKind::Unknown, message);
    }
    error
}
