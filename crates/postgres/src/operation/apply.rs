//! The operations of one call, in one transaction.

use super::creations::place_many;
use super::needs::{gather_all, held};
use super::operate::{foresee, operate};
use super::transaction::{Act, Done, Turn, Work};
use super::write::write;
use crate::layout::Id;
use crate::link::{Failure, Session};
use std::collections::BTreeSet;
use tokio_postgres::types::Type;
use tourbillon_durable::state::{Phase, Token};
use tourbillon_durable::store::{IfPresent, Op, Outcome};
use tourbillon_durable::timer::{Address, KeyOf, Timer, TimerId};

/// Returns whether a timer may be stored by a statement that looks at no other timer.
pub(super) fn is_plain(op: &Op) -> Option<&Timer> {
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

/// Returns the id of the timer whose delivery an operation ends. Zero if it ends no delivery.
pub(super) fn ended_by(op: &Op) -> TimerId {
    match op {
        Op::Ack(id, _)
        | Op::Skip(id, _)
        | Op::Fail(id, ..)
        | Op::Snooze(id, ..)
        | Op::Release(id, _)
        | Op::Park(id, ..) => *id,
        _ => TimerId::from_u128(0),
    }
}

/// The work of a call: operations in their order.
pub(super) struct Apply {
    pub(super) ops: Vec<Op>,
    /// Whether the work waits for no transaction of a caller. Then all operations are ends of deliveries.
    pub(super) is_brief: bool,
}

impl Work for Apply {
    /// The outcomes, and the ends that had no effect yet because other transactions hold their timers.
    type Result = (Vec<Outcome>, Vec<Op>);

    fn is_brief(&self) -> bool {
        self.is_brief
    }

    fn run<'a>(
        &'a self,
        session: &'a mut Session,
        act: &'a mut Act,
        turn: &'a mut Turn,
    ) -> Done<'a, Self::Result> {
        Box::pin(async move {
            if let Some(outcomes) = withdraw_many(session, act, turn, &self.ops).await? {
                return Ok((outcomes, Vec::new()));
            }
            let held = if turn.skips { held(session, &self.ops).await? } else { BTreeSet::new() };
            let (mut outcomes, mut late) = (Vec::with_capacity(self.ops.len()), Vec::new());
            let made = self.apply_many(session, act, &held).await?;
            for (op, made) in self.ops.iter().zip(made) {
                outcomes.push(match made {
                    Some(outcome) => outcome,
                    None if held.contains(&Id(ended_by(op))) => {
                        late.push(op.clone());
                        foresee(session, act, op).await?
                    }
                    None => operate(session, act, turn, op).await?,
                });
            }
            Ok((outcomes, late))
        })
    }
}

impl Apply {
    /// Applies operations that one statement can do: creations, or acknowledgements, of different timers. Returns
    /// the outcome of each operation; `None` for an operation that is left.
    async fn apply_many(
        &self,
        session: &mut Session,
        act: &mut Act,
        held: &BTreeSet<Id>,
    ) -> Result<Vec<Option<Outcome>>, Failure> {
        let ops = &self.ops;
        let none = || vec![None; ops.len()];
        let (mut ids, mut keys) = (BTreeSet::<TimerId>::new(), BTreeSet::<KeyOf>::new());
        let now = act.deployment.time.argument();
        let acks: Vec<(TimerId, Token)> = ops.iter().filter_map(acked).collect();
        if acks.len() == ops.len() && acks.iter().all(|(id, _)| ids.insert(*id)) {
            let free = |(id, _): &(TimerId, Token)| !held.contains(&Id(*id));
            let free: Vec<_> = acks.iter().copied().filter(free).collect();
            let ended = end_many(session, now, &free).await?;
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
        let made = place_many(session, now, &timers, true, false).await?;
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

/// Applies operations all of which withdraw timers by their ids, as an operation on many timers does. Such an operation
/// touches no other timer. `None` if there is another operation among them, or a single one.
async fn withdraw_many(
    session: &mut Session,
    act: &mut Act,
    turn: &mut Turn,
    ops: &[Op],
) -> Result<Option<Vec<Outcome>>, Failure> {
    let withdrawn = |op: &Op| if let Op::Cancel(Address::Id(id), _) = op { Some(Id(*id)) } else { None };
    let Some(ids) = ops.iter().map(withdrawn).collect::<Option<BTreeSet<Id>>>() else { return Ok(None) };
    if ops.len() < 2 {
        return Ok(None);
    }
    let known = gather_all(session, act, &ids).await?;
    let (outcomes, changes) = known.dry_run().apply_all(ops.to_vec())?;
    write(session, act, turn, known.now, &changes).await?;
    Ok(Some(outcomes))
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
