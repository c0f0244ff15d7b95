//! Counts events of the service since its start.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter that only grows, and that threads share.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // Ordering: Relaxed. No other data depends on the count.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a service since its start, which the metrics show.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Timers that were created.
    pub(crate) created: Counter,
    /// Created timers that replaced an earlier timer with the same key.
    pub(crate) replaced: Counter,
    /// Timers that were cancelled.
    pub(crate) cancelled: Counter,
    /// The number of times that the inner timer of a schedule has fired. The store's runtime counts these as
    /// deliveries.
    pub(crate) decisions: Counter,
    /// Answered requests, by the first digit of the answer's status.
    pub(crate) answers: [Counter; 5],
    /// Failed reads or writes of the file that keeps the history.
    pub(crate) history_errors: Counter,
    /// Requests whose handler panicked.
    pub(crate) panics: Counter,
}

impl Counters {
    /// Counts a request that was answered with this status.
    pub(crate) fn answered(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, self.answers.len());
        self.answers[class - 1].add(1);
    }
}
