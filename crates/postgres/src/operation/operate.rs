//! Applies operations within an open transaction.

use super::needs::{gather, gather_all};
use super::transaction::Act;
use super::write::write;
use crate::layout::Id;
use crate::link::{Failure, Param, Session};
use tokio_postgres::types::Type;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{Op, Outcome};
use tourbillon_durable::timer::TimerId;

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

/// Records that an [`Op::Return`], which stores a timer again after a claim has removed it, takes effect. Returns false
/// if the record exists already: an earlier request has stored the timer, and the answer to that request was lost. The
/// row of the timer does not show this, because another node may have claimed and removed the timer again. If an
/// earlier request for the same operation is still under way, waits for that request.
///
/// The record is an id made of the timer's id and the token. The table of the remembered ids of ended timers keeps it
/// for an hour.
async fn record_return(session: &mut Session, act: &Act, id: TimerId, token: Token) -> Result<bool, Failure> {
    let sql = "INSERT INTO tourbillon.remembered (id, until)
               VALUES (tourbillon.mark_of($1, $2, $3), coalesce($4, tourbillon.now_ms()) + 3600000)
               ON CONFLICT (id) DO NOTHING RETURNING id";
    let (incarnation, claim) = (token.incarnation.cast_signed(), token.claim.cast_signed());
    let now = act.deployment.argument();
    let params: [Param<'_>; 4] =
        [(&Id(id), Type::UUID), (&incarnation, Type::INT8), (&claim, Type::INT8), (&now, Type::INT8)];
    Ok(!session.query(sql, &params).await?.is_empty())
}

/// Applies an operation within an open transaction.
pub(crate) async fn operate(session: &mut Session, act: &mut Act, op: &Op) -> Result<Outcome, Failure> {
    if let Op::Return(timer, token) = op
        && !record_return(session, act, timer.id, *token).await?
    {
        return Ok(Outcome::Repeated(timer.id));
    }
    let known = gather(session, act, op).await?;
    let (outcome, changes) = known.dry_run().apply(op.clone())?;
    write(session, act, known.now, &changes).await?;
    Ok(outcome)
}
