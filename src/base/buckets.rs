//! A histogram of times. Many threads count times in it, and any thread reads it.
//!
//! A time below 2^6 ns has a bucket of its own. Above that each power of two is divided into 32 buckets of equal width,
//! so a bucket is never wider than 1/32 of its least time. The histogram does not distinguish the times within a
//! bucket.

use crate::base::sync::{AtomicU64, Ordering};
use core::time::Duration;

/// The base-2 logarithm of the number of buckets for one power of two. The relative width of a bucket is 2^-5, about 3
/// %.
const GROUPING: u32 = 5;
/// The base-2 logarithm of the longest time, in nanoseconds, that the buckets distinguish. A longer time is counted as
/// 2^42 - 1 ns, 73 minutes.
const BITS: u32 = 42;
const COUNT: usize = ((BITS - GROUPING + 1) << GROUPING) as usize;

/// Returns the number of the bucket to which a time of `nanos` nanoseconds belongs.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below COUNT")]
fn index(nanos: u64) -> usize {
    let nanos = nanos.min((1 << BITS) - 1);
    let exponent = nanos.checked_ilog2().unwrap_or(0).max(GROUPING);
    let group = exponent - GROUPING;
    (u64::from(group << GROUPING) + (nanos >> group)) as usize
}

/// Returns the least and the greatest time of a bucket, in nanoseconds.
fn bounds(index: usize) -> (u64, u64) {
    let index = index as u64;
    let group = (index >> GROUPING).saturating_sub(1);
    let least = (index - (group << GROUPING)) << group;
    (least, least + (1 << group) - 1)
}

/// A histogram of times. Several threads may count in it at once.
#[derive(Debug)]
pub(crate) struct AtomicBuckets(Box<[AtomicU64]>);

impl AtomicBuckets {
    // Ordering in this type: Relaxed. Counts order nothing.
    pub(crate) fn new() -> Self {
        Self((0..COUNT).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, run: &Run) {
        if let Some(bucket) = self.0.get(run.bucket) {
            bucket.fetch_add(run.count, Ordering::Relaxed);
        }
    }

    /// Returns a copy of the counts. A time that is counted during the call may or may not be included.
    pub(crate) fn load(&self) -> Buckets {
        Buckets(self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect())
    }
}

/// Successive times that a thread has noted but not yet counted. All belong to one bucket. A thread that fires timers
/// notes many times of one bucket in a row. If each time were counted at once, several such threads would pass the
/// bucket's cache line to and fro.
#[derive(Debug, Default)]
pub(crate) struct Run {
    bucket: usize,
    count: u64,
}

impl Run {
    /// Notes a time that will be counted in `buckets`. If the time belongs to another bucket than the noted times,
    /// first counts the noted times.
    #[inline]
    pub(crate) fn note(&mut self, nanos: u64, buckets: &AtomicBuckets) {
        let bucket = index(nanos);
        if bucket != self.bucket {
            self.finish(buckets);
            self.bucket = bucket;
        }
        self.count += 1;
    }

    /// Adds the times that this value has collected to the shared histogram `buckets`.
    pub(crate) fn finish(&mut self, buckets: &AtomicBuckets) {
        if self.count > 0 {
            buckets.add(self);
            self.count = 0;
        }
    }
}

/// A copy of the counts of a histogram of times.
#[derive(Clone, Debug)]
pub(crate) struct Buckets(Box<[u64]>);

/// A range of times in nanoseconds, and the number of times that were counted in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) least: u64,
    pub(crate) greatest: u64,
    pub(crate) count: u64,
}

impl Buckets {
    pub(crate) fn empty() -> Self {
        Self(vec![0; COUNT].into_boxed_slice())
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the buckets in which a time was counted, the shortest times first.
    pub(crate) fn occupied(&self) -> impl DoubleEndedIterator<Item = Bucket> + '_ {
        let bucket = |(index, &count): (usize, &u64)| {
            let (least, greatest) = bounds(index);
            Bucket { least, greatest, count }
        };
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(bucket)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Returns a quantile of the counted times: the time that `thousandths` of 1,000 counted times do not exceed.
    /// Rounds the result up to the greatest time of its bucket. Returns zero if no time was counted.
    pub(crate) fn quantile(&self, thousandths: u32) -> Duration {
        let rank = (u128::from(self.count()) * u128::from(thousandths)).div_ceil(1_000);
        let mut seen = 0;
        let bucket = self.occupied().find(|bucket| {
            seen += u128::from(bucket.count);
            seen >= rank
        });
        bucket.map_or(Duration::ZERO, |bucket| Duration::from_nanos(bucket.greatest))
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_as_narrow_as_they_say() {
        let mut next = 0;
        for at in 0..COUNT {
            let (least, greatest) = bounds(at);
            assert_eq!((least, index(least), index(greatest)), (next, at, at));
            assert!(greatest - least <= least / 32, "{least} to {greatest}");
            next = greatest + 1;
        }
        assert_eq!(next, 1 << BITS);
        assert_eq!(index(u64::MAX), COUNT - 1);
    }

    #[test]
    fn a_quantile_is_that_of_the_sorted_times_rounded_up_to_its_bucket() {
        // All magnitudes are equally likely.
        let mut seed = 17_u64;
        let mut times: Vec<u64> = (0..10_007)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 22) >> (seed >> 7 & 31)
            })
            .collect();
        let (ours, others) = (AtomicBuckets::new(), AtomicBuckets::new());
        let mut runs = [Run::default(), Run::default()];
        for (at, &time) in times.iter().enumerate() {
            if at % 3 == 0 { runs[0].note(time, &ours) } else { runs[1].note(time, &others) }
        }
        runs[0].finish(&ours);
        runs[1].finish(&others);
        let mut buckets = Buckets::empty();
        assert_eq!((buckets.count(), buckets.quantile(500)), (0, Duration::ZERO));
        buckets.add(&ours.load());
        buckets.add(&others.load());
        times.sort_unstable();
        for thousandths in [1, 250, 500, 990, 999, 1_000] {
            let exact = times[(times.len() * thousandths as usize).div_ceil(1_000) - 1];
            assert_eq!(buckets.quantile(thousandths), Duration::from_nanos(bounds(index(exact)).1));
        }
        assert_eq!(buckets.count(), times.len() as u64);
        assert_eq!(buckets.occupied().map(|bucket| bucket.count).sum::<u64>(), buckets.count());
    }
}
