//! Places in a [`RedbStore`](super::RedbStore) at which a test can stop the process.
//!
//! Without the feature `failpoints` they are empty functions.

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// A new store: it is noted that the database is being made, and the database is empty.
    MakingNoted,
    /// A new store: the database is whole, and the note is still there.
    DatabaseMade,
    /// An opening: the records of the journal were read, and none was repeated.
    BeforeReplay,
    /// An opening: the operations of a record were repeated.
    InReplay,
    /// An opening: all operations were repeated, in memory.
    AfterReplay,
    /// An opening: leases were ended, durably.
    LeasesEnded,
    /// A batch with ends of deliveries has come from the handlers.
    EndsReceived,
    /// A batch with ends of deliveries is in the database's memory.
    EndsCommitted,
    /// A batch with a claim is in the database's memory.
    ClaimCommitted,
    /// Records are about to be written.
    BeforeJournalWrite,
    /// Records were written.
    AfterJournalWrite,
    /// Records were synced, and have no seal.
    AfterJournalSync,
    /// The answers are about to be sent.
    BeforeAnswers,
    /// A checkpoint is about to commit the database.
    BeforeCheckpoint,
    /// A part of the database was written.
    InDatabaseWrite,
    /// The database was synced, once of several times in a commit.
    AfterDatabaseSync,
    /// A checkpoint has committed the database, and the journal is as it was.
    BeforeJournalReset,
    /// A checkpoint has ended.
    AfterCheckpoint,
    /// The database was compacted, and no checkpoint followed yet.
    AfterCompaction,
}

#[cfg(feature = "failpoints")]
impl Point {
    /// All points.
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

/// Has a function called whenever a store of this process reaches a point. The function is called on the thread that
/// reaches it. Only the first function of a process counts.
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
