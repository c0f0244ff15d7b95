//! Counts the work that a store has done.

use crate::store::Scrub;
use core::time::Duration;

/// The counts of the work that a [`RedbStore`](super::RedbStore) has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// The number of batches that changed the store. A batch is one transaction of redb for all requests that waited at
    /// its start.
    pub batches: u64,
    /// The number of operations in all requests, including operations that changed nothing.
    pub operations: u64,
    /// The greatest number of operations in one batch.
    pub largest_batch: u64,
    /// The number of times that the store brought changes to the disk, by a sync of the journal or by a commit of the
    /// database.
    pub syncs: u64,
    /// The total time of the syncs and commits that [`syncs`](Self::syncs) counts.
    pub sync_time: Duration,
    /// The longest time of a sync or commit that [`syncs`](Self::syncs) counts.
    pub longest_sync: Duration,
    /// The number of checkpoints. A checkpoint commits the database to the disk.
    pub checkpoints: u64,
    /// The number of times that the store opened its database again after an error.
    pub reopened: u64,
    /// The number of failures of batches, syncs, checkpoints and compactions.
    pub failed: u64,
    /// The counts of the scrub (the background search for damage).
    pub scrub: Scrub,
}
