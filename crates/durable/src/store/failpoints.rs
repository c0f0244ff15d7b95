//! Lets a test act at certain places in the code of a [`RedbStore`](super::RedbStore), for example to stop the process.
//!
//! Without the feature `failpoints` the calls at these places do nothing.

/// A place in the store's code at which a test can act. Each variant describes the events just before its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// The database file of a new store is still empty. The journal's file has a note that the database is being
    /// created.
    MakingNoted,
    /// The database of a new store is complete. The journal's file still has the note that the database is being
    /// created.
    DatabaseMade,
    /// An opening of the store has read the records of the journal, and is about to replay them.
    BeforeReplay,
    /// An opening of the store has replayed a record of the journal.
    InReplay,
    /// An opening of the store has replayed all records of the journal, in memory only.
    AfterReplay,
    /// An opening of the store has ended leases of earlier processes, and this change is on the disk.
    LeasesEnded,
    /// The store has received a batch of requests. At least one request reports that a delivery succeeded or failed.
    EndsReceived,
    /// The database has committed a batch in which a request reports that a delivery succeeded or failed. Usually the
    /// commit is only in memory, and the journal's file does not have the batch yet.
    EndsCommitted,
    /// The database has committed a batch in which a request claims timers. Usually the commit is only in memory, and
    /// the journal's file does not have the batch yet.
    ClaimCommitted,
    /// The store is about to write records to the journal.
    BeforeJournalWrite,
    /// The store has written records to the journal, but has not synced them yet.
    AfterJournalWrite,
    /// The store has synced records of the journal, but has not yet written the seal, which marks them as synced.
    AfterJournalSync,
    /// The store is about to answer the callers of a batch.
    BeforeAnswers,
    /// A checkpoint is about to commit the database to the disk.
    BeforeCheckpoint,
    /// The store has written a part of the database file.
    InDatabaseWrite,
    /// The store has synced the database file. One commit syncs the file several times.
    AfterDatabaseSync,
    /// A checkpoint has committed the database to the disk. The journal still contains the records of the committed
    /// changes.
    BeforeJournalReset,
    /// A checkpoint has ended.
    AfterCheckpoint,
    /// The store has compacted the database. The checkpoint after the compaction has not begun yet.
    AfterCompaction,
}

#[cfg(feature = "failpoints")]
impl Point {
    /// All points, in the order of the variants.
    pub const ALL: [Self; 19] = [
        Self::MakingNoted,
        Self::DatabaseMade,
        Self::BeforeReplay,
        Self::InReplay,
        Self::AfterReplay,
        Self::LeasesEnded,
        Self::EndsReceived,
        Self::EndsCommitted,
        Self::ClaimCommitted,
        Self::BeforeJournalWrite,
        Self::AfterJournalWrite,
        Self::AfterJournalSync,
        Self::BeforeAnswers,
        Self::BeforeCheckpoint,
        Self::InDatabaseWrite,
        Self::AfterDatabaseSync,
        Self::BeforeJournalReset,
        Self::AfterCheckpoint,
        Self::AfterCompaction,
    ];
}

#[cfg(feature = "failpoints")]
static HOOK: std::sync::OnceLock<Box<dyn Fn(Point) + Send + Sync>> = std::sync::OnceLock::new();

/// Sets the function that every store of this process calls when it reaches a point. The function runs on the thread
/// that reaches the point. Only the first call of `on_reach` in a process has an effect.
#[cfg(feature = "failpoints")]
pub fn on_reach(hook: impl Fn(Point) + Send + Sync + 'static) {
    // A second function is dropped, as documented.
    drop(HOOK.set(Box::new(hook)));
}

#[cfg(feature = "failpoints")]
pub(crate) fn reach(point: Point) {
    if let Some(hook) = HOOK.get() {
        hook(point);
    }
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) const fn reach(_: Point) {}
