//! Applies the operations of one call.

use super::creations::{Creations, place_many};
use super::operate::operate;
use super::transaction::{Act, Done, Transactions, Turn, Work};
use crate::layout::{Id, admit_texts};
use crate::link::{Failure, Session};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_postgres::types::Type;
use tourbillon_durable::state::{Phase, Token};
use tourbillon_durable::store::dry_run::admit;
use tourbillon_durable::store::{Durability, IfPresent, Op, Outcome, StoreError};
use tourbillon_durable::timer::{KeyOf, Timer, TimerId};

/// Applies batches of operations, each as one transaction.
pub(crate) struct Batches {
    pub(crate) transactions: Transactions,
    pub(crate) creations: Arc<Creations>,
}

/// Returns whether a timer may be stored by a statement that looks at no other timer.
fn is_plain(op: &Op) -> Option<&Timer> {
    match op {
        // Without a timer that has the key, this mode stores nothing.
        Op::Place(_, IfPresent::ReplaceOnly(_)) => None,
        Op::Place(timer, _) => Some(timer),
        _ => None,
    }
}

fn acked(op: &Op) -> Option<(TimerId, Token)> {
    if let Op::Ack(id, token) = op { Some((*id, *token)) } else { None }
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
        let (outcomes, _) = self.transactions.transact(durability, &Apply { ops }).await?;
        Ok(outcomes)
    }

    /// Makes earlier changes durable that were made without that promise. The row adds nothing to a count.
    async fn flush(&self) -> Result<(), StoreError> {
        self.transactions.transact(Durability::PowerLoss, &Flush).await.map(|_| ())
    }
}

/// The work of a call: operations in their order.
struct Apply {
    ops: Vec<Op>,
}

impl Work for Apply {
    type Result = Vec<Outcome>;

    fn run<'a>(
        &'a self,
        session: &'a mut Session,
        act: &'a mut Act,
        turn: &'a mut Turn,
    ) -> Done<'a, Self::Result> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(self.ops.len());
            let made = self.apply_many(session, act).await?;
            for (op, made) in self.ops.iter().zip(made) {
                outcomes.push(match made {
                    Some(outcome) => outcome,
                    None => operate(session, act, turn, op).await?,
                });
            }
            Ok(outcomes)
        })
    }
}

/// A work without an effect on timers.
struct Flush;

impl Work for Flush {
    type Result = ();

    fn run<'a>(&'a self, session: &'a mut Session, _: &'a mut Act, _: &'a mut Turn) -> Done<'a, ()> {
        Box::pin(session.run("INSERT INTO tourbillon.tally VALUES ('', 'p', 0)"))
    }
}

impl Apply {
    /// Applies operations that one statement can do: creations, or acknowledgements, of different timers. Returns
    /// the outcome of each operation; `None` for an operation that is left.
    async fn apply_many(
        &self,
        session: &mut Session,
        act: &mut Act,
    ) -> Result<Vec<Option<Outcome>>, Failure> {
        let ops = &self.ops;
        let none = || vec![None; ops.len()];
        let (mut ids, mut keys) = (BTreeSet::<TimerId>::new(), BTreeSet::<KeyOf>::new());
        let now = act.deployment.time.argument();
        let acks: Vec<(TimerId, Token)> = ops.iter().filter_map(acked).collect();
        if acks.len() == ops.len() && acks.iter().all(|(id, _)| ids.insert(*id)) {
            let ended = end_many(session, now, &acks).await?;
            let outcome = |(id, _): &(TimerId, Token)| {
                let ended = ended.contains(&Id(*id));
                ended.then_some(Outcome::Ended { id: *id, phase: Phase::Done, next: None, skipped: 0 })
            };
            return Ok(acks.iter().map(outcome).collect());
        }
        let timers: Vec<&Timer> = ops.iter().filter_map(is_plain).collect();
        let are_different =
            |timer: &&Timer| ids.insert(timer.id) && timer.key_of().is_none_or(|key| keys.insert(key));
        if ops.len() < 2 || timers.len() < ops.len() || !timers.iter().all(are_different) {
            return Ok(none());
        }
        let made = place_many(session, now, &timers, true).await?;
        let outcome = |timer: &&Timer| {
            let is_made = made.contains(&Id(timer.id));
            if is_made && timer.state == tourbillon_durable::state::State::Pending {
                act.made_due = Some(act.made_due.map_or(timer.due, |first| first.min(timer.due)));
            }
            is_made.then_some(Outcome::Created(timer.id))
        };
        Ok(timers.iter().map(outcome).collect())
    }
}

/// Ends deliveries that leave nothing behind. Returns the ids of their timers. The others have lost their leases, or a
/// next occurrence follows.
async fn end_many(
    session: &mut Session,
    now: Option<i64>,
    acks: &[(TimerId, Token)],
) -> Result<BTreeSet<Id>, Failure> {
    let ids: Vec<Id> = acks.iter().map(|(id, _)| Id(*id)).collect();
    let incarnations: Vec<i64> = acks.iter().map(|(_, token)| token.incarnation.cast_signed()).collect();
    let claims: Vec<i64> = acks.iter().map(|(_, token)| token.claim.cast_signed()).collect();
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
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
