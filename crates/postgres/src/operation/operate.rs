//! One operation within an open transaction.

use super::needs::{gather, look_at};
use super::transaction::{Act, Turn};
use super::write::write;
use crate::link::{Failure, Session};
use tourbillon_durable::store::{Op, Outcome};

/// Returns the outcome that the end of a delivery would have now. Locks and changes nothing.
pub(crate) async fn foresee(session: &mut Session, act: &Act, op: &Op) -> Result<Outcome, Failure> {
    let known = look_at(session, act, op).await?;
    Ok(known.dry_run().apply(op.clone())?.0)
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
