//! Applies operations within an open transaction.

use super::needs::{gather, gather_all};
use super::transaction::Act;
use super::write::write;
use crate::link::{Failure, Session};
use tourbillon_durable::store::{Op, Outcome};

/// Applies operations in order. Reads their timers once, before the first operation. Each of the given operations must
/// name its timer by the id, and must not affect another stored timer.
pub(crate) async fn operate_all(
    session: &mut Session,
    act: &mut Act,
    ops: Vec<Op>,
) -> Result<Vec<Outcome>, Failure> {
    if ops.is_empty() {
        return Ok(Vec::new());
    }
    let known = gather_all(session, act, &ops).await?;
    let (outcomes, changes) = known.dry_run().apply_all(ops)?;
    write(session, act, known.now, &changes).await?;
    Ok(outcomes)
}

/// Applies an operation within an open transaction.
pub(crate) async fn operate(session: &mut Session, act: &mut Act, op: &Op) -> Result<Outcome, Failure> {
    let known = gather(session, act, op).await?;
    let (outcome, changes) = known.dry_run().apply(op.clone())?;
    write(session, act, known.now, &changes).await?;
    Ok(outcome)
}
