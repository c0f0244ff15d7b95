//! Counts spans by their outcome: exported, failed or dropped.

use crate::state::Counter;

/// The numbers of spans since the start of the process, by the outcome of their export.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The number of spans that the collector took.
    pub(super) exported: Counter,
    /// The number of spans whose export failed, because the collector gave no answer or refused them.
    pub(super) failed: Counter,
    /// The number of spans that were not sent, because too many spans waited or the service had ended.
    pub(super) dropped: Counter,
}

impl Counts {
    /// Returns the numbers of spans, each with its name in the metrics.
    pub(crate) fn all(&self) -> [(&'static str, u64); 3] {
        [("exported", self.exported.get()), ("failed", self.failed.get()), ("dropped", self.dropped.get())]
    }
}
