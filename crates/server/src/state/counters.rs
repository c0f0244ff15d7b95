//! Counts of the service since its start.

use core::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // Ordering: Relaxed. No other data is read through a count.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a service.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Timers that were made.
    pub(crate) created: Counter,
    /// Of these, timers that took the place of others.
    pub(crate) replaced: Counter,
    /// Timers that were cancelled.
    pub(crate) cancelled: Counter,
    /// Decisions of schedules, which the runtime counts as deliveries.
    pub(crate) decisions: Counter,
    /// Requests that were answered, by the first digit of the status.
    pub(crate) answers: [Counter; 5],
    /// Errors of the history's file.
    pub(crate) history_errors: Counter,
    /// Requests whose handler panicked.
    pub(crate) panics: Counter,
}

impl Counters {
    /// Counts an answer with this status.
    pub(crate) fn answered(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, self.answers.len());
        self.answers[class - 1].add(1);
    }
}
