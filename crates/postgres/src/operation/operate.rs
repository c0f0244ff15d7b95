//! One operation within an open transaction.

use super::needs::{gather, gather_all, look_at};
use super::transaction::{Act, Turn};
use super::write::write;
use crate::link::{Failure, Session};
use tourbillon_durable::store::{Op, Outcome};

/// Returns the outcomes that ends of deliveries would have now. Locks and changes nothing.
pub(crate) async fn foresee(
    session: &mut Session,
    act: &Act,
    ends: Vec<Op>,
) -> Result<Vec<Outcome>, Failure> {
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    let known = look_at(session, act, &ends).await?;
    Ok(known.dry_run().apply_all(ends)?.0)
}

/// Applies operations, in order, from one look at their timers. Each touches no timer but the one that it names by its
/// id.
pub(crate) async fn operate_all(
    session: &mut Session,
    act: &mut Act,
    turn: &mut Turn,
    ops: Vec<Op>,
) -> Result<Vec<Outcome>, Failure> {
    if ops.is_empty() {
        return Ok(Vec::new());
    }
    let known = gather_all(session, act, turn, &ops).await?;
    let (outcomes, changes) = known.dry_run().apply_all(ops)?;
    write(session, act, turn, known.now, &changes).await?;
    Ok(outcomes)
}

/// Applies an operation within an open transaction.
pub(crate) async fn operate(
    session: &mut Session,
    act: &mut Act,
    turn: &mut Turn,
    op: &Op,
) -> Result<Outcome, Failure> {
    let known = gather(session, act, turn, op).await?;
    let (outcome, changes) = known.dry_run().apply(op.clone())?;
    write(session, act, turn, known.now, &changes).await?;
    Ok(outcome)
}
