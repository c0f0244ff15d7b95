//! Batches of operations: those that do not touch each other are made at the same time.

use super::bulk::Bulk;
use super::creations::Creations;
use super::ends::Ends;
use super::put_backs::PutBacks;
use super::transact::{Start, Transactions};
use crate::deployment::{Witnesses, kept};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::collections::HashSet;
use std::sync::Arc;
use tourbillon_durable::state::{Refusal, Token};
use tourbillon_durable::store::dry_run::admit;
use tourbillon_durable::store::{Durability, Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Address, KeyOf, TimerId};

/// The most changes of a batch that have scripts of their own and are at the server at the same time. Their timers are
/// not in the shards of their ids.
const OTHERS_AT_ONCE: usize = 64;

/// The names that two operations of one batch must not share if they are sent at the same time.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Touched {
    Id(TimerId),
    Key(KeyOf),
}

/// Operations of a batch that are made at the same time. They are of the same kind and name different timers and keys,
/// so their order makes no difference.
#[derive(Default)]
struct Wave {
    kind: Option<Kind>,
    touched: HashSet<Touched>,
    ops: Vec<Op>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Creations.
    Place,
    /// Ends of deliveries that this process has claimed: many of them by one script.
    End,
    /// Changes by id: many of them by one script.
    Change,
    /// An operation without others.
    Alone,
}

/// The timer and the token of the end of a delivery.
fn end_of(op: &Op) -> Option<(TimerId, Token)> {
    match op {
        Op::Ack(id, token)
        | Op::Skip(id, token)
        | Op::Fail(id, token, _)
        | Op::Snooze(id, token, _)
        | Op::Release(id, token)
        | Op::Park(id, token, _) => Some((*id, *token)),
        _ => None,
    }
}

/// Makes batches of operations.
pub(crate) struct Batches {
    transactions: Arc<Transactions>,
    creations: Arc<Creations>,
    ends: Ends,
    pub(crate) put_backs: PutBacks,
    bulk: Arc<Bulk>,
}

impl Batches {
    pub(crate) fn new(transactions: Arc<Transactions>, bulk: Arc<Bulk>) -> Self {
        Self {
            creations: Arc::new(Creations::new(&transactions)),
            ends: Ends::new(&transactions),
            put_backs: PutBacks::new(&transactions),
            bulk,
            transactions,
        }
    }

    /// Makes the operations of a batch, in order, and returns their outcomes.
    pub(crate) async fn apply(
        &self,
        ops: Vec<Op>,
        durability: Durability,
    ) -> Result<Vec<Outcome>, StoreError> {
        ops.iter().try_for_each(admit)?;
        let (count, put_backs) = (ops.len(), self.put_backs.begin(&ops));
        let result = match durability {
            // An empty batch promises the changes that were made before without a promise.
            Durability::PowerLoss if count == 0 => {
                Witnesses::of(self.transactions.deployment.link.witnesses())
                    .confirm()
                    .await
                    .map(|()| Vec::new())
            }
            Durability::PowerLoss => kept(self.apply_all(ops)).await,
            _ => self.apply_all(ops).await,
        };
        self.put_backs.end(put_backs, count, result.as_ref().err());
        if result.as_ref().is_ok_and(|outcomes| outcomes.iter().any(is_of_before)) {
            self.transactions.node.wake_unless_polled();
        }
        self.transactions.node.wake_if_unknown(result)
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
                _ => try_join_all(wave.ops.into_iter().map(|op| self.operate(op))).await,
            };
            outcomes.extend(results.map_err(|error| partial(error, count))?);
        }
        Ok(outcomes)
    }

    /// Whether an operation may be sent together with those of a wave. If so, adds its names to the wave.
    fn fits(&self, op: &Op, wave: &mut Wave) -> bool {
        let (kind, names) = match op {
            Op::Place(timer, _) => {
                (Kind::Place, [Some(Touched::Id(timer.id)), timer.key_of().map(Touched::Key)])
            }
            _ => match (end_of(op), changed_by_id(op)) {
                // The end of an occurrence stores the next occurrence, which may meet the other operations.
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

    /// Ends deliveries of different timers that this process has claimed.
    async fn end_wave(&self, wave: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
        let ends = wave.iter().filter_map(|op| Some((end_of(op)?.0, op))).collect::<Vec<_>>();
        let mut made = self.ends.end_many(&ends).await?;
        let outcomes = wave.into_iter().enumerate().map(|(place, op)| {
            let made = made.remove(&place);
            async move {
                match made {
                    Some(outcome) => Ok(outcome),
                    None => self.operate(op).await,
                }
            }
        });
        try_join_all(outcomes).await
    }

    /// Changes different timers that are named by their ids. Of two dead timers with one key that are replayed, the
    /// commit of the second timer finds the key taken.
    async fn change_wave(&self, wave: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
        let changes = wave.iter().filter_map(|op| Some((changed_by_id(op)?, op))).collect::<Vec<_>>();
        let mut made = self.bulk.change_by_ids(&changes).await?;
        let outcomes = wave.into_iter().enumerate().map(|(place, op)| {
            let made = made.remove(&place);
            async move {
                match made {
                    Some(outcome) => Ok(outcome),
                    None => self.operate(op).await,
                }
            }
        });
        stream::iter(outcomes.collect::<Vec<_>>()).buffered(OTHERS_AT_ONCE).try_collect().await
    }

    async fn operate(&self, op: Op) -> Result<Outcome, StoreError> {
        let start = match &op {
            Op::Place(..) => return self.creations.create(op).await,
            Op::Return(timer, token) => return self.put_backs.store(timer, *token).await,
            Op::CancelLabelled { namespace, label, limit } => {
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
            op => match end_of(op) {
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

/// The timer of a change that is named by its id alone, and stores no other timer.
fn changed_by_id(op: &Op) -> Option<TimerId> {
    match op {
        Op::Replay(id) | Op::Cancel(Address::Id(id), _) | Op::Move(Address::Id(id), _) => Some(*id),
        _ => None,
    }
}

/// Whether an operation may have had its effect by an attempt whose answer was lost.
fn is_of_before(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Repeated(_) | Outcome::Refused(Refusal::Stale))
}

/// The error of a batch of which other operations may have had their effect.
pub(crate) fn partial(error: StoreError, count: usize) -> StoreError {
    if count > 1 && error.is_transient() {
        let message = format!("an operation of {count} failed, and others had their effect perhaps: {error}");
        return StoreError::new(StoreErrorKind::Unknown, message);
    }
    error
}
