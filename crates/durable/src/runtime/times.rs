//! Counts durations in buckets of fixed bounds.

use core::fmt::{self, Write as _};
use core::time::Duration;

const BOUNDS: usize = 20;

/// A distribution of durations: their number, their sum, their maximum, and a count for each bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// The number of durations in the distribution.
    pub count: u64,
    /// The sum of all durations in the distribution.
    pub sum: Duration,
    /// The longest duration in the distribution. Zero if the distribution is empty.
    pub max: Duration,
    /// The number of durations in each bucket. A bucket counts the durations that are above the bound of the previous
    /// bucket, up to its own bound.
    within: [u64; BOUNDS],
}

impl Times {
    /// The upper bounds of the [`buckets`](Self::buckets), from 1 ms to a day. No bound is below 1 ms, because the
    /// store counts in milliseconds.
    pub const BOUNDS: [Duration; BOUNDS] = [
        Duration::from_millis(1),
        Duration::from_micros(2_500),
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(250),
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_millis(2_500),
        Duration::from_secs(5),
        Duration::from_secs(10),
        Duration::from_secs(30),
        Duration::from_secs(60),
        Duration::from_secs(300),
        Duration::from_secs(1_800),
        Duration::from_secs(3_600),
        Duration::from_secs(6 * 3_600),
        Duration::from_secs(86_400),
    ];

    /// Returns each bound with the number of durations up to this bound. The counts are cumulative, as in the buckets
    /// of a Prometheus histogram.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::Times;
    ///
    /// let within_a_second = |times: &Times| times.buckets().find(|(bound, _)| *bound == Duration::from_secs(1));
    /// assert_eq!(within_a_second(&Times::default()), Some((Duration::from_secs(1), 0)));
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + use<> {
        let within = self.within.into_iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        Self::BOUNDS.into_iter().zip(within)
    }

    /// Adds a duration to the distribution.
    pub fn record(&mut self, time: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
        self.max = self.max.max(time);
        let at = Self::BOUNDS.partition_point(|bound| *bound < time);
        // A duration above the last bound has no bucket. It appears only in `count`, the bucket `+Inf` of Prometheus.
        if let Some(count) = self.within.get_mut(at) {
            *count += 1;
        }
    }

    /// Writes the samples of a Prometheus histogram that has the name `name`.
    pub(super) fn write_samples(&self, page: &mut String, name: &str) -> fmt::Result {
        for (bound, count) in self.buckets() {
            writeln!(page, "{name}_bucket{{le=\"{}\"}} {count}", bound.as_secs_f64())?;
        }
        writeln!(page, "{name}_bucket{{le=\"+Inf\"}} {}", self.count)?;
        writeln!(page, "{name}_sum {}", self.sum.as_secs_f64())?;
        writeln!(page, "{name}_count {}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_from_the_first_bound_on_that_it_does_not_exceed() {
        let nano = Duration::from_nanos(1);
        for (at, bound) in Times::BOUNDS.into_iter().enumerate() {
            for (time, first) in [(bound - nano, at), (bound, at), (bound + nano, at + 1)] {
                let mut times = Times::default();
                times.record(time);
                let counts: Vec<u64> = times.buckets().map(|(_, count)| count).collect();
                let wanted: Vec<u64> = (0..BOUNDS).map(|at| u64::from(at >= first)).collect();
                assert_eq!(counts, wanted, "{time:?}");
                assert_eq!((times.count, times.sum, times.max), (1, time, time));
            }
        }
        assert!(Times::BOUNDS.is_sorted());
    }
}
