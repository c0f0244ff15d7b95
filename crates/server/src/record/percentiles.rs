//! Computes percentiles of times in milliseconds.

use hdrhistogram::Histogram;

/// The longest time in the distribution, in milliseconds. A longer time counts as a day.
const LONGEST: u64 = 86_400_000;

/// A distribution of times. Its percentiles are at most a sixteenth higher than the exact values.
#[derive(Clone, Debug)]
pub(super) struct Percentiles {
    times: Histogram<u32>,
    max: u64,
}

impl Default for Percentiles {
    fn default() -> Self {
        // A single significant digit keeps the distribution at 1.2 KiB, because each host and each second of a minute
        // has its own distributions.
        let times = Histogram::new_with_bounds(1, LONGEST, 1).expect("one digit, and bounds in order");
        Self { times, max: 0 }
    }
}

impl Percentiles {
    pub(super) fn record(&mut self, millis: u64) {
        self.times.saturating_record(millis);
        self.max = self.max.max(millis);
    }

    pub(super) fn add(&mut self, other: &Self) {
        // This fails only for times out of bounds, and both histograms have the same bounds.
        let _infallible = self.times.add(&other.times);
        self.max = self.max.max(other.max);
    }

    pub(super) fn count(&self) -> u64 {
        self.times.len()
    }

    /// Returns the longest recorded time in milliseconds, which may exceed a day.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// Returns the time in milliseconds that `percent` percent of the recorded times do not exceed. Returns `None` if
    /// no time was recorded.
    pub(super) fn percentile(&self, percent: f64) -> Option<u64> {
        let is_empty = self.times.is_empty();
        // The histogram returns the end of a bucket, which may exceed the longest recorded time.
        (!is_empty).then(|| self.times.value_at_percentile(percent).min(self.max))
    }
}
