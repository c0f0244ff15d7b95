//! Writes the changes that a dry run has computed.

use super::columns::Columns;
use super::transaction::Act;
use crate::layout::{Id, Stored, millis};
use crate::link::{Failure, Param, Session, io};
use std::collections::BTreeSet;
use tokio_postgres::types::Type;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::dry_run::{Change, Changes};
use tourbillon_durable::timer::Timer;

/// Writes changes within an open transaction, which has locked the existing timers. Fails with [`Failure::Again`] if
/// the id or the key of a new timer is taken. The caller then repeats the transaction.
pub(crate) async fn write(
    session: &mut Session,
    act: &mut Act,
    now: UtcMillis,
    changes: &Changes,
) -> Result<(), Failure> {
    if !changes.forget.is_empty() {
        let ids: Vec<Id> = changes.forget.iter().copied().map(Id).collect();
        let sql = "DELETE FROM tourbillon.remembered m WHERE m.id = ANY ($1)";
        session.query(sql, &[(&ids, Type::UUID_ARRAY)]).await?;
    }
    if !changes.remember.is_empty() {
        let (ids, untils): (Vec<Id>, Vec<i64>) =
            changes.remember.iter().map(|(id, until)| (Id(*id), millis(*until))).unzip();
        let sql = "INSERT INTO tourbillon.remembered (id, until) SELECT n.id, n.until FROM unnest($1, $2) AS n (id, until)
                   ON CONFLICT (id) DO UPDATE SET until = excluded.until";
        session.query(sql, &[(&ids, Type::UUID_ARRAY), (&untils, Type::INT8_ARRAY)]).await?;
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
    let is_removed = |change: &&&Change| change.before.is_some() && change.after.is_none();
    let removed = ordered.iter().filter(is_removed).filter_map(|change| change.before.as_ref());
    remove(session, removed.map(|timer| Id(timer.id)).collect()).await?;
    let mut new = Vec::new();
    for change in ordered {
        match (&change.before, &change.after) {
            (Some(before), Some(after)) => update(session, now, before, after).await?,
            (None, Some(after)) => new.push(after),
            (_, None) => {}
        }
        change.after.iter().for_each(|after| act.made.add(after));
    }
    if new.is_empty() { Ok(()) } else { insert(session, act, now, &new).await }
}

async fn remove(session: &mut Session, ids: Vec<Id>) -> Result<(), Failure> {
    if ids.is_empty() {
        return Ok(());
    }
    let sql = "WITH ended AS (DELETE FROM tourbillon.lease l WHERE l.id = ANY ($1))
               DELETE FROM tourbillon.timer t WHERE t.id = ANY ($1)";
    session.query(sql, &[(&ids, Type::UUID_ARRAY)]).await.map(drop)
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
    let params: [Param<'_>; 13] = [
        (&stored.id, Type::UUID),
        (&stored.due, Type::INT8),
        (&stored.created, Type::INT8),
        (&now, Type::INT8),
        (&stored.phase, Type::TEXT),
        (&stored.namespace, Type::TEXT),
        (&stored.key, Type::TEXT),
        (&stored.kind, Type::TEXT),
        (&payload, Type::BYTEA),
        (&labels, Type::TEXT),
        (&stored.reason, Type::TEXT),
        (&stored.died, Type::INT8),
        (&stored.extra, Type::TEXT),
    ];
    session.query(sql, &params).await?;
    // If a timer stays leased, as after a withdrawal, its lease does not change. So no lease is updated here.
    if was.lease.is_some() && stored.lease.is_none() {
        let sql = "DELETE FROM tourbillon.lease l WHERE l.id = $1";
        session.query(sql, &[(&stored.id, Type::UUID)]).await?;
    }
    Ok(())
}

/// Inserts timers by one statement. A trigger updates the numbers of timers (table `tally`) once for each statement. So
/// a restore of a backup does not update these numbers for each timer.
async fn insert(
    session: &mut Session,
    act: &mut Act,
    now: UtcMillis,
    timers: &[&Timer],
) -> Result<(), Failure> {
    let (columns, now) = (Columns::of(timers), millis(now));
    let sql = "INSERT INTO tourbillon.timer (id, due, created, xid, shard, phase, namespace, key, kind, payload,
                   labels, reason, died, extra)
               SELECT n.id, n.due, n.created, tourbillon.xid_for(n.due, $13), tourbillon.shard_of(n.id),
                   n.phase::\"char\", n.namespace, n.key, n.kind, n.payload,
                   CASE WHEN n.labels IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(n.labels::jsonb)) END,
                   n.reason, n.died, n.extra::jsonb
               FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) AS n (id, due, namespace, key, kind,
                   payload, labels, phase, reason, extra, created, died)
               ON CONFLICT DO NOTHING RETURNING id";
    let mut params = columns.of_any();
    params.push((&now, Type::INT8));
    let rows = session.query(sql, &params).await?;
    let stored: BTreeSet<Id> = rows.iter().map(|row| row.get(0)).collect();
    if stored.len() < timers.len() {
        // The dry run assumed that the ids and the keys are free. The next attempt also reads the timers with these
        // ids.
        act.also.extend(timers.iter().map(|timer| timer.id).filter(|id| !stored.contains(&Id(*id))));
        return Err(Failure::Again(io("another transaction has stored a timer with the same id or key")));
    }
    Ok(())
}
