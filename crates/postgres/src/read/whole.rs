//! Reads the whole store: for a copy, and for a check.

use crate::deployment::Deployment;
use crate::layout::{COLUMNS, Id, read};
use crate::link::Failure;
use tokio::sync::mpsc;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Fault, StoreError};
use tourbillon_durable::timer::Timer;

/// The greatest number of faults that a check returns.
const MOST_FAULTS: usize = 1_000;

/// Sends all timers of one snapshot to `to`. Stops early if the receiver is dropped. Leaves out rows that cannot be
/// read.
pub(crate) async fn export(deployment: &Deployment, to: mpsc::Sender<Timer>) -> Result<(), StoreError> {
    let mut session = deployment.session_for_read().await?;
    let sql = format!("SELECT {COLUMNS} FROM tourbillon.stored_timer r ORDER BY r.id");
    let mut rows = session.rows(&sql).await.map_err(Failure::into_error)?;
    while let Some(row) = rows.next().await.map_err(Failure::into_error)? {
        if let Ok(timer) = read(&row, 0)
            && to.send(timer).await.is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Returns the faults of the structure: rows that cannot be read, leases without timers, withdrawn timers without
/// leases, timers in a wrong shard, and wrong numbers in the table `tally`. Reads the timers one after the other, so
/// they need not fit into memory.
pub(crate) async fn check(deployment: &Deployment) -> Result<Vec<Fault>, StoreError> {
    let mut session = deployment.session_for_read().await?;
    let failed = Failure::into_error;
    let mut faults = Vec::new();
    let sql = format!("SELECT {COLUMNS} FROM tourbillon.stored_timer r ORDER BY r.id");
    let mut rows = session.rows(&sql).await.map_err(failed)?;
    while faults.len() < MOST_FAULTS
        && let Some(row) = rows.next().await.map_err(failed)?
    {
        if let Err(Id(id)) = read(&row, 0) {
            faults.push(Fault::new("timer", Some(id), "the row cannot be read"));
        }
    }
    drop(session);
    let mut session = deployment.session_for_read().await?;
    let sql = "SELECT 'lease', l.id, 'a lease without a timer' FROM tourbillon.lease l
               WHERE NOT EXISTS (SELECT 1 FROM tourbillon.timer t WHERE t.id = l.id AND t.phase IN ('p', 'c', 'r'))
               UNION ALL
               SELECT 'timer', t.id, 'a withdrawn timer without a lease' FROM tourbillon.timer t
               WHERE t.phase IN ('c', 'r') AND NOT EXISTS (SELECT 1 FROM tourbillon.lease l WHERE l.id = t.id)
               UNION ALL
               SELECT 'timer', t.id, 'the shard is not that of the id' FROM tourbillon.timer t
               WHERE t.shard <> tourbillon.shard_of(t.id)
               LIMIT 1000";
    for row in session.read(sql, &[]).await.map_err(failed)? {
        let table = if row.get::<_, &str>(0) == "lease" { "lease" } else { "timer" };
        faults.push(Fault::new(table, Some(row.get::<_, Id>(1).0), row.get::<_, &str>(2)));
    }
    let sql = "SELECT c.namespace, c.phase, sum(c.number)::bigint FROM (
                   SELECT a.namespace, a.phase::text AS phase, a.number FROM tourbillon.tally a
                   UNION ALL
                   SELECT t.namespace, CASE WHEN t.phase IN ('c', 'r') THEN 'p' ELSE t.phase::text END, -1
                   FROM tourbillon.timer t
               ) c GROUP BY 1, 2 HAVING sum(c.number) <> 0";
    for row in session.read(sql, &[]).await.map_err(failed)? {
        let phase = match row.get::<_, &str>(1) {
            "p" => Phase::Pending,
            "k" => Phase::Parked,
            _ => Phase::Dead,
        };
        let fault = format!(
            "the number of timers of {:?} in the phase {phase} is wrong by {}",
            row.get::<_, &str>(0),
            row.get::<_, i64>(2)
        );
        faults.push(Fault::new("tally", None, fault));
    }
    faults.truncate(MOST_FAULTS);
    Ok(faults)
}
