//! Finds out whether the server confirms commits at present.
//!
//! With synchronous replication, a commit waits for a standby. While no standby answers, the commit is made all the
//! same, and only its answer waits. So the removal of a timer that is delivered at most once would lose the timer:
//! nobody may deliver it before the answer. So before such a removal, a commit that changes nothing is made.

use super::transaction::Transactions;
use crate::link::Failure;
use core::time::Duration;
use tokio_postgres::types::Type;
use tourbillon_durable::store::StoreError;

/// The time within which the server must confirm a commit that changes nothing. Otherwise removals are refused.
const LONGEST: Duration = Duration::from_secs(1);

impl Transactions {
    /// Returns whether the server confirms commits at present: without synchronous replication always, and else if a
    /// commit that changes nothing is confirmed in time.
    pub(super) async fn are_confirmed(&self) -> Result<bool, StoreError> {
        let pool = &self.deployment.pool;
        let mut session = pool.session().await.map_err(Failure::into_error)?;
        let settings = "SELECT pg_backend_pid(), current_setting('synchronous_standby_names') <> ''";
        let rows = session.read(settings, &[]).await.map_err(Failure::into_error)?;
        let Some(process) = rows.first().filter(|row| row.get(1)).map(|row| row.get::<_, i32>(0)) else {
            return Ok(true);
        };
        let mut session = session.within(LONGEST);
        // A transaction that writes nothing would not wait for a standby.
        let answer = session.run("SELECT pg_logical_emit_message(true, 'tourbillon', '')").await;
        match answer {
            Ok(()) => Ok(true),
            Err(Failure::Unknown(_)) => {
                // The server's process would wait until a standby is back, and keep its place among the connections.
                drop(session);
                let mut other = pool.session().await.map_err(Failure::into_error)?;
                // After a failover, another process may have the number.
                let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                              WHERE pid = $1 AND wait_event = 'SyncRep'";
                let cancel = other.read(cancel, &[(&process, Type::INT4)]).await;
                cancel.map(|_| false).map_err(Failure::into_error)
            }
            Err(failure) => Err(failure.into_error()),
        }
    }
}
