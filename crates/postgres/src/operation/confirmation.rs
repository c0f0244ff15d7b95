//! Finds out whether the server confirms commits at present.
//!
//! With synchronous replication, a commit waits for a standby. While no standby answers, the commit is made all the
//! same, and only its answer waits. So the removal of a timer that is delivered at most once would lose the timer:
//! nobody may deliver it before the answer. So before such a removal, a commit that changes nothing is made.

use super::transaction::Transactions;
use crate::link::Failure;
use core::time::Duration;
use std::time::Instant;
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tourbillon_durable::store::StoreError;

/// The time within which the server must confirm a commit that changes nothing. Otherwise removals are refused.
const LONGEST: Duration = Duration::from_secs(1);

impl Transactions {
    /// Returns whether the server confirms commits at present: without synchronous replication always, and else if a
    /// commit that changes nothing is confirmed in time. Asks again if a connection is lost, as for a transaction.
    pub(super) async fn are_confirmed(&self) -> Result<bool, StoreError> {
        let begin = Instant::now();
        loop {
            match self.ask_for_confirmation().await {
                Err(Failure::Lost(_)) if begin.elapsed() < self.deployment.pool.patience() => {
                    sleep(Duration::from_millis(20)).await;
                }
                answer => return answer.map_err(Failure::into_error),
            }
        }
    }

    async fn ask_for_confirmation(&self) -> Result<bool, Failure> {
        let pool = &self.deployment.pool;
        let mut session = pool.session().await?;
        let settings = "SELECT pg_backend_pid(), current_setting('synchronous_standby_names') <> ''";
        let rows = session.read(settings, &[]).await?;
        let Some(process) = rows.first().filter(|row| row.get(1)).map(|row| row.get::<_, i32>(0)) else {
            return Ok(true);
        };
        let mut session = session.within(LONGEST);
        // A transaction that writes nothing would not wait for a standby.
        match session.run("SELECT pg_logical_emit_message(true, 'tourbillon', '')").await {
            Ok(()) => Ok(true),
            Err(Failure::Unknown(_)) => {
                // The server's process would wait until a standby is back, and keep its place among the connections.
                drop(session);
                // After a failover, another process may have the number.
                let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                              WHERE pid = $1 AND wait_event = 'SyncRep'";
                pool.session().await?.read(cancel, &[(&process, Type::INT4)]).await?;
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }
}
