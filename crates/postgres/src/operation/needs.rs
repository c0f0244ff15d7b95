//! Locks and reads the stored timers that an operation needs.

use super::transaction::Act;
use crate::layout::{COLUMNS, Id, moment, read};
use crate::link::{Failure, Session};
use std::collections::BTreeSet;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{State, Token};
use tourbillon_durable::store::dry_run::DryRun;
use tourbillon_durable::store::{Op, ServerTime, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Address, Timer, TimerId};

/// The number of timers that a bulk operation locks at a time.
const AT_ONCE: i64 = 1_000;

/// The stored data that a [`DryRun`] needs to compute the effect of operations.
pub(crate) struct Known {
    pub(crate) now: UtcMillis,
    pub(crate) timers: Vec<Timer>,
    /// The id of the new timer, and the moment until which the server remembers this id, if an ended timer had the same
    /// id and the server still remembers it.
    pub(crate) remembered: Option<(TimerId, UtcMillis)>,
}

impl Known {
    /// Makes a dry run that knows these data. The dry run computes the effect of operations without access to the
    /// server.
    pub(crate) fn dry_run(&self) -> DryRun {
        let mut draft = DryRun::new(self.now);
        self.timers.iter().for_each(|timer| draft.know(timer));
        if let Some((id, until)) = self.remembered {
            draft.know_remembered(id, until);
        }
        draft
    }
}

/// Returns the addresses of the timers that an operation names. Also returns the id of the timer that the operation may
/// insert. If an earlier timer had this id and has ended, the server may still remember the id. Fails for an operation
/// that this store does not know.
fn named(op: &Op) -> Result<(Vec<Address>, Option<TimerId>), StoreError> {
    Ok(match op {
        Op::Place(timer, _) => {
            let key = timer.key_of().map(Address::Key);
            ([Address::Id(timer.id)].into_iter().chain(key).collect(), Some(timer.id))
        }
        Op::Cancel(at, _) | Op::Move(at, _) | Op::Pause(at) | Op::Resume(at) | Op::Fire(at) => {
            (vec![at.clone()], None)
        }
        Op::Ack(id, _)
        | Op::Skip(id, _)
        | Op::Fail(id, _, _)
        | Op::Snooze(id, _, _)
        | Op::Release(id, _)
        | Op::Park(id, _, _)
        | Op::Replay(id) => (vec![Address::Id(*id)], None),
        // `gather` searches for the timers of these operations.
        Op::CancelLabelled { .. } | Op::Unpark(..) => (Vec::new(), None),
        // `Op` is non-exhaustive, so the compiler does not report an operation that has no arm here.
        _ => {
            let message = format!("this store does not know the operation {op:?} yet");
            return Err(StoreError::new(StoreErrorKind::Limit, message));
        }
    })
}

/// Locks and reads the timers that an operation needs. The locks last until the transaction ends.
pub(crate) async fn gather(session: &mut Session, act: &Act, op: &Op) -> Result<Known, Failure> {
    let (addresses, asked) = named(op)?;
    let mut ids: BTreeSet<Id> = act.also.iter().copied().map(Id).collect();
    for at in &addresses {
        ids.extend(lock(session, at).await?);
    }
    let mut known = Known { now: now(session, act).await?, timers: Vec::new(), remembered: None };
    match op {
        Op::CancelLabelled { namespace, label, limit } => {
            lock_labelled(session, namespace, label, i64::from((*limit).max(1)), &mut ids).await?;
        }
        Op::Unpark(reason, limit) => {
            lock_parked(session, act, reason, i64::from(*limit), &mut ids).await?;
        }
        _ => {}
    }
    known.timers = read_all(session, &ids).await?;
    // A dead timer that becomes pending takes its key back if the key is free. So a timer that has the key is needed,
    // too.
    let revived = |timer: &Timer| if let State::Dead(_) = timer.state { timer.key_of() } else { None };
    if let Op::Replay(_) | Op::Fire(_) = op
        && let Some(key) = known.timers.iter().find_map(revived)
        && let Some(owner) = lock(session, &Address::Key(key)).await?
    {
        ids.insert(owner);
        known.timers = read_all(session, &ids).await?;
    }
    if let Some(id) = asked {
        let sql = "SELECT m.until FROM tourbillon.remembered m WHERE m.id = $1 AND m.until > $2";
        let now = known.now.as_millis().cast_signed();
        let rows = session.read(sql, &[(&Id(id), Type::UUID), (&now, Type::INT8)]).await?;
        known.remembered = rows.first().map(|row| (id, moment(row.get(0))));
    }
    Ok(known)
}

