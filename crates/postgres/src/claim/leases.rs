//! Renews leases, and ends expired leases.

use crate::deployment::{Deployment, ms};
use crate::layout::{COLUMNS, Id, moment, read};
use crate::link::{Failure, Session};
use crate::operation::{Act, Transactions, Work, lasting, now_of, write};
use core::time::Duration;
use std::collections::BTreeSet;
use tokio_postgres::types::Type;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::dry_run::DryRun;
use tourbillon_durable::store::{Claimant, Durability, Reaped, Renewal, StoreError};
use tourbillon_durable::timer::TimerId;

/// The greatest number of expired leases that one transaction of a reap (search for expired leases) ends.
const AT_ONCE: i64 = 200;

/// The pause before the next reap (search for expired leases) if a reap could not end an expired lease.
const BLOCKED: Duration = Duration::from_millis(250);

/// Extends leases: each lease lasts for [`Claimant::lease`] from now on. Returns the lost leases, and the leases that
/// other transactions have locked. Does not wait for these locks. During such a wait the node's other leases would
/// expire.
pub(crate) async fn renew(
    deployment: &Deployment,
    by: Claimant,
    leases: Vec<(TimerId, Token)>,
) -> Result<Renewal, StoreError> {
    let mut session = deployment.session().await?;
    let ids: Vec<Id> = leases.iter().map(|(id, _)| Id(*id)).collect();
    let incarnations: Vec<i64> = leases.iter().map(|(_, token)| token.incarnation.cast_signed()).collect();
    let claims: Vec<i64> = leases.iter().map(|(_, token)| token.claim.cast_signed()).collect();
    let (now, lease) = (deployment.argument(), ms(by.lease));
    // A renewal does not wait for the disk or for a standby: otherwise the leases would end in the meantime.
    // A renewal does not move the end of a lease back. The exception is an end that is more than a day later than the
    // new end: it was set while the server's clock was ahead.
    let sql = "WITH asked AS (
                   SELECT l.id, coalesce($1, tourbillon.now_ms()) + $2 AS until
                   FROM (SELECT set_config('synchronous_commit', 'off', true)) AS fast
                   CROSS JOIN unnest($3, $4, $5) AS e (id, incarnation, claim)
                   JOIN tourbillon.lease l ON l.id = e.id AND l.incarnation = e.incarnation AND l.claim = e.claim
                   ORDER BY l.id FOR UPDATE OF l SKIP LOCKED)
               UPDATE tourbillon.lease l
               SET until = CASE WHEN l.until - a.until > 86400000 THEN a.until ELSE greatest(l.until, a.until) END
               FROM asked a WHERE l.id = a.id RETURNING l.id, l.incarnation, l.claim";
    let rows = session
        .query(
            sql,
            &[
                (&now, Type::INT8),
                (&lease, Type::INT8),
                (&ids, Type::UUID_ARRAY),
                (&incarnations, Type::INT8_ARRAY),
                (&claims, Type::INT8_ARRAY),
            ],
        )
        .await
        .map_err(Failure::into_error)?;
    let renewed: BTreeSet<(TimerId, Token)> = rows
        .iter()
        .map(|row| {
            let number = |nth| row.get::<_, i64>(nth).cast_unsigned();
            (row.get::<_, Id>(0).0, Token { incarnation: number(1), claim: number(2) })
        })
        .collect();
    let others: Vec<_> = leases.into_iter().filter(|lease| !renewed.contains(lease)).collect();
    if others.is_empty() {
        return Ok(Renewal::default());
    }
    // Another transaction may have locked such a lease, for example to end the delivery. A locked lease was not
    // renewed. It counts as lost only once it has expired, because from then on the locking transaction may be a reap.
    let lasting = lasting(&mut session, now, &ids).await.map_err(Failure::into_error)?;
    let (silent, lost) = others.into_iter().partition(|lease| lasting.contains(lease));
    Ok(Renewal { lost, silent })
}

/// Returns the moment at which the first lease expires. `None` if there is no lease. If `beside` is given, ignores the
/// leases of the process with this incarnation (the random number that a process gets when it starts).
pub(crate) async fn first_end(
    session: &mut Session,
    beside: Option<u64>,
) -> Result<Option<UtcMillis>, StoreError> {
    let beside = beside.map(u64::cast_signed);
    let sql = "SELECT l.until FROM tourbillon.lease l WHERE $1::bigint IS NULL OR l.incarnation <> $1
               ORDER BY l.until, l.id LIMIT 1";
    let rows = session.read(sql, &[(&beside, Type::INT8)]).await.map_err(Failure::into_error)?;
    Ok(rows.first().map(|row| moment(row.get(0))))
}

