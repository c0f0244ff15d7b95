//! Lets a test stop the process at certain places in a [`RedbStore`](super::RedbStore).
//!
//! Without the feature `failpoints` the calls at these places do nothing.

/// A place in the store's code at which a test can act. Each variant says what has happened just before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// A new store: a file notes that the database is being made, and the database is empty.
    MakingNoted,
    /// A new store: the database is complete, and the note that it is being made is still there.
    DatabaseMade,
    /// An opening: the records of the journal were read, and none of their operations was applied again.
    BeforeReplay,
    /// An opening: the operations of one journal record were applied again.
    InReplay,
    /// An opening: the operations of all journal records were applied again, in memory.
    AfterReplay,
    /// An opening: the leases of earlier processes were ended, durably.
    LeasesEnded,
    /// A batch with ends of deliveries has come from the handlers.
    EndsReceived,
    /// A batch with ends of deliveries is in the database's memory.
    EndsCommitted,
    /// A batch with a claim is in the database's memory.
    ClaimCommitted,
    /// Records are about to be written to the journal.
    BeforeJournalWrite,
    /// Records were written to the journal, and are not synced.
    AfterJournalWrite,
    /// Records were synced. The seal, a mark behind them that says so, is not written yet.
    AfterJournalSync,
    /// The answers to a batch's callers are about to be sent.
    BeforeAnswers,
    /// A checkpoint is about to commit the database.
    BeforeCheckpoint,
    /// A part of the database file was written.
    InDatabaseWrite,
    /// The database file was synced. One commit syncs it several times.
    AfterDatabaseSync,
    /// A checkpoint has committed the database, and the journal still has its records.
    BeforeJournalReset,
    /// A checkpoint has ended.
    AfterCheckpoint,
    /// The database was compacted, and no checkpoint followed yet.
    AfterCompaction,
}

#[cfg(feature = "failpoints")]
impl Point {
    /// All points, in the order of their declaration.
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

/// Sets the function that is called whenever a store of this process reaches a point. The function runs on the thread
/// that reaches the point. Only the first function that a process sets counts.
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
