//! Applies the operations of one call in one transaction.

use super::creations::place_many;
use super::needs::{held, lasting};
use super::operate::{operate, operate_all};
use super::transaction::{Act, Work};
use crate::layout::Id;
use crate::link::{Failure, Session};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::types::Type;
use tourbillon_durable::state::{Phase, Refusal, Token};
use tourbillon_durable::store::{IfPresent, Op, Outcome};
use tourbillon_durable::timer::{Address, KeyOf, Timer, TimerId};

/// Returns the new timer of a creation that [`place_many`] can store. `None` for other operations.
pub(super) fn is_plain(op: &Op) -> Option<&Timer> {
    match op {
        // This mode stores the new timer only if another timer has the key.
        Op::Place(_, IfPresent::ReplaceOnly(_)) => None,
        Op::Place(timer, _) => Some(timer),
        _ => None,
    }
}

/// If the operation ends a timer as done, returns the timer's id and the token of the lease.
fn done(op: &Op) -> Option<(TimerId, Token)> {
    if let Op::Ack(id, token) | Op::Skip(id, token) = op { Some((*id, *token)) } else { None }
}

/// Returns whether an operation ends a delivery.
pub(super) fn is_end(op: &Op) -> bool {
    op.ended_delivery().is_some()
}

/// Returns whether an operation cancels a timer that it names by the id. A client of the HTTP service can cancel many
/// timers by one request, and the service then sends many such operations in one call.
fn is_cancel_by_id(op: &Op) -> bool {
    matches!(op, Op::Cancel(Address::Id(_), _))
}

/// The transaction for one call of `Batches`: applies the operations of the call in order.
pub(super) struct Apply(pub(super) Vec<Op>);

impl Work for Apply {
    type Result = Vec<Outcome>;

    async fn run(&self, session: &mut Session, act: &mut Act) -> Result<Self::Result, Failure> {
        if self.0.iter().all(is_cancel_by_id) {
            return operate_all(session, act, self.0.clone()).await;
        }
        let mut outcomes = Vec::with_capacity(self.0.len());
        for (op, made) in self.0.iter().zip(self.place_all(session, act).await?) {
            outcomes.push(match made {
                Some(outcome) => outcome,
                None => operate(session, act, op).await?,
            });
        }
        Ok(outcomes)
    }
}

impl Apply {
    /// Stores the timers by one statement, if all operations are creations with different ids and keys. Returns the
    /// outcome of each operation. `None` stands for an operation that must still be applied.
    async fn place_all(&self, session: &mut Session, act: &mut Act) -> Result<Vec<Option<Outcome>>, Failure> {
        let ops = &self.0;
        let (mut ids, mut keys) = (BTreeSet::<TimerId>::new(), BTreeSet::<KeyOf>::new());
        let timers: Vec<&Timer> = ops.iter().filter_map(is_plain).collect();
        let are_different =
            |timer: &&Timer| ids.insert(timer.id) && timer.key_of().is_none_or(|key| keys.insert(key));
        if ops.len() < 2 || timers.len() < ops.len() || !timers.iter().all(are_different) {
            return Ok(vec![None; ops.len()]);
        }
        let now = act.deployment.argument();
        let made = place_many(session, now, &timers, true, false).await?;
        let outcome = |timer: &&Timer| {
            let is_made = made.contains(&Id(timer.id));
            if is_made {
                act.made.add(timer);
            }
            is_made.then_some(Outcome::Created(timer.id))
        };
        Ok(timers.iter().map(outcome).collect())
    }
}

/// Applies operations by which a runtime ends deliveries. Does not wait long for transactions of callers. If such a
/// transaction has locked the timer of an operation, the operation has no effect, and its outcome is [`Outcome::Held`].
/// If the lease of the locked timer has expired, the outcome is [`Refusal::Stale`] instead.
pub(super) struct ApplyEnds(pub(super) Vec<Op>);

impl Work for ApplyEnds {
    type Result = Vec<Outcome>;

    fn is_brief(&self) -> bool {
        true
    }

    async fn run(&self, session: &mut Session, act: &mut Act) -> Result<Self::Result, Failure> {
        let held = held(session, act, &self.0).await?;
        let is_held = |op: &Op| op.ended_delivery().is_some_and(|(id, _)| held.contains(&Id(id)));
        let free: Vec<Op> = self.0.iter().filter(|op| !is_held(op)).cloned().collect();
        let mut ended = apply_ends(session, act, &free).await?.into_iter();
        if held.is_empty() {
            return Ok(ended.collect());
        }
        let ids: Vec<Id> = held.iter().copied().collect();
        let lasting = lasting(session, act.deployment.argument(), &ids).await?;
        let outcome = |op: &Op| match op.ended_delivery() {
            Some(lease) if is_held(op) && lasting.contains(&lease) => Some(Outcome::Held),
            // The lease has expired, and the transaction that has locked the timer may be a reap. After the reap the
            // timer is delivered again.
            Some(_) if is_held(op) => Some(Outcome::Refused(Refusal::Stale)),
            _ => ended.next(),
        };
        Ok(self.0.iter().filter_map(outcome).collect())
    }
}

/// Applies operations that end deliveries. One statement applies all operations that only remove their timers. The
/// timers of the other operations, such as failures, are read together, and one dry run (`DryRun`) computes the effects
/// of these operations.
async fn apply_ends(session: &mut Session, act: &mut Act, ends: &[Op]) -> Result<Vec<Outcome>, Failure> {
    let mut ids = BTreeSet::new();
    let are_different = ends.iter().filter_map(Op::ended_delivery).all(|(id, _)| ids.insert(id));
    let all_done: Vec<_> = ends.iter().filter_map(done).filter(|_| are_different).collect();
    let ended = end_many(session, act.deployment.argument(), &all_done).await?;
    let outcome_of = |op: &Op| {
        let (id, _) = done(op)?;
        let is_withdrawn = *ended.get(&Id(id))?;
        // An `Op::Ack` reports a success, which counts although the timer was withdrawn.
        let is_not_done = is_withdrawn && matches!(op, Op::Skip(..));
        let phase = if is_not_done { Phase::Withdrawn } else { Phase::Done };
        Some(Outcome::Ended { id, phase, next: None, skipped: 0 })
    };
    let left = ends.iter().filter(|op| outcome_of(op).is_none()).cloned().collect();
    let mut others = operate_all(session, act, left).await?.into_iter();
    Ok(ends.iter().filter_map(|op| outcome_of(op).or_else(|| others.next())).collect())
}

/// Removes the timers whose deliveries are done. Returns the id of each removed timer, and whether the timer was
/// withdrawn during its lease. Leaves a timer alone if its lease is lost, or if the next occurrence of a series must
/// follow.
async fn end_many(
    session: &mut Session,
    now: Option<i64>,
    ends: &[(TimerId, Token)],
) -> Result<BTreeMap<Id, bool>, Failure> {
    if ends.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<Id> = ends.iter().map(|(id, _)| Id(*id)).collect();
    let incarnations: Vec<i64> = ends.iter().map(|(_, token)| token.incarnation.cast_signed()).collect();
    let claims: Vec<i64> = ends.iter().map(|(_, token)| token.claim.cast_signed()).collect();
    let sql = "SELECT * FROM tourbillon.end_many($1, $2, $3, $4, true)";
    let rows = session
        .query(
            sql,
            &[
                (&now, Type::INT8),
                (&ids, Type::UUID_ARRAY),
                (&incarnations, Type::INT8_ARRAY),
                (&claims, Type::INT8_ARRAY),
            ],
        )
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
