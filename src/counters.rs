//! What a shard counts. Counters are read without stopping anything, so a snapshot is not of one instant.

use crate::sync::{AtomicU64, Ordering};
use core::time::Duration;
use crossbeam_utils::CachePadded;
use histogram::{AtomicHistogram, Histogram};

/// A counter that any thread adds to.
#[derive(Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    // Ordering in this type: Relaxed. Counters order nothing.
    #[inline]
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Relative width of a lateness bucket: 2^-5, about 3 %.
const LATENESS_GROUPING: u8 = 5;
/// Longer latenesses count as this long: 2^42 ns, 73 minutes.
const LATENESS_BITS: u8 = 42;

/// The counters of one shard: what its thread writes, and what the workers write, on lines of their own.
#[derive(Debug)]
pub(crate) struct ShardCounters {
    pub(crate) turns: Counter,
    pub(crate) wakes: Counter,
    pub(crate) stale: Counter,
    pub(crate) handed_over: Counter,
    pub(crate) tickets: Counter,
    pub(crate) pin_refused: Counter,
    /// Due tickets of owned timers that were posted again, for a deadline put off meanwhile.
    pub(crate) put_off: Counter,
    pub(crate) fired: CachePadded<Counter>,
    pub(crate) begun: CachePadded<Counter>,
    /// Runs of owned timers' handlers.
    pub(crate) owned_fired: Counter,
    pub(crate) stale_at_worker: Counter,
    pub(crate) panics: Counter,
    pub(crate) busy_nanos: Counter,
    lateness: AtomicHistogram,
}

impl ShardCounters {
    pub(crate) fn new() -> Self {
        Self {
            turns: Counter::new(),
            wakes: Counter::new(),
            stale: Counter::new(),
            handed_over: Counter::new(),
            tickets: Counter::new(),
            pin_refused: Counter::new(),
            put_off: Counter::new(),
            fired: CachePadded::new(Counter::new()),
            begun: CachePadded::new(Counter::new()),
            owned_fired: Counter::new(),
            stale_at_worker: Counter::new(),
            panics: Counter::new(),
            busy_nanos: Counter::new(),
            lateness: AtomicHistogram::new(LATENESS_GROUPING, LATENESS_BITS).expect("valid by its constants"),
        }
    }

    #[inline]
    pub(crate) fn record_lateness(&self, lateness: Duration) {
        let nanos = u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX).min((1 << LATENESS_BITS) - 1);
        // In range by the line above.
        let _ = self.lateness.increment(nanos);
    }

    pub(crate) fn add_busy(&self, time: Duration) {
        self.busy_nanos.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn lateness(&self) -> Histogram {
        self.lateness.load()
    }
}
