//! Writes the changes that a dry run has computed.

use super::transaction::{Act, Turn};
use crate::layout::{Id, Stored, millis};
use crate::link::{Failure, Param, Session, io};
use tokio_postgres::types::Type;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::State;
use tourbillon_durable::store::dry_run::Changes;
use tourbillon_durable::timer::Timer;

/// Writes changes within an open transaction. The timers that exist are locked. If a new timer's id or key is in the
/// way, the transaction is repeated.
pub(crate) async fn write(
    session: &mut Session,
    act: &mut Act,
    turn: &mut Turn,
    now: UtcMillis,
    changes: &Changes,
) -> Result<(), Failure> {
    if !changes.forget.is_empty() {
        let ids: Vec<Id> = changes.forget.iter().copied().map(Id).collect();
        let sql = "DELETE FROM tourbillon.remembered m WHERE m.id = ANY ($1)";
        session.query(sql, &[(&ids, Type::UUID_ARRAY)]).await?;
    }
    for (id, until) in &changes.remember {
        let sql = "INSERT INTO tourbillon.remembered (id, until) VALUES ($1, $2)
                   ON CONFLICT (id) DO UPDATE SET until = excluded.until";
        session.query(sql, &[(&Id(*id), Type::UUID), (&millis(*until), Type::INT8)]).await?;
    }
    // Timers that give up their keys come before the timers that take the keys.
    let rank = |before: Option<&Timer>, after: Option<&Timer>| match (before, after) {
        (Some(_), None) => 0,
        (Some(_), Some(after)) if !after.owns_key() => 1,
        (Some(_), Some(_)) => 2,
        _ => 3,
    };
    let mut ordered: Vec<_> = changes.timers.iter().collect();
    ordered.sort_by_key(|change| rank(change.before.as_ref(), change.after.as_ref()));
    for change in ordered {
        match (&change.before, &change.after) {
            (Some(before), None) => remove(session, before).await?,
            (Some(before), Some(after)) => update(session, now, before, after).await?,
            (None, Some(after)) => insert(session, turn, now, after).await?,
            (None, None) => {}
        }
        if let Some(Timer { state: State::Pending, due, .. }) = &change.after {
            act.made_due = Some(act.made_due.map_or(*due, |first| first.min(*due)));
        }
    }
    Ok(())
}

async fn remove(session: &mut Session, timer: &Timer) -> Result<(), Failure> {
    let sql = "WITH ended AS (DELETE FROM tourbillon.lease l WHERE l.id = $1)
               DELETE FROM tourbillon.timer t WHERE t.id = $1";
    session.query(sql, &[(&Id(timer.id), Type::UUID)]).await.map(drop)
}

/// Calls `call` with the values of a row: the parameters 1 to 13 of `update` and `insert`.
macro_rules! values {
    ($stored:ident, $payload:ident, $labels:ident, $now:ident) => {{
        let params: [Param<'_>; 13] = [
            (&$stored.id, Type::UUID),
            (&$stored.due, Type::INT8),
            (&$stored.created, Type::INT8),
            (&$now, Type::INT8),
            (&$stored.phase, Type::TEXT),
            (&$stored.namespace, Type::TEXT),
            (&$stored.key, Type::TEXT),
            (&$stored.kind, Type::TEXT),
            (&$payload, Type::BYTEA),
            (&$labels, Type::TEXT),
            (&$stored.reason, Type::TEXT),
            (&$stored.died, Type::INT8),
            (&$stored.extra, Type::TEXT),
        ];
        params
    }};
}

async fn update(session: &mut Session, now: UtcMillis, before: &Timer, after: &Timer) -> Result<(), Failure> {
    let (was, stored) = (Stored::of(before), Stored::of(after));
    let (payload, labels, now) = (&*stored.payload, stored.labels_json(), millis(now));
    let sql = "UPDATE tourbillon.timer t SET due = $2, created = $3, xid = tourbillon.xid_for($2, $4),
                   phase = $5::\"char\", namespace = $6, key = $7, kind = $8, payload = $9,
                   labels = CASE WHEN $10 IS NOT NULL
                       THEN ARRAY(SELECT jsonb_array_elements_text($10::jsonb)) END,
                   reason = $11, died = $12, extra = $13::jsonb
               WHERE t.id = $1";
    session.query(sql, &values!(stored, payload, labels, now)).await?;
    // A withdrawal leaves the lease as it is. No other operation changes a lease.
    if was.lease.is_some() && stored.lease.is_none() {
        let sql = "DELETE FROM tourbillon.lease l WHERE l.id = $1";
        session.query(sql, &[(&stored.id, Type::UUID)]).await?;
    }
    Ok(())
}

async fn insert(
    session: &mut Session,
    turn: &mut Turn,
    now: UtcMillis,
    timer: &Timer,
) -> Result<(), Failure> {
    let stored = Stored::of(timer);
    let (payload, labels, now) = (&*stored.payload, stored.labels_json(), millis(now));
    let sql = "INSERT INTO tourbillon.timer (id, due, created, xid, shard, phase, namespace, key, kind, payload,
                   labels, reason, died, extra)
               VALUES ($1, $2, $3, tourbillon.xid_for($2, $4), tourbillon.shard_of($1), $5::\"char\", $6, $7, $8, $9,
                   CASE WHEN $10 IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text($10::jsonb)) END,
                   $11, $12, $13::jsonb)
               ON CONFLICT DO NOTHING RETURNING id";
    let rows = session.query(sql, &values!(stored, payload, labels, now)).await?;
    if rows.is_empty() {
        // The dry run has taken the id and the key for free. The next turn reads the timer that has the id.
        turn.also.insert(timer.id);
        return Err(Failure::Again(io("another transaction has stored a timer with the same id or key")));
    }
    Ok(())
}
