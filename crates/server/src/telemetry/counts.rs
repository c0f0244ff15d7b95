//! Counts spans by their outcome: exported, failed or dropped.

use crate::state::Counter;

/// Counts the spans since the start of the service, by their outcome.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Spans that the collector took.
    pub(super) exported: Counter,
    /// Spans that were sent without success: the collector did not answer, or refused them.
    pub(super) failed: Counter,
    /// Spans that were not sent: too many spans waited, or the service had ended.
    pub(super) dropped: Counter,
}

impl Counts {
    /// Returns each count, with its name in the metrics.
    pub(crate) fn all(&self) -> [(&'static str, u64); 3] {
        [("exported", self.exported.get()), ("failed", self.failed.get()), ("dropped", self.dropped.get())]
    }
}