/// Locks and reads the timers that the operations name by their ids.
pub(crate) async fn gather_all(session: &mut Session, act: &Act, ops: &[Op]) -> Result<Known, Failure> {
    let mut ids = ids_of(ops)?;
    ids.extend(act.also.iter().copied().map(Id));
    let all: Vec<Id> = ids.iter().copied().collect();
    let sql = "SELECT t.id FROM tourbillon.timer t WHERE t.id = ANY ($1) ORDER BY t.id FOR UPDATE";
    let _locked = session.read(sql, &[(&all, Type::UUID_ARRAY)]).await?;
    Ok(Known { now: now(session, act).await?, timers: read_all(session, &ids).await?, remembered: None })
}

fn ids_of(ops: &[Op]) -> Result<BTreeSet<Id>, StoreError> {
    let id = |at| if let Address::Id(id) = at { Some(Id(id)) } else { None };
    let mut ids = BTreeSet::new();
    for op in ops {
        ids.extend(named(op)?.0.into_iter().filter_map(id));
    }
    Ok(ids)
}

/// Locks the timers of the given operations, which end deliveries, without waiting for locks. Returns the ids of the
/// timers that other transactions have locked. If [`Act::skips`] is false, locks nothing, and returns an empty set.
pub(crate) async fn held(session: &mut Session, act: &Act, ops: &[Op]) -> Result<BTreeSet<Id>, Failure> {
    if !act.skips {
        return Ok(BTreeSet::new());
    }
    let ids: Vec<Id> = ids_of(ops)?.into_iter().collect();
    let sql =
        "SELECT t.id FROM tourbillon.timer t WHERE t.id = ANY ($1) ORDER BY t.id FOR UPDATE SKIP LOCKED";
    let rows = session.read(sql, &[(&ids, Type::UUID_ARRAY)]).await?;
    let free: BTreeSet<Id> = rows.iter().map(|row| row.get(0)).collect();
    let sql = "SELECT t.id FROM tourbillon.timer t WHERE t.id = ANY ($1)";
    let rows = session.read(sql, &[(&ids, Type::UUID_ARRAY)]).await?;
    Ok(rows.iter().map(|row| row.get(0)).filter(|id| !free.contains(id)).collect())
}

/// Returns the leases of the given timers, without the expired leases. If another transaction has locked a returned
/// lease or its timer, that transaction cannot be a reap (search for expired leases). A reap locks only expired leases
/// and their timers.
pub(crate) async fn lasting(
    session: &mut Session,
    now: Option<i64>,
    ids: &[Id],
) -> Result<BTreeSet<(TimerId, Token)>, Failure> {
    let sql = "SELECT l.id, l.incarnation, l.claim FROM tourbillon.lease l
               WHERE l.id = ANY ($1) AND l.until > coalesce($2, tourbillon.now_ms())";
    let rows = session.read(sql, &[(&ids, Type::UUID_ARRAY), (&now, Type::INT8)]).await?;
    let number = |row: &Row, nth| row.get::<_, i64>(nth).cast_unsigned();
    let token = |row| Token { incarnation: number(row, 1), claim: number(row, 2) };
    Ok(rows.iter().map(|row| (row.get::<_, Id>(0).0, token(row))).collect())
}

/// Returns the present moment for the decisions of the transaction, for example whether a lease has expired. The moment
/// is the server's time, or the time of the test clock.
pub(crate) async fn now(session: &mut Session, act: &Act) -> Result<UtcMillis, Failure> {
    if let Some(now) = act.deployment.argument() {
        return Ok(moment(now));
    }
    let sent = ServerTime::moment();
    let rows = session.read("SELECT tourbillon.now_ms()", &[]).await?;
    let now = moment(rows.first().map_or(0, |row| row.get(0)));
    if act.deployment.time.learn(sent, now) {
        act.deployment.alarm.wake();
    }
    Ok(now)
}

