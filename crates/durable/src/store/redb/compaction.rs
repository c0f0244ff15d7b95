//! Compacts the database.

use super::common::{Common, being_opened};
use super::error::converted;
use super::request::{Reply, Request};
use crate::store::error::{StoreError, StoreErrorKind};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Instant;

/// The longest time for which a compaction waits for readers of the database to end.
const COMPACTION_WAITS: Duration = Duration::from_secs(2);

/// Takes the compactions out of `requests`. Returns the other requests, and the replies of the compactions. The caller
/// runs the compactions after the transaction of the other requests.
pub(super) fn apart(requests: VecDeque<Request>) -> (VecDeque<Request>, Vec<Reply<bool>>) {
    if !requests.iter().any(|request| matches!(request, Request::Compact(_))) {
        return (requests, Vec::new());
    }
    let (mut others, mut compactions) = (VecDeque::with_capacity(requests.len()), Vec::new());
    for request in requests {
        match request {
            Request::Compact(reply) => compactions.push(reply),
            other => others.push_back(other),
        }
    }
    (others, compactions)
}

/// Compacts the database once no reader uses it. Fails if a reader uses it for longer than [`COMPACTION_WAITS`].
pub(super) fn compact(common: &Common) -> Result<(), StoreError> {
    // The snapshot is a read transaction, and redb compacts nothing while a read transaction is open.
    common.withdraw();
    let compacted = compact_alone(common);
    common.publish();
    compacted
}

fn compact_alone(common: &Common) -> Result<(), StoreError> {
    let until = Instant::now() + COMPACTION_WAITS;
    loop {
        let mut database = common.database.write().unwrap_or_else(PoisonError::into_inner);
        let result = database.as_mut().ok_or_else(being_opened)?.compact();
        // The lock is released before the pause, so that readers do not wait for the pause.
        drop(database);
        match result {
            Ok(_) => return Ok(()),
            Err(redb::CompactionError::TransactionInProgress) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(redb::CompactionError::TransactionInProgress) => {
                return Err(StoreError::new(StoreErrorKind::Locked, "a reader has not ended"));
            }
            Err(error) => return Err(converted(error)),
        }
    }
}
