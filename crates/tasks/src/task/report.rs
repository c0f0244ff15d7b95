//! The report of a task on its runs.

/// The counts of a repeating task so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Runs begun.
    pub runs: u64,
    /// Runs that panicked.
    pub panics: u64,
    /// Instants that came, beside a run's own, before that run began. [`Missed`](tourbillon::Missed) decides whether
    /// they run.
    pub missed: u64,
    /// Instants that came while a run lasted. [`Overlap`](super::Overlap) decides whether they run.
    pub overlapped: u64,
    /// Missed and overlapped instants that have no run. For a calendar, at most 100,000 are counted at a time.
    pub skipped: u64,
}
