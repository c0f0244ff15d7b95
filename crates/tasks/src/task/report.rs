//! Counts of a task's runs.

/// The numbers of a repeating task's runs, panics and missed instants so far. An instant is the planned moment of a
/// run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The number of runs that began.
    pub runs: u64,
    /// The number of runs that panicked.
    pub panics: u64,
    /// The number of missed instants. An instant is missed if it comes while an earlier instant still waits for its run
    /// to begin. [`Missed`](tourbillon::Missed) decides whether missed instants get runs.
    pub missed: u64,
    /// The number of instants that came while a run was under way. [`Overlap`](super::Overlap) decides whether these
    /// instants get runs.
    pub overlapped: u64,
    /// The number of instants that are counted in `missed` or `overlapped` and got no run. For a task with a calendar,
    /// at most 100,000 missed instants are counted for each run.
    pub skipped: u64,
}
