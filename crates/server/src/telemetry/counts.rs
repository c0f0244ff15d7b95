//! Counts of spans by their outcome.

use crate::state::Counter;

/// The spans of a service since its start, by their outcome.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The collector has taken the span.
    pub(super) exported: Counter,
    /// The collector could not be reached, or has refused the span.
    pub(super) failed: Counter,
    /// Too many spans waited, or the service had ended.
    pub(super) dropped: Counter,
}

impl Counts {
    /// The numbers, each with its word.
    pub(crate) fn all(&self) -> [(&'static str, u64); 3] {
        [("exported", self.exported.get()), ("failed", self.failed.get()), ("dropped", self.dropped.get())]
    }
}
