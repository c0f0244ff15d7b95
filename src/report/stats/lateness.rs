//! The lateness of handlers, as percentiles and buckets of a histogram.

use crate::base::buckets::{Bucket, Buckets};
use core::time::Duration;

const BOUNDS: usize = 18;

/// A distribution of latenesses: the times between deadlines and the starts of handlers. Percentiles are exact to 3 %,
/// rounded up. Latenesses of more than 73 minutes count as 73 minutes.
///
/// Up to eight quick handlers share a reading of the system's clock, so a lateness may be 20 µs too short. If these
/// handlers together take longer than 20 µs, the latenesses of all but the first may be too long, by at most the time
/// that the handlers take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lateness {
    /// Half of the handlers began at most this long after their deadlines.
    pub p50: Duration,
    /// 99 of 100 handlers began at most this long after their deadlines.
    pub p99: Duration,
    /// 999 of 1,000 handlers began at most this long after their deadlines.
    pub p999: Duration,
    /// All handlers began at most this long after their deadlines.
    pub max: Duration,
    /// The number of handlers whose latenesses were counted.
    pub count: u64,
    /// The sum of the handlers' latenesses, exact to 2 %.
    pub sum: Duration,
    within: [u64; BOUNDS],
}

impl Lateness {
    /// The upper bounds of [`buckets`](Self::buckets), from 10 µs to a minute.
    pub const BOUNDS: [Duration; BOUNDS] = [
        Duration::from_micros(10),
        Duration::from_micros(50),
        Duration::from_micros(100),
        Duration::from_micros(250),
        Duration::from_micros(500),
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
        Duration::from_secs(10),
        Duration::from_secs(60),
    ];

    /// Returns each bound with the number of handlers that began within it. The numbers are cumulative, as in the
    /// buckets of a Prometheus histogram. If a handler was later than a bound by up to 3 % of the bound, it may still
    /// count for the bound.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let mut engine = Builder::new().driven(|_| {})?;
    /// let begin = engine.handle().now();
    /// for micros in [300, 400, 1_000] {
    ///     engine.handle().schedule_at(begin + Duration::from_micros(micros), ())?;
    /// }
    /// engine.advance(Duration::from_secs(1));
    /// // The tick ends at one millisecond: they are late by 700, 600 and 0 µs.
    /// let lateness = engine.handle().stats().total.lateness;
    /// let within = |bound| lateness.buckets().find(|(b, _)| *b == bound).map(|(_, count)| count);
    /// assert_eq!(within(Duration::from_micros(10)), Some(1));
    /// assert_eq!(within(Duration::from_millis(1)), Some(3));
    /// assert_eq!(lateness.count, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + use<> {
        Self::BOUNDS.into_iter().zip(self.within)
    }

    pub(super) fn of(buckets: &Buckets) -> Self {
        let mut lateness = Self {
            p50: buckets.quantile(500),
            p99: buckets.quantile(990),
            p999: buckets.quantile(999),
            max: buckets.quantile(1_000),
            ..Self::default()
        };
        buckets.occupied().for_each(|bucket| lateness.add(bucket));
        lateness
    }

    fn add(&mut self, Bucket { least, greatest, count }: Bucket) {
        self.count += count;
        let middle = least + (greatest - least) / 2;
        self.sum = self.sum.saturating_add(Duration::from_nanos(middle.saturating_mul(count)));
        for (bound, within) in Self::BOUNDS.iter().zip(&mut self.within) {
            if Duration::from_nanos(least) <= *bound {
                *within += count;
            }
        }
    }
}
