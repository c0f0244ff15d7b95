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
        let mut session = self.deployment.pool.session().await?;
        let is_set = "SELECT current_setting('synchronous_standby_names') <> ''";
        let rows = session.read(is_set, &[]).await?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            return Ok(true);
        }
        // A transaction that writes nothing would not wait for a standby.
        match session.within(LONGEST).run("SELECT pg_logical_emit_message(true, 'tourbillon', '')").await {
            Ok(()) => Ok(true),
            Err(Failure::Unknown(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}