/// Locks the timer at an address, and returns its id. Waits for a transaction that has locked the timer.
async fn lock(session: &mut Session, at: &Address) -> Result<Option<Id>, Failure> {
    let (id, namespace, key) = match at {
        Address::Id(id) => (Some(Id(*id)), None, None),
        Address::Key(at) => (None, Some(&*at.namespace), Some(&*at.key)),
    };
    let sql = "SELECT tourbillon.lock_at($1, $2, $3)";
    let rows = session.read(sql, &[(&id, Type::UUID), (&namespace, Type::TEXT), (&key, Type::TEXT)]).await?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

/// Locks the timers with a label, in the order of their ids, and adds their ids to `ids`. Stops after `limit` + 1
/// timers that can be withdrawn: the last of them shows that more than `limit` timers are left. Timers that were
/// withdrawn already are locked, too, but do not count.
async fn lock_labelled(
    session: &mut Session,
    namespace: &str,
    label: &str,
    limit: i64,
    ids: &mut BTreeSet<Id>,
) -> Result<(), Failure> {
    let sql = "SELECT t.id, t.phase IN ('c', 'r') FROM tourbillon.timer t
               WHERE t.labels @> ARRAY[$2] AND t.labels IS NOT NULL AND t.namespace = $1
                   AND ($3 IS NULL OR t.id > $3)
               ORDER BY t.id LIMIT $4 FOR UPDATE";
    let (mut after, mut found): (Option<Id>, i64) = (None, 0);
    loop {
        let most = (limit + 1 - found).clamp(1, AT_ONCE);
        let rows = session
            .read(
                sql,
                &[(&namespace, Type::TEXT), (&label, Type::TEXT), (&after, Type::UUID), (&most, Type::INT8)],
            )
            .await?;
        for row in &rows {
            after = Some(row.get(0));
            ids.extend(after);
            found += i64::from(!row.get::<_, bool>(1));
        }
        if found > limit || i64::try_from(rows.len()).unwrap_or(i64::MAX) < most {
            return Ok(());
        }
    }
}

/// The condition that a timer is in a shard of the node whose incarnation is the first parameter of the statement. If
/// the parameter is NULL, the timer may be in any shard.
macro_rules! owned {
    () => {
        "($1 IS NULL OR t.shard IN (SELECT s.number FROM tourbillon.shard s WHERE s.owner = $1))"
    };
}

/// Returns whether at least one timer is parked (set aside) for `reason` in the shards of the node `owner`. If `owner`
/// is `None`, searches all shards.
pub(crate) async fn is_any_parked(
    session: &mut Session,
    reason: &str,
    owner: Option<i64>,
) -> Result<bool, Failure> {
    let sql = concat!(
        "SELECT EXISTS (SELECT 1 FROM tourbillon.timer t WHERE t.phase = 'k' AND t.reason = $2 AND ",
        owned!(),
        ")"
    );
    let rows = session.read(sql, &[(&owner, Type::INT8), (&reason, Type::TEXT)]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Locks the timers that are parked (set aside) for `reason`, in the order of their due moments, and adds their ids to
/// `ids`. Stops after `limit` timers that can become pending. A timer that must stay parked, because its series is
/// paused, is locked, too, but does not count. Searches the shards that [`Act::owner`] names. If [`Act::skips`] is
/// true, passes over timers that other transactions have locked.
async fn lock_parked(
    session: &mut Session,
    act: &Act,
    reason: &str,
    limit: i64,
    ids: &mut BTreeSet<Id>,
) -> Result<(), Failure> {
    let sql = format!(
        "SELECT t.id, t.due, coalesce((t.extra #>> '{{series,paused}}')::boolean, false) AND $2 <> $6
         FROM tourbillon.timer t WHERE t.phase = 'k' AND t.reason = $2 AND (t.due, t.id) > ($3, $4) AND {}
         ORDER BY t.due, t.id LIMIT $5 FOR UPDATE {}",
        owned!(),
        if act.skips { "SKIP LOCKED" } else { "" }
    );
    let (mut after, mut found) = ((-1_i64, Id(TimerId::from_u128(0))), 0);
    while found < limit {
        let most = (limit - found).clamp(1, AT_ONCE);
        let rows = session
            .read(
                &sql,
                &[
                    (&act.owner, Type::INT8),
                    (&reason, Type::TEXT),
                    (&after.0, Type::INT8),
                    (&after.1, Type::UUID),
                    (&most, Type::INT8),
                    (&tourbillon_durable::store::PAUSED, Type::TEXT),
                ],
            )
            .await?;
        for row in &rows {
            after = (row.get(1), row.get(0));
            ids.insert(after.1);
            found += i64::from(!row.get::<_, bool>(2));
        }
        if i64::try_from(rows.len()).unwrap_or(i64::MAX) < most {
            break;
        }
    }
    Ok(())
}

/// Reads the timers with the given ids. Fails if the row of a timer cannot be read.
pub(crate) async fn read_all(session: &mut Session, ids: &BTreeSet<Id>) -> Result<Vec<Timer>, Failure> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Id> = ids.iter().copied().collect();
    let sql = format!("SELECT {COLUMNS} FROM tourbillon.stored_timer r WHERE r.id = ANY ($1) ORDER BY r.id");
    let rows = session.read(&sql, &[(&ids, Type::UUID_ARRAY)]).await?;
    let read_one = |row| {
        read(row, 0).map_err(|id| {
            let message = format!("the row of the timer {} cannot be read", id.0);
            Failure::Failed(StoreError::new(StoreErrorKind::Corrupt, message))
        })
    };
    rows.iter().map(read_one).collect()
}
