//! StoreTimes in buckets whose ends are at most a quarter above their beginnings, for percentiles.

/// The number of buckets: the last bucket takes all times from about an hour on.
const BUCKETS: usize = 84;

/// A number of times.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    counts: [u32; BUCKETS],
    max: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], max: 0 }
    }
}

/// The bucket of a time: the four times below 4 ms have one each, and each doubling after them has four.
fn bucket(millis: u64) -> usize {
    if millis < 4 {
        return usize::try_from(millis).unwrap_or(0);
    }
    let doublings = millis.ilog2() - 1;
    let quarter = (millis >> (doublings - 1)) & 3;
    let index = u64::from(doublings) * 4 + quarter;
    usize::try_from(index).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The greatest time of a bucket.
fn end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 4 { bucket } else { ((bucket % 4 + 5) << (bucket / 4 - 1)) - 1 }
}

impl Spread {
    pub(super) fn note(&mut self, millis: u64) {
        let count = &mut self.counts[bucket(millis)];
        *count = count.saturating_add(1);
        self.max = self.max.max(millis);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self.max = self.max.max(other.max);
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().copied().map(u64::from).sum()
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// A percentile of the times, at most a quarter above the true value.
    pub(super) fn percentile(&self, percent: u64) -> Option<u64> {
        let count = self.count();
        let wanted = (count * percent).div_ceil(100);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            count > &0 && seen >= wanted
        })?;
        Some(if at == BUCKETS - 1 { self.max } else { end(at).min(self.max) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_at_most_a_quarter_above_its_times() {
        let mut before = 0;
        for millis in (0..5_000).chain((5_000..3_600_000).step_by(97)) {
            let at = bucket(millis);
            assert!(at >= before && at < BUCKETS, "{millis}");
            before = at;
            assert!(
                end(at) >= millis && end(at) * 4 <= millis * 5,
                "{millis} is in the bucket up to {}",
                end(at)
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_a_sorted_list() {
        let mut spread = Spread::default();
        assert_eq!(spread.percentile(99), None);
        let times: Vec<u64> = (0..1_000).map(|n| (n * 7_919) % 10_000).collect();
        times.iter().for_each(|time| spread.note(*time));
        let mut sorted = times;
        sorted.sort_unstable();
        for percent in [1, 50, 90, 99, 100] {
            let exact = sorted[(sorted.len() * percent).div_ceil(100) - 1];
            let shown = spread.percentile(percent as u64).unwrap();
            assert!(shown >= exact && shown * 4 <= exact * 5, "{percent}: {shown} for {exact}");
        }
        assert_eq!((spread.count(), spread.max()), (1_000, sorted[999]));
        let mut twice = spread.clone();
        twice.add(&spread);
        assert_eq!((twice.count(), twice.percentile(50)), (2_000, spread.percentile(50)));
    }

    #[test]
    fn a_time_beyond_the_last_bucket_is_shown_as_it_is() {
        let mut spread = Spread::default();
        spread.note(86_400_000);
        assert_eq!(spread.percentile(50), Some(86_400_000));
    }
}
