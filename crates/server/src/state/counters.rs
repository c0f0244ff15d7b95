//! Counts events of the service since its start.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// A number that several threads increase, and that never decreases.
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

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The counters of the service since its start, as the metrics show them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) created: Counter,
    /// The number of created timers that replaced a timer with the same key.
    pub(crate) replaced: Counter,
    pub(crate) cancelled: Counter,
    /// The number of successful deliveries of internal timers. Each schedule has an internal timer, which creates the
    /// schedule's other timers. The number of successful deliveries in `Timers::stats` includes these deliveries, so
    /// the metrics subtract them.
    pub(crate) decisions: Counter,
    /// The number of answered requests, by the first digit of the answer's status.
    pub(crate) answers: [Counter; 5],
    /// The number of failed reads and writes of the file `history.ring`, which keeps samples of the service's
    /// statistics for the last 72 hours.
    pub(crate) history_errors: Counter,
    /// The number of requests whose handler panicked.
    pub(crate) panics: Counter,
}

impl Counters {
    /// Counts a request that was answered with the HTTP status `status`.
    pub(crate) fn answered(&self, status: u16) {
        // The types of HTTP permit statuses up to 999, but only the classes 1 to 5 have a counter.
        let class = usize::from(status / 100).clamp(1, self.answers.len());
        self.answers[class - 1].add(1);
    }
}
