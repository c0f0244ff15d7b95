//! One operation within an open transaction.

use super::needs::gather;
use super::transaction::{Act, Turn};
use super::write::write;
use crate::link::{Failure, Session};
use tourbillon_durable::store::{Op, Outcome};

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
