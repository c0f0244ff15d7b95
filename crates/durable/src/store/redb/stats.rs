//! Counters of the work that a store has done.

use crate::store::Scrub;
use core::time::Duration;

/// Counts the work of a [`RedbStore`](super::RedbStore) from its opening on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// The number of batches that changed the store. A batch is one transaction of redb.
    pub batches: u64,
    /// The number of operations in all requests, including operations that changed nothing.
    pub operations: u64,
    /// The greatest number of operations in one batch.
    pub largest_batch: u64,
    /// The number of times that the store waited until the disk had the journal or the database.
    pub syncs: u64,
    /// The total time of the store's waits for the disk.
    pub sync_time: Duration,
    /// The longest of the store's waits for the disk.
    pub longest_sync: Duration,
    /// The number of checkpoints. A checkpoint commits the database to the disk.
    pub checkpoints: u64,
    /// The number of times that the store opened its database again after an error.
    pub reopened: u64,
    /// The number of failures of batches, syncs, checkpoints and compactions.
    pub failed: u64,
    /// The work of the scrub, the background search for damage.
    pub scrub: Scrub,
}