/// Ends at most `limit` expired leases. Skips a lease if another transaction has locked the lease or its timer,
/// because that transaction may be ending the delivery.
pub(crate) async fn reap(transactions: &Transactions, limit: u32) -> Result<Reaped, StoreError> {
    let (mut all, mut left) = (Reaped::default(), i64::from(limit));
    let mut has_more = left > 0;
    while has_more {
        let most = left.min(AT_ONCE);
        let (some, found) = transactions.transact(Durability::ProcessCrash, &Reap { most }).await?;
        has_more = found == most && left > most;
        left -= found;
        all.add(some);
    }
    let mut session = transactions.deployment.session().await?;
    let now = transactions.deployment.time.now();
    all.next = first_end(&mut session, None).await?;
    if left > 0 {
        // Other transactions have locked the leases that are still expired.
        all.next = all.next.map(|next| if next <= now { now + BLOCKED } else { next });
    }
    Ok(all)
}

/// The work of one transaction of a reap (search for expired leases): ends at most `most` expired leases.
struct Reap {
    most: i64,
}

impl Work for Reap {
    /// The effect on the timers whose leases have expired, and the number of expired leases that the transaction has
    /// locked.
    type Result = (Reaped, i64);

    /// Returns `true`, so the work does not wait long for locks of other transactions. If another transaction has
    /// locked a timer or its lease, a later reap (search for expired leases) ends the lease.
    fn is_brief(&self) -> bool {
        true
    }

    async fn run(&self, session: &mut Session, act: &mut Act) -> Result<Self::Result, Failure> {
        let now = now_of(session, act).await?;
        let millis = crate::layout::millis(now);
        // A hash join or a merge join may read the whole table. Without them, the statements find the timers by their
        // ids.
        session.run("SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off").await?;
        // The statement skips timers and leases that other transactions have locked, and the limit does not count them.
        // The statement must not wait for these locks: an end of a delivery locks the lease before the timer, so the
        // two transactions could wait for each other.
        let sql = "SELECT l.id FROM tourbillon.lease l JOIN tourbillon.timer t ON t.id = l.id
                   WHERE l.until <= $1 ORDER BY l.until, l.id LIMIT $2 FOR UPDATE OF t, l SKIP LOCKED";
        let rows = session.read(sql, &[(&millis, Type::INT8), (&self.most, Type::INT8)]).await?;
        let mut known: BTreeSet<Id> = rows.iter().map(|row| row.get(0)).collect();
        let found = i64::try_from(known.len()).unwrap_or(i64::MAX);
        if known.is_empty() {
            // A lease without a timer is a fault of the data. It is deleted, because it would always be the first to
            // end.
            let sql = "DELETE FROM tourbillon.lease l WHERE l.until <= $1
                       AND NOT EXISTS (SELECT 1 FROM tourbillon.timer t WHERE t.id = l.id)";
            session.query(sql, &[(&millis, Type::INT8)]).await?;
            return Ok((Reaped::default(), 0));
        }
        known.extend(act.also.iter().copied().map(Id));
        let known: Vec<Id> = known.into_iter().collect();
        let sql = format!(
            "SELECT {COLUMNS} FROM unnest($1) AS k (id),
                 LATERAL (SELECT r.* FROM tourbillon.stored_timer r WHERE r.id = k.id OFFSET 0) r"
        );
        let rows = session.read(&sql, &[(&known, Type::UUID_ARRAY)]).await?;
        let mut draft = DryRun::new(now);
        for row in &rows {
            match read(row, 0) {
                Ok(timer) => draft.know(&timer),
                // The row cannot be read. Its lease ends here, and the next claim of the timer sets the row aside. By
                // the new `xid` the claim finds the timer, although the low-water mark has passed the timer.
                Err(id) => {
                    let sql = "WITH ended AS (DELETE FROM tourbillon.lease l WHERE l.id = $1)
                               UPDATE tourbillon.timer t SET xid = pg_current_xact_id() WHERE t.id = $1";
                    session.query(sql, &[(&id, Type::UUID)]).await?;
                }
            }
        }
        let (reaped, changes) = draft.reap()?;
        write(session, act, now, &changes).await?;
        Ok((reaped, found))
    }
}
